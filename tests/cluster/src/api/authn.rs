//! Who is asking: a client certificate's subject, or a bearer token, of which only digests are kept.

use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq as _;

use crate::http::Peer;
use crate::stamp;

/// A user and their groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

impl User {
    /// The node this is, by user prefix and group (facts/trust.md 3.1).
    pub(crate) fn node(&self) -> Option<&str> {
        let node = self.name.strip_prefix(crate::names::NODE_USER_PREFIX).filter(|node| !node.is_empty())?;
        self.groups.iter().any(|group| group == crate::names::NODES_GROUP).then_some(node)
    }

    /// A service account, with the groups that Kubernetes gives it.
    pub(crate) fn service_account(name: &str) -> Self {
        let namespace = name.split(':').nth(2).unwrap_or_default();
        let groups = vec![
            format!("system:serviceaccounts:{namespace}"),
            "system:serviceaccounts".into(),
            AUTHENTICATED.into(),
        ];
        Self { name: name.to_owned(), groups }
    }
}

/// May everything.
pub(crate) const MASTERS: &str = "system:masters";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";

/// A known token.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Token {
    pub(crate) sha256: String,
    pub(crate) user: User,
}

impl Token {
    pub(crate) fn new(token: &str, user: User) -> Self {
        Self { sha256: stamp::sha256(token), user }
    }
}

/// The asker; `None` if a credential is missing or wrong. A certificate wins over a token, as in Kubernetes.
pub(crate) fn authenticate(tokens: &[Token], peer: &Peer, authorization: Option<&str>) -> Option<User> {
    if let Some(certificate) = &peer.certificate {
        let subject = crate::certs::certificate_subject(certificate)?;
        let mut groups = subject.organizations;
        groups.push(AUTHENTICATED.to_owned());
        return Some(User { name: subject.common_name, groups });
    }
    let (scheme, token) = authorization?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let digest = stamp::sha256(token.trim());
    let mut found = None;
    for known in tokens {
        // No early exit: how long this takes says nothing about which token matched.
        if bool::from(known.sha256.as_bytes().ct_eq(digest.as_bytes())) {
            found = Some(&known.user);
        }
    }
    found.cloned()
}
