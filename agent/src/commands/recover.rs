//! Owns: the verb `recover`.
//! Given its options; undoes an apply that was interrupted. A second call does nothing.
//! Never undoes one that is complete: that is `revert`.

use super::{Outcome, input, revert};
use crate::{apply, cli::Offline, exit};

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let root = input::root(o)?;
    revert::say(&apply::recover(&root).map_err(input::failure)?);
    Ok(exit::OK)
}
