//! Owns: `/var/lib/oneboot/receipts/<id>/`: what an apply is about to do, and the bytes that undo it.
//! Given records; gives a receipt that is durable before anything changes.
//! Never acts on the tree outside its folder.
//!
//! `receipt.json` is the receipt (format 1), `saved/<n>` what was at the path of record `n`, `closed` says that the apply
//! is complete. A folder without `receipt.json` is the rest of one that was never begun, or is undone already.

use std::io::Write;

use serde::{Deserialize, Serialize};

use super::{Error, lock::STATE_MODE, step::Record};
use crate::{
    paths,
    root::{self, Root},
    sysctl,
    tree::Entry,
};

/// The format written. Older ones stay readable; newer ones are left alone.
pub const FORMAT: u32 = 1;
/// Enough to undo the last apply and to see what the two before it did; what they hold of secrets goes when they go.
const KEPT: usize = 3;
/// Nobody else reads receipts.
const FILE_MODE: u32 = 0o600;

/// What an apply is about to do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Receipt {
    /// Of the format.
    pub format: u32,
    /// Its number; the folder's name.
    pub id: u64,
    /// The OS deployment it was written for (`ostree=` of the kernel command line); only acted on there.
    pub deployment: Option<String>,
    /// The config's name.
    pub desired: String,
    /// What is done, in this order.
    pub steps: Vec<Record>,
    /// Kernel parameters before systemd-sysctl sets them anew; none where nobody will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sysctls: Option<sysctl::Values>,
}

#[derive(Deserialize)]
struct Header {
    format: u32,
}

/// A receipt's state.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Found {
    /// Begun and not complete.
    Open(Receipt),
    /// Complete.
    Closed(Receipt),
    /// Written by a newer version: not ours to judge.
    Newer {
        /// Its number.
        id: u64,
        /// Its format.
        format: u32,
    },
}

/// The folder of a receipt.
pub(super) fn folder(id: u64) -> String {
    format!("{}/{id:06}", paths::RECEIPTS)
}

/// Where a receipt keeps what was at the path of a record.
pub(super) fn saved_path(id: u64, number: usize) -> String {
    format!("{}/saved/{number}", folder(id))
}

fn main_file(id: u64) -> String {
    format!("{}/receipt.json", folder(id))
}

fn closed_mark(id: u64) -> String {
    format!("{}/closed", folder(id))
}

/// Numbers of all receipts, oldest first.
fn ids(root: &Root) -> Result<Vec<u64>, root::Error> {
    let mut ids: Vec<u64> = root.list(paths::RECEIPTS)?.iter().filter_map(|name| name.parse().ok()).collect();
    ids.sort_unstable();
    Ok(ids)
}

/// The number of the next receipt.
pub(super) fn next_id(root: &Root) -> Result<u64, root::Error> {
    Ok(ids(root)?.last().copied().unwrap_or(0) + 1)
}

/// The newest receipt that says anything.
pub(super) fn last(root: &Root) -> Result<Option<Found>, Error> {
    for id in ids(root)?.into_iter().rev() {
        let Some(bytes) = root.read(&main_file(id))? else { continue };
        let format = serde_json::from_slice::<Header>(&bytes).map(|h| h.format);
        match format {
            Ok(format) if format > FORMAT => return Ok(Some(Found::Newer { id, format })),
            _ => {}
        }
        // Nothing is changed before a receipt is durable: one that cannot be read was never acted on.
        let Ok(receipt) = serde_json::from_slice::<Receipt>(&bytes) else { continue };
        let closed = root.lstat(&closed_mark(id))?.is_some();
        return Ok(Some(if closed { Found::Closed(receipt) } else { Found::Open(receipt) }));
    }
    Ok(None)
}

impl Receipt {
    /// Writes it with all saved files and makes it durable: one barrier.
    pub(super) fn write(&self, root: &Root) -> Result<(), Error> {
        let folder = folder(self.id);
        if root.lstat(paths::RECEIPTS)?.is_none() {
            root.mkdir(paths::RECEIPTS, STATE_MODE)?;
        }
        root.mkdir(&folder, STATE_MODE)?;
        root.mkdir(&format!("{folder}/saved"), STATE_MODE)?;
        for record in &self.steps {
            let Some(number) = record.saved else { continue };
            let to = saved_path(self.id, number);
            clone_file(root, &record.path, &to, &record.from)?;
            // It is checked here, where it is read anyway, and once more at the moment of writing.
            if !crate::observe::entry(root, &record.path)?.same_but_owner(&record.from) {
                return Err(Error::Interfered { path: record.path.clone() });
            }
        }
        let bytes = serde_json::to_vec(self).map_err(|e| json_error(self.id, e))?;
        let temp = format!("{folder}/receipt.new");
        let mut file = root.create(&temp, FILE_MODE)?;
        file.write_all(&bytes).map_err(|source| root::Error { op: "write", path: temp.clone(), source })?;
        root.rename(&temp, &main_file(self.id))?;
        root.syncfs(&folder)?;
        Ok(())
    }

    /// Marks it complete and durable: one barrier. Older receipts go.
    pub(super) fn close(&self, root: &Root) -> Result<(), Error> {
        root.create(&closed_mark(self.id), FILE_MODE)?;
        root.syncfs(&folder(self.id))?;
        Ok(())
    }

    /// Takes the mark away, so that a crash from here on ends in the old tree.
    pub(super) fn reopen(&self, root: &Root) -> Result<(), Error> {
        root.remove(&closed_mark(self.id))?;
        root.syncfs(&folder(self.id))?;
        Ok(())
    }

    /// Removes it, its own line first: what is left of it then means nothing.
    pub(super) fn discard(&self, root: &Root) -> Result<(), Error> {
        discard(root, self.id)
    }
}

fn discard(root: &Root, id: u64) -> Result<(), Error> {
    let folder = folder(id);
    root.remove(&main_file(id))?;
    for path in crate::observe::below(root, &folder)? {
        if root.lstat(&path)?.is_some_and(|s| s.kind == root::Kind::Dir) {
            root.remove_dir(&path)?;
        } else {
            root.remove(&path)?;
        }
    }
    root.remove_dir(&folder)?;
    Ok(())
}

/// Removes the rests of receipts that were never begun, and all but the last ones.
pub(super) fn prune(root: &Root) -> Result<(), Error> {
    let mut whole = Vec::new();
    for id in ids(root)? {
        if root.lstat(&main_file(id))?.is_some() {
            whole.push(id);
        } else {
            discard(root, id)?;
        }
    }
    let surplus = whole.len().saturating_sub(KEPT);
    for id in &whole[..surplus] {
        discard(root, *id)?;
    }
    Ok(())
}

fn json_error(id: u64, e: serde_json::Error) -> Error {
    root::Error { op: "write", path: main_file(id), source: e.into() }.into()
}

/// A second name for a file where the filesystem allows it (owner, label and times come with it), else a copy.
pub(super) fn clone_file(root: &Root, from: &str, to: &str, entry: &Entry) -> Result<(), Error> {
    match root.hardlink(from, to) {
        Ok(()) => return Ok(()),
        // Another filesystem, a file of somebody else's, too many names: then a copy does.
        Err(e)
            if [nix::errno::Errno::EXDEV, nix::errno::Errno::EPERM, nix::errno::Errno::EMLINK]
                .iter()
                .any(|c| e.is(*c)) => {}
        Err(e) => return Err(e.into()),
    }
    let Entry::File { mode, uid, gid, .. } = *entry else { return Ok(()) };
    let Some(mut source) = root.open_file(from)? else {
        return Err(Error::Interfered { path: from.to_owned() });
    };
    let mut copy = root.create(to, FILE_MODE)?;
    std::io::copy(&mut source, &mut copy).map_err(|source| root::Error {
        op: "copy to",
        path: to.to_owned(),
        source,
    })?;
    if nix::unistd::geteuid().is_root() {
        if let Some(label) = root.label(from)? {
            root.set_label(to, &label)?;
        }
        root.fchown(&copy, to, uid, gid)?;
    }
    // After the owner: a change of owner takes setuid and setgid bits away.
    root.fchmod(&copy, to, mode)?;
    Ok(())
}
