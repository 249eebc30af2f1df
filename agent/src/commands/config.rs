//! Owns: the verb `config`.
//! Given its arguments; gives an exit code.
//! Never more than a shell around the library.

use std::ffi::OsString;

use super::{Failure, Outcome, options};
use crate::{cli::USAGE, config, exit};

/// Runs the verb.
pub fn run(args: &[OsString]) -> Outcome {
    let options = options::parse(args, &["word"])?;
    if options.help {
        print!("{USAGE}");
        return Ok(exit::OK);
    }
    let root = options.open_root()?;
    let (settings, unknown) = config::read(&root).map_err(failure)?;
    for key in &unknown {
        eprintln!("warning: {key}");
    }
    match options.words.first().map(String::as_str) {
        Some("show") => {
            for (key, value, from) in settings.lines() {
                println!("{key} = {value}  # {}", from.unwrap_or("built in"));
            }
            Ok(exit::OK)
        }
        Some("check") => Ok(exit::OK),
        _ => Err(Failure::new(exit::USAGE, anyhow::anyhow!("config: expected show or check\n\n{USAGE}"))),
    }
}

/// A fragment that says something impossible is a configuration error; one that cannot be read is the disk's.
pub(super) fn failure(error: config::Error) -> Failure {
    let code = match error {
        config::Error::Io(_) => exit::IO,
        config::Error::Syntax { .. } | config::Error::Value { .. } => exit::CONFIG,
    };
    Failure::new(code, error)
}
