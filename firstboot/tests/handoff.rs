//! Owns: the hand-over to the image's own Ignition, as its record says: which directory, which spec, and nothing after a failure.
//! Given a record and a scripted server, gives the files that Ignition would find.
//! Never: asks Ignition itself; the VM tests do.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::Authority;
use common::server::{Server, ok, status};
use common::{CONFIG, Node, Ran, embedded, pointer};
use std::os::unix::fs::MetadataExt;

const LINE: &str = "IGNITION_SYSTEM_CONFIG_DIR=/run/oneboot/ignition";

/// An image whose Ignition is older than 2.27, with a pointer where that one looks.
fn old_image(server: &Server, ca: &Authority) -> Node {
    let node = Node::new("unused").with_token();
    node.put("usr/lib/oneboot/ignition-spec", "3.3.0\n");
    node.put("usr/lib/oneboot/ignition-dir", "/run/oneboot/ignition\n");
    node.put("usr/lib/ignition/user.ign", pointer(&server.url("/config/worker"), &ca.pem()));
    node.put("usr/lib/ignition/base.d/00-core.ign", "core");
    node.put("usr/lib/ignition/base.platform.d/qemu/10.ign", "qemu");
    node.put("run/ignition.env", "PLATFORM_ID=qemu\n");
    node.fragment("give_up_after = '0s'")
}

fn text(node: &Node, name: &str) -> String {
    std::fs::read_to_string(node.path(name)).unwrap_or_default()
}

fn fetched(node: &Node) -> Ran {
    let ran = node.run(&["fetch"]);
    ran.assert(0);
    ran
}

#[test]
fn an_old_ignition_is_pointed_to_a_directory_of_ours() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG.replace("3.4.0", "3.3.0"))]);
    let node = old_image(&server, &ca);
    for _ in 0..2 {
        let ran = fetched(&node); // the second run is that of a unit started again
        node.assert_token_nowhere(&ran);
    }
    let request = &server.requests()[0];
    assert!(request.header("accept").unwrap().contains("version=3.3.0"), "the recorded spec is asked for");
    let handed: serde_json::Value =
        serde_json::from_str(&text(&node, "run/oneboot/ignition/user.ign")).unwrap();
    assert!(embedded(&handed["ignition"]["config"]["merge"][0]).contains("/etc/a"));
    assert_eq!(text(&node, "run/oneboot/ignition/base.d/00-core.ign"), "core");
    assert_eq!(text(&node, "run/oneboot/ignition/base.platform.d/qemu/10.ign"), "qemu");
    assert_eq!(
        text(&node, "run/ignition.env"),
        format!("PLATFORM_ID=qemu\n{LINE}\n"),
        "once, and nothing lost"
    );
    let mode = |name: &str| std::fs::metadata(node.path(name)).unwrap().mode() & 0o7777;
    assert_eq!((mode("run/oneboot/ignition"), mode("run/oneboot/ignition/user.ign")), (0o700, 0o600));
    assert!(!node.out().exists(), "nothing where this Ignition does not look");
}

#[test]
fn after_a_failure_an_old_ignition_knows_of_nothing() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG.replace("3.4.0", "3.3.0")), status(403)]);
    let node = old_image(&server, &ca);
    fetched(&node);
    node.run(&["fetch"]).assert(77);
    assert!(!node.path("run/oneboot/ignition").exists(), "an earlier run's hand-over is still there");
    assert_eq!(text(&node, "run/ignition.env"), "PLATFORM_ID=qemu\n");
}

#[test]
fn a_hand_over_that_fails_half_way_is_taken_back() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG.replace("3.4.0", "3.3.0"))]);
    let node = old_image(&server, &ca);
    std::os::unix::fs::symlink("/nonexistent", node.path("usr/lib/ignition/base.d/dangling")).unwrap();
    node.run(&["fetch"]).assert(74).says("base.d/dangling");
    assert!(!node.path("run/oneboot/ignition").exists());
    assert_eq!(text(&node, "run/ignition.env"), "PLATFORM_ID=qemu\n");
    // The last step: the config is written, but Ignition cannot be told.
    std::fs::remove_file(node.path("usr/lib/ignition/base.d/dangling")).unwrap();
    std::fs::remove_file(node.path("run/ignition.env")).unwrap();
    std::os::unix::fs::symlink("ignition.env", node.path("run/ignition.env")).unwrap();
    node.run(&["fetch"]).assert(74).says("run/ignition.env");
    assert!(!node.path("run/oneboot/ignition").exists());
}

#[test]
fn a_current_ignition_needs_no_line() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let node = old_image(&server, &ca);
    node.put("usr/lib/oneboot/ignition-spec", "3.6.0\n");
    node.put("usr/lib/oneboot/ignition-dir", "/run/ignition\n");
    fetched(&node);
    assert!(server.requests()[0].header("accept").unwrap().contains("version=3.6.0"));
    assert!(node.out().exists() && !node.path("run/oneboot/ignition").exists());
    assert_eq!(text(&node, "run/ignition.env"), "PLATFORM_ID=qemu\n");
}

#[test]
fn the_key_comes_before_the_record_and_the_option_before_both() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG.replace("3.4.0", "3.0.0"))]);
    let node = old_image(&server, &ca).fragment("spec = '3.2.0'");
    fetched(&node);
    fetched(&node.with(&["--spec", "3.1.0"]));
    let asked: Vec<bool> = server
        .requests()
        .iter()
        .zip(["3.2.0", "3.1.0"])
        .map(|(request, spec)| request.header("accept").unwrap().contains(&format!("version={spec}")))
        .collect();
    assert_eq!(asked, [true, true]);
}

#[test]
fn a_record_that_makes_no_sense_is_refused_by_its_path() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let node = old_image(&server, &ca);
    node.put("usr/lib/oneboot/ignition-dir", "/etc/ignition\n");
    node.run(&["fetch"]).assert(78).says("usr/lib/oneboot/ignition-dir");
    assert_eq!(node.report()["outcome"], "bad-settings");
    assert!(server.requests().is_empty());
    node.assert_nothing_handed_over();
}

#[test]
fn a_failure_before_the_pointer_takes_an_earlier_hand_over_away_and_a_foreign_file_not() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG), ok(CONFIG)]);
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem())).with_token();
    let token_again = || node.put("proc/cmdline", "quiet systemd.set_credential=oneboot.token:c2VjcmV0\n");
    node.fetch().assert(0);
    token_again();
    node.fetch().assert(78);
    assert!(!node.out().exists(), "what an earlier run handed over is still there");

    node.put("proc/cmdline", "quiet\n");
    node.fetch().assert(0);
    std::fs::write(node.out(), "the platform's own").unwrap();
    token_again();
    node.fetch().assert(78);
    assert_eq!(std::fs::read(node.out()).unwrap(), b"the platform's own");
}

#[test]
fn a_token_that_would_stay_behind_is_refused() {
    let ca = Authority::new("root-ca");
    let second = |entry: &str| {
        let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
        let mcs = format!(
            r#"{{"source":"{}","httpHeaders":[{{"name":"Authorization","value":"Bearer {}"}}]}}"#,
            server.url("/config/worker"),
            common::TOKEN
        );
        let node = Node::new(&common::pointer_with(&format!("{mcs}{entry}"), &[&ca.pem()]));
        (node.fetch(), node)
    };
    let (ran, _) = second(r#",{"source":"http://h/x"}"#);
    ran.assert(0);
    let again = format!(
        r#",{{"source":"http://h/x","httpHeaders":[{{"name":"Authorization","value":"Bearer {}"}}]}}"#,
        common::TOKEN
    );
    let (ran, node) = second(&again);
    ran.assert(78).says("the token, in the pointer");
    node.assert_nothing_handed_over();
    node.assert_token_nowhere(&ran);

    let server =
        Server::start(ca.serving(), vec![ok(CONFIG.replace("/etc/a", &format!("/etc/{}", common::TOKEN)))]);
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem())).with_token();
    let ran = node.fetch();
    ran.assert(78).says("token-repeated");
    node.assert_nothing_handed_over();
}
