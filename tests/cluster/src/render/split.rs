//! The split: which MachineConfigs a node needs before it is approved, and both rendered configs of a pool. Pure.

use serde_json::{Value, json};

use super::machineconfig::{Defaults, RenderError, merge};
use crate::names::{FULL_NAME_ANNOTATION, GENERATED_BY, PRE_ANNOTATION, PRE_NAME_ANNOTATION, ROLE_LABEL};
use crate::stamp;

/// Parts of `storage` that only Ignition can do (design 4.5).
const ONLY_IGNITION: &[&str] = &["disks", "raid", "filesystems", "luks"];
/// Kinds whose controllers write MachineConfigs (facts/mco.md 6.4).
const OPERATOR_KINDS: &[&str] =
    &["ControllerConfig", "KubeletConfig", "ContainerRuntimeConfig", "CRIOCredentialProviderConfig", "Image"];

/// Both rendered MachineConfigs of a pool.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// What the MCS sends.
    pub pre: Value,
    /// Everything: what today's operator would render.
    pub post: Value,
    /// Names of the inputs, in merge order.
    pub sources: Vec<String>,
}

/// Whether a MachineConfig is needed before approval: as it says itself, else if the operator made it.
pub fn needed_before_approval(config: &Value) -> bool {
    let annotations = &config["metadata"]["annotations"];
    match (annotations[PRE_ANNOTATION].as_str(), config["spec"]["neededBeforeNodeApproved"].as_bool()) {
        (Some(text), _) => text == "true",
        (None, Some(said)) => said,
        (None, None) => operator_made(config),
    }
}

fn operator_made(config: &Value) -> bool {
    let metadata = &config["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let owner = |owner: &Value| OPERATOR_KINDS.contains(&owner["kind"].as_str().unwrap_or_default());
    metadata["annotations"].get(GENERATED_BY).is_some()
        || metadata["ownerReferences"].as_array().into_iter().flatten().any(owner)
        || name.starts_with("10-prebuiltimage-osimageurl-")
        || name.starts_with("99-") && name.ends_with("-generated-registries") // made without the annotation at bootstrap
}

/// Renders a pool from the MachineConfigs that it selects, in any order.
pub fn render(pool: &str, configs: &[Value], defaults: &Defaults) -> Result<Rendered, RenderError> {
    let ordered = in_order(configs);
    let pre: Vec<&Value> = ordered.iter().copied().filter(|config| needed_before_approval(config)).collect();
    for config in ordered.iter().filter(|config| !needed_before_approval(config)) {
        for what in ONLY_IGNITION.iter().copied() {
            if config["spec"]["config"]["storage"][what].as_array().is_some_and(|list| !list.is_empty()) {
                let name = config["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                return Err(RenderError::OnlyIgnition { name, what });
            }
        }
    }
    let (pre_spec, post_spec) = (merge(&pre, defaults)?, merge(&ordered, defaults)?);
    let post_name = format!("rendered-{pool}-{}", digest(&post_spec));
    // Not `rendered-...`: nobody may take the part for the whole. The full name is in the digest, since one part can
    // belong to several wholes and names each.
    let pre_name = format!("pre-rendered-{pool}-{}", digest(&json!([post_name, pre_spec])));
    let sources =
        ordered.iter().filter_map(|config| config["metadata"]["name"].as_str().map(str::to_owned)).collect();
    Ok(Rendered {
        pre: object(&pre_name, FULL_NAME_ANNOTATION, &post_name, &pre_spec),
        post: object(&post_name, PRE_NAME_ANNOTATION, &pre_name, &post_spec),
        sources,
    })
}

/// Those for workers by name, then all others by name: a custom pool's override what it inherits (facts/mco.md 6.1).
fn in_order(configs: &[Value]) -> Vec<&Value> {
    let mut ordered: Vec<&Value> = configs.iter().collect();
    ordered.sort_by_key(|config| {
        let metadata = &config["metadata"];
        (metadata["labels"][ROLE_LABEL] != "worker", metadata["name"].as_str().unwrap_or_default().to_owned())
    });
    ordered
}

fn object(name: &str, annotation: &str, other: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "annotations": {annotation: other, GENERATED_BY: env!("CARGO_PKG_VERSION")}},
        "spec": spec,
    })
}

/// As long as the operator's MD5, which nobody can reproduce outside Go's YAML writer (facts/mco.md 6.1).
fn digest(value: &Value) -> String {
    stamp::sha256(value.to_string())[..32].to_owned()
}
