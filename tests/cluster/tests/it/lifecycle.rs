//! A data directory over time: a first start that is killed half-way, another port.

use crate::program::{PROGRAM, Serving, run, text};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts `serve` so that the kernel kills it in the middle of writing the first file that grows past `blocks`; true
/// if it has.
fn killed_while_writing(dir: &Path, blocks: usize) -> bool {
    let mut child = Command::new("sh")
        .args(["-c", "ulimit -c 0; ulimit -f \"$1\"; shift; exec \"$@\"", "sh", &blocks.to_string(), PROGRAM])
        .args(["serve", "--only", "api", "--api", "127.0.0.1:0", "--dir"])
        .arg(dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    if lines.any(|line| line.unwrap() == "ready") {
        child.kill().unwrap();
        child.wait().unwrap();
        return false;
    }
    assert!(child.wait().unwrap().signal().is_some(), "it was killed, it did not give up");
    true
}

/// Names of everything there is, of the kinds that a new cluster has.
fn everything(dir: &Path) -> Vec<String> {
    let kinds = ["secrets", "configmaps", "mcp", "clusterroles", "clusterrolebindings", "infrastructures"];
    let more = ["controllerconfigs", "machineconfigurations"];
    let mut all = Vec::new();
    for kind in kinds.iter().chain(&more) {
        let output = run(dir, &["get", kind], "");
        assert!(output.status.success(), "{kind}: {}", text(&output.stderr));
        all.extend(text(&output.stdout).lines().map(|line| format!("{kind} {line}")));
    }
    all
}

#[test]
fn a_first_start_that_was_killed_is_completed() {
    let scratch = tempfile::TempDir::new().unwrap();
    let clean = scratch.path().join("clean");
    let serving = Serving::start(&clean, &["--only", "api"]);
    let wanted = everything(&clean);
    assert!(wanted.len() > 15, "{wanted:?}");
    drop(serving);
    let (mut half, mut blocks) = (0, 1);
    loop {
        let dir = scratch.path().join(blocks.to_string());
        if !killed_while_writing(&dir, blocks) {
            break; // the limit is beyond what a first start writes
        }
        half +=
            usize::from(std::fs::metadata(dir.join("api-objects.jsonl")).is_ok_and(|file| file.len() > 512));
        let _serving = Serving::start(&dir, &["--only", "api"]);
        assert_eq!(everything(&dir), wanted, "killed at {blocks} blocks");
        blocks += 5; // a handful of places between the first object and the last
    }
    assert!(half >= 3, "killed {half} times between two default objects");
}

#[test]
fn another_port_for_the_api_is_followed() {
    let scratch = tempfile::TempDir::new().unwrap();
    let dir = scratch.path().join("data");
    let url = |who: &str| {
        let text = std::fs::read_to_string(dir.join(format!("{who}.kubeconfig"))).unwrap();
        text.lines().find_map(|line| line.trim().strip_prefix("server: ").map(str::to_owned)).unwrap()
    };
    drop(Serving::start(&dir, &[]));
    let old = url("admin");
    // A port that is free now: bound once, so that the two cannot be the same.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    std::fs::write(dir.join("api.address"), format!("127.0.0.1:{port}")).unwrap();
    let serving = Serving::start(&dir, &[]);
    let new = format!("https://127.0.0.1:{port}");
    assert_ne!(old, new);
    assert!(serving.lines.contains(&format!("API            {new}")), "{:?}", serving.lines);
    for who in ["admin", "mcs", "renderer", "approver"] {
        assert_eq!(url(who), new, "{who}");
    }
    let infrastructure = text(&run(&dir, &["get", "infrastructures", "cluster", "-o", "json"], "").stdout);
    let infrastructure: serde_json::Value = serde_json::from_str(&infrastructure).unwrap();
    assert_eq!(
        infrastructure["status"]["apiServerInternalURI"], new,
        "what a kubelet's kubeconfig is made of"
    );
}
