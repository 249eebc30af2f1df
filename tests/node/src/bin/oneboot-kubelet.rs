//! The kubelet stand-in as a process of its own: arguments -> run -> exit code.

use std::process::ExitCode;

use clap::Parser as _;

fn main() -> ExitCode {
    match oneboot_node::kubelet::run(&oneboot_node::kubelet::Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("oneboot-kubelet: {error:#}");
            ExitCode::FAILURE
        }
    }
}
