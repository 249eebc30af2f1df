//! The program as people start it: lines, files, exit codes, SIGKILL.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_oneboot-cluster");

/// A `serve` that has said `ready`.
pub(crate) struct Serving {
    pub(crate) child: Child,
    pub(crate) lines: Vec<String>,
}

impl Serving {
    pub(crate) fn start(dir: &Path, more: &[&str]) -> Self {
        let mut child = Command::new(PROGRAM)
            .args(["serve", "--api", "127.0.0.1:0", "--mcs", "127.0.0.1:0", "--dir"])
            .arg(dir)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = Vec::new();
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            if line == "ready" {
                return Self { child, lines };
            }
            lines.push(line);
        }
        panic!("serve ended before it was ready: {:?}", child.wait());
    }

    pub(crate) fn terminate(mut self) -> std::process::ExitStatus {
        Command::new("kill").arg(self.child.id().to_string()).status().unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(crate) fn run(dir: &Path, arguments: &[&str], input: &str) -> Output {
    let mut child = Command::new(PROGRAM)
        .args(arguments)
        .arg("--dir")
        .arg(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    child.wait_with_output().unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) const CONFIG: &str = "
apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata: {name: 99-worker, labels: {machineconfiguration.openshift.io/role: worker}}
spec: {config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/a, mode: 0644, contents: {source: 'data:,a'}}]}}}
";

#[test]
fn by_hand_from_serve_to_pointer_and_through_a_kill() {
    let scratch = tempfile::TempDir::new().unwrap();
    let dir = scratch.path().join("data");
    let serving = Serving::start(&dir, &[]);
    assert!(serving.lines.iter().any(|line| line.starts_with("MCS ") && line.contains("https://127.0.0.1:")));
    let token = run(&dir, &["token", "new", "--pool", "worker"], "");
    assert!(token.status.success());
    let token = text(&token.stdout).trim().to_owned();
    assert_eq!(token.len(), 44, "32 bytes in base64");
    let applied = run(&dir, &["apply", "-f", "-"], CONFIG);
    assert_eq!(
        text(&applied.stdout),
        "machineconfigs.machineconfiguration.openshift.io/99-worker created\n",
        "{}",
        text(&applied.stderr)
    );
    let stored = text(&run(&dir, &["get", "mc", "99-worker", "-o", "json"], "").stdout);
    assert!(stored.contains("\"mode\": 420"), "0644 is octal: {stored}");
    let pointer = run(&dir, &["pointer", "--pool", "worker"], "");
    let pointer: serde_json::Value = serde_json::from_slice(&pointer.stdout).unwrap();
    let entry = &pointer["ignition"]["config"]["merge"][0];
    assert_eq!(entry["httpHeaders"][0]["value"], format!("Bearer {token}"));
    assert!(entry["source"].as_str().unwrap().ends_with("/config/worker"));
    let listed = text(&run(&dir, &["token", "list"], "").stdout);
    assert!(listed.contains("worker") && !listed.contains(&token), "{listed}");
    let mut serving = serving;
    serving.child.kill().unwrap(); // SIGKILL: nothing is said goodbye to
    serving.child.wait().unwrap();
    let down = run(&dir, &["token", "list"], "");
    assert_eq!(down.status.code(), Some(69), "{}", text(&down.stderr));
    let again = Serving::start(&dir, &[]);
    assert_eq!(again.lines, serving.lines, "the same ports");
    let same: serde_json::Value =
        serde_json::from_slice(&run(&dir, &["pointer", "--pool", "worker"], "").stdout).unwrap();
    assert_eq!(same, pointer, "the same token, CA and URL");
    assert!(again.terminate().success(), "SIGTERM ends cleanly");
}

#[test]
fn files_are_the_owners_only() {
    use std::os::unix::fs::PermissionsExt as _;
    let scratch = tempfile::TempDir::new().unwrap();
    let dir = scratch.path().join("data");
    let _serving = Serving::start(&dir, &[]);
    assert_eq!(std::fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o700);
    let mut seen = 0;
    for entry in std::fs::read_dir(&dir).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{}",
            entry.path().display()
        );
        seen += 1;
    }
    assert!(seen > 8);
}

#[test]
fn parts_as_separate_processes() {
    let scratch = tempfile::TempDir::new().unwrap();
    let dir = scratch.path().join("data");
    let api = Serving::start(&dir, &["--only", "api"]);
    let alone = run(&dir, &["pointer"], "");
    assert_eq!(alone.status.code(), Some(78), "{}", text(&alone.stderr));
    assert!(text(&alone.stderr).contains("oneboot-cluster serve"), "says what to type");
    let nothing = run(&dir, &["certs", "rotate"], "");
    assert_eq!(nothing.status.code(), Some(78), "{}", text(&nothing.stderr));
    assert!(
        text(&nothing.stderr).contains("no machine config server has run yet"),
        "{}",
        text(&nothing.stderr)
    );
    let _mcs = Serving::start(&dir, &["--only", "mcs"]);
    let _renderer = Serving::start(&dir, &["--only", "renderer"]);
    let applied = run(&dir, &["apply", "-f", "-"], CONFIG);
    assert!(applied.status.success(), "{}", text(&applied.stderr));
    assert!(run(&dir, &["pointer"], "").status.success());
    drop(api);
}

#[test]
fn errors_have_codes_and_say_what_to_type() {
    let scratch = tempfile::TempDir::new().unwrap();
    let dir = scratch.path().join("data");
    for (arguments, code, says) in [
        (vec!["token", "list"], 78, "oneboot-cluster serve --dir DIR"),
        (vec!["nonsense"], 64, "Usage"),
        (vec!["token", "new", "--ttl", "soon"], 64, "24h"),
    ] {
        let output = run(&dir, &arguments, "");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!dir.exists(), "a refusal makes nothing");
    let _serving = Serving::start(&dir, &[]);
    for (arguments, input, code, says) in [
        (vec!["get", "mc", "nobody"], "", 65, "not found"),
        (vec!["get", "things"], "", 64, "try nodes"),
        (vec!["apply", "-f", "-"], "kind: [", 65, "not YAML"),
        (vec!["apply", "-f", "-"], "{kind: Thing, apiVersion: v1}", 65, "no \"Thing\""),
        (vec!["apply", "-f", "/nowhere.yaml"], "", 74, "/nowhere.yaml"),
        (vec!["token", "revoke", "0123"], "", 65, "at least 8"),
        (vec!["token", "revoke", "0123456789"], "", 65, "token list"),
        (vec!["approve", "csr-nobody"], "", 65, "not found"),
    ] {
        let output = run(&dir, &arguments, input);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains(says), "{arguments:?}: {}", text(&output.stderr));
    }
}
