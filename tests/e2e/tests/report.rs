//! The boot report: what a node offers is what `oneboot-cluster reports` shows, and whom the control plane does not know it does not hear.

use oneboot_e2e::defect;
use oneboot_e2e::world::World;
use oneboot_node::node::paths;
use serde_json::Value;

/// What the control plane has been told, oldest first.
fn reports(world: &World) -> Vec<Value> {
    let lines = world.cluster.admin.command(&["reports"]).expect("a list");
    lines.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect()
}

#[test]
fn a_success_is_reported_once_as_it_was_written() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.node("worker-1.example").expect("a node");
    node.fetch(&world.pointer, &[]).expect("fetch runs").success("fetch").expect("a config");
    let offered = node.report(&world.pointer).expect("report runs").success("report").expect("exit 0");
    assert!(offered.stderr.contains("the report was taken by"), "{}", offered.stderr);
    let told = reports(&world);
    let [told] = told.as_slice() else { panic!("one report: {told:?}") };
    assert_eq!(told["report"], node.json(paths::REPORT).expect("a report"));
    assert_eq!(told["report"]["outcome"], "fetched");
    assert!(!told.to_string().contains(&world.token().expect("a token")), "a report holds no token");
}

#[test]
fn a_failure_is_reported_by_whoever_has_a_good_token() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.node("worker-1.example").expect("a node");
    // Another pool's token opens no config here, but whoever holds it is no stranger.
    let mut pointer = world.pointer_json().expect("a pointer");
    let other = world.cluster.admin.command(&["token", "new", "--pool", "master"]).expect("a token");
    defect::token(&mut pointer, other.trim());
    let pointer = world.write_pointer(&pointer).expect("a pointer");
    assert_eq!(node.fetch(&pointer, &["--deadline", "2s"]).expect("fetch runs").code(), Some(77));
    node.report(&pointer).expect("report runs").success("report").expect("exit 0");
    let told = reports(&world);
    let [told] = told.as_slice() else { panic!("one report: {told:?}") };
    assert_eq!(
        (&told["report"]["outcome"], &told["report"]["exit"]),
        (&Value::from("not-permitted"), &Value::from(77))
    );
}

#[test]
fn a_stranger_is_not_heard_and_does_not_fail_for_it() {
    let world = World::with_worker(&[]).expect("a world");
    let node = world.node("worker-1.example").expect("a node");
    let mut pointer = world.pointer_json().expect("a pointer");
    defect::token(&mut pointer, &defect::unknown_token());
    let pointer = world.write_pointer(&pointer).expect("a pointer");
    assert_eq!(node.fetch(&pointer, &["--deadline", "2s"]).expect("fetch runs").code(), Some(77));
    let offered = node.report(&pointer).expect("report runs").success("report").expect("exit 0");
    assert!(offered.stderr.contains("status 401"), "{}", offered.stderr);
    assert_eq!(reports(&world), Vec::<Value>::new());
}
