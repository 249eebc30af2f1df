//! Owns: `/etc/kubernetes/kubeconfig` (read) and `/var/lib/kubelet/kubeconfig` (written).
//! Given a root, gives the bootstrap identity; writes the kubelet's own kubeconfig as the real one does: at once, in place, before
//! any certificate exists, so that its presence proves nothing (facts/trust.md 2.1, step 2).
//! Never: the certificate it points at; that is `store`.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

/// Where the MCS puts the bootstrap identity.
const BOOTSTRAP: &str = "etc/kubernetes/kubeconfig";
/// The kubelet's own.
const OWN: &str = "var/lib/kubelet/kubeconfig";
/// What the kubelet's own points at, as a path on the node.
const CURRENT_PEM: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Server, CA and token of the node-bootstrapper.
pub(super) struct Bootstrap {
    /// `https://host:port`.
    pub(super) server: String,
    /// PEM bundle.
    pub(super) ca: Vec<u8>,
    /// Base64 of the same, as it stood in the file.
    ca_data: String,
    /// Bearer token; never printed.
    pub(super) token: String,
}

#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
}

#[derive(Deserialize)]
struct Named<T> {
    #[serde(alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
struct Cluster {
    server: String,
    #[serde(rename = "certificate-authority-data")]
    ca_data: String,
}

#[derive(Deserialize)]
struct User {
    token: String,
}

/// Whether there is one already.
pub(super) fn is_there(root: &Path) -> bool {
    root.join(OWN).exists()
}

/// Reads the bootstrap kubeconfig below `root`.
pub(super) fn read_bootstrap(root: &Path) -> anyhow::Result<Bootstrap> {
    let path = root.join(BOOTSTRAP);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    // The parser's message may quote the file, and the file holds a token: only the place is passed on.
    let config: Kubeconfig = serde_norway::from_str(&text).map_err(|e| {
        anyhow::anyhow!(
            "{} is not a kubeconfig with a token (at {:?})",
            path.display(),
            e.location().map(|l| l.line())
        )
    })?;
    let (Some(cluster), Some(user)) = (config.clusters.into_iter().next(), config.users.into_iter().next())
    else {
        anyhow::bail!("{} names no cluster or no user", path.display());
    };
    let ca = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &cluster.value.ca_data)
        .with_context(|| format!("the CA in {} is not base64", path.display()))?;
    Ok(Bootstrap {
        server: cluster.value.server,
        ca,
        ca_data: cluster.value.ca_data,
        token: user.value.token,
    })
}

/// Writes the kubelet's own kubeconfig: truncate and write, 0600, no sync, as `client-go` does.
pub(super) fn write(root: &Path, bootstrap: &Bootstrap) -> anyhow::Result<()> {
    let path = root.join(OWN);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    }
    let text = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {}\n  name: default-cluster\n\
         contexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  name: default-context\n\
         current-context: default-context\nkind: Config\nusers:\n- name: default-auth\n  user:\n    client-certificate: {CURRENT_PEM}\n    client-key: {CURRENT_PEM}\n",
        bootstrap.ca_data, bootstrap.server
    );
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    file.write_all(text.as_bytes()).with_context(|| format!("writing {}", path.display()))
}
