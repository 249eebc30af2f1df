//! What is sent for a pool: the pre-approved config and what the real server appends (facts/mco.md 1.4), with the
//! differences of the split (facts/mco.md 3.4). Pure.

use serde_json::{Value, json};

use super::Version;
use super::convert::{convert, move_kernel_arguments, with_kernel_arguments};

/// 0644: what everyone on the node may read.
const PUBLIC: u32 = 0o644;
/// 0600: what holds a secret. The real server sends these 0644 too.
const PRIVATE: u32 = 0o600;

/// What goes in.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// The pre-approved rendered MachineConfig: the only config that is sent.
    pub pre: &'a Value,
    /// The full one: its name and its OS fields are sent, nothing else of it.
    pub full: &'a Value,
    /// The kubelet's bootstrap kubeconfig.
    pub kubeconfig: &'a str,
    /// The CA that the kubelet trusts for clients, if the cluster says one.
    pub kubelet_ca: Option<&'a str>,
    /// The cloud provider's CA bundle, if there is one.
    pub cloud_ca: Option<&'a str>,
}

/// Why a config cannot be sent.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The rendered config also defines a file that the server appends.
    #[error("the rendered config already has {0}")]
    Duplicate(&'static str),
    /// The config uses what the asked-for spec does not have.
    #[error("spec {asked} cannot say {what}")]
    Inexpressible {
        /// What was asked for.
        asked: String,
        /// What it lacks: a key's path, never its value.
        what: String,
    },
    /// Spec 2 is a different language; it is not spoken here.
    #[error("spec 2 is not served: ask with Accept: application/vnd.coreos.ignition+json;version=3.5.0")]
    SpecTwo,
}

const SEED: &str = "/etc/machine-config-daemon/node-annotations.json";
const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";
const CONTENT: &str = "/etc/mcs-machine-config-content.json";
const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";
const KUBELET_CA: &str = "/etc/kubernetes/kubelet-ca.crt";
const CLOUD_CA: &str = "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem";

/// The config for a pool's new node.
pub fn build(parts: &Parts<'_>, version: Version) -> Result<Value, BuildError> {
    let mut config = parts.pre["spec"]["config"].clone();
    if !config.is_object() {
        config = json!({"ignition": {}});
    }
    let moved = move_kernel_arguments(&mut config, version);
    for (path, ca) in [(KUBELET_CA, parts.kubelet_ca), (CLOUD_CA, parts.cloud_ca)] {
        if let Some(ca) = ca {
            replace_or_append(&mut config, path, ca);
        }
    }
    let full_name = &parts.full["metadata"]["name"];
    let prefix = "machineconfiguration.openshift.io";
    // The full name: MCD then finds the full config on disk and has nothing to do (facts/mco.md 3.4).
    let seed = json!({
        format!("{prefix}/currentConfig"): full_name, format!("{prefix}/desiredConfig"): full_name,
        format!("{prefix}/firstPivotConfig"): full_name, format!("{prefix}/state"): "Done",
    });
    append(&mut config, SEED, &seed.to_string(), PUBLIC)?;
    append(&mut config, KUBECONFIG, parts.kubeconfig, PRIVATE)?;
    let content = serde_json::to_string_pretty(parts.pre).expect("a JSON value can be written");
    append(&mut config, CONTENT, &content, PRIVATE)?;
    append(&mut config, ENCAPSULATED, &encapsulated(parts.full, moved, version).to_string(), PUBLIC)?;
    convert(config, version)
}

/// The full config without its files and units: what MCD's own first boot needs for the OS (design 5 "MCS").
fn encapsulated(full: &Value, moved: Vec<Value>, version: Version) -> Value {
    let mut spec = full["spec"].clone();
    with_kernel_arguments(&mut spec, moved);
    spec["config"] = json!({"ignition": {"version": version.to_string()}});
    let mut metadata = json!({"name": full["metadata"]["name"]});
    if let Some(annotations) = full["metadata"].get("annotations") {
        metadata["annotations"] = annotations.clone();
    }
    json!({"kind": "MachineConfig", "apiVersion": "machineconfiguration.openshift.io/v1", "metadata": metadata, "spec": spec})
}

fn files(config: &mut Value) -> &mut Vec<Value> {
    let files = &mut config["storage"]["files"];
    if !files.is_array() {
        *files = json!([]);
    }
    files.as_array_mut().expect("made an array above")
}

fn append(config: &mut Value, path: &'static str, content: &str, mode: u32) -> Result<(), BuildError> {
    let files = files(config);
    if files.iter().any(|file| file["path"] == path) {
        return Err(BuildError::Duplicate(path)); // the real server answers 500 here too
    }
    files.push(file(path, content, mode));
    Ok(())
}

fn replace_or_append(config: &mut Value, path: &'static str, content: &str) {
    let files = files(config);
    match files.iter_mut().find(|file| file["path"] == path) {
        Some(existing) => existing["contents"] = json!({"source": data_url(content)}),
        None => files.push(file(path, content, PUBLIC)),
    }
}

fn file(path: &str, content: &str, mode: u32) -> Value {
    json!({"path": path, "overwrite": true, "mode": mode, "contents": {"source": data_url(content)}})
}

/// `data:,` and everything percent-encoded that RFC 2396 does not call unreserved, as the real server writes it.
fn data_url(content: &str) -> String {
    use std::fmt::Write as _;
    let mut url = String::with_capacity(content.len() * 2);
    url.push_str("data:,");
    for byte in content.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            url.push(char::from(byte));
        } else {
            write!(url, "%{byte:02X}").expect("writing to a String does not fail");
        }
    }
    url
}
