//! Owns: the way from a pointer with references to a config without: fetch, recurse, put a `data:` URL in their place.
//! Given a document and a session, gives the document to hand over.
//! Never: changes a document without references, or leaves a credential in one that had them.

use crate::content;
use crate::document::{Document, Reference, Resource, Slot};
use crate::engage::Scope;
use crate::failure::Failure;
use crate::fetch::Seen;
use crate::nested;
use crate::outcome::Outcome;
use crate::patience::Session;
use crate::secret::Secret;
use crate::spliced::Spliced;
use crate::url::{BadUrl, Url};

/// Resolves every reference in scope, depth first, in the document's order, which is Ignition's.
pub fn resolve(
    session: &mut Session,
    scope: Scope,
    document: Document,
    bytes: Vec<u8>,
) -> Result<Spliced, Failure> {
    Walk { session, trail: Vec::new() }.descend(scope, document, bytes)
}

/// A reference that is to be fetched.
struct Wanted {
    resource: Resource,
    url: Url,
}

/// On the way down, with the way back.
struct Walk<'a> {
    session: &'a mut Session,
    trail: Vec<String>,
}

impl Walk<'_> {
    fn descend(&mut self, scope: Scope, document: Document, bytes: Vec<u8>) -> Result<Spliced, Failure> {
        let superseded = nested::superseded(&document.references);
        let mut draft = Spliced::new(bytes);
        if let Some(merge) = document.merge.filter(|_| superseded) {
            draft.empty(merge); // Ignition follows none of these; their tokens must not stay behind either
        }
        for Reference { slot, span, resource } in document.references {
            if superseded && slot != Slot::Replace {
                continue;
            }
            let content = if resource.source.expose().starts_with("data:") {
                self.embedded(scope, slot, &resource)?
            } else if let Some(wanted) = in_scope(scope, slot, resource)? {
                Some(self.fetched(slot, &wanted)?)
            } else {
                None
            };
            if let Some(content) = content {
                draft.embed(span, content).map_err(|error| {
                    Failure::new(Outcome::NotIgnition, format!("{slot}, line {} of it", error.line()))
                })?;
            }
        }
        self.no_token_stays(&draft)?;
        Ok(draft)
    }

    /// What carried the token is gone by now. A second place, or a server that repeats it, would leave it where Ignition keeps the config.
    fn no_token_stays(&self, draft: &Spliced) -> Result<(), Failure> {
        let Some(token) = self.session.token() else { return Ok(()) };
        let plain = token.expose();
        let escaped = Secret::new(plain.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D"));
        if draft.keeps(plain) || draft.keeps(escaped.expose()) {
            let place = self.trail.last().map_or("the pointer", String::as_str);
            return Err(Failure::new(Outcome::TokenRepeated, format!("the token, in {place}")));
        }
        Ok(())
    }

    /// What the document in a `data:` URL becomes; nothing if it leads nowhere.
    fn embedded(
        &mut self,
        scope: Scope,
        slot: Slot,
        resource: &Resource,
    ) -> Result<Option<Vec<u8>>, Failure> {
        let Some((document, content)) = nested::open(resource, self.session.limits()) else {
            return Ok(None);
        };
        let below = self.below(scope, slot, format!("the document in {slot}"), document, content)?;
        Ok((!below.is_verbatim()).then(|| below.into_bytes()))
    }

    /// What is behind a URL, itself resolved.
    fn fetched(&mut self, slot: Slot, Wanted { resource, url }: &Wanted) -> Result<Vec<u8>, Failure> {
        let shown = url.to_string();
        if self.trail.contains(&shown) {
            let found = format!("{} leads back to itself at {slot}", self.trail.join(" -> "));
            return Err(Failure::new(Outcome::Cycle, found));
        }
        self.room(slot, &shown)?;
        let (newest, limit) = (self.session.spec(), self.session.limits().decompressed);
        let (document, content) = self.session.get(url, &resource.headers, |body| {
            let content = content::unpack(body, resource.gzip, resource.hash.as_deref(), limit)?;
            let document = Document::parse(&content, Some(newest))
                .map_err(|error| Seen::new(error.outcome(), error.to_string()))?;
            Ok((document, content))
        })?;
        self.below(Scope::EveryHttps, slot, shown, document, content).map(Spliced::into_bytes)
    }

    /// One level down.
    fn below(
        &mut self,
        scope: Scope,
        slot: Slot,
        name: String,
        document: Document,
        content: Vec<u8>,
    ) -> Result<Spliced, Failure> {
        self.room(slot, &name)?;
        self.trail.push(name);
        let resolved = self.descend(scope, document, content);
        self.trail.pop();
        resolved
    }

    /// Whether there may be another level.
    fn room(&self, slot: Slot, name: &str) -> Result<(), Failure> {
        if self.trail.len() < self.session.limits().depth {
            return Ok(());
        }
        Err(Failure::new(Outcome::TooDeep, format!("{name} at {slot}, below {}", self.trail.join(" -> "))))
    }
}

/// Whether a reference is ours to fetch; an error where it is but cannot be.
fn in_scope(scope: Scope, slot: Slot, mut resource: Resource) -> Result<Option<Wanted>, Failure> {
    let url = match Url::parse(resource.source.expose()) {
        Ok(mut url) => {
            let named = |(name, _): &(String, _)| name.eq_ignore_ascii_case("authorization");
            if let Some(token) = url.take_token().filter(|_| !resource.headers.iter().any(named)) {
                let value = Secret::new(format!("Bearer {}", token.expose()));
                resource.headers.push(("Authorization".to_owned(), value));
            }
            url
        }
        Err(BadUrl::NotHttps) if !plain_machine_config(&resource) => return Ok(None),
        Err(_) if scope == Scope::MachineConfigs => return Ok(None),
        Err(error) => {
            let found = format!("{slot} is {error}");
            return Err(
                Failure::new(Outcome::NothingToFetch, found).expected("https://<host>[:<port>]/<path>")
            );
        }
    };
    let ours = scope == Scope::EveryHttps || url.pool().is_some();
    Ok(ours.then_some(Wanted { resource, url }))
}

/// The server's plain-text port: Ignition would be handed the config, and the header, in clear.
fn plain_machine_config(resource: &Resource) -> bool {
    let https = resource.source.expose().strip_prefix("http://").map(|rest| format!("https://{rest}"));
    https.and_then(|url| Url::parse(&url).ok()).is_some_and(|url| url.pool().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(source: &str) -> Resource {
        Resource { source: Secret::new(source.to_owned()), gzip: false, hash: None, headers: Vec::new() }
    }

    fn scoped(scope: Scope, source: &str) -> Result<bool, Outcome> {
        in_scope(scope, Slot::Merge(0), resource(source))
            .map(|wanted| wanted.is_some())
            .map_err(|f| f.outcome)
    }

    #[test]
    fn which_references_are_fetched() {
        use Scope::{EveryHttps, MachineConfigs};
        for (source, machine_configs, every) in [
            ("https://h/config/worker", Ok(true), Ok(true)),
            ("https://h/other", Ok(false), Ok(true)),
            ("data:,{}", Ok(false), Ok(false)),
            ("s3://b/k", Ok(false), Ok(false)),
            ("http://h/other", Ok(false), Ok(false)),
            ("http://h/config/worker", Ok(false), Err(Outcome::NothingToFetch)),
            ("https://u:p@h/config/worker", Ok(false), Err(Outcome::NothingToFetch)),
        ] {
            assert_eq!(scoped(MachineConfigs, source), machine_configs, "{source}");
            assert_eq!(scoped(EveryHttps, source), every, "{source}");
        }
    }
}
