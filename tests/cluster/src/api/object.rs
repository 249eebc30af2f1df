//! What the API does to every object on its way in: metadata, status strategy, pruning. Pure.

use serde_json::{Map, Value, json};

use super::request::Target;
use super::resources::Resource;
use super::status::Refusal;
use crate::stamp;

/// `spec` fields of the stock MachineConfig CRD (facts/mco.md 6.3): others are dropped without a word.
const MACHINE_CONFIG_FIELDS: &[&str] = &[
    "osImageURL",
    "baseOSExtensionsContainerImage",
    "config",
    "kernelArguments",
    "extensions",
    "fips",
    "kernelType",
];

/// Checks that a body is an object of the kind that the URL says, and of the same name and namespace.
pub(crate) fn check(target: &Target, object: &mut Value) -> Result<(), Refusal> {
    if !object.is_object() {
        return Err(Refusal::bad_request("the body is not an object"));
    }
    let resource = target.resource;
    for (key, wanted) in [("kind", resource.kind.to_owned()), ("apiVersion", resource.api_version())] {
        match object.get(key).and_then(Value::as_str) {
            Some(found) if found == wanted => {}
            Some(found) => {
                return Err(Refusal::bad_request(format!("{key} is {found:?}, the URL is for {wanted:?}")));
            }
            None => return Err(Refusal::bad_request(format!("the object has no {key}"))),
        }
    }
    if !object["metadata"].is_object() {
        return Err(Refusal::invalid(target, "", "metadata: Required value"));
    }
    let metadata = &mut object["metadata"];
    if resource.namespaced {
        match metadata["namespace"].as_str().unwrap_or_default() {
            "" => metadata["namespace"] = target.namespace.clone().into(),
            found if found == target.namespace => {}
            _ => {
                return Err(Refusal::bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request",
                ));
            }
        }
    }
    match (&target.name, metadata["name"].as_str()) {
        (Some(wanted), Some(found)) if target.verb != "create" && wanted != found => {
            Err(Refusal::bad_request(format!(
                "the name of the object ({found}) does not match the name on the URL ({wanted})"
            )))
        }
        _ => Ok(()),
    }
}

/// Prepares an object for its creation: name, uid, creation time, empty status where the kind says so.
pub(crate) fn prepare_create(target: &Target, object: &mut Value, extended: bool) -> Result<String, Refusal> {
    let metadata = &mut object["metadata"];
    if metadata["name"].as_str().unwrap_or_default().is_empty() {
        let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
        if prefix.is_empty() {
            return Err(Refusal::invalid(
                target,
                "",
                "metadata.name: Required value: name or generateName is required",
            ));
        }
        metadata["name"] = format!("{prefix}{}", stamp::suffix()).into();
    }
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if !valid_name(target.resource, &name) {
        return Err(Refusal::invalid(
            target,
            &name,
            "metadata.name: Invalid value: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.'",
        ));
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        if owner["uid"].as_str().unwrap_or_default().is_empty() {
            return Err(Refusal::invalid(
                target,
                &name,
                "metadata.ownerReferences.uid: Required value: must not be empty",
            ));
        }
    }
    metadata["uid"] = stamp::uid().into();
    metadata["creationTimestamp"] = stamp::now().into();
    metadata["generation"] = json!(1);
    drop_keys(metadata, &["resourceVersion", "managedFields", "selfLink", "deletionTimestamp"]);
    // A Node keeps the status that the kubelet registers it with; everywhere else status is written apart.
    if target.resource.subresources.contains(&"status") && target.resource.kind != "Node" {
        drop_keys(object, &["status"]);
    }
    if target.resource.kind == "CertificateSigningRequest" {
        object["status"] = json!({}); // a built-in kind: always there, and empty
    }
    prune(target.resource, object, extended);
    Ok(name)
}

/// Merges what a writer may change into what is stored: spec or status, never identity.
pub(crate) fn prepare_update(target: &Target, stored: &Value, mut new: Value, extended: bool) -> Value {
    let resource = target.resource;
    let mut result = match target.subresource.as_deref() {
        Some("status") => with(stored, &new, "status"),
        Some("approval") => approval(stored, &new),
        _ => {
            if resource.subresources.contains(&"status") {
                set(&mut new, "status", stored.get("status").cloned());
            }
            if resource.kind == "CertificateSigningRequest" {
                set(&mut new, "spec", stored.get("spec").cloned()); // immutable once filed
            }
            new
        }
    };
    prune(resource, &mut result, extended);
    let (old, metadata) = (&stored["metadata"], &mut result["metadata"]);
    for key in ["name", "namespace", "uid", "creationTimestamp", "generation"] {
        set(metadata, key, old.get(key).cloned());
    }
    drop_keys(metadata, &["managedFields", "selfLink"]);
    if result.get("spec") != stored.get("spec") {
        let generation = old["generation"].as_i64().unwrap_or(1) + 1;
        result["metadata"]["generation"] = generation.into();
    }
    result
}

/// `stored` with one field of `new`. Annotations and labels come along, as the node status strategy has it.
fn with(stored: &Value, new: &Value, field: &str) -> Value {
    let mut result = stored.clone();
    set(&mut result, field, new.get(field).cloned());
    for key in ["annotations", "labels"] {
        set(&mut result["metadata"], key, new["metadata"].get(key).cloned());
    }
    result
}

/// The approval subresource changes Approved and Denied conditions and nothing else.
fn approval(stored: &Value, new: &Value) -> Value {
    let decides = |condition: &&Value| matches!(condition["type"].as_str(), Some("Approved" | "Denied"));
    let of = |object: &Value| object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let mut conditions: Vec<Value> = of(stored).into_iter().filter(|c| !decides(&c)).collect();
    for mut condition in of(new).into_iter().filter(|c| decides(&c)) {
        for key in ["lastUpdateTime", "lastTransitionTime"] {
            if condition[key].is_null() {
                condition[key] = stamp::now().into();
            }
        }
        conditions.push(condition);
    }
    let mut result = stored.clone();
    result["status"]["conditions"] = conditions.into();
    result
}

/// Checks a CSR's conditions: Approved and Denied exclude each other, neither is ever taken back (facts/trust.md 1.2).
pub(crate) fn check_conditions(target: &Target, stored: &Value, new: &Value) -> Result<(), Refusal> {
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let has = |object: &Value, kind: &str| {
        object["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == kind)
    };
    if has(new, "Approved") && has(new, "Denied") {
        return Err(Refusal::invalid(
            target,
            name,
            "status.conditions: Invalid value: Approved and Denied conditions are mutually exclusive",
        ));
    }
    for kind in ["Approved", "Denied", "Failed"] {
        if has(stored, kind) && !has(new, kind) {
            return Err(Refusal::invalid(
                target,
                name,
                format!(
                    "status.conditions: Forbidden: updates may not remove a condition of type \"{kind}\""
                ),
            ));
        }
    }
    Ok(())
}

fn prune(resource: &Resource, object: &mut Value, extended: bool) {
    if resource.kind != "MachineConfig" {
        return;
    }
    if let Value::Object(spec) = &mut object["spec"] {
        spec.retain(|key, _| {
            MACHINE_CONFIG_FIELDS.contains(&key.as_str()) || extended && key == "neededBeforeNodeApproved"
        });
    }
}

/// Sets or removes a key.
pub(crate) fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if object.is_null() {
        *object = Value::Object(Map::new());
    }
    if let Value::Object(map) = object {
        match value {
            Some(value) => map.insert(key.to_owned(), value),
            None => map.remove(key),
        };
    }
}

fn drop_keys(object: &mut Value, keys: &[&str]) {
    if let Value::Object(map) = object {
        map.retain(|key, _| !keys.contains(&key.as_str()));
    }
}

fn valid_name(resource: &Resource, name: &str) -> bool {
    if resource.group == "rbac.authorization.k8s.io" {
        return !name.is_empty() && !name.contains(['/', '%']) && name != "." && name != ".."; // path segment names
    }
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    name.len() <= 253
        && name.chars().all(inner)
        && edge(name.chars().next())
        && edge(name.chars().next_back())
}
