//! Owns: the comparison of what is wanted with what is there.
//! Given wants and one look at the tree; gives the changes, in the order in which they are made.
//! Never reads a tree, and never asks for a change of what is right already.

use std::collections::{BTreeMap, BTreeSet};

use super::wanted::{Node, Wanted};
use crate::{
    ignition::Owner,
    observe::{Observed, Seen},
    paths,
    root::split,
    tree::{Cause, Change, Content, Digest, Entry, Make, Stage},
};

/// Mode of parents that are made on the way (Ignition and MCD alike).
const PARENT_MODE: u32 = 0o755;
/// Mode of a new file that is only appended to, or has no content.
const NEW_FILE_MODE: u32 = 0o644;
/// The record of what was appended is ours alone.
const RECORD_MODE: u32 = 0o600;

/// A path that cannot become what is wanted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct Refusal {
    /// The path as the config names it.
    pub path: String,
    /// What was found, what was expected, what to do.
    pub message: String,
}

/// Compares everything. The result does not depend on the order of `wanted`.
pub fn changes(wanted: &[Wanted], observed: &Observed) -> Result<Vec<Change>, Refusal> {
    let mut differ =
        Differ { observed, changes: BTreeMap::new(), taken: BTreeMap::new(), appended: BTreeMap::new() };
    for want in wanted {
        differ.claim(want)?;
    }
    for want in wanted {
        differ.compare(want)?;
    }
    differ.hardlinks(wanted)?;
    differ.record_appended();
    let mut changes: Vec<Change> = differ.changes.into_values().collect();
    changes.sort_by_cached_key(order);
    Ok(changes)
}

/// Stage, then what must come first within it, then the path.
pub(crate) fn order(c: &Change) -> (Stage, usize, String) {
    let depth = c.path.matches('/').count();
    let rank = match (c.stage, &c.make) {
        (Stage::Directories, _) => depth,
        // What is removed goes from the inside out.
        (_, Make::Absent) => usize::MAX - depth,
        (_, Make::File(_) | Make::Dir) => 0,
        (_, Make::Symlink) => 1,
        (_, Make::Hardlink(_)) => 2,
    };
    (c.stage, rank, c.path.clone())
}

struct Differ<'a> {
    observed: &'a Observed,
    changes: BTreeMap<String, Change>,
    /// By real path.
    taken: BTreeMap<String, &'a Wanted>,
    appended: BTreeMap<String, Digest>,
}

impl<'a> Differ<'a> {
    fn seen(&self, want: &Wanted) -> Result<&'a Seen, Refusal> {
        self.observed.seen.get(&want.path).ok_or_else(|| refuse(want, "was not looked at"))
    }

    /// Two wants may not land on one name, whatever links lead there.
    fn claim(&mut self, want: &'a Wanted) -> Result<(), Refusal> {
        let seen = self.seen(want)?;
        match self.taken.insert(seen.real.clone(), want) {
            Some(other) => {
                Err(refuse(want, &format!("lands on the same place as {} ({})", other.path, seen.real)))
            }
            None => Ok(()),
        }
    }

    fn compare(&mut self, want: &Wanted) -> Result<(), Refusal> {
        let seen = self.seen(want)?;
        if matches!(want.node, Node::Absent | Node::Blank) {
            let blank = want.node == Node::Blank && is_empty_file(&seen.entry);
            if !blank && !matches!(seen.entry, Entry::Absent | Entry::Dir { .. }) {
                self.push(want, seen, Entry::Absent, Make::Absent);
            }
            return Ok(());
        }
        if let Some(blocked) = &seen.blocked_by
            && !self.becomes_dir(blocked)
        {
            return Err(refuse(
                want,
                &format!("{blocked} is not a folder on this system; remove it or choose another path"),
            ));
        }
        match &want.node {
            Node::File { content, append, mode, owner, overwrite, .. } => {
                self.file(want, seen, content.as_ref(), append.as_ref(), *mode, owner, *overwrite)?;
            }
            Node::Dir { mode, new_mode, owner, overwrite } => {
                self.dir(want, seen, *mode, *new_mode, owner, *overwrite)?;
            }
            Node::Symlink { target, owner, overwrite } => {
                self.symlink(want, seen, target, owner, *overwrite)?;
            }
            Node::Hardlink { .. } | Node::Absent | Node::Blank => {} // after everything that they may point at
        }
        Ok(())
    }

    /// Whether what stands there now is to give way to a folder.
    fn becomes_dir(&self, path: &str) -> bool {
        self.taken.get(path).is_some_and(|w| matches!(w.node, Node::Dir { overwrite: true, .. }))
    }

    #[allow(clippy::too_many_arguments)] // the fields of one variant
    fn file(
        &mut self,
        want: &Wanted,
        seen: &Seen,
        content: Option<&Content>,
        append: Option<&Content>,
        mode: Option<u32>,
        owner: &Owner,
        overwrite: bool,
    ) -> Result<(), Refusal> {
        let there = match &seen.entry {
            Entry::File { digest, mode, uid, gid } => Some((digest, *mode, (*uid, *gid))),
            _ => None,
        };
        let bytes = match (content, append, there) {
            (Some(c), None, _) => Some(c.clone()),
            (Some(c), Some(a), _) => Some(joined(c.bytes(), a.bytes())),
            (None, Some(a), Some(_)) => {
                let now = seen.bytes.as_deref().unwrap_or_default();
                if self.appended_before(want, a, now) { None } else { Some(joined(now, a.bytes())) }
            }
            (None, Some(a), None) => Some(a.clone()),
            (None, None, Some(_)) => None,
            (None, None, None) => Some(Content::new(Vec::new())),
        };
        let appends_only = content.is_none() && append.is_some();
        if let Some(a) = append.filter(|_| appends_only) {
            self.appended.insert(want.path.clone(), Digest::of(a.bytes()));
        }
        let new_mode = mode.or(there.map(|(_, mode, _)| mode)).unwrap_or(NEW_FILE_MODE);
        let (digest, make) = match (&bytes, there) {
            (Some(c), _) => (Digest::of(c.bytes()), Make::File(c.clone())),
            // Only metadata may differ; the file is written anew for that, so that it changes in one step.
            (None, Some((digest, ..))) => {
                (digest.clone(), Make::File(Content::new(seen.bytes.clone().unwrap_or_default())))
            }
            (None, None) => return Ok(()),
        };
        let differs = there.is_none_or(|(now, ..)| *now != digest);
        if differs && there.is_some() && !overwrite && !appends_only {
            return Err(refuse(want, "another file is there and `overwrite` is not set"));
        }
        let keep = there.filter(|_| !differs || appends_only).map(|(_, _, owner)| owner);
        let (uid, gid) = self.owner(want, owner, keep)?;
        let to = Entry::File { digest, mode: new_mode, uid, gid };
        if self.equal(&seen.entry, &to) {
            return Ok(());
        }
        self.make_room(want, seen, overwrite)?;
        self.push(want, seen, to, make);
        Ok(())
    }

    fn appended_before(&self, want: &Wanted, append: &Content, now: &[u8]) -> bool {
        self.observed.appended.get(&want.path) == Some(&Digest::of(append.bytes()))
            && now.ends_with(append.bytes())
    }

    fn dir(
        &mut self,
        want: &Wanted,
        seen: &Seen,
        mode: Option<u32>,
        new_mode: u32,
        owner: &Owner,
        overwrite: bool,
    ) -> Result<(), Refusal> {
        if let Entry::Dir { mode: now, uid, gid } = seen.entry {
            if overwrite {
                self.empty(want, seen);
            }
            let made_for_keys = matches!(want.cause, Cause::Keys(_));
            let owner = if made_for_keys { &Owner::default() } else { owner };
            let (uid, gid) = self.owner(want, owner, Some((uid, gid)))?;
            let to = Entry::Dir { mode: mode.unwrap_or(now), uid, gid };
            if !self.equal(&seen.entry, &to) {
                self.push(want, seen, to, Make::Dir);
            }
            return Ok(());
        }
        self.make_room(want, seen, overwrite)?;
        let (uid, gid) = self.owner(want, owner, None)?;
        self.push(want, seen, Entry::Dir { mode: mode.unwrap_or(new_mode), uid, gid }, Make::Dir);
        Ok(())
    }

    fn symlink(
        &mut self,
        want: &Wanted,
        seen: &Seen,
        target: &str,
        owner: &Owner,
        overwrite: bool,
    ) -> Result<(), Refusal> {
        let keep = match &seen.entry {
            Entry::Symlink { target: now, uid, gid } if now == target => Some((*uid, *gid)),
            _ => None,
        };
        let (uid, gid) = self.owner(want, owner, keep)?;
        let to = Entry::Symlink { target: target.to_owned(), uid, gid };
        if !self.equal(&seen.entry, &to) {
            self.make_room(want, seen, overwrite)?;
            self.push(want, seen, to, Make::Symlink);
        }
        Ok(())
    }

    /// Hard links last: what they are names of may itself be replaced.
    fn hardlinks(&mut self, wanted: &[Wanted]) -> Result<(), Refusal> {
        for want in wanted {
            let Node::Hardlink { target, overwrite } = &want.node else { continue };
            let seen = self.seen(want)?;
            let Some((real, now, same)) = &seen.hard else { continue };
            let to = self.changes.get(real).map_or(now, |change| &change.to).clone();
            if matches!(to, Entry::Absent | Entry::Dir { .. } | Entry::Other) {
                return Err(refuse(
                    want,
                    &format!("the hard link's target {target} is {to}, expected a file"),
                ));
            }
            let replaced = self.changes.contains_key(real);
            if *same && !replaced {
                continue;
            }
            // Another file under this name, with or without the same content, is not a second name of the target.
            if !seen.entry.is_absent() && !*overwrite && !*same {
                return Err(refuse(want, "another file is there and `overwrite` is not set"));
            }
            self.make_room(want, seen, true)?;
            self.push(want, seen, to, Make::Hardlink(real.clone()));
        }
        Ok(())
    }

    /// Clears what is in the way: a directory with all that nobody wants below it.
    fn make_room(&mut self, want: &Wanted, seen: &Seen, overwrite: bool) -> Result<(), Refusal> {
        let in_the_way = match (&seen.entry, &want.node) {
            (Entry::Absent, _)
            | (Entry::File { .. }, Node::File { .. })
            | (Entry::Symlink { .. }, Node::Symlink { .. })
            | (Entry::File { .. } | Entry::Symlink { .. }, Node::Hardlink { .. }) => false,
            (Entry::Other, _) => return Err(refuse(want, "a device, socket or pipe is there")),
            _ => true,
        };
        let same_kind_differs =
            matches!(want.node, Node::Symlink { .. }) && matches!(seen.entry, Entry::Symlink { .. });
        if !overwrite && (in_the_way || same_kind_differs) {
            return Err(refuse(want, &format!("found {}, and `overwrite` is not set", seen.entry)));
        }
        if matches!(seen.entry, Entry::Dir { .. }) {
            self.empty(want, seen);
            self.room(want, &seen.real, seen.entry.clone());
        } else if matches!(want.node, Node::Dir { .. }) && !seen.entry.is_absent() {
            self.room(want, &seen.real, seen.entry.clone());
        }
        Ok(())
    }

    fn empty(&mut self, want: &Wanted, seen: &Seen) {
        let wanted: BTreeSet<&str> = self.taken.keys().map(String::as_str).collect();
        let keeps = |path: &str| {
            let inside = format!("{path}/");
            wanted.contains(path)
                || wanted.range(inside.as_str()..).next().is_some_and(|w| w.starts_with(&inside))
        };
        let gone: Vec<_> = seen.below.iter().filter(|(path, _)| !keeps(path)).cloned().collect();
        for (path, entry) in gone {
            self.room(want, &path, entry);
        }
    }

    /// A removal that makes room, under a key of its own: the path itself gets a change as well.
    fn room(&mut self, want: &Wanted, path: &str, from: Entry) {
        let change = Change {
            path: path.to_owned(),
            from,
            to: Entry::Absent,
            make: Make::Absent,
            stage: Stage::MakeRoom,
            cause: want.cause.clone(),
            kind: "remove",
            reason: format!("makes room for {}", want.path),
        };
        self.changes.insert(format!("{path}\0room"), change);
    }

    fn push(&mut self, want: &Wanted, seen: &Seen, to: Entry, make: Make) {
        for parent in &seen.missing_parents {
            self.parent(want, parent);
        }
        let kind = match (&make, &seen.entry) {
            (Make::Absent, _) if want.kind == "write" => "remove",
            (Make::Dir, Entry::Dir { .. }) => "chmod",
            _ => want.kind,
        };
        let roomed = self.changes.contains_key(&format!("{}\0room", seen.real));
        let from = if roomed { Entry::Absent } else { seen.entry.clone() };
        let change = Change {
            path: seen.real.clone(),
            from,
            to,
            make,
            stage: want.stage,
            cause: want.cause.clone(),
            kind,
            reason: want.reason.clone(),
        };
        self.changes.insert(seen.real.clone(), change);
    }

    /// A parent that nobody asked for by name.
    fn parent(&mut self, want: &Wanted, parent: &str) {
        if self.taken.contains_key(parent) || self.changes.contains_key(parent) {
            return;
        }
        let (uid, gid) = self.observed.only_as.unwrap_or((0, 0));
        let mode = if parent.starts_with(paths::STATE_DIR) { 0o700 } else { PARENT_MODE };
        let change = Change {
            path: parent.to_owned(),
            from: Entry::Absent,
            to: Entry::Dir { mode, uid, gid },
            make: Make::Dir,
            stage: Stage::Directories,
            // A folder by itself disturbs nobody; what goes into it does.
            cause: Cause::Record,
            kind: "parent",
            reason: format!("holds {}", split(&want.path).1),
        };
        self.changes.insert(parent.to_owned(), change);
    }

    /// Who it will belong to. A user who is not root can only keep what is.
    fn owner(&self, want: &Wanted, owner: &Owner, keep: Option<(u32, u32)>) -> Result<(u32, u32), Refusal> {
        if let Some(me) = self.observed.only_as {
            return Ok(keep.unwrap_or(me));
        }
        let (uid, gid) = keep.unwrap_or((0, 0));
        let missing = |message: String| refuse(want, &message);
        let uid = owner.user.as_ref().map_or(Ok(uid), |id| self.observed.user(id)).map_err(missing)?;
        let gid = owner.group.as_ref().map_or(Ok(gid), |id| self.observed.group(id)).map_err(missing)?;
        Ok((uid, gid))
    }

    fn equal(&self, now: &Entry, to: &Entry) -> bool {
        if self.observed.only_as.is_some() { now.same_but_owner(to) } else { now == to }
    }

    /// What has been appended is remembered, so that it is not appended again.
    fn record_appended(&mut self) {
        if self.appended.iter().all(|(path, digest)| self.observed.appended.get(path) == Some(digest)) {
            return;
        }
        let Some(seen) = self.observed.seen.get(paths::APPENDED) else { return };
        let mut record = self.observed.appended.clone();
        record.append(&mut self.appended.clone());
        let bytes = serde_json::to_vec_pretty(&record).unwrap_or_default();
        let (uid, gid) = self.observed.only_as.unwrap_or((0, 0));
        let to = Entry::File { digest: Digest::of(&bytes), mode: RECORD_MODE, uid, gid };
        let want = Wanted {
            path: paths::APPENDED.to_owned(),
            node: Node::Absent,
            stage: Stage::Files,
            cause: Cause::Record,
            kind: "record",
            reason: "what was appended, so that it is not appended again".to_owned(),
        };
        self.push(&want, seen, to, Make::File(Content::new(bytes)));
    }
}

/// Whether a file is there and holds nothing.
pub(crate) fn is_empty_file(entry: &Entry) -> bool {
    matches!(entry, Entry::File { digest, .. } if *digest == Digest::of(b""))
}

fn joined(a: &[u8], b: &[u8]) -> Content {
    Content::new([a, b].concat())
}

fn refuse(want: &Wanted, message: &str) -> Refusal {
    Refusal { path: want.path.clone(), message: message.to_owned() }
}
