//! Owns: what reaches the journal: one entry per outcome, with its `MESSAGE_ID` and fields.
//! Given a socket in the journal's place, in a mount namespace of the program's own, gives the entries that arrive.
//! Never: touches the machine's own journal.

#![allow(clippy::unwrap_used)] // a failed step of the set-up is a failed test

mod common;

use common::pki::Authority;
use common::server::{Answer, Server, ok, status};
use common::{CONFIG, Node, TOKEN, pointer};
use oneboot_firstboot::outcome::Outcome;
use std::collections::BTreeMap;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

type Entry = BTreeMap<String, String>;

/// Puts `$0` in the place of the journal's directory, and runs the rest.
const AS_JOURNAL: &str = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/journal && \
    mount --bind \"$0\" /run/systemd/journal && exec \"$@\"";

/// The exit code and the journal's entries of one command against these answers.
fn run(command: &str, answers: Vec<Answer>) -> (i32, Vec<Entry>, Server) {
    let ca = Authority::new("root-ca");
    let server = Server::start(ca.serving(), answers);
    let node = Node::new(&pointer(&server.url("/config/worker"), &ca.pem()));
    node.put("fragments/test.toml", "give_up_after = '0s'");
    node.put("journal/.keep", "");
    let journal = UnixDatagram::bind(node.path("journal/socket")).unwrap();
    journal.set_nonblocking(true).unwrap();
    let mut process = Command::new("unshare");
    process.args(["--user", "--map-root-user", "--mount", "sh", "-c", AS_JOURNAL]).arg(node.path("journal"));
    process.args([env!("CARGO_BIN_EXE_oneboot-firstboot"), command]); // --root is the machine's own
    for (option, name) in [
        ("--pointer", "pointer.ign"),
        ("--token-file", "token"),
        ("--out", "user.ign"),
        ("--report", "report.json"),
        ("--config", "fragments"),
    ] {
        process.arg(option).arg(node.path(name));
    }
    let output = process.env_remove("CREDENTIALS_DIRECTORY").output().expect("util-linux is there");
    let code = output.status.code().unwrap();
    assert!(!String::from_utf8_lossy(&output.stderr).contains("unshare:"), "{output:?}");

    // The program has ended: whatever it has sent is in the socket's queue.
    let mut entries = Vec::new();
    let mut buffer = vec![0; 1 << 20];
    while let Ok(size) = journal.recv(&mut buffer) {
        if size == 0 {
            continue; // the library's own question whether there is a journal
        }
        assert!(!buffer[..size].windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes()));
        entries.push(parse(&buffer[..size]));
    }
    (code, entries, server)
}

/// The journal's native protocol: `KEY=value`, or `KEY`, a length in 8 bytes, and a value that may hold anything.
fn parse(mut bytes: &[u8]) -> Entry {
    let mut entry = Entry::new();
    while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        bytes = &bytes[end + 1..];
        if let Some((key, value)) = line.split_once('=') {
            entry.insert(key.to_owned(), value.to_owned());
        } else {
            let (length, rest) = bytes.split_at(8);
            let length = usize::try_from(u64::from_le_bytes(length.try_into().unwrap())).unwrap();
            entry.insert(line.to_owned(), String::from_utf8(rest[..length].to_vec()).unwrap());
            bytes = &rest[length + 1..];
        }
    }
    entry
}

#[track_caller]
fn holds(entry: &Entry, outcome: Outcome, priority: &str, words: &str) {
    assert_eq!(entry["MESSAGE_ID"], outcome.message_id());
    assert_eq!(entry["ONEBOOT_OUTCOME"], outcome.name());
    assert_eq!(
        (entry["SYSLOG_IDENTIFIER"].as_str(), entry["PRIORITY"].as_str()),
        ("oneboot-firstboot", priority)
    );
    assert!(entry["MESSAGE"].contains(words), "{}", entry["MESSAGE"]);
}

#[test]
fn a_wait_and_a_success_are_one_entry_each() {
    let (code, entries, server) = run("fetch", vec![status(503), ok(CONFIG)]);
    assert_eq!((code, entries.len()), (0, 2), "{entries:?}");
    holds(&entries[0], Outcome::ServerError, "4", "status 503; next try in");
    assert_eq!(entries[0]["ONEBOOT_ATTEMPT"], "1");
    holds(&entries[1], Outcome::Fetched, "5", "in 2 attempt(s)");
    assert_eq!(entries[1]["ONEBOOT_ATTEMPTS"], "2");
    assert_eq!(entries[1]["ONEBOOT_URL"], server.url("/config/worker"));
}

#[test]
fn a_failure_is_one_entry() {
    let (code, entries, server) = run("fetch", vec![status(404)]);
    assert_eq!((code, entries.len()), (69, 1), "{entries:?}");
    holds(&entries[0], Outcome::PoolUnknown, "3", "status 404");
    assert_eq!(entries[0]["ONEBOOT_URL"], server.url("/config/worker"));
}

#[test]
fn a_report_that_is_not_there_is_one_entry() {
    let (code, entries, _) = run("report", vec![status(204)]);
    assert_eq!((code, entries.len()), (0, 1), "{entries:?}");
    assert_eq!(entries[0]["MESSAGE_ID"], oneboot_firstboot::report::MESSAGE_ID_OFFERED);
    assert!(entries[0]["MESSAGE"].starts_with("nothing to report"));
}
