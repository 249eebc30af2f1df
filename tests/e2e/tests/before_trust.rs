//! What firstboot meets before anybody trusts the node: each refusal has its own exit code and sentence, and leaves the root as it was.

use oneboot_e2e::defect;
use oneboot_e2e::world::{World, configuration};
use oneboot_node::node::paths;
use oneboot_node::process::Finished;
use serde_json::Value;

/// Long enough for the first answer and one more, short enough to wait for: what is retried slowly ends here with its own code.
const DEADLINE: &[&str] = &["--deadline", "2s"];

/// Fetches with `pointer`, and asserts that it fails with `code`, says `saying`, and changes nothing.
fn refused(world: &World, pointer: &Value, code: i32, saying: &[&str]) -> Finished {
    let node = world.node("worker-1.example").expect("a node");
    let before = configuration(&node).expect("a look");
    let pointer = world.write_pointer(pointer).expect("a pointer");
    let fetched = node.fetch(&pointer, DEADLINE).expect("fetch runs");
    assert_eq!(fetched.code(), Some(code), "{}", fetched.stderr);
    for words in saying {
        assert!(
            fetched.stderr.to_lowercase().contains(&words.to_lowercase()),
            "expected {words:?} in:\n{}",
            fetched.stderr
        );
    }
    assert_eq!(before.changes(&configuration(&node).expect("a look")), Vec::<String>::new());
    assert!(!node.path(paths::USER_IGN).exists(), "there is no hand-off after a failure");
    assert_eq!(
        node.json(paths::REPORT).map(|report| report["exit"].clone()).ok(),
        Some(Value::from(code)),
        "the report names the exit code"
    );
    fetched
}

#[test]
fn no_token() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    defect::no_token(&mut pointer);
    refused(&world, &pointer, 77, &["401", "token"]);
}

#[test]
fn wrong_token() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    let wrong = defect::unknown_token();
    defect::token(&mut pointer, &wrong);
    let fetched = refused(&world, &pointer, 77, &["401", "token"]);
    assert!(
        !fetched.stderr.contains(&wrong) && !fetched.stdout.contains(&wrong),
        "a wrong token is a secret too"
    );
}

#[test]
fn another_pools_token() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    let other = world.cluster.admin.command(&["token", "new", "--pool", "master"]).expect("a token");
    defect::token(&mut pointer, other.trim());
    refused(&world, &pointer, 77, &["403"]);
}

#[test]
fn expired_token() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    let expired =
        world.cluster.admin.command(&["token", "new", "--pool", "worker", "--ttl", "0s"]).expect("a token");
    defect::token(&mut pointer, expired.trim());
    refused(&world, &pointer, 77, &["401", "expired"]);
}

#[test]
fn a_ca_that_did_not_sign() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    defect::foreign_ca(&mut pointer).expect("a foreign CA");
    refused(&world, &pointer, 78, &["certificate", "CA"]);
}

#[test]
fn a_pointer_without_a_ca() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    defect::no_ca(&mut pointer);
    refused(&world, &pointer, 78, &["CA"]);
}

#[test]
fn an_unknown_pool() {
    let world = World::with_worker(&[]).expect("a world");
    let mut pointer = world.pointer_json().expect("a pointer");
    let server = world.mcs().expect("an address");
    pointer["ignition"]["config"]["merge"][0]["source"] = format!("{server}/config/no-such-pool").into();
    let node = world.node("worker-1.example").expect("a node");
    let pointer = world.write_pointer(&pointer).expect("a pointer");
    let fetched = node.fetch(&pointer, DEADLINE).expect("fetch runs");
    // Whoever holds a token of one pool does not learn which other pools exist.
    assert_eq!(fetched.code(), Some(77), "{}", fetched.stderr);
}

#[test]
fn a_control_plane_that_is_down() {
    let mut world = World::with_worker(&[]).expect("a world");
    let pointer = world.pointer_json().expect("a pointer");
    let node = world.node("worker-1.example").expect("a node");
    let path = world.write_pointer(&pointer).expect("a pointer");
    world.cluster.kill();
    let fetched = node.fetch(&path, DEADLINE).expect("fetch runs");
    assert_eq!(fetched.code(), Some(69), "{}", fetched.stderr);
    assert!(fetched.stderr.contains("refused"), "{}", fetched.stderr);
    world.cluster.restart().expect("it returns");
    assert_eq!(node.fetch(&path, &[]).expect("fetch runs").code(), Some(0));
}
