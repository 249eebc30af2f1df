//! Owns: the subcommands, one file each.
//! Given a command and the environment, gives the exit code.
//! Never: holds logic of its own.

mod check;
mod fetch;
mod given;
mod report;

use crate::cli::Command;
use crate::exit::Exit;
use std::io::Write;
use std::path::PathBuf;

/// What the service manager hands in.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `$CREDENTIALS_DIRECTORY`
    pub credentials: Option<PathBuf>,
}

/// Runs one command to its end.
pub fn run(command: &Command, environment: &Environment) -> Exit {
    match command {
        Command::Print(text) => {
            // A reader that has gone away has seen enough.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Exit::Ok
        }
        Command::Check { file, ca } => check::run(file, ca.as_deref()),
        Command::Fetch(options) => {
            crate::log::init("oneboot-firstboot", &options.root);
            fetch::run(options, environment)
        }
        Command::Report(options) => {
            crate::log::init("oneboot-firstboot", &options.root);
            report::run(options, environment)
        }
    }
}
