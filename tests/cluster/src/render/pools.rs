//! What a pool's object says about its nodes, and the role that lets them read its rendered configs. Pure.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use crate::names::{MCS_SERVED, pool_reader};
use crate::stamp;

/// How long a config that was served stays readable: a node may take that long to be approved (design 5 "Approver").
const SERVED_FOR: Duration = Duration::days(1);

/// `status` of a pool whose spec names a rendered config.
pub(super) fn status(pool: &Value, nodes: &[Value], degraded: Option<&str>) -> Value {
    let wanted = &pool["spec"]["configuration"];
    let members: Vec<&Value> = nodes
        .iter()
        .filter(|node| crate::selector::labels_match(&pool["spec"]["nodeSelector"], node))
        .collect();
    let annotation = |node: &Value, key: &str| {
        node["metadata"]["annotations"][format!("machineconfiguration.openshift.io/{key}")].clone()
    };
    let updated = members
        .iter()
        .filter(|node| {
            annotation(node, "currentConfig") == wanted["name"] && annotation(node, "state") == "Done"
        })
        .count();
    let ready = |node: &Value| {
        node["status"]["conditions"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let ready = members.iter().filter(|node| ready(node)).count();
    // status follows spec once every node is there (facts/mco.md 6.2); with no nodes that is at once.
    let configuration =
        if updated == members.len() { wanted.clone() } else { pool["status"]["configuration"].clone() };
    let configuration = if configuration.is_null() { wanted.clone() } else { configuration };
    let condition = |kind: &str, on: bool, message: &str| {
        let old = pool["status"]["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == kind);
        let status = if on { "True" } else { "False" };
        let since = old
            .filter(|c| c["status"] == status)
            .map_or_else(|| stamp::now().into(), |c| c["lastTransitionTime"].clone());
        json!({"type": kind, "status": status, "reason": "", "message": message, "lastTransitionTime": since})
    };
    json!({
        "configuration": configuration, "observedGeneration": pool["metadata"]["generation"],
        "machineCount": members.len(), "updatedMachineCount": updated, "readyMachineCount": ready,
        "unavailableMachineCount": members.len() - ready, "degradedMachineCount": 0,
        "conditions": [
            condition("RenderDegraded", degraded.is_some(), degraded.unwrap_or_default()),
            condition("Updated", updated == members.len(), ""),
        ],
    })
}

/// Names that a pool's nodes may read: spec's, status's, and what the MCS has served in the last day.
pub(super) fn readable(pool: &Value, served: &Value, now: OffsetDateTime) -> Vec<String> {
    let own = pool["metadata"]["name"].as_str().unwrap_or_default();
    let mut names: Vec<String> = ["spec", "status"]
        .iter()
        .filter_map(|of| pool[*of]["configuration"]["name"].as_str().map(str::to_owned))
        .collect();
    for (name, note) in served["data"].as_object().into_iter().flatten() {
        let note = note.as_str().unwrap_or_default().split_once(' ');
        let recent = |at: &str| stamp::parse(at).is_some_and(|at| now - at < SERVED_FOR);
        if note.is_some_and(|(pool, at)| pool == own && recent(at)) {
            names.push(name.clone());
        }
    }
    names.retain(|name| !name.is_empty());
    names.sort();
    names.dedup();
    names
}

/// URL of what the MCS notes.
pub(super) fn served_path() -> String {
    format!("/api/v1/namespaces/{}/configmaps/{MCS_SERVED}", crate::names::MCO_NAMESPACE)
}

/// The pool's read role (facts/trust.md 3.3).
pub(super) fn role(pool: &str, names: &[String]) -> Value {
    let mco = "machineconfiguration.openshift.io";
    let mut rules = vec![
        json!({"apiGroups": [mco], "resources": ["machineconfigpools"], "resourceNames": [pool], "verbs": ["get", "list", "watch"]}),
        json!({"apiGroups": ["operator.openshift.io"], "resources": ["machineconfigurations"], "resourceNames": ["cluster"], "verbs": ["get"]}),
    ];
    if !names.is_empty() {
        // An empty list of names would allow every name.
        rules.insert(0, json!({"apiGroups": [mco], "resources": ["machineconfigs"], "resourceNames": names, "verbs": ["get"]}));
    }
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": pool_reader(pool)}, "rules": rules})
}
