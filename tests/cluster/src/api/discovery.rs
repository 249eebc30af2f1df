//! What `kubectl` asks before it asks anything: versions, groups, resources.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::resources::{RESOURCES, Resource};
use crate::http::{Body, respond};

/// The answer to a discovery path; `None` if it is not one.
pub(crate) fn answer(path: &str) -> Option<Response<Body>> {
    let steps: Vec<&str> = path.trim_matches('/').split('/').collect();
    let value = match steps.as_slice() {
        ["healthz" | "livez" | "readyz"] => return Some(respond(StatusCode::OK, "text/plain", "ok")),
        // The version of the API server that the facts were checked against (facts/trust.md 9).
        ["version"] => {
            json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0-oneboot", "platform": "linux/amd64"})
        }
        ["api"] => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        ["apis"] => groups(),
        ["api", version] => resources("", version)?,
        ["apis", group] => {
            groups()["groups"].as_array()?.iter().find(|g| g["name"] == **group).cloned().map(|mut g| {
                g["kind"] = "APIGroup".into();
                g["apiVersion"] = "v1".into();
                g
            })?
        }
        ["apis", group, version] => resources(group, version)?,
        _ => return None,
    };
    Some(respond(StatusCode::OK, "application/json", value.to_string()))
}

fn groups() -> Value {
    let versions: BTreeMap<&str, &str> =
        RESOURCES.iter().filter(|r| !r.group.is_empty()).map(|r| (r.group, r.version)).collect();
    let groups: Vec<Value> = versions
        .into_iter()
        .map(|(group, version)| {
            let version = json!({"groupVersion": format!("{group}/{version}"), "version": version});
            json!({"name": group, "versions": [version.clone()], "preferredVersion": version})
        })
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn resources(group: &str, version: &str) -> Option<Value> {
    let here: Vec<&Resource> =
        RESOURCES.iter().filter(|r| r.group == group && r.version == version).collect();
    let group_version = here.first()?.api_version();
    let mut list = Vec::new();
    for resource in here {
        let verbs: &[&str] = if resource.kind == "SelfSubjectAccessReview" {
            &["create"]
        } else {
            &["create", "delete", "get", "list", "patch", "update", "watch"]
        };
        list.push(json!({
            "name": resource.plural, "singularName": resource.kind.to_lowercase(), "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs, "shortNames": resource.short,
        }));
        for sub in resource.subresources {
            list.push(json!({
                "name": format!("{}/{sub}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    Some(
        json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": list}),
    )
}
