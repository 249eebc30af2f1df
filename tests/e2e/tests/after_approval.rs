//! What the agent meets after approval: a config it must not apply is refused whole, with the reason where a person looks for it.

use std::fs;

use oneboot_e2e::world::{World, agent_reaches, agent_shows, configuration, files, rendered};
use serde_json::{Value, json};

/// Approves a node of a pool whose full config is `config`, and asserts that the agent refuses it, saying `saying`, and changes nothing.
fn blocked_by(config: &Value, saying: &[&str]) {
    let pre = rendered("00aa", &files(&["/etc/pre-approved.conf"]));
    let post = rendered("00bb", config);
    let world = World::with_rendered(&[], &pre, &post).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    kubelet
        .wait_for(|line| line.contains("\"node-registered\"").then_some(()))
        .expect("approved and registered");
    let before = configuration(&node).expect("a look");
    let mut agent = node.start_agent().expect("the agent starts");
    let reason = agent_reaches(&node, &mut agent, "Blocked").expect("it is refused");
    for words in saying {
        assert!(reason.contains(words), "expected {words:?} in: {reason}");
    }
    assert_eq!(before.changes(&configuration(&node).expect("a look")), Vec::<String>::new());
    assert!(!node.path("etc/machine-config-daemon/currentconfig").exists());
}

#[test]
fn a_config_that_is_not_ignition() {
    blocked_by(&json!({ "hello": "world" }), &["ignition"]);
}

#[test]
fn a_spec_newer_than_we_know() {
    blocked_by(&json!({ "ignition": { "version": "3.99.0" } }), &["3.99.0"]);
}

#[test]
fn a_file_that_climbs_out_of_the_root() {
    blocked_by(&files(&["/etc/pre-approved.conf", "/etc/../../outside"]), &["/etc/../../outside"]);
}

#[test]
fn a_disk_that_only_ignition_can_make() {
    let mut config = files(&["/etc/pre-approved.conf"]);
    config["storage"]["disks"] = json!([{ "device": "/dev/vdb", "wipeTable": true }]);
    blocked_by(&config, &["disks", "neededBeforeNodeApproved"]);
}

#[test]
fn another_pools_rendered_config_is_not_handed_out() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.booted_node("worker-1.example").expect("a booted node");
    // A pool of its own with a config of its own, which this node then asks for.
    let other = json!({
        "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
        "metadata": { "name": "rendered-master-0123456789abcdef" }, "spec": { "config": files(&["/etc/secret-of-masters"]) },
    });
    let file = world.path().join("master.json");
    fs::write(&file, other.to_string()).expect("writing it");
    world.cluster.admin.command(&["apply", "-f", file.to_str().expect("UTF-8")]).expect("it is there");
    let seed = node.path("etc/machine-config-daemon/node-annotations.json");
    let named = fs::read_to_string(&seed).expect("a seed");
    let mut annotations: Value = serde_json::from_str(&named).expect("JSON");
    for key in ["currentConfig", "desiredConfig"] {
        annotations[format!("machineconfiguration.openshift.io/{key}")] =
            "rendered-master-0123456789abcdef".into();
    }
    fs::write(&seed, annotations.to_string()).expect("a compromised node's seed");

    let mut kubelet = node.start_kubelet().expect("the kubelet starts");
    kubelet
        .wait_for(|line| line.contains("\"node-registered\"").then_some(()))
        .expect("approved and registered");
    let before = configuration(&node).expect("a look");
    let mut agent = node.start_agent().expect("the agent starts");
    let reason = agent_shows(&node, &mut agent, |shown| {
        shown["reason"].as_str().filter(|reason| reason.contains("rendered-master")).map(str::to_owned)
    })
    .expect("it says what it may not read");
    assert!(reason.contains("get") && reason.contains("machineconfigs"), "{reason}");
    assert_eq!(before.changes(&configuration(&node).expect("a look")), Vec::<String>::new());
}
