//! Watches: what comes, in which order, from where; and what survives a restart.

use crate::harness::{Cluster, MCO, machine_config};
use oneboot_cluster::client::{Client, Error, Watch};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn put(client: &Client, name: &str, value: &str) -> Value {
    let object =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"v": value}}});
    match client.post(MAPS, &object).await {
        Err(Error::Status { code: 409, .. }) => {
            client.merge(&format!("{MAPS}/{name}"), &object).await.unwrap()
        }
        other => other.unwrap(),
    }
}

async fn next(watch: &mut Watch) -> (String, String) {
    let event = watch.next().await.expect("the watch goes on");
    (event.kind, event.object["metadata"]["name"].as_str().unwrap_or_default().to_owned())
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn events_in_order_and_resumed() {
    let cluster = Cluster::start().await;
    let api = &cluster.admin;
    put(api, "before", "0").await;
    let (items, mut watch) = api.list_and_watch(MAPS).await.unwrap();
    assert_eq!(items.len(), 1);
    let first = put(api, "a", "1").await;
    put(api, "a", "2").await;
    api.delete(&format!("{MAPS}/a")).await.unwrap();
    for wanted in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(next(&mut watch).await, pair(wanted, "a"));
    }
    let version = first["metadata"]["resourceVersion"].as_str().unwrap();
    let mut resumed = api.watch(&format!("{MAPS}?watch=true&resourceVersion={version}")).await.unwrap();
    assert_eq!(
        next(&mut resumed).await,
        pair("MODIFIED", "a"),
        "what came after the version, nothing before"
    );
    assert_eq!(next(&mut resumed).await, pair("DELETED", "a"));
    let mut fresh = api.watch(&format!("{MAPS}?watch=true")).await.unwrap();
    assert_eq!(next(&mut fresh).await, pair("ADDED", "before"), "without a version, what is there");
    for _ in 0..3 {
        put(api, "elsewhere", "x").await;
    }
    assert_eq!(next(&mut fresh).await, pair("ADDED", "elsewhere"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_stops_matching_is_deleted_to_the_watch() {
    let cluster = Cluster::start().await;
    let api = &cluster.admin;
    let (_, mut watch) = api.list_and_watch(&format!("{MAPS}?labelSelector=v%3D1")).await.unwrap();
    put(api, "a", "0").await;
    put(api, "a", "1").await;
    put(api, "a", "2").await;
    assert_eq!(next(&mut watch).await, pair("ADDED", "a"));
    assert_eq!(next(&mut watch).await, pair("DELETED", "a"));
    let (_, mut named) =
        api.list_and_watch(&format!("{MAPS}?fieldSelector=metadata.name%3Db")).await.unwrap();
    put(api, "a", "3").await;
    put(api, "b", "3").await;
    assert_eq!(next(&mut named).await, pair("ADDED", "b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_ends_with_a_bookmark_when_asked() {
    let cluster = Cluster::start().await;
    let api = &cluster.admin;
    let made = put(api, "a", "1").await;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let path = format!("{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=0");
    let mut watch = api.watch(&format!("{path}&allowWatchBookmarks=true")).await.unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event.kind, "BOOKMARK");
    assert!(event.object["metadata"]["resourceVersion"].as_str().unwrap() >= version);
    assert!(watch.next().await.is_none());
    assert!(api.watch(&path).await.unwrap().next().await.is_none(), "none unless asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_everything_but_history() {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let old = put(&cluster.admin, "a", "1").await;
    put(&cluster.admin, "a", "2").await;
    let token = cluster.token(Some("worker")).await;
    let (server, ca, mcs) =
        (cluster.admin.server().to_owned(), cluster.read("mcs-ca.crt"), cluster.read("mcs.address"));
    let configs = cluster.admin.get(&format!("{MCO}/machineconfigs")).await.unwrap();
    let before = cluster.get_config("worker", &token).await.json();
    let admin = cluster.admin.clone();
    let cluster = Cluster::at(cluster.stop().await, |_| {}).await;
    assert_eq!(cluster.admin.server(), server, "the same port");
    assert_eq!((cluster.read("mcs-ca.crt"), cluster.read("mcs.address")), (ca, mcs), "the same CA and port");
    assert_eq!(admin.get(&format!("{MCO}/machineconfigs")).await.unwrap()["items"], configs["items"]);
    assert_eq!(cluster.get_config("worker", &token).await.json(), before, "the same token, the same config");
    let version = old["metadata"]["resourceVersion"].as_str().unwrap();
    match admin.watch(&format!("{MAPS}?watch=true&resourceVersion={version}")).await {
        Err(Error::Status { code: 410, reason, .. }) => assert_eq!(reason, "Expired"),
        other => panic!("a forgotten version is 410, not {:?}", other.err()),
    }
    let made = put(&admin, "b", "1").await;
    let number =
        |value: &Value| value["metadata"]["resourceVersion"].as_str().unwrap().parse::<u64>().unwrap();
    assert!(number(&made) > number(&old), "versions go on");
}
