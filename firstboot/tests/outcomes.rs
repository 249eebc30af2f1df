//! Owns: every way in which a fetch fails or stays out, over real sockets: exit code, words, and nothing handed over.
//! Given one defect at a time, gives the outcome's name from the report.
//! Never: waits longer than `give_up_after` or `--deadline` of the case says.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::Authority;
use common::server::{Answer, Server, ok, status, with_header};
use common::{CONFIG, Node, TOKEN, embedded, pointer, pointer_with};
use std::io::Write;

/// Runs a node with a good pointer and token against these answers.
fn against(answers: Vec<Answer>, arguments: &[&str]) -> (Node, common::Ran, Server) {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), answers);
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem())).with_token().with(arguments);
    // Patience of no time at all: the first outcome that is not retried for ever is the last.
    let node = node.fragment("give_up_after = '0s'");
    let ran = node.fetch();
    (node, ran, server)
}

#[track_caller]
fn fails(answers: Vec<Answer>, arguments: &[&str], code: i32, outcome: &str) -> Server {
    let (node, ran, server) = against(answers, arguments);
    ran.assert(code).says("to do:");
    assert_eq!(node.report()["outcome"], outcome, "{}", ran.stderr);
    node.assert_nothing_handed_over();
    node.assert_token_nowhere(&ran);
    server
}

const SHORT: &[&str] = &["--deadline", "600ms"];

#[test]
fn refusals_by_status() {
    for (code, exit, outcome) in [
        (401, 77, "not-permitted"),
        (403, 77, "not-permitted"),
        (511, 77, "not-permitted"),
        (404, 69, "pool-unknown"),
        (405, 76, "unexpected-status"),
        (304, 76, "unexpected-status"),
    ] {
        fails(vec![status(code)], &[], exit, outcome);
    }
}

#[test]
fn the_servers_faults_are_retried_until_the_deadline() {
    for (answer, outcome) in [
        (status(500), "server-error"),
        (status(503), "server-error"),
        (Answer::Http(502, Vec::new(), b"<html>502 Bad Gateway</html>".to_vec()), "server-error"),
        (status(429), "server-error"),
        (status(408), "server-error"),
        (ok(""), "empty-config"),
        (status(204), "empty-config"),
        (Answer::Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"ignition\"".to_vec()), "truncated"),
        (Answer::Raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n".to_vec()), "server-error"),
    ] {
        let server = fails(vec![answer], SHORT, 69, outcome);
        assert!(server.requests().len() > 1, "{outcome} was not retried");
    }
}

#[test]
fn a_fault_that_passes_is_forgotten() {
    for answer in [status(503), ok(""), ok("<html>"), with_header(429, "Retry-After", "0")] {
        let (node, ran, server) = against(vec![answer, ok(CONFIG)], &[]);
        ran.assert(0);
        assert_eq!(embedded(&node.handed_over()["ignition"]["config"]["merge"][0]), CONFIG);
        assert_eq!((server.requests().len(), &node.report()["attempts"]), (2, &serde_json::json!(2)));
    }
}

#[test]
fn retry_after_beyond_the_deadline_ends_at_once() {
    let server =
        fails(vec![with_header(503, "Retry-After", "100")], &["--deadline", "50s"], 69, "server-error");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn retry_after_is_waited_for_in_both_forms() {
    let date = |second: u32| format!("Sun, 06 Nov 1994 08:49:{second:02} GMT");
    let by_date = vec![("Date".to_owned(), date(37)), ("Retry-After".to_owned(), date(38))];
    for answer in [with_header(429, "Retry-After", "1"), Answer::Http(503, by_date, Vec::new())] {
        let began = std::time::Instant::now();
        let (_, ran, server) = against(vec![answer, ok(CONFIG)], &[]);
        ran.assert(0);
        assert!(began.elapsed().as_millis() >= 1000, "asked again after {:?}", began.elapsed());
        assert_eq!(server.requests().len(), 2);
    }
}

#[test]
fn a_redirect_to_nowhere_and_an_answer_unchanged_are_no_configs() {
    for answer in [status(302), with_header(304, "Location", "/other")] {
        let server = fails(vec![answer, ok(CONFIG)], &[], 76, "unexpected-status");
        assert_eq!(server.requests().len(), 1);
    }
}

/// A port whose every connection is cut by a reset: data has arrived that nobody will read.
fn resetting() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            socket.unwrap().peek(&mut [0]).unwrap();
        }
    });
    port
}

/// A port that resets every connection in the middle of a body: it has asked for nothing after the handshake, so the request is unread.
/// TLS 1.2, since there the request cannot come along with the handshake's last message.
fn resetting_in_mid_body(ca: &Authority) -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let tls = ca.serving_only(&rustls::version::TLS12);
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let mut socket = socket.unwrap();
            let mut session = rustls::ServerConnection::new(tls.clone()).unwrap();
            session.complete_io(&mut socket).unwrap();
            socket.peek(&mut [0]).unwrap();
            session
                .writer()
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"ignition\"")
                .unwrap();
            session.write_tls(&mut socket).unwrap();
        }
    });
    port
}

#[test]
fn a_reset_in_mid_body_is_retried() {
    let ca = Authority::new("root-ca");
    let url = format!("https://127.0.0.1:{}/config/worker", resetting_in_mid_body(&ca));
    let node = Node::new(&pointer(&url, &ca.pem())).with_token().with(SHORT);
    let ran = node.fetch();
    ran.assert(69).says("after 11 bytes of the body");
    assert_eq!(node.report()["outcome"], "truncated");
    assert!(node.report()["attempts"].as_u64().unwrap() > 1);
    node.assert_nothing_handed_over();
    node.assert_token_nowhere(&ran);
}

#[test]
fn a_reset_connection_is_retried() {
    let url = format!("https://127.0.0.1:{}/config/worker", resetting());
    let node = Node::new(&pointer(&url, &Authority::new("root-ca").pem())).with(SHORT);
    node.fetch().assert(69).says("reset by peer").says("times in");
    assert_eq!(node.report()["outcome"], "unreachable");
    assert!(node.report()["attempts"].as_u64().unwrap() > 1);
    node.assert_nothing_handed_over();
}

#[test]
fn a_bomb_in_a_reference_goes_off_outside() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..65 {
        encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 1 << 20);
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(bomb)]);
    let entry = format!(r#"{{"source":"{}","compression":"gzip"}}"#, server.url("/config/worker"));
    let node = Node::new(&pointer_with(&entry, &[&ca.pem()]));
    node.fetch().assert(65).says("after decompression");
    assert_eq!((node.report()["outcome"].as_str(), server.requests().len()), (Some("too-large"), 1));
    node.assert_nothing_handed_over();
}

#[test]
fn a_refused_spec_is_stepped_down_to_the_oldest() {
    let accept = |request: &common::server::Request| request.header("accept").unwrap()[45..50].to_owned();
    let (_, ran, server) =
        against(vec![status(400), status(400), ok(CONFIG.replace("3.4.0", "3.2.0"))], &["--spec", "3.4.0"]);
    ran.assert(0);
    assert_eq!(server.requests().iter().map(accept).collect::<Vec<_>>(), ["3.4.0", "3.3.0", "3.2.0"]);
    let server = fails(vec![status(400)], &["--spec", "3.2.0"], 76, "spec-refused");
    assert_eq!(server.requests().iter().map(accept).collect::<Vec<_>>(), ["3.2.0", "3.1.0", "3.0.0"]);
}

#[test]
fn broken_documents_are_believed_the_third_time() {
    for (body, outcome) in [
        ("<html>502 Bad Gateway</html>", "not-json"),
        ("{\"ignition\":{\"version\":\"3.4.0\"}", "not-json"),
        ("{\"kind\":\"Status\"}", "not-ignition"),
        ("{\"ignition\":{\"version\":\"3.9.0\"}}", "unsupported-spec"),
        ("{\"ignition\":{\"version\":\"2.2.0\"}}", "unsupported-spec"),
    ] {
        let server = fails(vec![ok(body)], &[], 65, outcome);
        assert_eq!(server.requests().len(), 3, "{outcome}");
    }
}

#[test]
fn a_deadline_within_the_three_tries_is_still_about_the_data() {
    let hang = Answer::Hang(Vec::new());
    fails(vec![ok("<html>"), hang], &["--deadline", "600ms"], 65, "not-json");
}

#[test]
fn redirects_stay_with_the_origin_and_keep_every_header() {
    let (node, ran, server) = against(vec![with_header(302, "Location", "/other?x=1"), ok(CONFIG)], &[]);
    ran.assert(0);
    let requests = server.requests();
    assert_eq!(requests[1].line, "GET /other?x=1 HTTP/1.1");
    assert_eq!(requests[0].headers, requests[1].headers);
    assert_eq!(requests[1].connection, 1, "one connection is enough");
    assert_eq!(embedded(&node.handed_over()["ignition"]["config"]["merge"][0]), CONFIG);
}

#[test]
fn redirects_that_would_carry_the_token_away_are_refused() {
    for location in ["https://127.0.0.1:1/config/worker", "http://127.0.0.1/config/worker", "//localhost/"] {
        let server = fails(vec![with_header(307, "Location", location)], SHORT, 76, "redirect-refused");
        assert_eq!(server.requests().len(), 1, "{location}");
    }
    let server = fails(vec![with_header(302, "Location", "/again")], SHORT, 76, "redirect-refused");
    assert_eq!(server.requests().len(), 4, "three are followed");
}

#[test]
fn a_silent_server_is_given_up_by_the_deadline() {
    let hang = Answer::Hang(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{".to_vec());
    fails(vec![hang], &["--deadline", "300ms"], 69, "stalled");
    fails(vec![Answer::Hang(Vec::new())], &["--deadline", "300ms"], 69, "stalled");
}

#[test]
fn nobody_listening_is_unreachable() {
    let ca = Authority::new("root-ca");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let node = Node::new(&pointer(&format!("https://127.0.0.1:{port}/config/worker"), &ca.pem())).with(SHORT);
    node.fetch().assert(69).says("Connection refused");
    assert_eq!(node.report()["outcome"], "unreachable");
}

#[test]
fn a_body_over_the_limit_ends_at_once() {
    let server = fails(vec![ok(vec![b' '; (32 << 20) + 1])], &[], 65, "too-large");
    assert_eq!(server.requests().len(), 1);
}

/// A child that refers to this path of the same server.
fn refers_to(url: &str) -> String {
    format!(r#"{{"ignition":{{"version":"3.2.0","config":{{"merge":[{{"source":"{url}"}}]}}}}}}"#)
}

#[test]
fn cycles_and_depth() {
    let ca = Authority::new("root-ca");
    for (cyclic, outcome, tries) in [(true, "cycle", 1), (false, "too-deep", 8)] {
        let server = Server::answering(ca.serving(), move |request, number| {
            let host = request.header("host").unwrap();
            let next = if cyclic { "worker".to_owned() } else { format!("deeper-{number}") };
            ok(refers_to(&format!("https://{host}/config/{next}")))
        });
        let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem()));
        node.fetch().assert(65);
        assert_eq!(node.report()["outcome"], outcome);
        assert_eq!(server.requests().len(), tries, "{outcome}");
        node.assert_nothing_handed_over();
    }
}

#[test]
fn a_digest_that_does_not_match_is_refused() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let url = server.url("/config/worker");
    let entry = format!(r#"{{"source":"{url}","verification":{{"hash":"sha256-{}"}}}}"#, "0".repeat(64));
    let node = Node::new(&pointer_with(&entry, &[&ca.pem()]));
    node.fetch().assert(65).says("sha256-0000");
    assert_eq!(node.report()["outcome"], "digest-mismatch");
    node.assert_nothing_handed_over();
}

#[test]
fn without_a_ca_nothing_is_trusted() {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), vec![ok(CONFIG)]);
    let entry = format!(r#"{{"source":"{}"}}"#, server.url("/config/worker"));
    let node = Node::new(&pointer_with(&entry, &[])).with_token();
    node.fetch().assert(78).says("certificateAuthorities");
    assert_eq!(node.report()["outcome"], "no-ca");
    let node =
        Node::new(&pointer_with(&entry, &["-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]));
    node.fetch().assert(78);
    assert_eq!(node.report()["outcome"], "unusable-ca");
    assert!(server.requests().is_empty());
}

#[test]
fn a_token_on_the_kernel_command_line_is_refused() {
    for argument in ["oneboot.token=", "systemd.set_credential=oneboot.token:"] {
        let node = Node::new(&pointer("https://127.0.0.1:1/config/worker", &Authority::new("ca").pem()));
        node.put("proc/cmdline", format!("rw {argument}{TOKEN}\n"));
        let ran = node.fetch();
        ran.assert(78).says("credential oneboot.token");
        assert_eq!(node.report()["outcome"], "token-on-cmdline");
        node.assert_token_nowhere(&ran);
        node.assert_nothing_handed_over();
    }
}

#[test]
fn ignitions_own_url_argument_and_a_token_contradict_each_other() {
    let node =
        Node::new(&pointer("https://127.0.0.1:1/config/worker", &Authority::new("ca").pem())).with_token();
    node.put("proc/cmdline", "ignition.config.url=https://x/");
    node.fetch().assert(78).says("use oneboot.url= instead");
    assert_eq!(node.report()["outcome"], "conflicting-url");
    node.assert_nothing_handed_over();
    // Whoever uses that argument most likely has no pointer besides.
    node.run(&["fetch"]).assert(78).says("use oneboot.url= instead");
    assert_eq!(node.report()["outcome"], "conflicting-url");
}

#[test]
fn other_first_boots_are_left_alone() {
    let ca = Authority::new("root-ca").pem();
    let pointers = [
        pointer("http://127.0.0.1:1/config/worker", &ca),
        pointer("https://127.0.0.1:1/bootstrap.ign?X-Amz-Signature=x", &ca),
        pointer_with(r#"{"source":"https://127.0.0.1:1/config/worker"}"#, &[]),
        CONFIG.to_owned(),
        "not even JSON".to_owned(),
    ];
    for pointer in pointers {
        let node = Node::new(&pointer);
        node.fetch().assert(0).says("none of our business");
        assert!(!node.path("run").exists(), "something was written");
    }
    let node = Node::new("");
    node.run(&["fetch"]).assert(0).says("none of our business");
    assert!(!node.path("run").exists());
}

#[test]
fn local_files_that_are_not_there() {
    let node = Node::new(CONFIG);
    node.run(&["fetch", "--pointer", "/nonexistent/pointer"]).assert(74);
    node.run(&["fetch", "--token-file", "/nonexistent/token"]).assert(74);
    node.run(&["fetch", "--nonsense"]).assert(64);
    node.put("token", "\n");
    let node = node.with_token();
    node.fetch().assert(78);
    assert_eq!(node.report()["outcome"], "bad-token");
}
