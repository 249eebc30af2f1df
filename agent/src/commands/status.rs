//! Owns: the verb `status`.
//! Given its arguments; gives an exit code.
//! Never more than a shell around the library.

use std::ffi::OsString;

use super::{Failure, Outcome, options};
use crate::{cli::USAGE, exit, status::Status};

/// Runs the verb.
pub fn run(args: &[OsString]) -> Outcome {
    let options = options::parse(args, &["json"])?;
    if options.help {
        print!("{USAGE}");
        return Ok(exit::OK);
    }
    let root = options.open_root()?;
    let status = Status::read(&root).map_err(|error| Failure::new(exit::DATA, error))?;
    let Some(status) = status else {
        let error =
            anyhow::anyhow!("no agent has run here yet; start it with: systemctl start oneboot-agent");
        return Err(Failure::new(exit::UNAVAILABLE, error));
    };
    if options.json {
        let json = serde_json::to_string(&status).map_err(|error| Failure::new(exit::INTERNAL, error))?;
        println!("{json}");
    } else {
        println!("{}", status.text());
    }
    Ok(exit::OK)
}
