//! Owns: the vocabulary of trees: what is at a path, what should be, and the difference of the two.
//! Given nothing; gives values that plan, receipt and executor share.
//! Never holds content in anything that can be printed.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// SHA-256 of content, as `sha256:<hex>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Digest(String);

impl Digest {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        use fmt::Write;
        let mut text = String::from("sha256:");
        for b in Sha256::digest(bytes) {
            let _ = write!(text, "{b:02x}"); // writing to a String cannot fail
        }
        Digest(text)
    }

    /// Enough of it to tell two apart when reading.
    pub fn short(&self) -> &str {
        self.0.get(..15).unwrap_or(&self.0)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Entry {
    /// Nothing.
    Absent,
    /// A regular file.
    File {
        /// Of its content.
        digest: Digest,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A directory.
    Dir {
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A symbolic link.
    Symlink {
        /// As written in it.
        target: String,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A device, socket or pipe.
    Other,
}

impl Entry {
    /// Whether there is nothing.
    pub fn is_absent(&self) -> bool {
        *self == Entry::Absent
    }

    /// Owner and group, where there is something.
    pub fn owner(&self) -> Option<(u32, u32)> {
        match self {
            Entry::File { uid, gid, .. } | Entry::Dir { uid, gid, .. } | Entry::Symlink { uid, gid, .. } => {
                Some((*uid, *gid))
            }
            Entry::Absent | Entry::Other => None,
        }
    }

    /// The same but for the owner: all that a user who is not root can bring about.
    pub fn same_but_owner(&self, other: &Entry) -> bool {
        self.clone().disowned() == other.clone().disowned()
    }

    fn disowned(mut self) -> Entry {
        if let Entry::File { uid, gid, .. } | Entry::Dir { uid, gid, .. } | Entry::Symlink { uid, gid, .. } =
            &mut self
        {
            (*uid, *gid) = (0, 0);
        }
        self
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Entry::Absent => f.write_str("absent"),
            Entry::File { digest, mode, .. } => write!(f, "{digest} {mode:04o}"),
            Entry::Dir { mode, .. } => write!(f, "directory {mode:04o}"),
            Entry::Symlink { target, .. } => write!(f, "link to {target}"),
            Entry::Other => f.write_str("neither file, folder nor link"),
        }
    }
}

/// Bytes that nothing prints.
#[derive(Clone, PartialEq, Eq)]
pub struct Content(Arc<[u8]>);

impl Content {
    /// These bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Content {
        Content(bytes.into())
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Content({} bytes)", self.0.len())
    }
}

/// What a change makes of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Make {
    /// A file with this content.
    File(Content),
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// Another name of what is at this path.
    Hardlink(String),
    /// Nothing.
    Absent,
}

/// When a change is made, in this order: nothing ever points at what is not there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// What stands where something of another kind must be goes.
    MakeRoom,
    /// Directories, parents first.
    Directories,
    /// Links that enabled a unit as it was go before the unit changes.
    Disable,
    /// Files, links, accounts, keys, backups.
    Files,
    /// Units, drop-ins, masks.
    Units,
    /// Links that enable units, once the units are there.
    Enable,
    /// Units and drop-ins that are no longer wanted.
    RemoveUnits,
    /// Files and links that are no longer wanted.
    RemoveFiles,
    /// `currentconfig`, after everything has been verified.
    Settle,
}

/// Which part of a config a change comes from: what policies and impact rules are asked about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A file, directory or link of the config, or a parent of one.
    Path(String),
    /// A unit, its drop-ins, its enablement.
    Unit(String),
    /// SSH keys of a user.
    Keys(String),
    /// Users and groups.
    Accounts,
    /// Backups and records: nothing on the system reads them.
    Record,
}

/// One difference between the tree as it is and as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where, the links among its parents followed.
    pub path: String,
    /// What was there when it was planned.
    pub from: Entry,
    /// What will be there.
    pub to: Entry,
    /// How it gets there.
    pub make: Make,
    /// When.
    pub stage: Stage,
    /// Because of what.
    pub cause: Cause,
    /// `write`, `mkdir`, `link`, `remove`, `enable`, `disable`, `mask`, `backup`, `record`.
    pub kind: &'static str,
    /// Why, for people.
    pub reason: String,
}
