//! Owns: the verb `recover`.
//! Given its options; undoes an apply that was interrupted. A second call does nothing.
//! Never undoes one that is complete: that is `revert`.

use std::process::Command;

use super::{Outcome, input, revert};
use crate::{apply, cli::Offline, exit};

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let root = input::root(o)?;
    let restored = apply::recover(&root).map_err(input::failure)?;
    revert::say(&restored);
    // At boot systemd has read the units before they were put back. There is no bus yet; this goes to systemd itself.
    if root.is_system() && matches!(restored, apply::Restored::Old { .. }) {
        let reloaded = Command::new("systemctl").arg("daemon-reload").status();
        if !reloaded.is_ok_and(|status| status.success()) {
            eprintln!("systemd did not read its units again; as root: systemctl daemon-reload");
        }
    }
    Ok(exit::OK)
}
