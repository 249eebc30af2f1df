//! Owns: who this node is to the API: server, CA, and the credentials to present.
//! Given a kubeconfig and the kubelet's certificate file it gives an [`Identity`], or why they are of no use.
//! Never: writes either, or shows a key or a token.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD};
use oneboot_firstboot::{
    secret::Secret,
    trust::{CaBundle, provider},
};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{
    paths,
    root::{self, Root},
    subject::{self, NODES_GROUP},
};

/// Everything that a connection needs.
pub struct Identity {
    /// `https://host:port`, without a trailing slash.
    pub server: String,
    /// The CAs that may have signed the server's certificate.
    pub ca: CaBundle,
    /// Who we are.
    pub credential: Credential,
    /// Of everything above: when it changes, connections are made anew.
    pub fingerprint: [u8; 32],
}

/// What is presented to the API.
pub enum Credential {
    /// The bootstrap token: may file and look at certificate requests.
    Token(Secret<String>),
    /// The node's own certificate and key, PEM.
    Certificate(Secret<Vec<u8>>),
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.credential {
            Credential::Token(_) => "token",
            Credential::Certificate(_) => "certificate",
        };
        f.debug_struct("Identity")
            .field("server", &self.server)
            .field("credential", &kind)
            .finish_non_exhaustive()
    }
}

/// Why there is no identity (yet).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree cannot be read.
    #[error(transparent)]
    Io(#[from] root::Error),
    /// A file is not there.
    #[error("{path} is not there yet")]
    Missing {
        /// The file.
        path: &'static str,
    },
    /// A kubeconfig that says less than it must.
    #[error("{path}: {what}")]
    Kubeconfig {
        /// The file.
        path: &'static str,
        /// What is wrong, without values.
        what: &'static str,
    },
    /// The certificate file is of no use.
    #[error("{path}: {why}")]
    Pair {
        /// The file.
        path: &'static str,
        /// What is wrong with it.
        #[source]
        why: PairError,
    },
}

/// What can be wrong with a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PairError {
    /// No CERTIFICATE block.
    #[error("no certificate in it")]
    NoCertificate,
    /// No private key block.
    #[error("no private key in it")]
    NoKey,
    /// A block that is not what it says.
    #[error("the certificate is not understood")]
    Unreadable,
    /// The key belongs to another certificate.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// Not a kubelet's client certificate.
    #[error(
        "the certificate is for user {user:?} in groups {groups:?}, expected system:node:<name> in system:nodes"
    )]
    NotANode {
        /// Its common name.
        user: String,
        /// Its organisations.
        groups: Vec<String>,
    },
    /// It has not begun.
    #[error("the certificate is valid from {from}, and this machine's clock says {now}")]
    NotYet {
        /// `notBefore`.
        from: String,
        /// `notBefore` in seconds since 1970.
        from_seconds: u64,
        /// The clock.
        now: String,
    },
    /// It has ended.
    #[error("the certificate was valid until {until}, and this machine's clock says {now}")]
    Expired {
        /// `notAfter`.
        until: String,
        /// The clock.
        now: String,
    },
}

/// A kubelet's certificate with its key, checked.
pub struct Pair {
    /// The node's name, from the certificate: what the API calls this node.
    pub node: String,
    /// Both, as they were read.
    pub pem: Secret<Vec<u8>>,
}

/// Checks certificate and key as the kubelet writes them: certificates first, then the key, one file.
pub fn pair(pem: Secret<Vec<u8>>, now: u64) -> Result<Pair, PairError> {
    let node = node_of(pem.expose(), now)?;
    Ok(Pair { node, pem })
}

/// The node that a valid pair is for.
fn node_of(pem: &[u8], now: u64) -> Result<String, PairError> {
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|_| PairError::Unreadable)?;
    let first = chain.first().ok_or(PairError::NoCertificate)?;
    let (subject, from, until) = subject::of_certificate(first).ok_or(PairError::Unreadable)?;
    let key = PrivateKeyDer::from_pem_slice(pem).map_err(|_| PairError::NoKey)?;
    // `from_der` also compares the key's public half with the certificate's.
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => PairError::Mismatch,
        _ => PairError::Unreadable,
    })?;

    let node = match subject.node() {
        Some(node) if subject.organizations == [NODES_GROUP] => node.to_owned(),
        _ => return Err(PairError::NotANode { user: subject.common_name, groups: subject.organizations }),
    };
    let utc = oneboot_firstboot::clock::utc;
    let (from, until) = (from.as_secs(), until.as_secs());
    if now < from {
        return Err(PairError::NotYet { from: utc(from), from_seconds: from, now: utc(now) });
    }
    if now > until {
        return Err(PairError::Expired { until: utc(until), now: utc(now) });
    }
    Ok(node)
}

/// The node's certificate as it is now. `None`: it is not there, as before the first issuance and for an instant
/// at every rotation.
pub fn node_pair(root: &Root, now: u64) -> Result<Option<Pair>, Error> {
    let Some(pem) = root.read_following(paths::KUBELET_CLIENT)? else { return Ok(None) };
    pair(Secret::new(pem), now).map(Some).map_err(|why| Error::Pair { path: paths::KUBELET_CLIENT, why })
}

/// The node's own identity: server and CA from the kubelet's kubeconfig, certificate and key from its file.
pub fn node(root: &Root, now: u64) -> Result<Identity, Error> {
    let config = read_kubeconfig(root, paths::KUBECONFIG)?;
    let pair = node_pair(root, now)?.ok_or(Error::Missing { path: paths::KUBELET_CLIENT })?;
    Ok(Identity::new(config.server, config.ca, Credential::Certificate(pair.pem)))
}

/// The bootstrap identity, good for looking at certificate requests and nothing else.
pub fn bootstrap(root: &Root) -> Result<Identity, Error> {
    let path = paths::BOOTSTRAP_KUBECONFIG;
    let config = read_kubeconfig(root, path)?;
    let token = config.token.ok_or(Error::Kubeconfig { path, what: "its user has no token" })?;
    Ok(Identity::new(config.server, config.ca, Credential::Token(token)))
}

/// The cluster of the bootstrap kubeconfig, as it stands there: what a kubelet copies into its own.
pub struct ClusterEntry {
    /// `server`.
    pub server: String,
    /// `certificate-authority-data`, base64.
    pub ca_data: Option<String>,
    /// `certificate-authority`, a path.
    pub ca_file: Option<String>,
}

/// The same file, for a copy of its cluster.
pub fn bootstrap_cluster(root: &Root) -> Result<ClusterEntry, Error> {
    let path = paths::BOOTSTRAP_KUBECONFIG;
    let bytes = root.read_following(path)?.ok_or(Error::Missing { path })?;
    let (cluster, _) = current_context(&bytes).map_err(|what| Error::Kubeconfig { path, what })?;
    Ok(ClusterEntry {
        server: cluster.server,
        ca_data: cluster.certificate_authority_data,
        ca_file: cluster.certificate_authority,
    })
}

impl Identity {
    fn new(server: String, ca: CaBundle, credential: Credential) -> Self {
        let mut digest = Sha256::new();
        let secret: &[u8] = match &credential {
            Credential::Token(token) => token.expose().as_bytes(),
            Credential::Certificate(pem) => pem.expose(),
        };
        for part in [server.as_bytes(), secret, ca.fingerprints().concat().as_bytes()] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        Self { server, ca, credential, fingerprint: digest.finalize().into() }
    }
}

/// What the agent takes from a kubeconfig.
struct Kubeconfig {
    server: String,
    ca: CaBundle,
    token: Option<Secret<String>>,
}

/// The clientcmd format (`v1` Config), as far as the kubelet and the MCS write it.
#[derive(Deserialize)]
struct File {
    #[serde(rename = "current-context", default)]
    current_context: String,
    #[serde(default)]
    clusters: Vec<Cluster>,
    #[serde(default)]
    contexts: Vec<Context>,
    #[serde(default)]
    users: Vec<User>,
}

#[derive(Deserialize)]
struct Cluster {
    name: String,
    cluster: ClusterData,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct ClusterData {
    server: String,
    certificate_authority_data: Option<String>,
    certificate_authority: Option<String>,
}

#[derive(Deserialize)]
struct Context {
    name: String,
    context: ContextData,
}

#[derive(Deserialize)]
struct ContextData {
    cluster: String,
    user: String,
}

#[derive(Deserialize)]
struct User {
    name: String,
    #[serde(default)]
    user: UserData,
}

#[derive(Default, Deserialize)]
struct UserData {
    token: Option<String>,
}

fn read_kubeconfig(root: &Root, path: &'static str) -> Result<Kubeconfig, Error> {
    let bytes = root.read_following(path)?.ok_or(Error::Missing { path })?;
    parse_kubeconfig(&bytes, |ca| root.read_following(ca).ok().flatten())
        .map_err(|what| Error::Kubeconfig { path, what })
}

/// The cluster and the user that a kubeconfig's current context names.
fn current_context(bytes: &[u8]) -> Result<(ClusterData, UserData), &'static str> {
    // The parser's own message may quote a value, and one of the values is a token.
    let file: File = serde_norway::from_slice(bytes).map_err(|_| "it is not a kubeconfig")?;
    let context = file
        .contexts
        .into_iter()
        .find(|c| c.name == file.current_context)
        .ok_or("its current-context is not among its contexts")?
        .context;
    let cluster = file
        .clusters
        .into_iter()
        .find(|c| c.name == context.cluster)
        .ok_or("the cluster of its current context is missing")?
        .cluster;
    let user = file
        .users
        .into_iter()
        .find(|u| u.name == context.user)
        .ok_or("the user of its current context is missing")?
        .user;
    Ok((cluster, user))
}

fn parse_kubeconfig(
    bytes: &[u8],
    read: impl Fn(&str) -> Option<Vec<u8>>,
) -> Result<Kubeconfig, &'static str> {
    let (cluster, user) = current_context(bytes)?;
    let server = cluster.server.trim_end_matches('/').to_owned();
    if !server.starts_with("https://") {
        return Err("its server is not https");
    }
    let pem = match (cluster.certificate_authority_data, cluster.certificate_authority) {
        (Some(data), _) => STANDARD.decode(data.trim()).map_err(|_| "its CA is not base64")?,
        (None, Some(path)) => read(&path).ok_or("the file of its CA is not there")?,
        (None, None) => return Err("it has no CA, and the system's are never trusted"),
    };
    let ca = CaBundle::from_pem(&pem).map_err(|_| "its CA cannot be used")?;
    Ok(Kubeconfig { server, ca, token: user.token.filter(|t| !t.is_empty()).map(Secret::new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A CA that rustls takes.
    fn ca() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&key).unwrap().pem()
    }

    /// The bootstrap kubeconfig as the MCS writes it: sorted keys, no kind (facts/mco.md 1.4).
    fn kubeconfig(cluster: &str) -> String {
        format!(
            "clusters:\n- name: local\n  cluster: {{{cluster}}}\ncontexts:\n- name: kubelet\n  context:\n    cluster: local\n    \
             user: kubelet\ncurrent-context: kubelet\npreferences: {{}}\nusers:\n- name: kubelet\n  user: {{token: hunter2}}\n"
        )
    }

    fn parsed(text: &str) -> Result<Kubeconfig, &'static str> {
        parse_kubeconfig(text.as_bytes(), |path| (path == "/etc/ca.crt").then(|| ca().into_bytes()))
    }

    #[test]
    fn server_ca_and_token_are_read_from_what_the_mcs_writes() {
        let data = STANDARD.encode(ca());
        let text =
            kubeconfig(&format!("certificate-authority-data: {data}, server: 'https://api-int:6443/'"));
        let config = parsed(&text).unwrap();
        assert_eq!(config.server, "https://api-int:6443");
        assert_eq!(config.token.unwrap().expose(), "hunter2");
        assert_eq!(config.ca.fingerprints().len(), 1);
        assert!(parsed(&kubeconfig("certificate-authority: /etc/ca.crt, server: 'https://a'")).is_ok());
    }

    #[test]
    fn what_is_missing_is_named_and_nothing_is_quoted() {
        let data = STANDARD.encode(ca());
        let whole = format!("certificate-authority-data: {data}, server: 'https://api-int:6443'");
        for (text, expected) in [
            (kubeconfig("server: 'https://a'"), "it has no CA, and the system's are never trusted"),
            (kubeconfig(&whole.replace("https", "http")), "its server is not https"),
            (kubeconfig("certificate-authority-data: '%', server: 'https://a'"), "its CA is not base64"),
            (kubeconfig("certificate-authority-data: aGk=, server: 'https://a'"), "its CA cannot be used"),
            (
                kubeconfig("certificate-authority: /gone, server: 'https://a'"),
                "the file of its CA is not there",
            ),
            (
                kubeconfig(&whole).replace("current-context: kubelet", ""),
                "its current-context is not among its contexts",
            ),
            (
                kubeconfig(&whole).replace("cluster: local", "cluster: x"),
                "the cluster of its current context is missing",
            ),
            (
                kubeconfig(&whole).replace("user: kubelet", "user: x"),
                "the user of its current context is missing",
            ),
            ("hunter2".to_owned(), "it is not a kubeconfig"),
        ] {
            assert_eq!(parsed(&text).err(), Some(expected));
        }
    }

    #[test]
    fn an_identity_shows_no_secret_and_changes_its_fingerprint_with_it() {
        let identity = |token: &str| {
            let bundle = CaBundle::from_pem(ca().as_bytes()).unwrap();
            Identity::new("https://a".into(), bundle, Credential::Token(Secret::new(token.to_owned())))
        };
        assert!(!format!("{:?}", identity("hunter2")).contains("hunter2"));
        let bundle = CaBundle::from_pem(ca().as_bytes()).unwrap();
        let print = |token: &str| {
            Identity::new(
                "https://a".into(),
                bundle.clone(),
                Credential::Token(Secret::new(token.to_owned())),
            )
            .fingerprint
        };
        assert_eq!(print("a"), print("a"));
        assert_ne!(print("a"), print("b"));
    }
}
