//! Owns: building the programs that the demo starts.
//! Given nothing, gives up-to-date binaries beside this one, with cargo's own progress on standard error.
//! Never: chooses a profile of its own; it takes the one this program was built with.

use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Builds every program of the workspace.
pub(super) fn programs() -> anyhow::Result<()> {
    // Set by `cargo run`; the bare name serves a binary that was started by hand.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["build", "--workspace", "--bins", "--manifest-path"]);
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
    if !cfg!(debug_assertions) {
        command.arg("--release");
    }
    // Standard output stays free for --json.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("starting cargo")?;
    anyhow::ensure!(status.success(), "building the programs: {status}");
    Ok(())
}
