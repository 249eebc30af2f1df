//! What waiting costs, measured on the binary itself: nothing.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Mutex, mpsc},
    time::{Duration, Instant},
};

use oneboot_agent::{paths, status::Status};
use serde_json::json;

use crate::support::{Answer, Asked, Ca, Line, NODE, Server, Tree, list, request};

/// How long the agent is watched doing nothing. A tick of any period up to this is caught.
const OBSERVED: Duration = Duration::from_secs(3);

/// Ends the process with the test, however that ends.
struct Agent(Child);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Context switches of every thread, so far: a thread that sleeps has a constant number.
fn switches(pid: u32) -> BTreeMap<String, u64> {
    let field = |task: &Path, key: &str| -> u64 {
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let line = status.lines().find(|line| line.starts_with(key)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    std::fs::read_dir(format!("/proc/{pid}/task"))
        .unwrap()
        .map(|task| task.unwrap().path())
        .map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).unwrap().trim().to_owned();
            (name, field(&task, "voluntary_ctxt_switches") + field(&task, "nonvoluntary_ctxt_switches"))
        })
        .collect()
}

/// The counts once every thread is blocked: the answer to the watch may still be on its way through the last read.
fn quiet(pid: u32) -> BTreeMap<String, u64> {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let blocked = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|task| {
            let stat = std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('S')
        });
        let (first, second) = (switches(pid), switches(pid));
        if blocked && first == second {
            return first;
        }
        assert!(Instant::now() < deadline, "it never comes to rest");
        std::thread::yield_now();
    }
}

/// Resident memory in KiB.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn waiting_for_approval_wakes_nobody() {
    let (watched, watching) = mpsc::channel();
    let (speak, lines) = mpsc::channel();
    let lines = Mutex::new(Some(lines));
    let pending = json!({
        "metadata": {"name": "csr-1", "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "signerName": "kubernetes.io/kube-apiserver-client-kubelet", "request": request("system:node:node-a"),
        },
    });
    let mut approved = pending.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    let ca = Ca::new("api-ca");
    let server = Server::start(&ca, Ca::new("client-ca"), move |asked: &Asked| {
        if asked.target.contains("watch=true") {
            watched.send(()).unwrap();
            return lines.lock().unwrap().take().map_or(Answer::Drop, Answer::Watch);
        }
        list("5", std::slice::from_ref(&pending))
    });
    let tree = Tree::new();
    tree.kubeconfig(paths::BOOTSTRAP_KUBECONFIG, &server.url, &ca.pem, Some("bootstrap-token"));
    tree.write("/etc/hostname", NODE);

    let mut child = Command::new(env!("CARGO_BIN_EXE_oneboot-agent"))
        .args(["run", "--root"])
        .arg(tree.dir.path())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let agent = Agent(child);
    let pid = agent.0.id();

    let mut lines = said.lines().map(Result::unwrap);
    let mut says = |what: &str| lines.find(|line| line.contains(what)).expect("it says why it waits");
    assert!(says("csr-1 is pending").starts_with("Waiting: "));
    watching.recv_timeout(Duration::from_secs(60)).expect("the request is watched");
    // One change, and it has been heard: whatever the agent does from here on, it does for nothing.
    speak.send(Line::Event("MODIFIED", approved)).unwrap();
    says("csr-1 is approved");
    let before = quiet(pid);
    assert_eq!(before.keys().collect::<Vec<_>>(), ["certificate", "oneboot-agent", "request"]);
    // The period over which nothing must happen is what is measured here, not a wait for something.
    std::thread::sleep(OBSERVED);
    assert_eq!(switches(pid), before, "a thread woke up");
    assert_eq!(Status::read(&tree.root).unwrap().unwrap().state.to_string(), "Waiting");
    // The budget (8 MiB) is for the release profile; a debug build is only kept from running away.
    let limit = if cfg!(debug_assertions) { 24 << 10 } else { 8 << 10 };
    let kib = resident(pid);
    assert!(kib <= limit, "{kib} KiB resident while waiting");
    println!("waiting: {kib} KiB resident, threads {before:?}");
    drop(speak);
}
