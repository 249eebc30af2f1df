//! Owns: the verb `verify`.
//! Given its options; prints every mismatch that MCD's on-disk validation would find.
//! Never changes anything.

use std::path::Path;

use super::{Outcome, input};
use crate::{cli::Offline, exit, verify};

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let desired = input::config(o.desired.as_deref().unwrap_or(Path::new("-")))?;
    let root = input::root(o)?;
    let found = verify::verify(&root, &desired);
    if found.is_empty() {
        println!(
            "valid: the tree is what {} asks for",
            if desired.name.is_empty() { "the config" } else { &desired.name }
        );
        return Ok(exit::OK);
    }
    for mismatch in &found {
        println!("{mismatch}");
    }
    eprintln!("{} mismatches; `oneboot-agent plan` shows what would mend them", found.len());
    Ok(exit::VERIFY_FAILED)
}
