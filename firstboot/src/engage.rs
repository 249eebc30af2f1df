//! Owns: the rule of engagement: whether this first boot is ours, and which references then are.
//! Given what was found before any network, gives the scope or the reason to stay out.
//! Never: reads anything; a wrong answer here would break a boot that never asked for us.

use crate::document::{Document, Resource};
use crate::proof;
use crate::url::Url;

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
    /// `--ca` is there.
    pub authority: bool,
    /// The pointer, if there is one and it is an Ignition config.
    pub document: Option<&'a Document>,
}

/// The rule.
pub fn decide(signs: &Signs) -> Engagement {
    if signs.token || signs.argument {
        return Engagement::Yes(Scope::EveryHttps);
    }
    let Some(document) = signs.document else {
        return Engagement::No(
            "no token, no oneboot.* kernel argument, and no pointer that is an Ignition 3 config",
        );
    };
    let mut pools = document.references.iter().filter(|(_, reference)| machine_config(reference).is_some());
    if pools.clone().next().is_none() {
        return Engagement::No(
            "no token, and no reference of the pointer is https with the path /config/<pool>",
        );
    }
    if pools.any(|(_, reference)| carries_token(reference)) {
        return Engagement::Yes(Scope::EveryHttps);
    }
    if document.authorities.is_empty() && !signs.authority {
        return Engagement::No("no token, and the pointer carries no certificateAuthorities");
    }
    Engagement::Yes(Scope::MachineConfigs)
}

/// The URL of a reference to a Machine Config Server.
pub fn machine_config(reference: &Resource) -> Option<Url> {
    Url::parse(reference.source.expose()).ok().filter(|url| url.pool().is_some())
}

/// A bearer header, or `?token=`.
pub fn carries_token(reference: &Resource) -> bool {
    let header = |(name, value): &(String, _)| {
        name.eq_ignore_ascii_case("authorization") && proof::bearer(value).is_some()
    };
    reference.headers.iter().any(header)
        || Url::parse(reference.source.expose()).is_ok_and(|mut url| url.take_token().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(reference: &str, authorities: bool) -> Document {
        let authorities = if authorities { r#"[{"source":"data:,x"}]"# } else { "[]" };
        let text = format!(
            r#"{{"ignition":{{"version":"3.2.0","config":{{"merge":[{reference}]}},
            "security":{{"tls":{{"certificateAuthorities":{authorities}}}}}}}}}"#
        );
        Document::parse(text.as_bytes(), None).unwrap()
    }

    fn rule(token: bool, argument: bool, reference: Option<(&str, bool)>) -> Engagement {
        let document = reference.map(|(reference, authorities)| document(reference, authorities));
        decide(&Signs { token, argument, authority: false, document: document.as_ref() })
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
