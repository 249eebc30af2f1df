//! Owns: `/var/lib/oneboot/lock`: one apply, revert or recovery at a time.
//! Given a root; gives a value that holds the lock for as long as it lives.
//! Never waits: whoever finds it held is told so (exit 75).

use std::fs::File;

use nix::{
    errno::Errno,
    fcntl::{Flock, FlockArg},
};

use super::Error;
use crate::{paths, root::Root};

/// Ours alone: records and receipts hold what was secret.
pub(super) const STATE_MODE: u32 = 0o700;
/// Mode of parents made on the way to it.
const PARENT_MODE: u32 = 0o755;

/// Held until it is dropped, by the kernel also when the process dies.
#[derive(Debug)]
pub(super) struct Lock(#[allow(dead_code)] Flock<File>); // kept for its drop

/// Takes the lock, making its folder if this is the first time.
pub(super) fn take(root: &Root) -> Result<Lock, Error> {
    match root.lstat(paths::STATE_DIR)? {
        None => {
            root.mkdir_all(crate::root::split(paths::STATE_DIR).0, PARENT_MODE)?;
            root.mkdir(paths::STATE_DIR, STATE_MODE)?;
        }
        // Made by an image or an administrator, and open to others.
        Some(stat) if stat.mode & 0o777 != STATE_MODE => root.set_dir_mode(paths::STATE_DIR, STATE_MODE)?,
        Some(_) => {}
    }
    let file = root.open_lock(paths::LOCK)?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Lock(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Err(Error::Locked { path: paths::LOCK.to_owned() }),
        Err((_, e)) => {
            Err(crate::root::Error { op: "lock", path: paths::LOCK.to_owned(), source: e.into() }.into())
        }
    }
}
