//! Owns: the node's own Node object, and when it is Ready.
//! Given the node's identity, registers the Node `NotReady` and makes it Ready once the node has a CNI configuration, as a kubelet
//! does: networking is the last thing a fresh node gets.
//! Never: labels or annotations that are the Machine Config Daemon's to write.

use std::path::Path;

use anyhow::Context as _;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use serde_json::{Map, Value, json};

use super::client::Client;
use super::say;

/// Where the network operator leaves the CNI configuration on OpenShift.
const CNI: &str = "etc/kubernetes/cni/net.d";

/// Registers and waits for the network.
pub(super) fn node(client: &Client, root: &Path, name: &str, labels: &[String]) -> anyhow::Result<()> {
    let mut all = Map::new();
    all.insert("kubernetes.io/hostname".into(), name.into());
    all.insert("node.openshift.io/os_id".into(), "rhel".into());
    for label in labels {
        let (key, value) =
            label.split_once('=').with_context(|| format!("--node-label {label}: expected KEY=VALUE"))?;
        all.insert(key.into(), value.into());
    }
    let answer = client.post(
        "/api/v1/nodes",
        &json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": all,
                "annotations": { "volumes.kubernetes.io/controller-managed-attach-detach": "true" },
            },
            "status": { "conditions": [ready(false)] },
        }),
    )?;
    // 409: an earlier start has registered it, which is as good.
    anyhow::ensure!(
        matches!(answer.status, 201 | 409),
        "registering Node {name}: status {}: {}",
        answer.status,
        answer.body["message"]
    );
    say("node-registered", name);

    wait_for_cni(root)?;
    let answer = client.patch(
        &format!("/api/v1/nodes/{name}/status"),
        &json!({ "status": { "conditions": [ready(true)] } }),
    )?;
    anyhow::ensure!(
        answer.status == 200,
        "Node {name} Ready: status {}: {}",
        answer.status,
        answer.body["message"]
    );
    say("node-ready", name);
    Ok(())
}

fn ready(yes: bool) -> Value {
    if yes {
        json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status" })
    } else {
        json!({ "type": "Ready", "status": "False", "reason": "KubeletNotReady",
                "message": "container runtime network not ready: NetworkReady=false, no CNI configuration file in /etc/kubernetes/cni/net.d/" })
    }
}

fn wait_for_cni(root: &Path) -> anyhow::Result<()> {
    let dir = root.join(CNI);
    std::fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).context("starting inotify")?;
    inotify
        .add_watch(&dir, AddWatchFlags::IN_CLOSE_WRITE | AddWatchFlags::IN_MOVED_TO)
        .with_context(|| format!("watching {}", dir.display()))?;
    loop {
        // Looked at after the watch is set, so that nothing falls between.
        if std::fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))?.next().is_some() {
            return Ok(());
        }
        inotify.read_events().context("waiting for a CNI configuration")?;
    }
}
