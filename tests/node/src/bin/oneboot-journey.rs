//! The demo, once the programs are built: arguments -> run -> exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    // `cargo demo -- --json` arrives with the separator still in it, `cargo demo --json` without: both mean the same.
    let mut arguments: Vec<_> = std::env::args_os().collect();
    if arguments.get(1).is_some_and(|first| first == "--") {
        arguments.remove(1);
    }
    match oneboot_node::demo::run(&oneboot_node::demo::Options::parse_from(arguments)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oneboot-journey: {error:#}");
            ExitCode::FAILURE
        }
    }
}
