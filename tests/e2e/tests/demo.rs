//! The front door: what `cargo demo` promises on its command line.

use std::process::Command;

use oneboot_node::process::{Programs, finish};
use serde_json::Value;

fn demo(args: &[&str]) -> oneboot_node::process::Finished {
    let demo = Programs::beside_this().expect("built programs").path("oneboot-journey");
    finish(Command::new(demo).args(args)).expect("the demo runs")
}

#[test]
fn json_is_one_object_and_the_kept_root_is_the_node() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let keep = scratch.path().join("kept");
    let run = demo(&["--json", "--keep", keep.to_str().expect("UTF-8")]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr);
    let summary: Value = serde_json::from_str(&run.stdout).expect("one JSON object on standard output");
    assert_eq!(summary["state"], "Settled");
    assert_eq!(summary["reboots"], 0);
    assert!(summary["files_written"].as_u64().expect("a number") > 0);
    let timeline = summary["timeline"].as_array().expect("a timeline");
    for who in ["node", "firstboot", "ignition", "kubelet", "agent"] {
        assert!(timeline.iter().any(|event| event["who"] == who), "{who} is not in the timeline");
    }
    assert!(keep.join("etc/machine-config-daemon/currentconfig").is_file(), "the kept root is the node's");
}

#[test]
fn several_nodes_each_have_their_root() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    let keep = scratch.path().join("kept");
    let run = demo(&["--", "--json", "--nodes", "3", "--keep", keep.to_str().expect("UTF-8")]);
    assert_eq!(run.code(), Some(0), "{}", run.stderr);
    let summary: Value = serde_json::from_str(&run.stdout).expect("one JSON object on standard output");
    assert_eq!(summary["state"], "Settled");
    assert_eq!(summary["nodes"].as_array().map(Vec::len), Some(3));
    for n in 1..=3 {
        assert!(keep.join(format!("{n}/etc/machine-config-daemon/currentconfig")).is_file(), "node {n}");
    }
}

#[test]
fn a_folder_that_is_there_already_is_not_touched() {
    let scratch = tempfile::tempdir().expect("a scratch folder");
    std::fs::write(scratch.path().join("mine"), "precious").expect("a file");
    let run = demo(&["--keep", scratch.path().to_str().expect("UTF-8")]);
    assert_ne!(run.code(), Some(0));
    assert!(run.stderr.contains("exists already"), "{}", run.stderr);
    let left: Vec<_> = std::fs::read_dir(scratch.path()).expect("a folder").collect();
    assert_eq!(left.len(), 1);
}
