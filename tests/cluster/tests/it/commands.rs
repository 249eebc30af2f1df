//! Commands that people type, against a running control plane: what they print, what they change, what they refuse.

use crate::harness::{Answer, CSRS, Cluster, IGNITION_3_5, MCO, csr_object, machine_config, node_csr};
use crate::program::{run, text};
use serde_json::{Value, json};
use std::process::Output;

/// Runs a command that has to succeed; what it printed.
fn ok(cluster: &Cluster, arguments: &[&str]) -> String {
    let output = run(cluster.dir.path(), arguments, "");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn refused(cluster: &Cluster, arguments: &[&str], code: i32, says: &str) -> Output {
    let output = run(cluster.dir.path(), arguments, "");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
    assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    output
}

async fn worker() -> Cluster {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    cluster
}

/// What a node asks with a pointer's reference, and nothing else of the pointer.
async fn follow(cluster: &Cluster, pointer: &str) -> (String, Answer) {
    let pointer: Value = serde_json::from_str(pointer).unwrap();
    let entry = &pointer["ignition"]["config"]["merge"][0];
    assert!(entry["httpHeaders"].is_null(), "the token is in the URL");
    let source = entry["source"].as_str().unwrap().to_owned();
    let path = &source[source.find("/config/").unwrap()..];
    let answer = cluster.mcs("GET", path, &[("accept", IGNITION_3_5)], "").await;
    (source, answer)
}

/// A rendered config as `oc get -o json` writes it, with what only its own cluster can use.
fn rendered(name: &str, files: &[(&str, &str)]) -> Value {
    let files: Vec<Value> = files
        .iter()
        .map(|(path, content)| json!({"path": path, "mode": 420, "contents": {"source": format!("data:,{content}")}}))
        .collect();
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": {"name": name, "uid": "5", "resourceVersion": "77", "generation": 1,
            "ownerReferences": [{"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool", "name": "p", "uid": ""}]},
        "spec": {"osImageURL": "quay.io/os@sha256:1", "kernelArguments": ["quiet"],
            "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": files}}},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rendered_configs_of_ones_own_become_any_pools() {
    let cluster = Cluster::start().await;
    let pre = rendered("rendered-part", &[("/etc/first", "first")]);
    let post = rendered("rendered-whole", &[("/etc/first", "first"), ("/etc/later", "kept-for-later")]);
    let file = |name: &str, object: &Value| {
        let path = cluster.dir.path().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (pre_file, post_file) = (file("pre.json", &pre), file("post.json", &post));
    let not = file("not.json", &json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}));
    let install = ["rendered", "--pool", "edge-gpu", "--pre", &pre_file, "--post"];
    refused(&cluster, &[&install[..], &[not.as_str()]].concat(), 65, "not a MachineConfig");
    assert!(
        cluster.admin.get(&format!("{MCO}/machineconfigs/rendered-part")).await.is_err(),
        "nothing is installed"
    );
    assert!(cluster.admin.get(&format!("{MCO}/machineconfigpools/edge-gpu")).await.is_err());
    let said = ok(&cluster, &[&install[..], &[post_file.as_str()]].concat());
    assert_eq!(
        said,
        "pool edge-gpu serves \"rendered-part\" before approval and is \"rendered-whole\" after\n"
    );
    let token = cluster.token(Some("edge-gpu")).await;
    let answer = cluster.get_config("edge-gpu", &token).await;
    let sent = String::from_utf8(answer.body.to_vec()).unwrap();
    assert_eq!(answer.status, 200);
    assert!(sent.contains("/etc/first") && sent.contains("rendered-whole"), "the part, and the whole's name");
    assert!(!sent.contains("/etc/later") && !sent.contains("kept-for-later"), "nothing of the whole");
    // The renderer leaves it alone, also when something selects the pool; the pool's node reads the whole.
    cluster.apply(&[machine_config("99-edge", "edge-gpu", false, "/etc/x", "x")]).await.unwrap();
    let node = cluster.join("node1", "edge-gpu").await;
    let stored = node.get(&format!("{MCO}/machineconfigs/rendered-whole")).await.unwrap();
    assert_eq!(stored["spec"], post["spec"]);
    let pool = cluster.admin.get(&format!("{MCO}/machineconfigpools/edge-gpu")).await.unwrap();
    assert_eq!(pool["spec"]["configuration"]["name"], "rendered-whole");
    // Again, over what is there: as somebody does who has changed a file.
    ok(&cluster, &[&install[..], &[post_file.as_str()]].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn deny_is_for_ever() {
    let cluster = Cluster::with(|options| options.approve = false).await;
    let filed = cluster.bootstrapper().await.post(CSRS, &csr_object(&node_csr("node1").0)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    let said = ok(&cluster, &["deny", name]);
    assert_eq!(said, format!("certificatesigningrequest.certificates.k8s.io/{name} denied\n"));
    let denied = cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap();
    assert_eq!(denied["status"]["conditions"][0]["type"], "Denied");
    assert_eq!(denied["status"]["conditions"][0]["reason"], "OnebootDeny");
    refused(&cluster, &["approve", name, "--pool", "worker"], 65, "Approved");
    assert_eq!(cluster.admin.get(&format!("{CSRS}/{name}")).await.unwrap(), denied, "nothing is changed");
    refused(&cluster, &["deny", "csr-nobody"], 65, "not found");
}

#[tokio::test(flavor = "multi_thread")]
async fn reports_are_printed_oldest_first() {
    let cluster = worker().await;
    assert_eq!(ok(&cluster, &["reports"]), "");
    let bearer = format!("Bearer {}", cluster.token(Some("worker")).await);
    for outcome in ["first", "second", "third"] {
        let report = json!({"format": 1, "outcome": outcome}).to_string();
        let sent = cluster.mcs("POST", "/oneboot/v1/report", &[("authorization", &bearer)], &report).await;
        assert_eq!(sent.status, 204);
    }
    let printed = ok(&cluster, &["reports"]);
    let printed: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let outcomes: Vec<&Value> = printed.iter().map(|line| &line["report"]["outcome"]).collect();
    assert_eq!(outcomes, ["first", "second", "third"]);
    assert_eq!(printed[0]["from"], "127.0.0.1");
    assert!(oneboot_cluster::stamp::parse(printed[0]["received"].as_str().unwrap()).is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_in_the_url_opens_its_pool() {
    let cluster = worker().await;
    let new = || ok(&cluster, &["token", "new", "--pool", "worker"]).trim().to_owned();
    // One that needs encoding: `+` is a space to who decodes a query. Half of all tokens have one.
    let token = std::iter::repeat_with(new).take(40).find(|token| token.contains('+')).unwrap();
    let pointer = ok(&cluster, &["pointer", "--token-in", "url"]);
    let (source, answer) = follow(&cluster, &pointer).await;
    assert!(source.contains("?token=") && !source.contains('+') && !source.contains(&token), "encoded");
    assert_eq!(answer.status, 200);
    assert!(
        answer.json()["storage"]["files"].as_array().unwrap().iter().any(|file| file["path"] == "/etc/a")
    );
    // A pointer for another pool has no token of this one's.
    let (source, answer) =
        follow(&cluster, &ok(&cluster, &["pointer", "--pool", "master", "--token-in", "url"])).await;
    assert!(!source.contains("token"), "no token opens master");
    assert_eq!(answer.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_no_time_has_expired() {
    let cluster = worker().await;
    let token = ok(&cluster, &["token", "new", "--pool", "worker", "--ttl", "0s"]);
    let answer = cluster.get_config("worker", token.trim()).await;
    assert_eq!(answer.status, 401);
    assert!(answer.header("www-authenticate").contains("invalid_token"), "known, but no longer good");
    assert!(ok(&cluster, &["token", "list"]).contains("expired"));
    let (source, _) = follow(&cluster, &ok(&cluster, &["pointer", "--token-in", "url"])).await;
    assert!(!source.contains("token"), "pointers do not carry it");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_listed_by_digest_rotated_with_a_grace_and_revoked() {
    let cluster = worker().await;
    let first = ok(&cluster, &["token", "new", "--pool", "worker"]).trim().to_owned();
    let second = ok(&cluster, &["token", "rotate", "--pool", "worker"]).trim().to_owned();
    let other = ok(&cluster, &["token", "new", "--pool", "worker", "--node", "node7"]).trim().to_owned();
    let digest = |token: &str| oneboot_cluster::stamp::sha256(token)[..12].to_owned();
    let list = ok(&cluster, &["token", "list"]);
    assert_eq!(list.lines().count(), 4, "a heading and three tokens: {list}");
    for token in [&first, &second, &other] {
        assert!(list.contains(&digest(token)) && !list.contains(token.as_str()), "{list}");
        assert_eq!(cluster.get_config("worker", token).await.status, 200);
    }
    assert!(list.lines().any(|line| line.contains(&digest(&other)) && line.ends_with("node7")), "{list}");
    // The default grace: an hour, give or take the seconds that this takes.
    let end = list.lines().find(|line| line.contains(&digest(&first))).unwrap();
    let end = oneboot_cluster::stamp::parse(end.split_whitespace().nth(2).unwrap()).unwrap();
    let left = end - time::OffsetDateTime::now_utc();
    assert!(left > time::Duration::minutes(58) && left <= time::Duration::HOUR, "{left}");
    ok(&cluster, &["token", "revoke", &digest(&second)]);
    assert_eq!(cluster.get_config("worker", &second).await.status, 401, "revoked at once");
    assert!(!ok(&cluster, &["token", "list"]).contains(&digest(&second)));
    assert!(!ok(&cluster, &["pointer"]).contains(&second), "pointers do not carry it");
    for token in [&first, &other] {
        assert_eq!(cluster.get_config("worker", token).await.status, 200, "the others stay");
    }
}
