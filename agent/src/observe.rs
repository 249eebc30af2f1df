//! Owns: reading a tree as it is.
//! Given a root and paths; gives entries, unit files with the links around them, and account names.
//! Never changes anything, and never decides anything.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    enablement::{Farm, UnitFile},
    ignition::Id,
    ignition::Target,
    paths,
    plan::wanted::{Node, Wanted},
    root::{self, Kind, Root, has_extension, split},
    tree::{Cause, Digest, Entry, Stage},
    unitfile::{Install, template_of},
};

/// What is at a path.
pub fn entry(root: &Root, path: &str) -> Result<Entry, root::Error> {
    let Some(stat) = root.lstat(path)? else { return Ok(Entry::Absent) };
    let (mode, uid, gid) = (stat.mode, stat.uid, stat.gid);
    Ok(match stat.kind {
        Kind::File => match root.read(path)? {
            Some(bytes) => Entry::File { digest: Digest::of(&bytes), mode, uid, gid },
            None => Entry::Absent, // gone between the two calls
        },
        Kind::Dir => Entry::Dir { mode, uid, gid },
        Kind::Symlink => Entry::Symlink { target: root.readlink(path)?, uid, gid },
        Kind::Other => Entry::Other,
    })
}

/// Everything below a directory, deepest first, so that it can be removed in this order.
pub fn below(root: &Root, dir: &str) -> Result<Vec<String>, root::Error> {
    let mut found = Vec::new();
    for name in root.list(dir)? {
        let path = format!("{dir}/{name}");
        if root.lstat(&path)?.is_some_and(|s| s.kind == Kind::Dir) {
            found.extend(below(root, &path)?);
        }
        found.push(path);
    }
    Ok(found)
}

/// The links below `/etc/systemd/system`, the unit files that these targets name, and the presets.
/// Units and drop-ins of `desired` are taken as they will be, not as they are.
pub fn farm(root: &Root, desired: &Target, previous: Option<&Target>) -> Result<Farm, root::Error> {
    let mut farm = Farm { links: farm_links(root)?, presets: presets(root)?, ..Farm::default() };
    let nothing = Target::default();
    let mut todo: Vec<String> = desired.units.iter().map(|u| u.name.clone()).collect();
    todo.extend(previous.iter().flat_map(|p| p.units.iter().map(|u| u.name.clone())));
    let mut seen = BTreeSet::new();
    while let Some(unit) = todo.pop() {
        if !seen.insert(unit.clone()) {
            continue;
        }
        for name in [unit.clone(), template_of(&unit)] {
            if let Some((before, _)) = unit_file(root, &nothing, &name)? {
                farm.before.insert(name.clone(), before);
            }
            if let Some((file, changed)) = unit_file(root, desired, &name)? {
                todo.extend(file.install.also.iter().cloned());
                if changed {
                    farm.changed.insert(name.clone());
                }
                farm.files.insert(name, file);
                break;
            }
        }
    }
    Ok(farm)
}

fn farm_links(root: &Root) -> Result<BTreeMap<String, String>, root::Error> {
    let mut links = BTreeMap::new();
    for path in below(root, paths::UNITS)? {
        if let Some(stat) = root.lstat(&path)?
            && stat.kind == Kind::Symlink
        {
            let target = root.readlink(&path)?;
            links.insert(path, target);
        }
    }
    Ok(links)
}

/// Preset files in the order in which they count: by name, a name in an earlier folder hiding later ones.
fn presets(root: &Root) -> Result<Vec<String>, root::Error> {
    let mut files: BTreeMap<String, String> = BTreeMap::new();
    for dir in paths::PRESET_PATH {
        for name in root.list(dir)?.into_iter().filter(|n| has_extension(n, "preset")) {
            files.entry(name.clone()).or_insert(format!("{dir}/{name}"));
        }
    }
    let mut texts = Vec::new();
    for path in files.values() {
        if let Some(bytes) = root.read_following(path)? {
            texts.push(String::from_utf8_lossy(&bytes).into_owned());
        }
    }
    Ok(texts)
}

/// A unit's file, and whether `desired` makes it new or different.
fn unit_file(root: &Root, desired: &Target, name: &str) -> Result<Option<(UnitFile, bool)>, root::Error> {
    let wanted = desired.units.iter().find(|u| u.name == name);
    let mut found = None;
    let mut changed = false;
    if let Some(text) = wanted.and_then(|u| u.contents.clone()) {
        let path = format!("{}/{name}", paths::UNITS);
        changed = root.read_following(&path)?.as_deref() != Some(text.as_bytes());
        found = Some((path, text));
    } else {
        for dir in paths::UNIT_PATH {
            let path = format!("{dir}/{name}");
            if let Some(bytes) = root.read_following(&path)? {
                found = Some((path, String::from_utf8_lossy(&bytes).into_owned()));
                break;
            }
        }
    }
    let Some((path, text)) = found else { return Ok(None) };
    let mut texts: BTreeMap<String, String> = BTreeMap::new();
    for dir in paths::UNIT_PATH {
        let folder = format!("{dir}/{name}.d");
        for file in root.list(&folder)?.into_iter().filter(|n| has_extension(n, "conf")) {
            if let Some(bytes) = root.read_following(&format!("{folder}/{file}"))? {
                texts.entry(file).or_insert(String::from_utf8_lossy(&bytes).into_owned());
            }
        }
    }
    for dropin in wanted.iter().flat_map(|u| &u.dropins) {
        if let Some(text) = &dropin.contents {
            texts.insert(dropin.name.clone(), text.clone());
        }
    }
    let install = Install::parse(std::iter::once(text.as_str()).chain(texts.values().map(String::as_str)));
    Ok(Some((UnitFile { path, install }, changed)))
}

/// Users and groups of a tree, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Accounts {
    /// Name to user id, group id, home.
    pub users: BTreeMap<String, (u32, u32, String)>,
    /// Name to group id.
    pub groups: BTreeMap<String, u32>,
}

/// Reads the tree's own databases; the machine's are never asked.
pub fn accounts(root: &Root) -> Result<Accounts, root::Error> {
    let read = |path: &&str| -> Result<String, root::Error> {
        let bytes = root.read_following(path)?.unwrap_or_default();
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let users: Vec<String> = paths::PASSWD.iter().map(read).collect::<Result<_, _>>()?;
    let groups: Vec<String> = paths::GROUP.iter().map(read).collect::<Result<_, _>>()?;
    Ok(parse_accounts(&users, &groups))
}

/// Users and groups of databases, the first that has a name deciding.
pub fn parse_accounts(users: &[String], groups: &[String]) -> Accounts {
    let mut accounts = Accounts::default();
    for line in users.iter().flat_map(|text| text.lines()) {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, uid, gid, _, home, ..] = fields[..]
            && let (Ok(uid), Ok(gid)) = (uid.parse(), gid.parse())
        {
            accounts.users.entry(name.to_owned()).or_insert((uid, gid, home.to_owned()));
        }
    }
    for line in groups.iter().flat_map(|text| text.lines()) {
        let fields: Vec<&str> = line.split(':').collect();
        if let [name, _, gid, ..] = fields[..]
            && let Ok(gid) = gid.parse()
        {
            accounts.groups.entry(name.to_owned()).or_insert(gid);
        }
    }
    accounts
}

/// Parents that are not there yet, outermost first, and the one that is something else than a directory.
type Parents = (Vec<String>, Option<String>);

/// What is missing or in the way above a path.
fn missing_parents(root: &Root, path: &str) -> Result<Parents, root::Error> {
    let mut missing = Vec::new();
    let mut at = path;
    loop {
        let (parent, _) = split(at);
        if parent == "/" {
            break;
        }
        match root.lstat(parent)?.map(|s| s.kind) {
            Some(Kind::Dir) => break,
            // `resolve` has followed the links that lead somewhere; what is left leads nowhere.
            Some(_) => {
                missing.reverse();
                return Ok((missing, Some(parent.to_owned())));
            }
            None => missing.push(parent.to_owned()),
        }
        at = parent;
    }
    missing.reverse();
    Ok((missing, None))
}

/// A wanted path as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct Seen {
    /// Where it really is.
    pub real: String,
    /// What is there.
    pub entry: Entry,
    /// What it holds, where the plan needs that (append).
    pub bytes: Option<Vec<u8>>,
    /// What is below a directory that is to be emptied or replaced, deepest first.
    pub below: Vec<(String, Entry)>,
    /// Parents that are not there yet, outermost first.
    pub missing_parents: Vec<String>,
    /// What stands where a parent must be.
    pub blocked_by: Option<String>,
    /// For a hard link: where its target really is, what that is, and whether it is the same file already.
    pub hard: Option<(String, Entry, bool)>,
}

/// Everything that the differ compares with.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Observed {
    /// By path as it was asked for.
    pub seen: BTreeMap<String, Seen>,
    /// The tree's own users and groups.
    pub accounts: Accounts,
    /// What earlier applies have appended, by path.
    pub appended: BTreeMap<String, Digest>,
    /// Who we are, unless that is root, who can give files away.
    pub only_as: Option<(u32, u32)>,
}

impl Observed {
    /// Looks up an owner; an error names who is missing.
    pub fn user(&self, id: &Id) -> Result<u32, String> {
        match id {
            Id::Number(n) => Ok(*n),
            Id::Name(name) => self
                .accounts
                .users
                .get(name)
                .map(|u| u.0)
                .ok_or_else(|| format!("there is no user {name:?} in {}", paths::PASSWD[0])),
        }
    }

    /// Looks up a group; an error names which is missing.
    pub fn group(&self, id: &Id) -> Result<u32, String> {
        match id {
            Id::Number(n) => Ok(*n),
            Id::Name(name) => self
                .accounts
                .groups
                .get(name)
                .copied()
                .ok_or_else(|| format!("there is no group {name:?} in {}", paths::GROUP[0])),
        }
    }
}

/// Looks at every wanted path once.
pub fn observe(root: &Root, wanted: &[Wanted], accounts: Accounts) -> Result<Observed, root::Error> {
    let me = (nix::unistd::geteuid(), nix::unistd::getegid());
    let only_as = (!me.0.is_root()).then(|| (me.0.as_raw(), me.1.as_raw()));
    let appended = match root.read(paths::APPENDED)? {
        Some(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(), // unreadable: as if nothing had been appended
        None => BTreeMap::new(),
    };
    let mut observed = Observed { seen: BTreeMap::new(), accounts, appended, only_as };
    for want in wanted {
        let seen = see(root, want)?;
        observed.seen.insert(want.path.clone(), seen);
    }
    let record = Wanted {
        path: paths::APPENDED.to_owned(),
        node: Node::Absent,
        stage: Stage::Files,
        cause: Cause::Record,
        kind: "record",
        reason: String::new(),
    };
    observed.seen.insert(record.path.clone(), see(root, &record)?);
    Ok(observed)
}

fn see(root: &Root, want: &Wanted) -> Result<Seen, root::Error> {
    let real = root.resolve(&want.path)?;
    let found = entry(root, &real)?;
    let (missing, blocked) = missing_parents(root, &real)?;
    let mut seen = Seen {
        entry: found,
        bytes: None,
        below: Vec::new(),
        missing_parents: missing,
        blocked_by: blocked,
        hard: None,
        real,
    };
    let is_dir = matches!(seen.entry, Entry::Dir { .. });
    let empties = match &want.node {
        Node::Dir { overwrite, .. } => *overwrite,
        Node::File { .. } | Node::Symlink { .. } | Node::Hardlink { .. } => true,
        Node::Absent | Node::Blank => false,
    };
    if is_dir && empties {
        for path in below(root, &seen.real)? {
            let entry = entry(root, &path)?;
            seen.below.push((path, entry));
        }
    }
    if let Node::File { needs_bytes: true, .. } = &want.node
        && matches!(seen.entry, Entry::File { .. })
    {
        seen.bytes = root.read(&seen.real)?;
    }
    if let Node::Hardlink { target, .. } = &want.node {
        let target = root.resolve(target)?;
        let same = match (root.lstat(&target)?, root.lstat(&seen.real)?) {
            (Some(a), Some(b)) => a.id == b.id,
            _ => false,
        };
        let at_target = entry(root, &target)?;
        seen.hard = Some((target, at_target, same));
    }
    Ok(seen)
}
