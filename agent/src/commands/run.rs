//! Owns: the verb `run`.
//! Given its arguments; gives an exit code.
//! Never more than a placeholder until the service is built.

use std::ffi::OsString;

use super::{Failure, Outcome};
use crate::exit;

/// Runs the verb.
pub fn run(_args: &[OsString]) -> Outcome {
    Err(Failure::new(exit::USAGE, anyhow::anyhow!("run: not built yet")))
}
