//! Owns: every way in which a fetch fails or stays out, over real sockets: exit code, words, and nothing handed over.
//! Given one defect at a time, gives the outcome's name from the report.
//! Never: waits longer than `give_up_after` or `--deadline` of the case says.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::{Authority, DAY, YEAR};
use common::server::{Answer, Server, ok, status, with_header};
use common::{CONFIG, Node, TOKEN, embedded, pointer, pointer_with};

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
        let server = fails(vec![with_header(307, "Location", location)], &[], 76, "redirect-refused");
        assert_eq!(server.requests().len(), 1, "{location}");
    }
    let server = fails(vec![with_header(302, "Location", "/again")], &[], 76, "redirect-refused");
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

/// Against a certificate, with the pointer's CAs, and no patience.
fn certificate(
    tls: std::sync::Arc<rustls::ServerConfig>,
    host: &str,
    authorities: &[&str],
) -> (Node, common::Ran) {
    let server = Server::start(tls, vec![ok(CONFIG)]);
    let url = format!("https://{host}:{}/config/worker", server.address.port());
    let node = Node::new(&pointer_with(&format!(r#"{{"source":"{url}"}}"#), authorities)).with_token();
    let node = node.fragment("give_up_after = '0s'");
    let ran = node.fetch();
    if ran.code != 0 {
        assert!(server.requests().is_empty(), "something was sent to a server that is not trusted");
        node.assert_nothing_handed_over();
    }
    (node, ran)
}

#[test]
fn certificates_that_cannot_be_trusted_are_told_apart() {
    let ca = Authority::new("root-ca");
    let names = ["127.0.0.1", "localhost"];
    let old = Authority::valid("old-ca", -3 * YEAR, -DAY);
    for (tls, authority, outcome, words) in [
        (Authority::new("other-ca").serving(), &ca, "certificate-untrusted", "\"other-ca\""),
        (ca.serving_for(&names, -9 * DAY, -DAY), &ca, "certificate-expired", "the machine's clock says"),
        (ca.serving_for(&["mcs.example"], -DAY, DAY), &ca, "certificate-wrong-name", "mcs.example"),
        (old.serving_for(&names, -DAY, DAY), &old, "certificate-expired", "old-ca"),
    ] {
        let (node, ran) = certificate(tls, "127.0.0.1", &[&authority.pem()]);
        ran.assert(78).says(words);
        assert_eq!(node.report()["outcome"], outcome);
    }
}

#[test]
fn a_clock_that_is_years_behind_refuses_nothing() {
    // Seen from the certificates, this machine's clock is that far behind.
    let ca = Authority::valid("young-ca", 2 * YEAR, 12 * YEAR);
    let (_, ran) = certificate(ca.serving_for(&["127.0.0.1"], 3 * YEAR, 4 * YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(0);
    // Expired by the CA's own date, although the clock has not come there yet.
    let (node, ran) = certificate(ca.serving_for(&["127.0.0.1"], -DAY, YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(78);
    assert_eq!(node.report()["outcome"], "certificate-expired");
    // A date in the future helps nobody whom the CA did not sign.
    let other = Authority::valid("other-ca", -DAY, 12 * YEAR);
    let (_, ran) =
        certificate(other.serving_for(&["127.0.0.1"], 3 * YEAR, 4 * YEAR), "127.0.0.1", &[&ca.pem()]);
    ran.assert(78);
}

#[test]
fn old_and_new_ca_in_one_bundle_or_in_two_entries() {
    let (old, new) = (Authority::new("root-ca"), Authority::new("root-ca"));
    let both = old.pem() + &new.pem();
    for authorities in [vec![both.as_str()], vec![&old.pem(), &new.pem()]] {
        for signer in [&old, &new] {
            let (node, ran) = certificate(signer.serving(), "localhost", &authorities);
            ran.assert(0);
            assert_eq!(node.report()["ca_fingerprints"].as_array().unwrap().len(), 2);
        }
    }
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
