//! Owns: the one reboot: whether it is due, was taken, and the command that takes it.
//! Given the record's note of it and the boot that runs, it gives an answer; given a kind, it runs `systemctl`.
//! Never: uses systemd's bus methods of the same names: `SoftReboot` kills what should have been stopped (facts/vm.md).

use std::{path::Path, process::Command};

use serde::{Deserialize, Serialize};

use crate::plan::Disruption;

/// What runs: a kernel's boot, and the how-manieth userspace in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// The kernel's.
    pub id: String,
    /// Where systemd counts them (256 or newer).
    pub soft_reboots: Option<u32>,
}

/// A reboot that a configuration needs, written down before its files are laid down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Due {
    /// The configuration.
    pub config: String,
    /// Which kind finishes it.
    pub kind: Disruption,
    /// What ran when it became due.
    pub boot: Boot,
    /// The command was given.
    pub ordered: bool,
}

impl Due {
    /// Whether it has happened.
    pub fn is_over(&self, now: &Boot) -> bool {
        if self.boot.id != now.id {
            return true;
        }
        match (self.kind, self.boot.soft_reboots, now.soft_reboots) {
            (_, Some(then), Some(now)) => self.kind == Disruption::SoftReboot && then != now,
            // Nobody counts them: the order is all there is to go by. Never twice comes before all else.
            (Disruption::SoftReboot, ..) => self.ordered,
            _ => false,
        }
    }
}

/// Why a reboot could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It could not be run.
    #[error("cannot run {command}")]
    Run {
        /// What.
        command: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It was run and said no.
    #[error("{command} failed: {said}")]
    Refused {
        /// What.
        command: String,
        /// The end of its standard error.
        said: String,
    },
}

/// Has the service manager stop everything and start again. Returns as soon as that is under way.
pub fn take(systemctl: &Path, kind: Disruption) -> Result<(), Error> {
    // What costs less than a soft-reboot needs none.
    let verb = kind.max(Disruption::SoftReboot).name();
    let command = format!("{} {verb}", systemctl.display());
    match Command::new(systemctl).arg(verb).output() {
        Err(source) => Err(Error::Run { command, source }),
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Error::Refused { command, said: said.trim().lines().last().unwrap_or_default().to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(id: &str, soft_reboots: Option<u32>) -> Boot {
        Boot { id: id.into(), soft_reboots }
    }

    fn due(kind: Disruption, soft_reboots: Option<u32>, ordered: bool) -> Due {
        Due { config: "rendered-a".into(), kind, boot: boot("a", soft_reboots), ordered }
    }

    #[test]
    fn what_makes_a_reboot_a_thing_of_the_past() {
        use Disruption::{Reboot, SoftReboot};
        for (due, now, over) in [
            (due(Reboot, Some(0), true), boot("a", Some(0)), false),
            (due(Reboot, Some(0), true), boot("b", Some(0)), true),
            (due(Reboot, Some(0), true), boot("a", Some(1)), false), // somebody's soft-reboot is no reboot
            (due(SoftReboot, Some(0), true), boot("a", Some(0)), false),
            (due(SoftReboot, Some(0), true), boot("a", Some(1)), true),
            (due(SoftReboot, Some(0), false), boot("b", Some(0)), true), // somebody's reboot is one too
            (due(SoftReboot, None, false), boot("a", None), false),
            (due(SoftReboot, None, true), boot("a", None), true),
            (due(Reboot, None, true), boot("a", None), false),
        ] {
            assert_eq!(due.is_over(&now), over, "{due:?} {now:?}");
        }
    }

    #[test]
    fn a_command_that_says_no_is_quoted() {
        let dir = tempfile::tempdir().unwrap();
        let missing = take(&dir.path().join("gone"), Disruption::Reboot).unwrap_err();
        assert!(matches!(missing, Error::Run { .. }), "{missing}");
        // `false` takes any argument and says nothing.
        let refused = take(Path::new("false"), Disruption::Reboot).unwrap_err();
        assert_eq!(refused.to_string(), "false reboot failed: ");
        let said = take(Path::new("ls"), Disruption::SoftReboot).unwrap_err();
        assert!(matches!(&said, Error::Refused { said, .. } if said.contains("soft-reboot")), "{said}");
    }
}
