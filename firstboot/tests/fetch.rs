//! Owns: the way that goes well, on a real socket: what is asked, what is handed over, what is reported.
//! Given a scripted server and a scratch node, gives the binary's effects to compare.
//! Never: sleeps; every wait is the program's own and ends with an event.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::Authority;
use common::server::{Server, ok};
use common::{CONFIG, Node, TOKEN, embedded, pointer, pointer_with};
use std::os::unix::fs::MetadataExt;

#[test]
fn a_pointer_becomes_a_config_without_references_or_token() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let node =
        Node::new(&pointer(&server.url("/config/worker"), &ca.pem())).with_token().with(&["--spec", "3.4.0"]);
    let ran = node.fetch();
    ran.assert(0);

    let handed = node.handed_over();
    let entry = &handed["ignition"]["config"]["merge"][0];
    assert_eq!(embedded(entry), CONFIG, "the server's bytes, unchanged");
    assert!(entry["verification"]["hash"].as_str().unwrap().starts_with("sha512-"));
    assert_eq!(std::fs::metadata(node.out()).unwrap().mode() & 0o7777, 0o600);

    let requests = server.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line, "GET /config/worker HTTP/1.1");
    let wanted = [
        ("accept", "application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1"),
        ("accept-encoding", "identity"),
        ("user-agent", concat!("oneboot-firstboot/", env!("CARGO_PKG_VERSION"))),
        ("host", &server.address.to_string()),
        ("authorization", &format!("Bearer {TOKEN}")),
    ];
    for (name, value) in wanted {
        assert_eq!(requests[0].header(name), Some(value), "{name}");
    }
    assert_eq!(requests[0].headers.len(), wanted.len(), "and no other header: {:?}", requests[0].headers);
    node.assert_token_nowhere(&ran);

    let report = node.report();
    assert_eq!(report["format"], 1);
    assert_eq!(report["outcome"], "fetched");
    assert_eq!(report["pool"], "worker");
    assert_eq!(report["mcs_host"]["name"], "127.0.0.1");
    assert_eq!(report["mcs_host"]["address"], "127.0.0.1");
    assert_eq!(report["token_source"], "token-file");
    assert_eq!(report["attempts"], 1);
    assert_eq!(report["spec"], "3.4.0");
    assert_eq!(report["url"], server.url("/config/worker"));
    assert_eq!(report["config"]["size"], CONFIG.len());
    let hash = format!("sha512-{}", report["config"]["sha512"].as_str().unwrap());
    assert_eq!(node.handed_over()["ignition"]["config"]["merge"][0]["verification"]["hash"], hash);
}

/// A server and a pointer whose entry is made from the server's URL; no token file.
fn pointing(entry: impl Fn(&str) -> String) -> (Server, Node) {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let node = Node::new(&pointer_with(&entry(&server.url("/config/worker")), &[&ca.pem()]));
    (server, node)
}

#[track_caller]
fn sends(server: &Server, node: &Node, line: &str, token: Option<&str>, source: Option<&str>) {
    let ran = node.fetch();
    ran.assert(0);
    let request = &server.requests()[0];
    assert_eq!(request.line, line);
    assert_eq!(
        request.header("authorization").map(str::to_owned),
        token.map(|token| format!("Bearer {token}"))
    );
    assert_eq!(node.report()["token_source"].as_str(), source);
    node.assert_token_nowhere(&ran);
}

const LINE: &str = "GET /config/worker HTTP/1.1";

#[test]
fn the_pointers_header_is_sent_and_gone() {
    let (server, node) = pointing(|url| {
        format!(
            r#"{{"source":"{url}","httpHeaders":[{{"name":"Authorization","value":"Bearer {TOKEN}"}},{{"name":"NodePool","value":"np-1"}}]}}"#
        )
    });
    sends(&server, &node, LINE, Some(TOKEN), Some("pointer-header"));
    assert_eq!(server.requests()[0].header("nodepool"), Some("np-1"), "both headers arrive");
    assert!(node.handed_over()["ignition"]["config"]["merge"][0].get("httpHeaders").is_none());
}

#[test]
fn a_token_in_the_url_is_sent_as_a_header_instead() {
    let (server, node) = pointing(|url| format!(r#"{{"source":"{url}?a=1&token={TOKEN}"}}"#));
    sends(&server, &node, "GET /config/worker?a=1 HTTP/1.1", Some(TOKEN), Some("pointer-url"));
    assert_eq!(node.report()["url"], server.url("/config/worker"));
}

#[test]
fn a_credential_comes_before_file_and_pointer() {
    let (server, mut node) = pointing(|url| {
        format!(r#"{{"source":"{url}","httpHeaders":[{{"name":"authorization","value":"Bearer {TOKEN}"}}]}}"#)
    });
    node.put("credentials/oneboot.token", "from-the-credential\n");
    let directory = node.path("credentials").to_str().unwrap().to_owned();
    node.environment.push(("CREDENTIALS_DIRECTORY".to_owned(), directory));
    sends(&server, &node.with_token(), LINE, Some("from-the-credential"), Some("credential"));
}

#[test]
fn no_token_is_no_header() {
    let (server, node) = pointing(|url| format!(r#"{{"source":"{url}"}}"#));
    sends(&server, &node, LINE, None, None);
}

#[test]
fn the_token_goes_to_its_own_origin_only() {
    let ca = Authority::new("root-ca");
    let other = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let elsewhere = other.url("/other.ign");
    let child =
        format!(r#"{{"ignition":{{"version":"3.2.0","config":{{"replace":{{"source":"{elsewhere}"}}}}}}}}"#);
    let server = Server::start(ca.serving(), vec![ok(child)]);
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem())).with_token();
    let ran = node.fetch();
    ran.assert(0);
    assert!(server.requests()[0].header("authorization").is_some());
    assert_eq!(other.requests()[0].header("authorization"), None);
    let outer = embedded(&node.handed_over()["ignition"]["config"]["merge"][0]);
    let outer: serde_json::Value = serde_json::from_str(&outer).unwrap();
    assert_eq!(embedded(&outer["ignition"]["config"]["replace"]), CONFIG, "resolved in depth");
}

#[test]
fn all_else_in_the_pointer_stays_and_other_references_too() {
    let (_server, node) =
        pointing(|url| format!(r#"{{"source":"data:,{{}}"}},{{"source":"{url}"}},{{"source":"s3://b/k"}}"#));
    node.fetch().assert(0);
    let mut before: serde_json::Value =
        serde_json::from_slice(&std::fs::read(node.path("pointer.ign")).unwrap()).unwrap();
    let after = node.handed_over();
    assert_eq!(embedded(&after["ignition"]["config"]["merge"][1]), CONFIG);
    before["ignition"]["config"]["merge"][1] = after["ignition"]["config"]["merge"][1].clone();
    assert_eq!(before, after);
}

#[test]
fn a_document_without_references_is_passed_on_byte_for_byte() {
    let ca = Authority::new("root-ca");
    let body = format!(" {CONFIG} \n");
    let server = Server::start(ca.serving(), vec![ok(&body)]);
    let node = Node::new("unused").with_token();
    node.put("ca.pem", ca.pem());
    let (url, bundle) = (server.url("/config/worker"), node.path("ca.pem"));
    node.run(&["fetch", "--url", &url, "--ca", bundle.to_str().unwrap()]).assert(0);
    assert_eq!(std::fs::read(node.out()).unwrap(), body.as_bytes());
    assert_eq!(node.report()["pool"], "worker");
}

#[test]
fn user_ign_is_found_and_replaced() {
    let (server, node) = pointing(|url| format!(r#"{{"source":"{url}"}}"#));
    std::fs::create_dir_all(node.path("run/ignition")).unwrap();
    std::fs::rename(node.path("pointer.ign"), node.out()).unwrap();
    node.run(&["fetch"]).assert(0);
    assert_eq!(server.requests().len(), 1);
    assert_eq!(node.report()["pointer_source"], "user.ign");
    assert_eq!(embedded(&node.handed_over()["ignition"]["config"]["merge"][0]), CONFIG);
}

#[test]
fn a_rotated_token_is_read_again_and_gets_in() {
    let ca = Authority::new("root-ca");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "old").unwrap();
    let source = file.clone();
    // The first refusal is when the operator rotates: by the time of the second try the source has the new one.
    let server = Server::answering(ca.serving(), move |request, _| {
        if request.header("authorization") == Some("Bearer new") {
            return ok(CONFIG);
        }
        std::fs::write(&source, "new").unwrap();
        common::server::status(401)
    });
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem()));
    let node = node.with(&["--token-file", file.to_str().unwrap()]);
    node.fetch().assert(0);
    assert_eq!(server.requests().len(), 2);
}

/// A document with these entries in `merge`, as a `data:` reference to it.
fn enclosed(entries: &str) -> String {
    let document = format!(r#"{{"ignition":{{"version":"3.2.0","config":{{"merge":[{entries}]}}}}}}"#);
    format!(r#"{{"source":"{}"}}"#, oneboot_firstboot::dataurl::encode(document.as_bytes()))
}

#[test]
fn references_inside_data_urls_are_resolved_where_they_stand() {
    let (server, node) = pointing(|url| {
        let carrying = format!(r#"{{"source":"{url}?token={TOKEN}"}}"#);
        format!(r#"{{"source":"data:,first"}},{},{{"source":"data:,last"}}"#, enclosed(&enclosed(&carrying)))
    });
    sends(&server, &node, LINE, Some(TOKEN), Some("pointer-url"));
    let merge = &node.handed_over()["ignition"]["config"]["merge"];
    assert_eq!((&merge[0]["source"], &merge[2]["source"]), (&"data:,first".into(), &"data:,last".into()));
    let inner = |entry: &serde_json::Value| -> serde_json::Value {
        let document: serde_json::Value = serde_json::from_str(&embedded(entry)).unwrap();
        document["ignition"]["config"]["merge"][0].clone()
    };
    assert_eq!(embedded(&inner(&inner(&merge[1]))), CONFIG);
}

#[test]
fn data_urls_that_lead_nowhere_stay_byte_for_byte() {
    let untouched = enclosed(r#"{"source":"data:,x"},{"source":"s3://bucket/key"}"#);
    let (_server, node) = pointing(|url| format!(r#"{untouched},{{"source":"{url}"}}"#));
    node.fetch().assert(0);
    let wanted: serde_json::Value = serde_json::from_str(&untouched).unwrap();
    assert_eq!(node.handed_over()["ignition"]["config"]["merge"][0], wanted);
}

#[test]
fn what_replace_supersedes_is_neither_fetched_nor_kept() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let (merged, instead) = (server.url("/config/merged"), server.url("/config/worker"));
    let header = format!(r#"[{{"name":"Authorization","value":"Bearer {TOKEN}"}}]"#);
    let text = pointer_with(&format!(r#"{{"source":"{merged}","httpHeaders":{header}}}"#), &[&ca.pem()]);
    let replace = format!(r#""replace":{{"source":"{instead}","verification":{{}}}}"#);
    let node = Node::new(&text.replace(r#""replace":{"verification":{}}"#, &replace));
    let ran = node.fetch();
    ran.assert(0);
    let lines: Vec<String> = server.requests().into_iter().map(|request| request.line).collect();
    assert_eq!(lines, [LINE]);
    assert_eq!(server.requests()[0].header("authorization"), None, "the token is for what carries it");
    let config = &node.handed_over()["ignition"]["config"];
    assert_eq!(embedded(&config["replace"]), CONFIG);
    assert_eq!(config["merge"], serde_json::json!([]));
    node.assert_token_nowhere(&ran);
}

#[test]
fn a_token_goes_to_the_server_of_the_reference_that_carries_it() {
    let ca = Authority::new("root-ca");
    let first = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let second = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let (plain, carrying) = (first.url("/config/worker"), second.url("/config/worker"));
    let entries = format!(r#"{{"source":"{plain}"}},{{"source":"{carrying}?token={TOKEN}"}}"#);
    let node = Node::new(&pointer_with(&entries, &[&ca.pem()]));
    node.fetch().assert(0);
    assert_eq!(first.requests()[0].header("authorization"), None);
    assert_eq!(second.requests()[0].header("authorization"), Some(format!("Bearer {TOKEN}").as_str()));
}
