//! Owns: the verb `timeline`.
//! Given its arguments; gives an exit code.
//! Never more than a shell around the library.

use std::ffi::OsString;

use super::{Failure, Outcome, options};
use crate::{cli::USAGE, exit, record::Record, report::Report, timeline};

/// Runs the verb.
pub fn run(args: &[OsString]) -> Outcome {
    let options = options::parse(args, &["svg"])?;
    if options.help {
        print!("{USAGE}");
        return Ok(exit::OK);
    }
    if options.svg.is_some() {
        let error = anyhow::anyhow!("--svg is not there yet; without it the timeline is printed as text");
        return Err(Failure::new(exit::USAGE, error));
    }
    let root = options.open_root()?;
    let report = Report::read(&root).map_err(|error| Failure::new(exit::IO, error))?;
    let record = Record::read(&root).map_err(|error| Failure::new(exit::DATA, error))?;
    if report.is_none() && record.is_none() {
        let error =
            anyhow::anyhow!("nothing has happened here yet: no report of firstboot, no record of the agent");
        return Err(Failure::new(exit::UNAVAILABLE, error));
    }
    print!("{}", timeline::text(report.as_ref(), record.as_ref()));
    Ok(exit::OK)
}
