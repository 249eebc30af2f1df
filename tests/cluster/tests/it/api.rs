//! The API's manners: conflicts, patches, pruning, errors as Status objects.

use crate::harness::{Cluster, MCO, machine_config};
use hyper::Method;
use oneboot_cluster::client::Error;
use serde_json::{Value, json};

fn refusal(result: Result<Value, Error>) -> (u16, String) {
    match result.unwrap_err() {
        Error::Status { code, reason, .. } => (code, reason),
        error => panic!("{error}"),
    }
}

fn config_map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data})
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicts_and_errors() {
    let cluster = Cluster::start().await;
    let api = &cluster.admin;
    let maps = "/api/v1/namespaces/default/configmaps";
    let made = api.post(maps, &config_map("a", &json!({"k": "1"}))).await.unwrap();
    assert_eq!(refusal(api.post(maps, &config_map("a", &json!({}))).await), (409, "AlreadyExists".into()));
    let mut second = made.clone();
    second["data"]["k"] = "2".into();
    let updated = api.put(&format!("{maps}/a"), &second).await.unwrap();
    assert_ne!(updated["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    second["data"]["k"] = "3".into();
    assert_eq!(refusal(api.put(&format!("{maps}/a"), &second).await), (409, "Conflict".into()));
    assert_eq!(
        api.get(&format!("{maps}/a")).await.unwrap()["data"]["k"],
        "2",
        "a stale write changes nothing"
    );
    let same = api.put(&format!("{maps}/a"), &updated).await.unwrap();
    assert_eq!(same, updated, "a write that changes nothing makes no version");
    assert_eq!(refusal(api.get(&format!("{maps}/b")).await), (404, "NotFound".into()));
    assert_eq!(refusal(api.get("/apis/nope/v1/things").await), (404, "NotFound".into()));
    assert_eq!(refusal(api.post(maps, &config_map("Not_A_Name", &json!({}))).await), (422, "Invalid".into()));
    assert_eq!(
        refusal(
            api.post(maps, &json!({"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "x"}})).await
        )
        .0,
        400
    );
    assert_eq!(refusal(api.request(Method::POST, maps, Some(&json!(1)), "application/json").await).0, 400);
    let mut owned = config_map("c", &json!({}));
    owned["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}]);
    assert_eq!(refusal(api.post(maps, &owned).await), (422, "Invalid".into()), "an owner without uid");
    api.delete(&format!("{maps}/a")).await.unwrap();
    assert_eq!(refusal(api.delete(&format!("{maps}/a")).await).0, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_three_patches() {
    let cluster = Cluster::start().await;
    let api = &cluster.admin;
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"a": "1", "b": "2"}},
        "spec": {"taints": [{"key": "x", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}, {"type": "DiskPressure", "status": "False"}]}});
    api.post("/api/v1/nodes", &node).await.unwrap();
    let patch =
        async |path: &str, kind: &str, body: Value| api.request(Method::PATCH, path, Some(&body), kind).await;
    let (node, status) = ("/api/v1/nodes/n", "/api/v1/nodes/n/status");
    let (merge, strategic, json_patch) = (
        "application/merge-patch+json",
        "application/strategic-merge-patch+json",
        "application/json-patch+json",
    );
    let merged = patch(node, merge, json!({"metadata": {"labels": {"a": null, "c": "3"}}})).await.unwrap();
    assert_eq!(merged["metadata"]["labels"], json!({"b": "2", "c": "3"}));
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let conditions = patch(status, strategic, ready.clone()).await.unwrap()["status"]["conditions"].clone();
    let both = json!([{"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]);
    assert_eq!(conditions, both, "merged by type");
    let conditions = patch(status, merge, ready).await.unwrap()["status"]["conditions"].clone();
    assert_eq!(conditions, json!([{"type": "Ready", "status": "True"}]), "a merge patch replaces the list");
    let taints = json!({"spec": {"taints": [{"key": "y", "effect": "NoExecute"}]}});
    let tainted = patch(node, strategic, taints).await.unwrap();
    assert_eq!(
        tainted["spec"]["taints"],
        json!([{"key": "y", "effect": "NoExecute"}]),
        "taints are one value"
    );
    let steps = json!([{"op": "test", "path": "/metadata/labels/c", "value": "3"}, {"op": "remove", "path": "/metadata/labels/c"}]);
    let stepped = patch(node, json_patch, steps.clone()).await.unwrap();
    assert_eq!(stepped["metadata"]["labels"], json!({"b": "2"}));
    assert_eq!(refusal(patch(node, json_patch, steps).await).0, 422, "the test fails now");
    assert_eq!(api.get(node).await.unwrap(), stepped, "a failed patch changes nothing");
    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"z": "z"}}});
    assert_eq!(refusal(patch(node, merge, stale).await).0, 409);
    assert_eq!(refusal(patch(node, "application/apply-patch+yaml", json!({})).await).0, 415);
    let pool = format!("{MCO}/machineconfigpools/worker");
    assert_eq!(
        refusal(patch(&pool, strategic, json!({})).await).0,
        415,
        "custom resources know no strategic patch"
    );
    let spec = patch(status, merge, json!({"spec": {"unschedulable": true}})).await.unwrap();
    assert!(spec["spec"]["unschedulable"].is_null(), "the status path writes status only");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stock_crd_prunes_and_the_extended_one_does_not() {
    let mut config = machine_config("99-a", "nobody", false, "/etc/a", "a");
    config["spec"]["neededBeforeNodeApproved"] = true.into();
    for extended in [false, true] {
        let cluster = Cluster::with(|options| options.extended = extended).await;
        cluster.admin.post(&format!("{MCO}/machineconfigs"), &config).await.unwrap();
        let stored = cluster.admin.get(&format!("{MCO}/machineconfigs/99-a")).await.unwrap();
        assert_eq!(stored["spec"]["neededBeforeNodeApproved"] == true, extended);
        assert_eq!(stored["spec"]["config"], config["spec"]["config"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn access_reviews_agree_with_access() {
    let cluster = Cluster::start().await;
    let node = cluster.join("node1", "worker").await;
    let ask = async |attributes: Value| {
        let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
            "spec": {"resourceAttributes": attributes}});
        node.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review).await.unwrap()["status"]
            ["allowed"]
            == true
    };
    let group = "machineconfiguration.openshift.io";
    assert!(
        ask(json!({"verb": "get", "group": group, "resource": "machineconfigpools", "name": "worker"})).await
    );
    assert!(
        !ask(json!({"verb": "get", "group": group, "resource": "machineconfigpools", "name": "master"}))
            .await
    );
    assert!(!ask(json!({"verb": "list", "group": group, "resource": "machineconfigs"})).await);
    assert!(
        ask(json!({"verb": "patch", "resource": "nodes", "subresource": "status", "name": "node1"})).await
    );
}
