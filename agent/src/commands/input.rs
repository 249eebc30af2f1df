//! Owns: what the offline commands take in: documents, the tree, and the defaults that the tree itself decides.
//! Given options; gives values, or an error with its exit code.
//! Never changes anything.

use std::{io::Read, path::Path};

use anyhow::Context;

use super::Failure;
use crate::{
    apply::{self, Request},
    cli::Offline,
    exit,
    machineconfig::MachineConfig,
    paths,
    plan::{Disruption, Phase, Policy},
    root::Root,
    settle,
};

/// The first systemd with soft-reboot.
const SOFT_REBOOT_SINCE: u32 = 254;

/// Everything that a request refers to.
pub(super) struct Inputs {
    pub root: Root,
    pub desired: MachineConfig,
    pub current: Option<MachineConfig>,
    pub policy: Option<Policy>,
    pub phase: Phase,
    pub max_disruption: Disruption,
    pub unknown_path: Disruption,
    pub mcd_present: bool,
}

impl Inputs {
    pub(super) fn load(o: &Offline) -> Result<Inputs, Failure> {
        let desired = config(o.desired.as_deref().unwrap_or(Path::new("-")))?;
        let current = o.current.as_deref().map(config).transpose()?;
        let policy = o.policy.as_deref().map(policy).transpose()?;
        let root = root(o)?;
        let there = |path: &str| root.lstat(path).map(|s| s.is_some()).map_err(|e| Failure::new(exit::IO, e));
        let phase = match o.phase {
            Some(phase) => phase,
            None if there(paths::SETTLED)? => Phase::Joined,
            None => Phase::FirstBoot,
        };
        let mcd_present = settle::mcd_present(&root, o.mcd).map_err(|e| Failure::new(exit::IO, e))?;
        // Never worse than today before the node has joined; nothing that hurts workloads after.
        let cap = if phase == Phase::FirstBoot { Disruption::Reboot } else { Disruption::Restart };
        let unknown_path = match o.unknown_path {
            Some(level) => level,
            None => unknown_path(&root)?,
        };
        let max_disruption = o.max_disruption.unwrap_or(cap);
        Ok(Inputs { root, desired, current, policy, phase, max_disruption, unknown_path, mcd_present })
    }

    pub(super) fn request(&self) -> Request<'_> {
        Request {
            desired: &self.desired,
            current: self.current.as_ref(),
            policy: self.policy.as_ref(),
            phase: self.phase,
            max_disruption: self.max_disruption,
            unknown_path: self.unknown_path,
            mcd_present: self.mcd_present,
            settle: false,
        }
    }
}

/// The tree to work on.
pub(super) fn root(o: &Offline) -> Result<Root, Failure> {
    Root::open(o.root.as_deref().unwrap_or(Path::new("/"))).map_err(|e| Failure::new(exit::IO, e))
}

/// A MachineConfig or Ignition config; `-` is standard input.
pub(super) fn config(path: &Path) -> Result<MachineConfig, Failure> {
    let bytes = read(path)?;
    MachineConfig::parse(&bytes)
        .with_context(|| path.display().to_string())
        .map_err(|error| Failure { code: exit::DATA, error })
}

fn policy(path: &Path) -> Result<Policy, Failure> {
    let bytes = read(path)?;
    Policy::parse(&bytes)
        .with_context(|| path.display().to_string())
        .map_err(|error| Failure { code: exit::DATA, error })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut bytes).map(|_| ()).context("cannot read standard input")
    } else {
        std::fs::read(path).map(|b| bytes = b).with_context(|| format!("cannot read {}", path.display()))
    };
    read.map_err(|error| Failure { code: exit::IO, error })?;
    Ok(bytes)
}

/// A path that no rule knows costs the cheapest reboot that the tree's systemd can do.
pub(super) fn unknown_path(root: &Root) -> Result<Disruption, Failure> {
    let names = root.list(paths::SYSTEMD_LIB).map_err(|e| Failure::new(exit::IO, e))?;
    let version = names.iter().find_map(|name| {
        let rest = name.strip_prefix("libsystemd-shared-")?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    });
    // Nothing to see in a scratch tree: then it is taken for a current one.
    let can = version.is_none_or(|v| v >= SOFT_REBOOT_SINCE);
    Ok(if can { Disruption::SoftReboot } else { Disruption::Reboot })
}

/// The exit code that an error stands for.
pub(super) fn failure(e: apply::Error) -> Failure {
    use apply::Error;
    let code = match &e {
        Error::Refused(_)
        | Error::Newer { .. }
        | Error::NothingToRevert
        | Error::Labels(crate::labels::Error::Pattern { .. }) => exit::DATA,
        Error::TooDisruptive { .. } => exit::TOO_DISRUPTIVE,
        Error::Locked { .. } | Error::Interfered { .. } | Error::Units(crate::units::Error::NoBus(_)) => {
            exit::LATER
        }
        Error::Io(_) | Error::Labels(crate::labels::Error::Root(_)) => exit::IO,
        Error::Units(_) => exit::UNAVAILABLE,
        Error::RolledBack { .. } | Error::Unhealthy(_) => exit::ROLLED_BACK,
        Error::RollbackIncomplete { .. } => exit::ROLLBACK_INCOMPLETE,
        Error::Verify(_) => exit::VERIFY_FAILED,
    };
    Failure::new(code, e)
}
