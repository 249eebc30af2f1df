//! Failures on demand: who they hit, how often, and that only an administrator can ask for them.

use crate::harness::{Cluster, MCO, request};
use crate::program::{run, text};
use oneboot_cluster::api::FAULTS;
use oneboot_cluster::client::Error;
use serde_json::{Value, json};

fn fault(cluster: &Cluster, arguments: &[&str]) {
    let output = run(cluster.dir.path(), &[&["fault"], arguments].concat(), "");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
}

fn code(result: Result<Value, Error>) -> u16 {
    result.map_or_else(|error| error.status().unwrap(), |_| 200)
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_requests_for_one_user_twice() {
    let cluster = Cluster::start().await;
    let node = cluster.join("node1", "worker").await;
    let pool = format!("{MCO}/machineconfigpools/worker");
    crate::harness::wait_for(&cluster.admin, "/apis/rbac.authorization.k8s.io/v1/clusterroles", |role| {
        role["metadata"]["name"] == "oneboot:pool-config-reader:worker"
    })
    .await;
    fault(&cluster, &["--answer", "429", "--path", MCO, "--user", "system:node:", "--times", "2"]);
    assert_eq!(code(cluster.admin.get(&pool).await), 200, "somebody else");
    assert_eq!(code(node.get("/api/v1/nodes?fieldSelector=metadata.name=node1").await), 200, "another path");
    assert_eq!(code(node.get(&pool).await), 429);
    assert_eq!(code(node.get(&pool).await), 429);
    assert_eq!(code(node.get(&pool).await), 200, "twice, and no more");
    // Nobody but an administrator: a node's own wish is refused, and nothing is installed.
    let wish = json!({"answer": "429", "path": "/"});
    assert_eq!(code(node.post(FAULTS, &wish).await), 403);
    assert_eq!(code(node.get(&pool).await), 200);
    assert_eq!(code(cluster.admin.post(FAULTS, &json!({"answer": "500", "path": "/"})).await), 400);
    assert_eq!(code(cluster.admin.get(&pool).await), 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_429_says_when_to_come_back() {
    let cluster = Cluster::start().await;
    fault(&cluster, &["--answer", "429", "--path", "/api/v1/nodes", "--retry-after", "7"]);
    let config = cluster.read("admin.kubeconfig");
    let token = config.lines().find_map(|line| line.trim().strip_prefix("token: ")).unwrap();
    let bearer = format!("Bearer {token}");
    let headers = [("authorization", bearer.as_str())];
    let (address, ca) = (cluster.read("api.address"), cluster.read("api-serving-ca.crt"));
    let answer = request(&address, &ca, "GET", "/api/v1/nodes", &headers, "").await;
    assert_eq!((answer.status, answer.header("retry-after")), (429, "7"));
    assert_eq!(answer.json()["reason"], "TooManyRequests");
    assert_eq!(answer.json()["details"]["retryAfterSeconds"], 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_is_told_that_its_version_is_gone() {
    let cluster = Cluster::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    // One that runs already.
    let (_, mut running) = cluster.admin.list_and_watch(maps).await.unwrap();
    fault(&cluster, &["--answer", "410-event", "--path", maps]);
    let event = running.next().await.unwrap();
    assert_eq!((event.kind.as_str(), &event.object["code"]), ("ERROR", &json!(410)));
    assert_eq!(event.object["reason"], "Expired");
    assert!(running.next().await.is_none(), "it is over");
    // One that begins: as an event, and as the answer itself; a list is neither's business.
    fault(&cluster, &["--answer", "410-event", "--path", maps]);
    let (_, mut beginning) = cluster.admin.list_and_watch(maps).await.unwrap();
    assert_eq!(beginning.next().await.unwrap().kind, "ERROR");
    fault(&cluster, &["--answer", "410", "--path", maps, "--verb", "watch"]);
    let refused = cluster.admin.list_and_watch(maps).await.map(|_| ()).unwrap_err();
    assert_eq!(refused.status(), Some(410));
    let (_, mut watch) = cluster.admin.list_and_watch(maps).await.unwrap();
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    cluster.admin.post(maps, &object).await.unwrap();
    assert_eq!(watch.next().await.unwrap().kind, "ADDED", "once, and no more");
}
