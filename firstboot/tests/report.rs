//! Owns: `report`: what is sent to whom, and that nothing that comes of it fails a boot.
//! Given a node on which `fetch` has run and a scripted server, gives the requests that arrived.
//! Never: looks at the report's content beyond its being the file's; `fetch.rs` does.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::Authority;
use common::server::{Answer, Request, Server, ok, status, with_header};
use common::{CONFIG, Node, TOKEN, pointer, pointer_with};

/// A server that serves the config and answers a report like this.
fn server(ca: &Authority, config: Answer, report: Answer) -> Server {
    Server::answering(ca.serving(), move |request, _| {
        if request.line.starts_with("GET") { config.clone() } else { report.clone() }
    })
}

fn reported(server: &Server) -> Vec<Request> {
    server.requests().into_iter().filter(|request| request.line.starts_with("POST")).collect()
}

/// With the pointer where images have it, and a token in a file.
fn node(server: &Server, ca: &Authority) -> Node {
    let node = Node::new("unused").with_token().fragment("give_up_after = '0s'");
    node.put("etc/ignition/user.ign", pointer(&server.url("/config/worker"), &ca.pem()));
    node
}

#[test]
fn a_success_and_a_failure_are_offered_with_the_token() {
    let ca = Authority::new("root-ca");
    for (config, code) in [(ok(CONFIG), 0), (status(404), 69)] {
        let server = server(&ca, config, status(204));
        let node = node(&server, &ca);
        node.run(&["fetch"]).assert(code);
        let written = std::fs::read(node.path("run/oneboot/firstboot.json")).unwrap();
        let ran = node.run(&["report"]);
        ran.assert(0).says(&format!("the report was taken by {}", server.address));
        node.assert_token_nowhere(&ran);
        let requests = reported(&server);
        assert_eq!(requests.len(), 1);
        assert_eq!(requests[0].line, "POST /oneboot/v1/report HTTP/1.1");
        assert_eq!(requests[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
        assert_eq!(requests[0].header("content-type"), Some("application/json"));
        assert_eq!(requests[0].body, written);
        let sent: serde_json::Value = serde_json::from_slice(&requests[0].body).unwrap();
        assert_eq!(
            (&sent["exit"], &sent["boot_id"]),
            (&code.into(), &serde_json::Value::Null),
            "no /proc here"
        );
    }
}

#[test]
fn any_other_answer_ends_it_quietly() {
    let ca = Authority::new("root-ca");
    let truncated = Answer::Raw(b"HTTP/1.1 2".to_vec());
    for (answer, words) in [
        (status(405), "status 405"),
        (status(404), "status 404"),
        (status(401), "status 401"),
        (status(200), "status 200"),
        (status(503), "status 503"),
        (with_header(307, "Location", "/config/worker"), "status 307"),
        (truncated, "before an answer"),
    ] {
        let server = server(&ca, ok(CONFIG), answer);
        let node = node(&server, &ca);
        node.run(&["fetch"]).assert(0);
        let before = std::fs::read(node.out()).unwrap();
        let ran = node.run(&["report"]);
        ran.assert(0).says("the report was not taken").says(words);
        assert!(!ran.stderr.contains("warning") && !ran.stderr.contains("error:"), "{}", ran.stderr);
        assert_eq!(reported(&server).len(), 1, "{words}: one try and no redirect");
        assert_eq!(std::fs::read(node.out()).unwrap(), before);
    }
}

#[test]
fn a_server_that_does_not_answer_is_not_waited_for() {
    let ca = Authority::new("root-ca");
    let server = server(&ca, ok(CONFIG), Answer::Hang(Vec::new()));
    let node = node(&server, &ca);
    node.run(&["fetch"]).assert(0);
    node.with(&["--deadline", "200ms"]).run(&["report"]).assert(0).says("took too long");
}

#[test]
fn a_server_that_the_pointer_does_not_trust_gets_nothing() {
    let ca = Authority::new("root-ca");
    let server = server(&Authority::new("other-ca"), ok(CONFIG), status(204));
    let node = node(&server, &ca);
    node.run(&["fetch"]).assert(78);
    node.run(&["report"]).assert(0).says("does not lead to a CA of the pointer");
    assert!(server.requests().is_empty());
}

#[test]
fn a_token_of_the_pointer_is_used_while_there_is_a_pointer() {
    let ca = Authority::new("root-ca");
    let server = server(&ca, ok(CONFIG), status(204));
    let entry = format!(r#"{{"source":"{}?token={TOKEN}"}}"#, server.url("/config/worker"));
    let bearer = format!("Bearer {TOKEN}");
    for (place, token) in [("etc/ignition/user.ign", Some(bearer.as_str())), ("run/ignition/user.ign", None)]
    {
        let node = Node::new("unused");
        node.put(place, pointer_with(&entry, &[&ca.pem()]));
        node.run(&["fetch"]).assert(0);
        let ran = node.run(&["report"]);
        ran.assert(0).says("the report was taken by");
        let requests = reported(&server);
        assert_eq!(requests.last().unwrap().header("authorization"), token, "{place}");
        assert!(!ran.stderr.contains(TOKEN));
    }
    assert_eq!(reported(&server).len(), 2);
}

#[test]
fn a_token_is_not_sent_to_whom_the_report_alone_names() {
    let ca = Authority::new("root-ca");
    let (mcs, other) = (server(&ca, ok(CONFIG), status(204)), server(&ca, ok(CONFIG), status(204)));
    let entry = format!(r#"{{"source":"{}?token={TOKEN}"}}"#, mcs.url("/config/worker"));
    let node = Node::new("unused");
    node.put("etc/ignition/user.ign", pointer_with(&entry, &[&ca.pem()]));
    node.run(&["fetch"]).assert(0);
    let report = std::fs::read_to_string(node.path("run/oneboot/firstboot.json")).unwrap();
    node.put(
        "run/oneboot/firstboot.json",
        report.replace(&mcs.address.to_string(), &other.address.to_string()),
    );
    node.run(&["report"]).assert(0);
    assert_eq!(reported(&other)[0].header("authorization"), None);
}

#[test]
fn what_cannot_be_reported_is_said_and_no_more() {
    let ca = Authority::new("root-ca");
    let server = server(&ca, ok(CONFIG), status(204));
    let node = node(&server, &ca);
    node.run(&["report"]).assert(0).says("nothing to report");
    node.run(&["fetch"]).assert(0);
    let good = std::fs::read_to_string(node.path("run/oneboot/firstboot.json")).unwrap();
    let address = server.address.to_string();
    for (report, words) in [
        ("{".to_owned(), "is not a report"),
        (good.replace("\"format\": 1", "\"format\": 2"), "has format 2"),
        (good.replace(&format!("\"https://{address}/config/worker\""), "null"), "names no server"),
        (good.clone() + &" ".repeat(64 << 10), "has more than 65536 bytes"),
    ] {
        assert_ne!(report, good);
        node.put("run/oneboot/firstboot.json", report);
        node.run(&["report"]).assert(0).says(words);
    }
    assert!(reported(&server).is_empty());
    node.run(&["report", "now"]).assert(64);
}
