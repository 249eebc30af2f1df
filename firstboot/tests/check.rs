//! Owns: `check FILE`, its four exits and what it says.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::{Authority, DAY, YEAR};
use common::{CONFIG, Node, TOKEN, pointer, pointer_with};

fn check(content: &str) -> common::Ran {
    let node = Node::new(content);
    let file = node.path("pointer.ign");
    let ran = node.run(&["check", file.to_str().unwrap()]);
    assert!(!node.path("run").exists(), "check wrote something");
    ran
}

#[test]
fn usable_or_none_of_our_business() {
    let ca = Authority::new("root-ca").pem();
    let ran = check(&pointer("https://api-int.example:22623/config/worker", &ca));
    ran.assert(0);
    assert!(
        ran.stdout.contains("usable: pool \"worker\" at api-int.example:22623, 1 CA(s), no token"),
        "{}",
        ran.stdout
    );
    let entry = format!(r#"{{"source":"https://h/config/worker?token={TOKEN}"}}"#);
    let ran = check(&pointer_with(&entry, &[&ca]));
    ran.assert(0);
    assert!(ran.stdout.contains("a token") && !ran.stdout.contains(TOKEN), "{}", ran.stdout);
    for other in
        [CONFIG.to_owned(), pointer("http://h:22624/config/worker", &ca), pointer("https://h/x.ign", &ca)]
    {
        let ran = check(&other);
        ran.assert(0);
        assert!(ran.stdout.contains("none of our business"), "{}", ran.stdout);
    }
}

#[test]
fn malformed_is_65() {
    check("<html>").assert(65).says("not JSON");
    check("{}").assert(65).says("no ignition section");
    check(r#"{"ignition":{"version":"2.2.0"}}"#).assert(65).says("Ignition spec 2.2.0");
}

#[test]
fn unreadable_is_74() {
    let node = Node::new("");
    node.run(&["check", "/nonexistent/pointer"]).assert(74).says("/nonexistent/pointer");
}

#[test]
fn no_usable_trust_is_78() {
    let source = r#"{"source":"https://h/config/worker"}"#;
    check(&pointer_with(source, &[])).assert(78).says("certificateAuthorities");
    check(&pointer_with(source, &["no PEM here"])).assert(78).says("certificateAuthorities[0]");
    let expired = Authority::valid("old-ca", -2 * YEAR, -DAY).pem();
    check(&pointer_with(source, &[&expired])).assert(78).says("expired");
}
