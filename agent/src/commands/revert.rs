//! Owns: the verb `revert`.
//! Given its options; gives an exit code.
//! Never more than a shell around the library.

use super::{Failure, Outcome};
use crate::{cli::Offline, exit};

/// Runs the verb.
pub fn run(_o: &Offline) -> Outcome {
    Err(Failure::new(exit::USAGE, anyhow::anyhow!("revert: not built yet")))
}
