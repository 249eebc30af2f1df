//! Owns: the way back: every step of a receipt undone, last first.
//! Given a receipt; gives the old tree, and a list of what could not be put back.
//! Never stops half-way, and never overwrites what somebody else has made of a path since.

use std::collections::{BTreeSet, HashMap};

use super::{
    Error,
    receipt::{Receipt, clone_file, saved_path},
    step::{Record, Step},
};
use crate::{
    observe,
    root::{Root, split},
    tree::Entry,
};

/// Undoes a receipt. `performed` are the steps that were begun; without it (after a crash) every step may have been.
pub(super) fn undo(
    root: &Root,
    receipt: &Receipt,
    performed: Option<&BTreeSet<usize>>,
) -> Result<Vec<String>, Error> {
    let mut left = Vec::new();
    // A path that made room first has two steps; what the first one found is what must be there in the end.
    let mut first = HashMap::new();
    for (n, record) in receipt.steps.iter().enumerate().rev() {
        first.insert(record.path.as_str(), (n, &record.from));
    }
    for (n, record) in receipt.steps.iter().enumerate().rev() {
        if let Some(temp) = &record.temp
            && let Err(e) = root.remove(temp)
        {
            left.push(crate::apply::chain(&e));
        }
        if performed.is_some_and(|p| !p.contains(&n)) {
            continue;
        }
        let (first_step, origin) = first[record.path.as_str()];
        if let Err(e) = undo_one(root, receipt.id, record, origin, n == first_step) {
            left.push(crate::apply::chain(&e));
        }
    }
    let folders: BTreeSet<&str> = receipt.steps.iter().map(|r| split(&r.path).0).collect();
    let mut synced = BTreeSet::new();
    for folder in folders {
        if let Some(stat) = root.lstat(folder)?
            && synced.insert(stat.id.0)
        {
            root.syncfs(folder)?;
        }
    }
    Ok(left)
}

fn undo_one(root: &Root, id: u64, record: &Record, origin: &Entry, is_first: bool) -> Result<(), Error> {
    let path = record.path.as_str();
    let now = observe::entry(root, path)?;
    if now == record.from || now == *origin {
        return Ok(());
    }
    let (is_dir, was_dir) = (matches!(now, Entry::Dir { .. }), matches!(origin, Entry::Dir { .. }));
    if is_dir && was_dir && !is_first {
        return Ok(()); // on its way back already: an earlier recovery was interrupted between its name and its mode
    }
    let made_by_us = match (&record.step, &now) {
        // Mode and owner of a directory are set one after the other: any directory here is ours.
        (Step::MakeDir | Step::SetDir | Step::RemoveDir, Entry::Dir { .. }) => true,
        _ => now == record.to || now.same_but_owner(&record.to),
    };
    if !made_by_us {
        return Err(Error::Interfered { path: path.to_owned() });
    }
    match &record.from {
        Entry::Absent => {
            if record.step == Step::MakeDir {
                root.remove_dir(path)?;
            } else {
                root.remove(path)?;
            }
            Ok(())
        }
        Entry::File { .. } => {
            let temp = undo_name(path, id);
            root.remove(&temp)?;
            let saved = record.saved.map(|n| saved_path(id, n)).unwrap_or_default();
            clone_file(root, &saved, &temp, &record.from)?;
            root.rename(&temp, path)?;
            // Both names of one file: then rename did nothing, and the path was right already.
            root.remove(&temp)?;
            Ok(())
        }
        Entry::Symlink { target, uid, gid } => {
            let temp = undo_name(path, id);
            root.remove(&temp)?;
            root.symlink(target, &temp)?;
            relabel(root, &temp, record)?;
            if nix::unistd::geteuid().is_root() {
                root.chown(&temp, *uid, *gid)?;
            }
            root.rename(&temp, path)?;
            Ok(())
        }
        Entry::Dir { mode, uid, gid } => {
            if now.is_absent() {
                root.mkdir(path, 0o700)?;
                relabel(root, path, record)?;
            }
            if nix::unistd::geteuid().is_root() {
                root.chown(path, *uid, *gid)?;
            }
            root.set_dir_mode(path, *mode)?;
            Ok(())
        }
        // Never planned over: the differ refuses devices, sockets and pipes.
        Entry::Other => Ok(()),
    }
}

/// What is made anew gets the label that the old one had; a file is the old one itself, or a copy with its label.
fn relabel(root: &Root, path: &str, record: &Record) -> Result<(), Error> {
    match &record.label {
        Some(label) if nix::unistd::geteuid().is_root() => Ok(root.set_label(path, label)?),
        _ => Ok(()),
    }
}

/// One name per folder is enough: undoing is one thread, one path at a time.
fn undo_name(path: &str, id: u64) -> String {
    let (parent, _) = split(path);
    let parent = if parent == "/" { "" } else { parent };
    format!("{parent}/.oneboot-{id}.undo")
}
