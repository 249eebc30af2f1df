//! Laying a config on a tree: receipt, files, actions, verification. One receipt undoes all of it.

use crate::{
    machineconfig::MachineConfig,
    plan::{Disruption, Phase, Plan, Policy},
    root::{self, Root},
    units::{self, Units},
    verify::Mismatch,
};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The config to reach.
    pub desired: &'a MachineConfig,
    /// The config the tree is at, as far as anybody knows: what is in it and no longer in `desired` goes.
    /// Without it the OS part counts as equal and nothing is removed.
    pub current: Option<&'a MachineConfig>,
    /// The cluster's NodeDisruptionPolicy.
    pub policy: Option<&'a Policy>,
    /// By which rules.
    pub phase: Phase,
    /// The most that may be done without asking.
    pub max_disruption: Disruption,
    /// What a path costs that no rule knows.
    pub unknown_path: Disruption,
    /// Whether a machine config daemon will check this tree: its limits and its backups hold.
    pub mcd_present: bool,
    /// Write `currentconfig` (the whole MachineConfig, 0600) as the last part of the same receipt.
    pub settle: bool,
}

/// Why an apply did not happen, or did not last.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The config asks for what is malformed or can never be done here; nothing was changed.
    #[error("refused: {0}")]
    Refused(String),
    /// The plan is above the cap; nothing was changed.
    #[error("the plan needs {needed}, and at most {allowed} is allowed")]
    TooDisruptive {
        /// What it needs.
        needed: Disruption,
        /// The cap.
        allowed: Disruption,
        /// With the steps that cost it.
        plan: Box<Plan>,
    },
    /// Another apply is at work.
    #[error("another oneboot-agent holds {path}")]
    Locked {
        /// The lock.
        path: String,
    },
    /// Reading or writing the tree failed; where an apply had begun, the old tree is back.
    #[error(transparent)]
    Io(#[from] root::Error),
    /// The service manager cannot be asked.
    #[error(transparent)]
    Units(#[from] units::Error),
    /// It failed and everything was put back (exit 79).
    #[error("{cause}; everything was put back")]
    RolledBack {
        /// What failed.
        cause: String,
    },
    /// It failed and not everything could be put back (exit 80).
    #[error("{cause}; and not everything could be put back: {}", .left.join("; "))]
    RollbackIncomplete {
        /// What failed.
        cause: String,
        /// What is not as it was.
        left: Vec<String>,
    },
    /// The tree is not what the config asks for (exit 82).
    #[error("the tree is not what the config asks for: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Verify(Vec<Mismatch>),
}

/// What an apply tells while it works.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// Something that a person should know once.
    Note(String),
    /// A part of the protocol begins.
    Phase(&'static str),
    /// A unit's job begins.
    Unit(&'static str, String),
}

/// What was done.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// The plan that was carried out.
    pub plan: Plan,
    /// Files, links and directories that changed.
    pub files_written: usize,
    /// Units that were restarted, reloaded, started or stopped.
    pub units_changed: usize,
    /// The reboot that is still needed to finish, the cheapest that does.
    pub reboot_needed: Option<Disruption>,
}

/// Plans without changing anything.
pub fn prepare(_root: &Root, _request: &Request) -> Result<Plan, Error> {
    Err(Error::Refused("not built yet".to_owned()))
}

/// Plans and carries it out.
pub fn apply(
    _root: &Root,
    _request: &Request,
    _units: &dyn Units,
    _progress: &mut dyn FnMut(Progress),
) -> Result<Applied, Error> {
    Err(Error::Refused("not built yet".to_owned()))
}

/// What a revert or a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// There was nothing to do.
    Nothing,
    /// So many paths are as they were before.
    Old {
        /// How many.
        paths: usize,
    },
    /// An interrupted apply was complete already.
    New,
}

/// Undoes the last apply that stands.
pub fn revert(_root: &Root) -> Result<Restored, Error> {
    Err(Error::Refused("not built yet".to_owned()))
}

/// Finishes or undoes an interrupted apply.
pub fn recover(_root: &Root) -> Result<Restored, Error> {
    Err(Error::Refused("not built yet".to_owned()))
}
