//! Owns: the closed set of things an apply does to a tree, each with what undoes it.
//! Given a [`Change`]; gives a [`Record`], the line of the receipt for it.
//! Never touches a tree: `execute` and `undo` do.

use serde::{Deserialize, Serialize};

use crate::{
    root::split,
    tree::{Change, Entry, Make, Stage},
};

/// What is done at a path. Names appear by rename, so that none ever stands for half of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub(super) enum Step {
    /// A file under a temporary name takes the path.
    InstallFile,
    /// A symbolic link under a temporary name takes the path.
    InstallSymlink {
        /// Where it points.
        target: String,
    },
    /// A second name of another path's file, under a temporary name, takes the path.
    InstallHardlink {
        /// The other path.
        of: String,
    },
    /// A directory is made.
    MakeDir,
    /// A directory gets another mode or owner.
    SetDir,
    /// A file or link goes.
    Remove,
    /// An empty directory goes.
    RemoveDir,
}

/// A step with all that is needed to undo it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    /// Where.
    pub path: String,
    /// When.
    pub stage: Stage,
    /// What.
    #[serde(flatten)]
    pub step: Step,
    /// What was there.
    pub from: Entry,
    /// What will be there.
    pub to: Entry,
    /// Under which number the receipt keeps what was there, if it is a file.
    pub saved: Option<usize>,
    /// The temporary name beside the path.
    pub temp: Option<String>,
    /// SELinux label of what was there: a link or folder that comes back is a new one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
}

impl Record {
    /// The line for a change; `receipt` and `number` make its temporary name unique and known in advance.
    pub(super) fn new(change: &Change, receipt: u64, number: usize) -> Record {
        let was_dir = matches!(change.from, Entry::Dir { .. });
        let step = match &change.make {
            Make::File(_) => Step::InstallFile,
            Make::Symlink => match &change.to {
                Entry::Symlink { target, .. } => Step::InstallSymlink { target: target.clone() },
                _ => Step::Remove, // `Make::Symlink` always comes with a link; this arm is never reached
            },
            Make::Hardlink(of) => Step::InstallHardlink { of: of.clone() },
            Make::Dir if was_dir => Step::SetDir,
            Make::Dir => Step::MakeDir,
            Make::Absent if was_dir => Step::RemoveDir,
            Make::Absent => Step::Remove,
        };
        let installs =
            matches!(step, Step::InstallFile | Step::InstallSymlink { .. } | Step::InstallHardlink { .. });
        let (parent, _) = split(&change.path);
        let parent = if parent == "/" { "" } else { parent };
        Record {
            path: change.path.clone(),
            stage: change.stage,
            step,
            from: change.from.clone(),
            to: change.to.clone(),
            saved: matches!(change.from, Entry::File { .. }).then_some(number),
            temp: installs.then(|| format!("{parent}/.oneboot-{receipt}.{number}")),
            label: None,
        }
    }
}
