//! What is rotated between power-on and request: tokens with a grace, certificates with an overlap.

use std::fs;
use std::path::PathBuf;

use oneboot_e2e::defect;
use oneboot_e2e::world::World;
use oneboot_node::node::{Node, paths};
use serde_json::Value;

/// A world whose pointer carries no token, a node, and the file that has the token instead.
fn token_in_a_file() -> (World, Node, PathBuf, PathBuf) {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.node("worker-1.example").expect("a node");
    let token = world.path().join("token");
    fs::write(&token, world.token().expect("a token")).expect("a token file");
    let mut pointer = world.pointer_json().expect("a pointer");
    defect::no_token(&mut pointer);
    let pointer = world.write_pointer(&pointer).expect("a pointer");
    (world, node, pointer, token)
}

fn rotate(world: &World, grace: &str) -> String {
    let pool = ["token", "rotate", "--pool", "worker", "--grace", grace];
    world.cluster.admin.command(&pool).expect("a rotation").trim().to_owned()
}

#[test]
fn the_previous_token_is_good_during_its_grace() {
    let (world, node, pointer, token) = token_in_a_file();
    let file = token.to_str().expect("a path of ours");
    let new = rotate(&world, "1h");
    assert_ne!(new, fs::read_to_string(&token).expect("the old one"));
    node.fetch(&pointer, &["--token-file", file]).expect("fetch runs").success("fetch").expect("a config");
    assert_eq!(node.json(paths::REPORT).expect("a report")["attempts"], 1);
}

#[test]
fn after_the_grace_the_source_is_read_again() {
    let (world, node, pointer, token) = token_in_a_file();
    let file = token.to_str().expect("a path of ours").to_owned();
    let new = rotate(&world, "0s");
    let mut fetch = node.start_fetch(&pointer, &["--token-file", &file]).expect("fetch runs");
    // It has been refused with the old token, and says so before it waits.
    fetch.wait_for(|line| line.contains("status 401; next try in").then_some(())).expect("a refusal");
    assert!(!node.path(paths::USER_IGN).exists());
    fs::write(&token, &new).expect("the source has the new one");
    assert!(fetch.wait().expect("its end").success(), "{}", fetch.last_lines());
    let report = node.json(paths::REPORT).expect("a report");
    assert_eq!((&report["outcome"], &report["attempts"]), (&Value::from("fetched"), &Value::from(2)));
    assert_eq!(report["token_source"], "token-file");
    let handed = fs::read_to_string(node.path(paths::USER_IGN)).expect("a hand-over");
    assert!(!handed.contains(&new), "the token is handed over");
}

#[test]
fn a_pointer_from_before_a_rotation_of_certificates_boots_until_the_old_ca_is_retired() {
    let world = World::with_worker(&[]).expect("a world");
    let admin = &world.cluster.admin;
    for (step, name) in [("--ca", "worker-1.example"), ("--serving", "worker-2.example")] {
        admin.command(&["certs", "rotate", step]).expect("a rotation");
        let node = world.node(name).expect("a node");
        node.fetch(&world.pointer, &[]).expect("fetch runs").success(step).expect("a config");
    }
    admin.command(&["certs", "retire"]).expect("the end of the overlap");
    let node = world.node("worker-3.example").expect("a node");
    let fetched = node.fetch(&world.pointer, &["--deadline", "2s"]).expect("fetch runs");
    assert_eq!(fetched.code(), Some(78), "{}", fetched.stderr);
    assert_eq!(node.json(paths::REPORT).expect("a report")["outcome"], "certificate-untrusted");
}
