//! Owns: `join = "enroll"`: a certificate request of our own, and the kubelet's files as the kubelet itself would leave them.
//! Given the bootstrap identity and the node's name it gives a node that is approved before its kubelet has started.
//! Never: asks twice for one answer, keeps a key of an unanswered request, or writes a file that is there and good.

use std::{ops::ControlFlow, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use oneboot_firstboot::secret::Secret;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;

use crate::{
    api::{
        resource::CERTIFICATE_REQUESTS,
        session::{Session, Trouble},
        types::CertificateRequest,
        watch::{Query, Update, follow},
    },
    clock::rfc3339,
    csr::{self, Word},
    identity::{self, PairError},
    paths,
    root::{self, Root},
    subject::{NODE_PREFIX, NODES_GROUP},
};

/// Why there is no certificate. The kubelet can ask for itself all the same.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The bootstrap kubeconfig is of no use.
    #[error(transparent)]
    Identity(#[from] identity::Error),
    /// The tree cannot be written.
    #[error(transparent)]
    Tree(#[from] root::Error),
    /// No key or no request could be made.
    #[error("cannot make a certificate request")]
    Request(#[source] rcgen::Error),
    /// Nobody has approved in time.
    #[error("certificate request {name} was not approved within {seconds} s: the kubelet asks for itself")]
    NotInTime {
        /// The request, once it was filed.
        name: String,
        /// The limit.
        seconds: u64,
    },
    /// Somebody has said no, or it is gone.
    #[error("{0}")]
    Dead(String),
    /// What was signed is not what was asked for.
    #[error("the certificate that was signed for {name} cannot be used: {why}")]
    Unusable {
        /// The request.
        name: String,
        /// What is wrong with it.
        #[source]
        why: PairError,
    },
}

/// Asks once, waits for the answer, and stores it. `tell` hears what becomes of the request.
pub fn enroll(
    session: &mut Session,
    root: &Root,
    node: &str,
    timeout: Duration,
    mut tell: impl FnMut(Word),
) -> Result<(), Error> {
    let deadline =
        session.clock().boot_microseconds() + u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Request)?;
    let object = request(node, &key)?;
    let name = file(session, &object, deadline, &mut tell)
        .ok_or_else(|| Error::NotInTime { name: String::new(), seconds: timeout.as_secs() })?;
    let late = || Error::NotInTime { name: name.clone(), seconds: timeout.as_secs() };
    let certificate = signed(session, &name, deadline, &mut tell)?.ok_or_else(late)?;

    let now = session.clock().wall_seconds();
    let pem = Secret::new([certificate.as_slice(), key.serialize_pem().as_bytes()].concat());
    let unusable = |why| Error::Unusable { name: name.clone(), why };
    // A clock that is behind the signer's is waited for like everybody's certificate.
    match identity::pair(Secret::new(pem.expose().clone()), now) {
        Ok(pair) if pair.node != node => {
            let groups = vec![NODES_GROUP.to_owned()];
            return Err(unusable(PairError::NotANode {
                user: format!("{NODE_PREFIX}{}", pair.node),
                groups,
            }));
        }
        Ok(_) | Err(PairError::NotYet { .. }) => {}
        Err(why) => return Err(unusable(why)),
    }
    store(root, &pem, now)
}

/// The object as a kubelet files it (facts/trust.md 2.1, step 5).
fn request(node: &str, key: &KeyPair) -> Result<serde_json::Value, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    // The order in which Go writes them.
    params.distinguished_name.push(DnType::OrganizationName, NODES_GROUP);
    params.distinguished_name.push(DnType::CommonName, format!("{NODE_PREFIX}{node}"));
    let pem = params.serialize_request(key).and_then(|request| request.pem()).map_err(Error::Request)?;
    Ok(json!({
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "signerName": csr::SIGNER,
            "request": STANDARD.encode(pem),
            // An EC key's; an RSA key would add key encipherment.
            "usages": ["digital signature", "client auth"],
        },
    }))
}

/// Files it, however long the API takes to be there; `None` when the time is over.
fn file(
    session: &mut Session,
    object: &serde_json::Value,
    deadline: u64,
    tell: &mut impl FnMut(Word),
) -> Option<String> {
    let mut failures = 0;
    loop {
        let created =
            session.attempt(|client| client.create::<CertificateRequest>(&CERTIFICATE_REQUESTS, object));
        match created {
            Ok(request) => return Some(request.metadata.name),
            Err(trouble) => {
                tell(Word::Unknown { trouble: trouble.to_string() });
                failures += 1;
                session.pause(&trouble, failures);
            }
        }
        if session.clock().boot_microseconds() >= deadline {
            return None;
        }
    }
}

/// Waits for the certificate, PEM; `None` when the time is over.
fn signed(
    session: &mut Session,
    name: &str,
    deadline: u64,
    tell: &mut impl FnMut(Word),
) -> Result<Option<Vec<u8>>, Error> {
    /// The watch ends by itself when the time is over.
    const MICROSECONDS: u64 = 1_000_000;

    let clock = session.clock_handle();
    let is_late = move || clock.boot_microseconds() >= deadline;
    let left = deadline.saturating_sub(session.clock().boot_microseconds()).div_ceil(MICROSECONDS);
    let query = Query::by_name(&CERTIFICATE_REQUESTS, name)
        .ending_after(u32::try_from(left.max(1)).unwrap_or(u32::MAX));
    let tell = std::cell::RefCell::new(tell);
    let gone = || ControlFlow::Break(Err(Error::Dead(format!("certificate request {name} is gone"))));
    let look = |request: &CertificateRequest| {
        let word = csr::word(request);
        if word.is_dead() {
            return ControlFlow::Break(Err(Error::Dead(word.to_string())));
        }
        let certificate = request.status.certificate.as_ref().filter(|text| !text.is_empty());
        if let Some(pem) = certificate.and_then(|text| STANDARD.decode(text).ok()) {
            return ControlFlow::Break(Ok(Some(pem)));
        }
        (tell.borrow_mut())(word);
        ControlFlow::Continue(())
    };
    follow(
        session,
        &query,
        |update: Update<CertificateRequest>| match update {
            Update::Listed(requests) => requests.first().map_or_else(gone, look),
            Update::Changed(request) => look(&request),
            Update::Deleted(_) => gone(),
            Update::Ended if is_late() => ControlFlow::Break(Ok(None)),
            Update::Ended => ControlFlow::Continue(()),
        },
        |trouble: &Trouble| {
            (tell.borrow_mut())(Word::Unknown { trouble: trouble.to_string() });
            if is_late() { ControlFlow::Break(Ok(None)) } else { ControlFlow::Continue(()) }
        },
    )
}

/// Leaves what the kubelet would (facts/trust.md 2.1, steps 2 and 7), in its order: kubeconfig, pem, link, rename. The
/// rename is what everybody waits for, this agent included.
fn store(root: &Root, pem: &Secret<Vec<u8>>, now: u64) -> Result<(), Error> {
    root.mkdir_all(paths::KUBELET_PKI, 0o755)?;
    let kubeconfig = kubeconfig(&identity::bootstrap_cluster(root)?);
    root.write_atomic(paths::KUBECONFIG, kubeconfig.as_bytes(), 0o600)?;

    let stamp: String = rfc3339(now)
        .trim_end_matches('Z')
        .chars()
        .map(|c| if c == 'T' || c == ':' { '-' } else { c })
        .collect();
    let file = format!("{}/kubelet-client-{stamp}.pem", paths::KUBELET_PKI);
    root.write_atomic(&file, pem.expose(), 0o600)?;
    root.remove(paths::KUBELET_CLIENT_UPDATED)?;
    root.symlink(&file, paths::KUBELET_CLIENT_UPDATED)?;
    root.rename(paths::KUBELET_CLIENT_UPDATED, paths::KUBELET_CLIENT)?;
    Ok(root.syncfs(paths::KUBELET_PKI)?)
}

/// As client-go writes it: server and CA of the bootstrap kubeconfig, the certificate by path.
fn kubeconfig(cluster: &identity::ClusterEntry) -> String {
    let client = paths::KUBELET_CLIENT;
    // Values of a YAML document are JSON strings: whatever is in them stays in them.
    let quoted = |text: &String| serde_json::Value::from(text.as_str()).to_string();
    let ca = [("certificate-authority", &cluster.ca_file), ("certificate-authority-data", &cluster.ca_data)]
        .into_iter()
        .filter_map(|(key, value)| value.as_ref().map(|value| format!("    {key}: {}\n", quoted(value))))
        .collect::<String>();
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n{ca}    server: {}\n  name: default-cluster\n\
         contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  name: default-context\n\
         current-context: default-context\nkind: Config\nusers:\n- name: default-auth\n  user:\n    client-certificate: {client}\n    client-key: {client}\n",
        quoted(&cluster.server)
    )
}

/// The configuration may have renamed the node: a certificate for another name than the kubelet's is discarded, and the
/// kubelet asks for its own. Says what was found.
pub fn discard_if_renamed(
    root: &Root,
    certified: &str,
    kubelet: Option<&str>,
) -> Result<Option<String>, root::Error> {
    let Some(name) = kubelet.filter(|name| *name != certified) else { return Ok(None) };
    let target = root.readlink(paths::KUBELET_CLIENT)?;
    root.remove(paths::KUBELET_CLIENT)?;
    root.remove(&target)?;
    root.remove(paths::KUBECONFIG)?;
    Ok(Some(format!(
        "the certificate is for {certified} and the kubelet calls this node {name}: it is discarded"
    )))
}
