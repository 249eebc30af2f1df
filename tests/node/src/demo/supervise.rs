//! Owns: the demo's end, however it comes: its scratch folder, and every process it has started.
//! Given the command line, runs the demo as a child of its own (this program again, told its scratch folder) and gives the exit code.
//! Never: does a step of the demo. What it may be killed in the middle of is not what cleans up after it.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ExitStatus};

use anyhow::Context as _;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::process::tied;

use super::exit;

/// The option that makes a run the child.
pub(super) const SCRATCH: &str = "--scratch";

/// Runs the demo with these arguments, which are good ones.
pub(super) fn run(arguments: &[OsString]) -> anyhow::Result<u8> {
    // Before there is anything to clean up: from here on these only arrive below.
    let mut signals = Signals::new([SIGCHLD, SIGHUP, SIGINT, SIGTERM]).context("waiting for signals")?;
    // Whoever loses its parent becomes this process's child, so that all of them can be waited for.
    set_child_subreaper(true).context("becoming the one that orphans go to")?;
    let scratch =
        tempfile::Builder::new().prefix("oneboot-demo-").tempdir().context("making a scratch folder")?;
    let this = std::env::current_exe().context("finding the running program")?;
    let mut demo = tied(&this)
        .args(arguments)
        .arg(SCRATCH)
        .arg(scratch.path())
        .spawn()
        .context("starting the demo with setpriv, which is in util-linux")?;

    let ended = wait(&mut demo, &mut signals);
    end_orphans();
    let code = match ended? {
        End::By(signal) => exit::BY_SIGNAL.saturating_add(u8::try_from(signal).unwrap_or_default()),
        End::Itself(status) => {
            status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(exit::FAILURE)
        }
    };
    if code == exit::FAILURE {
        // Kept, because the logs are what explains a failure.
        eprintln!("the logs are in {}", scratch.keep().join("logs").display());
    } else {
        scratch.close().context("removing the scratch folder")?;
    }
    Ok(code)
}

/// How the demo ended.
enum End {
    /// As it does when nobody interferes, or crashed.
    Itself(ExitStatus),
    /// Somebody wants it to: by this signal.
    By(i32),
}

fn wait(demo: &mut Child, signals: &mut Signals) -> anyhow::Result<End> {
    for signal in signals.forever() {
        if signal != SIGCHLD {
            demo.kill().context("ending the demo")?;
            demo.wait().context("waiting for the demo")?;
            return Ok(End::By(signal));
        }
        if let Some(status) = demo.try_wait().context("waiting for the demo")? {
            // Ctrl-C goes to every process of the terminal: the child may be the first to hear of it.
            return Ok(match status.signal() {
                Some(signal @ (SIGHUP | SIGINT | SIGTERM)) => End::By(signal),
                _ => End::Itself(status),
            });
        }
    }
    anyhow::bail!("no more signals arrive")
}

/// Waits until no process of the demo is left. All are tied to it and die with it, but for one that was being
/// started at that moment: what has come here is ended by its pid, which nobody else can have before it is waited for.
fn end_orphans() {
    loop {
        let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        for pid in children.split_whitespace().filter_map(|pid| pid.parse().ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL); // it may be dead already
        }
        if waitpid(None, None) == Err(Errno::ECHILD) {
            return;
        }
    }
}
