//! Owns: building what the demo starts.
//! Given the demo's arguments, gives up-to-date programs, with cargo's own progress on standard error, and then becomes
//! `oneboot-journey`, which is the demo.
//! Never: looks at the arguments.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};

fn main() -> ExitCode {
    match start() {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("oneboot-demo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<std::convert::Infallible, String> {
    // Set by `cargo run`; the bare name serves a binary that was started by hand.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--workspace", "--bins", "--manifest-path"]);
    build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    // Standard output stays free for --json.
    let status = build
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .map_err(|error| format!("starting {}: {error}", build.get_program().display()))?;
    if !status.success() {
        return Err(format!("building the programs: {status}"));
    }
    let journey = std::env::current_exe()
        .map_err(|error| format!("finding this program: {error}"))?
        .with_file_name("oneboot-journey");
    let error = Command::new(&journey).args(std::env::args_os().skip(1)).exec();
    Err(format!("starting {}: {error}", journey.display()))
}
