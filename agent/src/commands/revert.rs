//! Owns: the verb `revert`.
//! Given its options; undoes the last apply.
//! Never touches what somebody else has changed since: that is listed, with exit 80.

use super::{Outcome, input};
use crate::{
    apply::{self, Restored},
    cli::Offline,
    exit,
};

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let root = input::root(o)?;
    say(&apply::revert(&root).map_err(input::failure)?);
    Ok(exit::OK)
}

/// What was done, for people.
pub(super) fn say(restored: &Restored) {
    match restored {
        Restored::Nothing => println!("nothing to recover: no apply was interrupted"),
        Restored::Old { paths } => println!("the old tree is back ({paths} paths)"),
        Restored::Elsewhere => {
            println!("left alone: the last apply was made on another OS deployment than the one that runs");
        }
    }
}
