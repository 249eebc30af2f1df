//! What even an allowed writer may not write: `NodeRestriction`, CSR stamping and its subject rule. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::authn::{MASTERS, User};
use super::request::Target;
use super::status::Refusal;
use crate::certs::Request;
use crate::names::{API_CLIENT_SIGNER, CLIENT_SIGNER, NODE_USER_PREFIX, SERVING_SIGNER};

/// Labels that a kubelet may set in the reserved namespaces.
const KUBELET_LABELS: &[&str] = &[
    "kubernetes.io/hostname",
    "kubernetes.io/arch",
    "kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];

/// Roles that OpenShift's kubelet may give itself, at creation only (facts/trust.md 3.1).
const SELF_ASSIGNED_ROLES: &[&str] = &["control-plane", "master", "worker", "arbiter", "etcd"];

/// Looks at a write that has passed authorisation. `stored` is none at creation.
pub(crate) fn admit(
    target: &Target,
    user: &User,
    stored: Option<&Value>,
    new: &Value,
) -> Result<(), Refusal> {
    if target.resource.kind == "CertificateSigningRequest" && stored.is_none() {
        restrict_subject(target, new)?;
    }
    let Some(node) = user.node() else { return Ok(()) };
    let refuse = |why: String| Err(Refusal::forbidden(target, &user.name, &why));
    match target.resource.kind {
        "Node" => admit_node(node, stored, new).or_else(refuse),
        "CertificateSigningRequest" if stored.is_none() => {
            let signer = new["spec"]["signerName"].as_str().unwrap_or_default();
            let own = [CLIENT_SIGNER, SERVING_SIGNER].contains(&signer);
            let wanted = format!("{NODE_USER_PREFIX}{node}");
            match request(new) {
                Some(csr) if own && csr.subject.common_name != wanted => {
                    refuse(format!("can only create a node CSR with CN={wanted}"))
                }
                _ => Ok(()),
            }
        }
        "Pod" if stored.is_none() => refuse("can only create mirror pods".to_owned()),
        _ => Ok(()),
    }
}

/// `CertificateSubjectRestriction`: whoever may approve for this signer would otherwise make administrators.
fn restrict_subject(target: &Target, csr: &Value) -> Result<(), Refusal> {
    let organizations = request(csr).map(|request| request.subject.organizations).unwrap_or_default();
    if csr["spec"]["signerName"] == API_CLIENT_SIGNER && organizations.iter().any(|group| group == MASTERS) {
        let why = format!("use of {API_CLIENT_SIGNER} signer with {MASTERS} group is not allowed");
        return Err(Refusal::not_admitted(target, &why));
    }
    Ok(())
}

fn admit_node(node: &str, stored: Option<&Value>, new: &Value) -> Result<(), String> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    if name != node {
        return Err(format!("node \"{node}\" is not allowed to modify node \"{name}\""));
    }
    let empty = json!({});
    let old = stored.unwrap_or(&empty);
    if stored.is_some() {
        if plain(&old["spec"]["taints"]) != plain(&new["spec"]["taints"]) {
            return Err(format!("node \"{node}\" is not allowed to modify taints"));
        }
        if plain(&old["metadata"]["ownerReferences"]) != plain(&new["metadata"]["ownerReferences"]) {
            return Err(format!("node \"{node}\" is not allowed to modify ownerReferences"));
        }
    }
    let labels = |object: &Value| object["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let (before, after) = (labels(old), labels(new));
    let changed = before.keys().chain(after.keys()).filter(|key| before.get(*key) != after.get(*key));
    let mut forbidden: Vec<&str> =
        changed.map(String::as_str).filter(|key| !label_allowed(key, stored.is_none())).collect();
    forbidden.sort_unstable();
    forbidden.dedup();
    if forbidden.is_empty() {
        return Ok(());
    }
    Err(format!("is not allowed to set the following labels: {}", forbidden.join(", ")))
}

/// An absent list and an empty one are the same.
fn plain(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn label_allowed(key: &str, creating: bool) -> bool {
    let Some((domain, name)) = key.split_once('/') else { return true };
    let within = |parent: &str| domain == parent || domain.ends_with(&format!(".{parent}"));
    if within("node-restriction.kubernetes.io") {
        return false;
    }
    if !within("kubernetes.io") && !within("k8s.io") {
        return true;
    }
    KUBELET_LABELS.contains(&key)
        || within("kubelet.kubernetes.io")
        || within("node.kubernetes.io")
        || creating && domain == "node-role.kubernetes.io" && SELF_ASSIGNED_ROLES.contains(&name)
}

/// Checks and stamps a new CSR: who asks is what the API saw, not what the body says.
pub(crate) fn stamp_csr(target: &Target, user: &User, csr: &mut Value) -> Result<(), Refusal> {
    let spec = &mut csr["spec"];
    let invalid = |why: String| Err(Refusal::invalid(target, "", why));
    let pem = spec["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    if let Err(error) = Request::parse(&pem).and_then(|_| Request::verify(&pem)) {
        return invalid(format!("spec.request: Invalid value: {error}"));
    }
    if !spec["signerName"].as_str().unwrap_or_default().contains('/') {
        return invalid("spec.signerName: Required value".to_owned());
    }
    let usages: Vec<&str> =
        spec["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if usages.is_empty() {
        return invalid("spec.usages: Required value".to_owned());
    }
    if usages.iter().enumerate().any(|(at, usage)| usages[..at].contains(usage)) {
        return invalid("spec.usages: Duplicate value".to_owned());
    }
    spec["username"] = user.name.clone().into();
    spec["groups"] = user.groups.clone().into();
    for key in ["uid", "extra"] {
        super::object::set(spec, key, None);
    }
    Ok(())
}

/// What a CSR object asks for.
pub(crate) fn request(csr: &Value) -> Option<Request> {
    Request::parse(&STANDARD.decode(csr["spec"]["request"].as_str()?).ok()?).ok()
}
