//! Laying a config on a tree: receipt, files, actions, verification. One receipt undoes all of it.

mod execute;
mod lock;
mod prepare;
mod receipt;
mod recover;
mod step;
mod undo;

pub use prepare::{Prepared, read};
pub use receipt::FORMAT;
pub use recover::{Restored, recover, revert};

use crate::{
    machineconfig::MachineConfig,
    plan::{Disruption, Phase, Plan, Policy},
    root::{self, Root},
    sysctl::Kernel,
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
    /// The cluster's node disruption policy.
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
    /// Somebody else changed a path between plan and write.
    #[error("{path} is not what it was when this was planned: somebody else is changing it; plan again")]
    Interfered {
        /// The path.
        path: String,
    },
    /// A receipt of a newer version stands in the way.
    #[error(
        "receipt {id} has format {format}, this version knows {FORMAT}: use the oneboot-agent that wrote it"
    )]
    Newer {
        /// Its number.
        id: u64,
        /// Its format.
        format: u32,
    },
    /// There is nothing that could be undone.
    #[error("there is no apply to undo in {}", crate::paths::RECEIPTS)]
    NothingToRevert,
    /// Reading or writing the tree failed; where an apply had begun, the old tree is back.
    #[error(transparent)]
    Io(#[from] root::Error),
    /// The tree's SELinux policy cannot be used; nothing was changed.
    #[error(transparent)]
    Labels(#[from] crate::labels::Error),
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
    /// The tree is right and what runs on it is not well; the way back is the caller's to name.
    #[error("{0}")]
    Unhealthy(String),
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
pub fn prepare(root: &Root, request: &Request) -> Result<Plan, Error> {
    Ok(prepare::prepare(root, request)?.plan)
}

/// Plans without changing anything; with the changes themselves, and what a person should know.
pub fn prepare_all(root: &Root, request: &Request) -> Result<Prepared, Error> {
    prepare::prepare(root, request)
}

/// Looks at the running system behind the actions, while the receipt is still open; what it says takes everything back.
pub type Gate<'a> = dyn Fn() -> Result<(), String> + 'a;

/// Plans and carries it out. An unfinished apply is undone first. An empty plan and a refusal create nothing.
pub fn apply(
    root: &Root,
    request: &Request,
    units: &dyn Units,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, Error> {
    apply_gated(root, request, units, &|| Ok(()), progress)
}

/// The same with a gate.
pub fn apply_gated(
    root: &Root,
    request: &Request,
    units: &dyn Units,
    gate: &Gate<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Applied, Error> {
    let mut prepared = prepare::prepare(root, request)?;
    refuse(root, request, &prepared)?;
    let unfinished = recover::unfinished(root)?;
    if prepared.plan.is_empty() && !unfinished {
        return Ok(Applied { plan: prepared.plan, files_written: 0, units_changed: 0, reboot_needed: None });
    }
    let _lock = lock::take(root)?;
    if unfinished {
        // Old receipts are finished before new work; the tree is another one after that.
        recover::recover_locked(root)?;
        prepared = prepare::prepare(root, request)?;
        refuse(root, request, &prepared)?;
    }
    for note in &prepared.notes {
        progress(Progress::Note(note.clone()));
    }
    let done = if prepared.changes.is_empty() {
        execute::Done::default()
    } else {
        let kernel = (root.is_system() && !prepared.actions.is_empty()).then(Kernel::running);
        let verify = || {
            let mismatches = mismatches(root, request);
            if mismatches.is_empty() {
                gate().map_err(Error::Unhealthy)?;
            }
            Ok(mismatches)
        };
        let work = execute::Work {
            root,
            kernel: kernel.as_ref(),
            changes: &prepared.changes,
            labels: &prepared.labels,
            actions: if root.is_system() { &prepared.actions } else { &[] },
            units,
            desired: &request.desired.name,
            deployment: recover::deployment(root)?,
            verify: &verify,
        };
        execute::run(&work, progress)?
    };
    let needed = prepared.plan.disruption;
    Ok(Applied {
        files_written: prepared.changes.len(),
        units_changed: done.units_changed,
        reboot_needed: needed.is_reboot().then_some(needed),
        plan: prepared.plan,
    })
}

/// What must be true before anything is created, the lock's folder included.
fn refuse(root: &Root, request: &Request, prepared: &Prepared) -> Result<(), Error> {
    let needed = prepared.plan.disruption;
    // Another tree is not in use: laying it down disturbs nobody (design: "laid down, says so, and exits 0").
    if root.is_system() && needed > request.max_disruption {
        let plan = Box::new(prepared.plan.clone());
        return Err(Error::TooDisruptive { needed, allowed: request.max_disruption, plan });
    }
    if root.is_system() && !prepared.os.is_empty() {
        let what: Vec<_> = prepared.os.iter().map(|s| format!("{:?}", s.subject)).collect();
        return Err(Error::Refused(format!(
            "{} can only change with a new boot, and this agent cannot stage that yet; let the machine config daemon's first boot do it",
            what.join(", ")
        )));
    }
    Ok(())
}

/// What MCD would find, where that matters: before `currentconfig` says that all is well.
fn mismatches(root: &Root, request: &Request) -> Vec<String> {
    if !request.settle {
        return Vec::new();
    }
    crate::verify::verify(root, request.desired).iter().map(ToString::to_string).collect()
}

/// An error and its sources in one line.
pub(crate) fn chain(e: &dyn std::error::Error) -> String {
    let mut text = e.to_string();
    let mut source = e.source();
    while let Some(e) = source {
        text = format!("{text}: {e}");
        source = e.source();
    }
    text
}
