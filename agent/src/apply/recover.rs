//! Owns: what becomes of a receipt after its apply: undone on request, or because it was interrupted.
//! Given a tree; gives the old tree exactly, or leaves the new one.
//! Never acts on a receipt of another OS deployment or of a newer format.

use super::{
    Error, lock,
    receipt::{self, Found, Receipt},
    undo,
};
use crate::{paths, root::Root, sysctl::Kernel};

/// What a revert or a recovery did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Restored {
    /// There was nothing to do.
    Nothing,
    /// So many paths were looked at and are as they were before.
    Old {
        /// How many.
        paths: usize,
    },
    /// The receipt was written for another deployment, which is not the one that runs.
    Elsewhere,
}

/// Undoes the last apply that stands.
pub fn revert(root: &Root) -> Result<Restored, Error> {
    // Looked at before the lock is taken: where there is nothing to undo, nothing is created.
    if receipt::last(root)?.is_none() {
        return Err(Error::NothingToRevert);
    }
    let _lock = lock::take(root)?;
    match receipt::last(root)? {
        None => Err(Error::NothingToRevert),
        Some(Found::Newer { id, format }) => Err(Error::Newer { id, format }),
        Some(Found::Open(receipt)) => back(root, &receipt),
        Some(Found::Closed(receipt)) => {
            if receipt.deployment != deployment(root)? {
                return Ok(Restored::Elsewhere);
            }
            // From here on a crash ends in the old tree too.
            receipt.reopen(root)?;
            back(root, &receipt)
        }
    }
}

/// Undoes an interrupted apply. A second call does nothing.
pub fn recover(root: &Root) -> Result<Restored, Error> {
    if !unfinished(root)? {
        return Ok(Restored::Nothing);
    }
    let _lock = lock::take(root)?;
    recover_locked(root)
}

/// Whether an apply was interrupted, or a newer version's receipt stands in the way.
pub(super) fn unfinished(root: &Root) -> Result<bool, Error> {
    Ok(matches!(receipt::last(root)?, Some(Found::Open(_) | Found::Newer { .. })))
}

/// The same with the lock held.
pub(super) fn recover_locked(root: &Root) -> Result<Restored, Error> {
    match receipt::last(root)? {
        None | Some(Found::Closed(_)) => Ok(Restored::Nothing),
        Some(Found::Newer { id, format }) => Err(Error::Newer { id, format }),
        Some(Found::Open(receipt)) if receipt.deployment != deployment(root)? => Ok(Restored::Elsewhere),
        Some(Found::Open(receipt)) => back(root, &receipt),
    }
}

fn back(root: &Root, receipt: &Receipt) -> Result<Restored, Error> {
    let mut left = undo::undo(root, receipt, None)?;
    if let Some(old) = receipt.sysctls.as_ref().filter(|_| root.is_system()) {
        left.extend(Kernel::running().restore(old));
    }
    if !left.is_empty() {
        let cause = format!("apply {} is being undone", receipt.id);
        return Err(Error::RollbackIncomplete { cause, left });
    }
    receipt.discard(root)?;
    receipt::prune(root)?;
    Ok(Restored::Old { paths: receipt.steps.len() })
}

/// The OS deployment that runs; none for a tree that is not the running system's, and on systems without ostree.
pub(super) fn deployment(root: &Root) -> Result<Option<String>, Error> {
    if !root.is_system() {
        return Ok(None);
    }
    let cmdline = root.read_following(paths::CMDLINE)?.unwrap_or_default();
    let cmdline = String::from_utf8_lossy(&cmdline).into_owned();
    Ok(cmdline.split_whitespace().find_map(|word| word.strip_prefix("ostree=")).map(str::to_owned))
}
