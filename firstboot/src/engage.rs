//! Owns: the rule of engagement: whether this first boot is ours, and which references then are.
//! Given what was found before any network, gives the scope or the reason to stay out.
//! Never: reads anything; a wrong answer here would break a boot that never asked for us.

use crate::document::Resource;
use crate::proof;
use crate::secret::Secret;
use crate::url::{BadUrl, Origin, Url};

/// Which references are fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// https with the path `/config/<pool>`.
    MachineConfigs,
    /// Every https reference: a token or an argument says that this boot is ours, or the document was fetched by us.
    EveryHttps,
}

/// Ours or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engagement {
    /// Ours, with this scope.
    Yes(Scope),
    /// None of our business, and why.
    No(&'static str),
}

/// What is known before any network.
#[derive(Clone, Copy)]
pub struct Signs<'a> {
    /// A credential or `--token-file` is there.
    pub token: bool,
    /// An `oneboot.*` kernel argument or `--url` is there.
    pub argument: bool,
    /// The pointer carries CAs, or `--ca` is there.
    pub authority: bool,
    /// Where the pointer leads, at whatever depth, if there is one and it is an Ignition config.
    pub references: Option<&'a [Resource]>,
}

/// The rule.
pub fn decide(signs: &Signs) -> Engagement {
    if signs.token || signs.argument {
        return Engagement::Yes(Scope::EveryHttps);
    }
    let Some(references) = signs.references else {
        return Engagement::No(
            "no token, no oneboot.* kernel argument, and no pointer that is an Ignition 3 config",
        );
    };
    if references.iter().any(user_info) {
        return Engagement::Yes(Scope::EveryHttps); // where such a URL is refused, with what to do
    }
    let mut pools = references.iter().filter(|reference| machine_config(reference).is_some());
    if pools.clone().next().is_none() {
        return Engagement::No(
            "no token, and no reference of the pointer is https with the path /config/<pool>",
        );
    }
    if pools.any(|reference| carried(reference).is_some()) {
        return Engagement::Yes(Scope::EveryHttps);
    }
    if !signs.authority {
        return Engagement::No("no token, and the pointer carries no certificateAuthorities");
    }
    Engagement::Yes(Scope::MachineConfigs)
}

/// A Machine Config Server's URL with a user name or password in it: meant for us, and to be refused.
fn user_info(reference: &Resource) -> bool {
    let source = reference.source.expose();
    matches!(Url::parse(source), Err(BadUrl::UserInfo))
        && source.split_once('@').is_some_and(|(_, rest)| {
            Url::parse(&format!("https://{rest}")).is_ok_and(|url| url.pool().is_some())
        })
}

/// The URL of a reference to a Machine Config Server.
pub fn machine_config(reference: &Resource) -> Option<Url> {
    Url::parse(reference.source.expose()).ok().filter(|url| url.pool().is_some())
}

/// The reference that report and token are about: the first to a pool, or else the first over https.
pub fn target(references: &[Resource]) -> Option<Url> {
    let urls = || references.iter().filter_map(|reference| Url::parse(reference.source.expose()).ok());
    urls().find(|url| url.pool().is_some()).or_else(|| urls().next())
}

/// A token that a pointer carries.
pub struct Carried {
    /// `pointer-header` or `pointer-url`.
    pub source: &'static str,
    /// The token itself.
    pub token: Secret<String>,
    /// Whom it is for: the server of the reference that carries it, and nobody else.
    pub origin: Origin,
}

/// The token of a reference to a Machine Config Server: its bearer header, then its `?token=`.
pub fn carried(reference: &Resource) -> Option<Carried> {
    let mut url = machine_config(reference)?;
    let origin = url.origin().clone();
    let header = reference.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let (source, token) = match header.and_then(|(_, value)| proof::bearer(value)) {
        Some(token) => ("pointer-header", token),
        None => ("pointer-url", url.take_token()?),
    };
    Some(Carried { source, token, origin })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn resources(references: &str) -> Vec<Resource> {
        let text = format!(r#"{{"ignition":{{"version":"3.2.0","config":{{"merge":[{references}]}}}}}}"#);
        let document = Document::parse(text.as_bytes(), None).unwrap();
        document.references.into_iter().map(|reference| reference.resource).collect()
    }

    fn rule(token: bool, argument: bool, reference: Option<(&str, bool)>) -> Engagement {
        let authority = reference.is_some_and(|(_, authority)| authority);
        let references = reference.map(|(reference, _)| resources(reference));
        decide(&Signs { token, argument, authority, references: references.as_deref() })
    }

    #[test]
    fn a_token_is_for_the_server_of_the_reference_that_carries_it() {
        let references =
            resources(r#"{"source":"https://a/config/worker"},{"source":"https://b/config/worker?token=t"}"#);
        assert!(carried(&references[0]).is_none());
        let carried = carried(&references[1]).unwrap();
        assert_eq!((carried.source, carried.origin.host.as_str()), ("pointer-url", "b"));
        assert_eq!(target(&references).unwrap().origin().host, "a", "the report is about the first");
    }

    const MCS: &str = r#"{"source":"https://h:22623/config/worker"}"#;

    #[test]
    fn a_token_or_an_argument_makes_every_https_reference_ours() {
        let every = Engagement::Yes(Scope::EveryHttps);
        assert_eq!(rule(true, false, None), every);
        assert_eq!(rule(false, true, None), every);
        let header = r#"{"source":"https://h/config/worker","httpHeaders":[{"name":"authorization","value":"Bearer t"}]}"#;
        assert_eq!(rule(false, false, Some((header, false))), every, "refused later: no CA");
        assert_eq!(rule(false, false, Some((r#"{"source":"https://h/config/w?token=t"}"#, true))), every);
        let password = r#"{"source":"https://u:p@h/config/worker"}"#;
        assert_eq!(rule(false, false, Some((password, true))), every, "refused later: a password in a URL");
    }

    #[test]
    fn a_pointer_to_the_server_with_cas_is_ours() {
        assert_eq!(rule(false, false, Some((MCS, true))), Engagement::Yes(Scope::MachineConfigs));
    }

    #[test]
    fn other_first_boots_are_not() {
        for (reference, authorities) in [
            (MCS, false),
            (r#"{"source":"http://h:22624/config/worker"}"#, true),
            (
                r#"{"source":"https://h/ignition","httpHeaders":[{"name":"Authorization","value":"Bearer t"}]}"#,
                true,
            ),
            (r#"{"source":"https://bucket/bootstrap.ign?X-Amz-Signature=x"}"#, true),
            (r#"{"source":"data:,x"}"#, true),
            ("", true),
        ] {
            assert!(
                matches!(rule(false, false, Some((reference, authorities))), Engagement::No(_)),
                "{reference}"
            );
        }
        assert!(matches!(rule(false, false, None), Engagement::No(_)));
    }
}
