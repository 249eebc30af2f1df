//! The renderer's laws, the split, and that nothing of a post-only MachineConfig is ever sent.

use crate::harness::{Cluster, MCO, machine_config};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use oneboot_cluster::render::{Defaults, RenderError, merge_ignition, needed_before_approval, render};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn paths(spec: &Value) -> BTreeSet<&str> {
    spec["config"]["storage"]["files"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|file| file["path"].as_str())
        .collect()
}

#[test]
fn merge_table() {
    let file = |extra: Value| {
        let mut file = json!({"path": "/a"});
        for (key, value) in extra.as_object().unwrap() {
            file[key] = value.clone();
        }
        json!({"storage": {"files": [file]}})
    };
    for (what, parent, child, wanted) in [
        (
            "unset fields are inherited",
            file(json!({"mode": 384, "user": {"id": 7}})),
            file(json!({"contents": {"source": "data:,x"}})),
            file(json!({"mode": 384, "user": {"id": 7}, "contents": {"source": "data:,x"}})),
        ),
        (
            "compression goes with its source",
            file(json!({"contents": {"source": "data:,gz", "compression": "gzip"}})),
            file(json!({"contents": {"source": "data:,x"}})),
            file(json!({"contents": {"source": "data:,x"}})),
        ),
        (
            "append only grows",
            file(json!({"append": [{"source": "data:,1"}]})),
            file(json!({"append": [{"source": "data:,1"}]})),
            file(json!({"append": [{"source": "data:,1"}, {"source": "data:,1"}]})),
        ),
        (
            "a link takes a file's place",
            file(json!({})),
            json!({"storage": {"links": [{"path": "/a", "target": "/b"}]}}),
            json!({"storage": {"files": [], "links": [{"path": "/a", "target": "/b"}]}}),
        ),
        (
            "units and drop-ins by name",
            json!({"systemd": {"units": [{"name": "u", "contents": "1", "dropins": [{"name": "d", "contents": "1"}]}]}}),
            json!({"systemd": {"units": [{"name": "u", "enabled": true, "dropins": [{"name": "d", "contents": "2"}, {"name": "e"}]}, {"name": "v"}]}}),
            json!({"systemd": {"units": [{"name": "u", "contents": "1", "enabled": true, "dropins": [{"name": "d", "contents": "2"}, {"name": "e"}]}, {"name": "v"}]}}),
        ),
        (
            "keys are a union, the parent's first",
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["b", "a"]}]}}),
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["c", "a"]}]}}),
            json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["b", "a", "c"]}]}}),
        ),
        (
            "an argument wanted and unwanted: the last word",
            json!({"kernelArguments": {"shouldExist": ["a", "b"]}}),
            json!({"kernelArguments": {"shouldNotExist": ["a"]}}),
            json!({"kernelArguments": {"shouldExist": ["b"], "shouldNotExist": ["a"]}}),
        ),
        (
            "false overrides true",
            json!({"systemd": {"units": [{"name": "u", "mask": true}]}}),
            json!({"systemd": {"units": [{"name": "u", "mask": false}]}}),
            json!({"systemd": {"units": [{"name": "u", "mask": false}]}}),
        ),
    ] {
        assert_eq!(merge_ignition(&parent, &child), wanted, "{what}");
        assert_eq!(merge_ignition(&parent, &json!({})), parent, "{what}: nothing over it");
    }
}

#[test]
fn spec_fields() {
    let with = |name: &str, operator: bool, spec: Value| {
        let mut config = machine_config(name, "worker", operator, "/etc/x", name);
        for (key, value) in spec.as_object().unwrap() {
            config["spec"][key] = value.clone();
        }
        config
    };
    let configs = [
        with(
            "20-b",
            false,
            json!({"kernelArguments": ["b", "a"], "kernelType": "realtime", "osImageURL": "mine"}),
        ),
        with("10-a", true, json!({"kernelArguments": ["a"], "fips": true, "osImageURL": "operator's"})),
        with("30-c", false, json!({"kernelType": "default", "extensions": ["usbguard"]})),
    ];
    let defaults = Defaults { os_image: "cluster's".into(), extensions_image: "ext".into() };
    let rendered = render("worker", &configs, &defaults).unwrap();
    let (pre, post) = (&rendered.pre["spec"], &rendered.post["spec"]);
    assert_eq!(post["kernelArguments"], json!(["a", "b", "a"]), "by name, nothing dropped");
    assert_eq!((&post["fips"], &post["kernelType"]), (&json!(true), &json!("realtime")));
    assert_eq!((&post["osImageURL"], &pre["osImageURL"]), (&json!("mine"), &json!("cluster's")));
    assert_eq!(post["extensions"], json!(["usbguard"]));
    assert_eq!(post["config"]["ignition"]["version"], "3.5.0");
    assert_eq!(
        post["config"]["storage"]["files"],
        json!([{"path": "/etc/x", "mode": 420, "overwrite": true, "contents": {"source": "data:,30-c"}}])
    );
    assert_eq!(rendered.sources, ["10-a", "20-b", "30-c"]);
}

#[test]
fn names_are_the_contents_and_cannot_be_confused() {
    let mut configs = vec![
        machine_config("00-worker", "worker", true, "/etc/a", "a"),
        machine_config("99-worker", "worker", false, "/etc/b", "b"),
    ];
    let one = render("worker", &configs, &Defaults::default()).unwrap();
    configs.reverse();
    assert_eq!(
        render("worker", &configs, &Defaults::default()).unwrap(),
        one,
        "the order they are listed in does not matter"
    );
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_owned();
    let (pre, post) = (name(&one.pre), name(&one.post));
    assert!(post.starts_with("rendered-worker-") && pre.starts_with("pre-rendered-worker-"), "{pre} {post}");
    assert_eq!(post.len(), "rendered-worker-".len() + 32);
    assert_eq!(one.post["metadata"]["annotations"]["oneboot.dev/pre-rendered"], pre);
    assert_eq!(one.pre["metadata"]["annotations"]["oneboot.dev/full-rendered"], post);
    configs[0]["spec"]["config"]["storage"]["files"][0]["contents"]["source"] = "data:,changed".into();
    assert_ne!(name(&render("worker", &configs, &Defaults::default()).unwrap().post), post);
}

#[test]
fn custom_pools_override_workers_whatever_their_names() {
    let configs = [
        machine_config("10-infra", "infra", false, "/etc/x", "infra"),
        machine_config("99-worker", "worker", false, "/etc/x", "worker"),
    ];
    let rendered = render("infra", &configs, &Defaults::default()).unwrap();
    assert_eq!(rendered.post["spec"]["config"]["storage"]["files"][0]["contents"]["source"], "data:,infra");
    assert_eq!(rendered.sources, ["99-worker", "10-infra"]);
}

#[test]
fn who_is_needed_before_approval() {
    let plain = machine_config("99-a", "worker", false, "/etc/a", "a");
    let operator = machine_config("00-a", "worker", true, "/etc/a", "a");
    let with = |base: &Value, path: &[&str], value: Value| {
        let mut config = base.clone();
        *path.iter().fold(&mut config, |at, step| &mut at[*step]) = value;
        config
    };
    let annotation = ["metadata", "annotations", "oneboot.dev/needed-before-node-approved"];
    for (what, config, wanted) in [
        ("a customer's", plain.clone(), false),
        ("the operator's", operator.clone(), true),
        ("a customer's, annotated", with(&plain, &annotation, json!("true")), true),
        ("annotated with something else", with(&plain, &annotation, json!("yes")), false),
        ("the operator's, annotated away", with(&operator, &annotation, json!("false")), false),
        (
            "the field, where the CRD has it",
            with(&plain, &["spec", "neededBeforeNodeApproved"], json!(true)),
            true,
        ),
        (
            "owned by a KubeletConfig",
            with(&plain, &["metadata", "ownerReferences"], json!([{"kind": "KubeletConfig"}])),
            true,
        ),
        (
            "owned by something else",
            with(&plain, &["metadata", "ownerReferences"], json!([{"kind": "Deployment"}])),
            false,
        ),
        (
            "a pre-built image's",
            with(&plain, &["metadata", "name"], json!("10-prebuiltimage-osimageurl-worker")),
            true,
        ),
        (
            "registries, made at bootstrap",
            with(&plain, &["metadata", "name"], json!("99-worker-generated-registries")),
            true,
        ),
    ] {
        assert_eq!(needed_before_approval(&config), wanted, "{what}");
    }
}

#[test]
fn what_only_ignition_can_do_must_come_before() {
    for what in ["disks", "raid", "filesystems", "luks"] {
        let mut config = machine_config("98-storage", "worker", false, "/etc/a", "a");
        config["spec"]["config"]["storage"][what] = json!([{"device": "/dev/sdb", "name": "x"}]);
        let refused = render("worker", std::slice::from_ref(&config), &Defaults::default()).unwrap_err();
        assert_eq!(refused, RenderError::OnlyIgnition { name: "98-storage".into(), what });
        assert!(
            refused.to_string().contains("oneboot.dev/needed-before-node-approved=\"true\""),
            "{refused}"
        );
        config["metadata"]["annotations"] = json!({"oneboot.dev/needed-before-node-approved": "true"});
        render("worker", &[config], &Defaults::default()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_that_cannot_be_rendered_keeps_what_it_has_and_says_why() {
    let cluster = Cluster::start().await;
    cluster.apply(&[machine_config("00-worker", "worker", true, "/etc/a", "a")]).await.unwrap();
    let path = format!("{MCO}/machineconfigpools/worker");
    let before = cluster.admin.get(&path).await.unwrap()["spec"]["configuration"].clone();
    let mut config = machine_config("98-newer", "worker", false, "/etc/b", "b");
    config["spec"]["config"]["ignition"]["version"] = "3.9.0".into();
    let refused = cluster.apply(&[config]).await.unwrap_err().to_string();
    assert!(refused.contains("98-newer") && refused.contains("\"3.9.0\""), "{refused}");
    assert_eq!(cluster.admin.get(&path).await.unwrap()["spec"]["configuration"], before);
    let token = cluster.token(Some("worker")).await;
    assert_eq!(cluster.get_config("worker", &token).await.status, 200, "nodes still boot");
}

/// Everything in a served config, with data URLs opened, files inside files too.
fn opened(served: &Value) -> String {
    let mut text = served.to_string();
    for file in served["storage"]["files"].as_array().into_iter().flatten() {
        let source = file["contents"]["source"].as_str().unwrap_or_default();
        let Some((head, data)) = source.strip_prefix("data:").and_then(|rest| rest.split_once(',')) else {
            continue;
        };
        let bytes = if head.ends_with(";base64") { STANDARD.decode(data).unwrap() } else { percent(data) };
        let content = String::from_utf8_lossy(&bytes).into_owned();
        if file["path"] == "/etc/mcs-machine-config-content.json" {
            let inner: Value = serde_json::from_str(&content).unwrap();
            text.push_str(&opened(&inner["spec"]["config"]));
        }
        text.push_str(&content);
    }
    text
}

fn percent(text: &str) -> Vec<u8> {
    oneboot_cluster::api::percent_decode(text).into_bytes()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_post_only_machine_config_is_sent() {
    let cluster = Cluster::start().await;
    let secret = "c2VjcmV0LW9mLWEtY3VzdG9tZXI";
    let mut post = machine_config("99-customer", "worker", false, "/etc/customer/leak-path", secret);
    post["spec"]["config"]["systemd"] = json!({"units": [{"name": "leak-unit.service", "enabled": true, "contents": "[Unit]\nDescription=leak-description\n",
        "dropins": [{"name": "leak-dropin.conf", "contents": "[Service]\nNice=-11\n"}]}]});
    post["spec"]["config"]["passwd"] = json!({"users": [{"name": "leak-user", "sshAuthorizedKeys": ["ssh-ed25519 leak-key"], "passwordHash": "$6$leak-hash"}]});
    post["spec"]["kernelArguments"] = json!(["quiet"]);
    post["spec"]["osImageURL"] = "quay.io/customer/os@sha256:1".into();
    cluster
        .apply(&[machine_config("00-worker", "worker", true, "/etc/operator", "fine"), post])
        .await
        .unwrap();
    let token = cluster.token(Some("worker")).await;
    let answer = cluster.get_config("worker", &token).await;
    assert_eq!(answer.status, 200);
    let served = answer.json();
    let text = opened(&served);
    assert!(text.contains("fine"), "the pre-approved part is there");
    for leak in [
        secret,
        "leak-path",
        "leak-unit",
        "leak-description",
        "leak-dropin",
        "Nice=-11",
        "leak-user",
        "leak-key",
        "leak-hash",
        "99-customer",
    ] {
        assert!(!text.contains(leak), "{leak} was sent");
        assert!(!String::from_utf8_lossy(&answer.body).contains(leak), "{leak} was sent");
    }
    // What the OS needs of the full config is sent, under the full config's name (facts/mco.md 3.4).
    let file = |path: &str| {
        let files = served["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == path).unwrap();
        let content = percent(file["contents"]["source"].as_str().unwrap().strip_prefix("data:,").unwrap());
        (file["mode"].as_u64().unwrap(), String::from_utf8(content).unwrap())
    };
    let pool = cluster.admin.get(&format!("{MCO}/machineconfigpools/worker")).await.unwrap();
    let full = &pool["spec"]["configuration"]["name"];
    let (mode, seed) = file("/etc/machine-config-daemon/node-annotations.json");
    assert_eq!(mode, 0o644);
    let seed: Value = serde_json::from_str(&seed).unwrap();
    assert_eq!(
        seed,
        json!({"machineconfiguration.openshift.io/currentConfig": full, "machineconfiguration.openshift.io/desiredConfig": full,
        "machineconfiguration.openshift.io/firstPivotConfig": full, "machineconfiguration.openshift.io/state": "Done"})
    );
    let (_, encapsulated) = file("/etc/ignition-machine-config-encapsulated.json");
    let encapsulated: Value = serde_json::from_str(&encapsulated).unwrap();
    assert_eq!(&encapsulated["metadata"]["name"], full);
    assert_eq!(encapsulated["spec"]["config"], json!({"ignition": {"version": "3.5.0"}}));
    assert_eq!(encapsulated["spec"]["kernelArguments"], json!(["quiet"]));
    assert_eq!(encapsulated["spec"]["osImageURL"], "quay.io/customer/os@sha256:1");
    assert_eq!(file("/etc/kubernetes/kubeconfig").0, 0o600);
    assert_eq!(file("/etc/mcs-machine-config-content.json").0, 0o600);
    assert!(file("/etc/kubernetes/kubelet-ca.crt").1.contains("BEGIN CERTIFICATE"));
    let last = served["storage"]["files"].as_array().unwrap().last().unwrap();
    assert_eq!(last["path"], "/etc/ignition-machine-config-encapsulated.json");
}

/// The real operator's output, when it is there: `cases/rendered`.
#[test]
fn post_is_what_the_real_operator_rendered() {
    let Some(cases) = crate::harness::cases("rendered") else { return };
    let read = |name: &str| {
        let text = std::fs::read_to_string(cases.join(name)).unwrap();
        oneboot_cluster::documents::parse(&text).unwrap().remove(0)
    };
    let operator =
        ["aws-mc-00-worker.json", "aws-mc-01-worker-container-runtime.json", "aws-mc-01-worker-kubelet.json"];
    let mut configs: Vec<Value> = operator.iter().map(|name| read(name)).collect();
    configs.extend(["99-worker-chrony.yaml", "99-worker-ssh.yaml"].iter().map(|name| read(name)));
    let rendered = render("worker", &configs, &Defaults::default()).unwrap();
    for (what, ours, theirs) in
        [("post", &rendered.post, "aws-worker-post.json"), ("pre", &rendered.pre, "aws-worker-pre.json")]
    {
        let theirs = read(theirs);
        for (field, wanted) in theirs["spec"].as_object().unwrap() {
            assert_eq!(&ours["spec"][field], wanted, "{what}: spec.{field}");
        }
        assert_eq!(
            ours["spec"].as_object().unwrap().len(),
            theirs["spec"].as_object().unwrap().len(),
            "{what}"
        );
    }
    assert!(paths(&rendered.pre["spec"]).is_subset(&paths(&rendered.post["spec"])));
}
