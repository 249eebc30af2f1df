//! How the demo ends when it does not end by itself. Needs the programs of the whole workspace, built.
//!
//! One test in this file: it makes its own process the one that orphans go to, and waits for all of them.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

/// A demo whose first node has switched root: the control plane runs, agents and kubelets start.
fn under_way(tmp: &Path) -> Child {
    let mut demo = Command::new(env!("CARGO_BIN_EXE_oneboot-journey"))
        .args(["--nodes", "4"]) // so that it is far from its end
        .env("TMPDIR", tmp)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the demo starts");
    let mut told = BufReader::new(demo.stderr.take().expect("a pipe")).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    let switched =
        told.by_ref().inspect(|line| seen.push(line.clone())).any(|line| line.contains("switching root"));
    assert!(switched, "it ended before: {seen:?}");
    std::thread::spawn(move || told.for_each(drop)); // a full pipe would hold it up
    demo
}

/// The command lines of processes that have been told something below `dir`.
fn running_in(dir: &Path) -> Vec<String> {
    let dir = dir.to_str().expect("UTF-8");
    fs::read_dir("/proc")
        .expect("/proc")
        .filter_map(|entry| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.contains(dir))
        .collect()
}

fn left_in(dir: &Path) -> usize {
    fs::read_dir(dir).expect("a folder").count()
}

#[test]
fn nothing_outlives_the_demo_whatever_ends_it() {
    set_child_subreaper(true).expect("orphans come here");

    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let tmp = tempfile::tempdir().expect("a scratch folder");
        let mut demo = under_way(tmp.path());
        let before = running_in(tmp.path());
        assert!(before.iter().any(|line| line.contains("oneboot-cluster")), "{before:?}");
        assert_eq!(left_in(tmp.path()), 1, "its scratch folder");
        kill(Pid::from_raw(demo.id().cast_signed()), signal).expect("sent");
        let status = demo.wait().expect("ended");
        assert_eq!(status.code(), Some(128 + signal as i32), "{signal}");
        assert_eq!(running_in(tmp.path()), [""; 0], "{signal}");
        assert_eq!(waitpid(None, None), Err(Errno::ECHILD), "{signal}: nobody was left to come here");
        assert_eq!(left_in(tmp.path()), 0, "{signal}: the scratch folder is gone, and the keys in it");
    }

    let tmp = tempfile::tempdir().expect("a scratch folder");
    let mut demo = under_way(tmp.path());
    let before = running_in(tmp.path());
    assert!(before.iter().any(|line| line.contains("oneboot-cluster")), "{before:?}");
    demo.kill().expect("sent");
    assert_eq!(demo.wait().expect("ended").signal(), Some(Signal::SIGKILL as i32));
    // Its children come here, and theirs when they are dead. Some had just ended by themselves; a demo that was not killed
    // with its parent would itself have ended its control plane, and nobody killed would come.
    let mut killed = 0;
    loop {
        match waitpid(None, None) {
            Ok(WaitStatus::Signaled(_, Signal::SIGKILL, _)) => killed += 1,
            Ok(_) => {}
            Err(errno) => break assert_eq!(errno, Errno::ECHILD),
        }
    }
    assert!(killed >= 2, "the demo itself and its control plane at least, not {killed}");
    assert_eq!(running_in(tmp.path()), [""; 0]);
}
