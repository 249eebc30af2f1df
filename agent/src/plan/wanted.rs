//! Owns: what each path of the tree should be, by whatever part of a config asks for it.
//! Given the target, the one before it, and the links around units; gives one [`Wanted`] for each path.
//! Never compares with the tree: `diff` does.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    enablement::Farm,
    ignition::{Id, Owner, Target, Unit, User},
    observe::Accounts,
    paths,
    tree::{Cause, Content, Entry, Stage},
};

/// Mode of a file for which none is given, with Ignition and with MCD.
const FILE_MODE: u32 = 0o644;
/// Mode of a directory for which none is given, and of parents.
const DIR_MODE: u32 = 0o755;
/// Mode of what holds keys.
const KEY_DIR_MODE: u32 = 0o700;
/// Mode of a file with keys.
const KEY_MODE: u32 = 0o600;

/// What a path should be.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A regular file.
    File {
        /// Its content; `None` keeps what is there, or makes an empty file.
        content: Option<Content>,
        /// What is added at its end.
        append: Option<Content>,
        /// The content that is there is needed to plan this.
        needs_bytes: bool,
        /// Mode; `None` keeps that of what is kept.
        mode: Option<u32>,
        /// Owner.
        owner: Owner,
        /// Something else that is there may be replaced.
        overwrite: bool,
    },
    /// A directory.
    Dir {
        /// Mode that it must have, whether it is new or not.
        mode: Option<u32>,
        /// Mode that it gets when it is new.
        new_mode: u32,
        /// Owner.
        owner: Owner,
        /// What is there goes first.
        overwrite: bool,
    },
    /// A symbolic link.
    Symlink {
        /// As written.
        target: String,
        /// Owner.
        owner: Owner,
        /// Something else that is there may be replaced.
        overwrite: bool,
    },
    /// A second name.
    Hardlink {
        /// Of this path.
        target: String,
        /// Something else that is there may be replaced.
        overwrite: bool,
    },
    /// Nothing, or an empty file: the same to systemd and to MCD.
    Blank,
    /// Nothing.
    Absent,
}

/// One path with what it should be, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// As the config names it.
    pub path: String,
    /// What it should be.
    pub node: Node,
    /// When it is brought about.
    pub stage: Stage,
    /// By which part of the config.
    pub cause: Cause,
    /// The step's kind when something is made; `remove` and `mkdir` name themselves.
    pub kind: &'static str,
    /// Why, for people.
    pub reason: String,
}

/// What the tree says about files that are no longer wanted (facts/mco.md 4.5, 4.7).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Originals {
    /// By path: what was there before a MachineConfig took it over.
    pub files: BTreeMap<String, Original>,
}

/// A backup that MCD or we have made.
#[derive(Debug, Clone, PartialEq)]
pub struct Original {
    /// Where the backup is.
    pub backup: String,
    /// Its content.
    pub content: Content,
    /// Its metadata.
    pub entry: Entry,
    /// The system still ships the file: it is put back. Otherwise it goes.
    pub shipped: bool,
}

/// All wants, by path, and what a person should know.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wants {
    /// One for each path.
    pub list: Vec<Wanted>,
    /// Said once.
    pub notes: Vec<String>,
}

impl Wants {
    /// Adds databases and homes. A path that the config names itself keeps what the config says.
    pub fn accounts(&mut self, more: Vec<Wanted>) {
        for want in more {
            match self.list.iter_mut().find(|w| w.path == want.path) {
                // Keys make the folder too, but know less about it.
                Some(there) if matches!(there.cause, Cause::Keys(_)) => *there = want,
                Some(_) => {}
                None => self.list.push(want),
            }
        }
    }
}

/// Facts about the node that change what is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Facts<'a> {
    /// MCD will check the tree.
    pub mcd: bool,
    /// Links around units.
    pub farm: &'a Farm,
    /// The tree's users.
    pub accounts: &'a Accounts,
    /// Backups of what is no longer wanted.
    pub originals: &'a Originals,
}

/// Files that MCD never removes, whoever stops asking for them (facts/mco.md 4.7).
const KEPT: [&str; 3] = [
    "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt",
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
];
/// The same for everything below here.
const KEPT_BELOW: &str = "/etc/docker/certs.d/";

/// Paths of files, drop-ins and units in `previous` that `desired` no longer lays down.
pub fn stale_files(desired: &Target, previous: &Target) -> Vec<String> {
    let laid = |t: &Target| -> BTreeSet<String> {
        let files = t.files.iter().map(|f| f.path.clone());
        let units = t.units.iter().flat_map(|u| {
            let own = u.contents.is_some().then(|| unit_path(&u.name));
            let dropins = u.dropins.iter().filter(|d| d.contents.as_deref().is_some_and(|c| !c.is_empty()));
            own.into_iter().chain(dropins.map(|d| dropin_path(&u.name, &d.name))).collect::<Vec<_>>()
        });
        files.chain(units).collect()
    };
    let mut now = laid(desired);
    now.extend(desired.directories.iter().map(|d| d.path.clone()));
    now.extend(desired.links.iter().map(|l| l.path.clone()));
    now.extend(desired.units.iter().filter(|u| u.mask == Some(true)).map(|u| unit_path(&u.name)));
    laid(previous)
        .into_iter()
        .filter(|path| !now.contains(path) && !KEPT.contains(&path.as_str()) && !path.starts_with(KEPT_BELOW))
        .collect()
}

fn unit_path(unit: &str) -> String {
    format!("{}/{unit}", paths::UNITS)
}

fn dropin_path(unit: &str, dropin: &str) -> String {
    format!("{}/{unit}.d/{dropin}", paths::UNITS)
}

/// Puts together what every path should be.
pub fn wants(desired: &Target, previous: Option<&Target>, facts: &Facts) -> Wants {
    let mut b = Builder { facts, by_path: BTreeMap::new(), notes: Vec::new() };
    let ours = |path: &str| {
        previous
            .is_some_and(|p| p.files.iter().any(|f| f.path == path) || p.links.iter().any(|l| l.path == path))
    };
    // Later entries win over earlier ones for the same path: what is no longer wanted comes first.
    if let Some(previous) = previous {
        b.stale(desired, previous);
    }
    for d in &desired.directories {
        let node =
            Node::Dir { mode: d.mode, new_mode: DIR_MODE, owner: d.owner.clone(), overwrite: d.overwrite };
        b.path(&d.path, node, Stage::Directories, "mkdir");
    }
    for f in &desired.files {
        b.path(&f.path, file_node(f, facts.mcd, ours(&f.path)), Stage::Files, "write");
    }
    for l in &desired.links {
        let overwrite = l.overwrite || ours(&l.path);
        let node = if l.hard {
            Node::Hardlink { target: l.target.clone(), overwrite }
        } else {
            Node::Symlink { target: l.target.clone(), owner: l.owner.clone(), overwrite }
        };
        b.path(&l.path, node, Stage::Files, "link");
    }
    for unit in &desired.units {
        b.unit(unit);
    }
    for user in desired.users.iter().filter(|u| u.should_exist) {
        b.keys(user);
    }
    Wants { list: b.by_path.into_values().collect(), notes: b.notes }
}

fn file_node(f: &crate::ignition::File, mcd: bool, ours: bool) -> Node {
    let append = f.append.clone().map(Content::new);
    // MCD takes "no source" for "empty" and compares with that; Ignition keeps what is there.
    let keep_is_empty = mcd && append.is_none();
    let content = match &f.contents {
        Some(bytes) => Some(Content::new(bytes.clone())),
        None => keep_is_empty.then(|| Content::new(Vec::new())),
    };
    let mode = f.mode.or(content.is_some().then_some(FILE_MODE));
    let needs_bytes = content.is_none();
    Node::File {
        content,
        append,
        needs_bytes,
        mode,
        owner: f.owner.clone(),
        overwrite: f.overwrite || ours || mcd,
    }
}

struct Builder<'a> {
    facts: &'a Facts<'a>,
    by_path: BTreeMap<String, Wanted>,
    notes: Vec<String>,
}

impl Builder<'_> {
    fn add(&mut self, wanted: Wanted) {
        self.by_path.insert(wanted.path.clone(), wanted);
    }

    fn path(&mut self, path: &str, node: Node, stage: Stage, kind: &'static str) {
        self.add(Wanted {
            path: path.to_owned(),
            node,
            stage,
            cause: Cause::Path(path.to_owned()),
            kind,
            reason: "in the config".to_owned(),
        });
    }

    fn of_unit(
        &mut self,
        unit: &str,
        path: String,
        node: Node,
        stage: Stage,
        kind: &'static str,
        reason: &str,
    ) {
        let cause = Cause::Unit(unit.to_owned());
        self.add(Wanted { path, node, stage, cause, kind, reason: reason.to_owned() });
    }

    fn unit(&mut self, unit: &Unit) {
        let (name, farm) = (unit.name.as_str(), self.facts.farm);
        for dropin in &unit.dropins {
            let Some(text) = &dropin.contents else { continue };
            // An empty drop-in is an empty file to Ignition; MCD removes it, and takes either.
            let node = if text.is_empty() && self.facts.mcd { Node::Blank } else { plain(text.as_bytes()) };
            let reason = format!("drop-in of {name}");
            self.of_unit(name, dropin_path(name, &dropin.name), node, Stage::Units, "write", &reason);
        }
        if unit.mask == Some(true) {
            let node = link("/dev/null");
            self.of_unit(name, unit_path(name), node, Stage::Units, "mask", "the config masks it");
            return;
        }
        let masked = farm.links.get(&unit_path(name)).is_some_and(|target| target == "/dev/null");
        match &unit.contents {
            Some(text) => {
                let reason = "unit of the config";
                self.of_unit(name, unit_path(name), plain(text.as_bytes()), Stage::Units, "write", reason);
            }
            None if unit.mask == Some(false) && masked => {
                let reason = "the config no longer masks it";
                self.of_unit(name, unit_path(name), Node::Absent, Stage::Units, "unmask", reason);
            }
            None => {}
        }
        self.enablement(unit);
    }

    fn enablement(&mut self, unit: &Unit) {
        let (name, farm) = (unit.name.as_str(), self.facts.farm);
        let presets = unit.contents.is_some() && farm.changed.contains(name);
        let (enabled, reason) = match unit.enabled {
            Some(true) if farm.file(name).is_none() => {
                self.notes.push(format!("{name} cannot be enabled: there is no such unit; skipped"));
                return;
            }
            Some(enabled) => (enabled, "as the config says"),
            // Presets are asked once, when the unit is new or different, as MCD does.
            None if presets => (farm.preset(name), "as presets say"),
            None => return,
        };
        for path in farm.outdated(name) {
            let reason = "the unit no longer asks for this link";
            self.of_unit(name, path, Node::Absent, Stage::Disable, "disable", reason);
        }
        if enabled {
            for (path, target) in farm.enable(name) {
                if !farm.has(&path, &target) {
                    let reason = format!("enabled {reason}");
                    self.of_unit(name, path, link(&target), Stage::Enable, "enable", &reason);
                }
            }
        } else {
            for path in farm.disable(name) {
                let reason = format!("disabled {reason}");
                self.of_unit(name, path, Node::Absent, Stage::Disable, "disable", &reason);
            }
        }
    }

    /// `~/.ssh/authorized_keys.d/ignition`, where Ignition and MCD put keys (facts/ignition.md 5, facts/mco.md 4.8).
    fn keys(&mut self, user: &User) {
        let Some(keys) = &user.ssh_keys else { return };
        let name = user.name.as_str();
        let home = user.home.clone().or(self.facts.accounts.users.get(name).map(|u| u.2.clone()));
        let home = home.unwrap_or_else(|| format!("/home/{name}"));
        let known = self.facts.accounts.users.contains_key(name);
        if !known {
            self.notes.push(format!(
                "there is no user {name} in this tree: keys are laid down for root to hand over"
            ));
        }
        let id = || known.then(|| Id::Name(name.to_owned()));
        let group = known.then(|| self.facts.accounts.users.get(name).map(|u| Id::Number(u.1))).flatten();
        let owner = Owner { user: id(), group };
        let home = home.trim_end_matches('/').to_owned();
        for dir in [home.clone(), format!("{home}/.ssh"), format!("{home}/.ssh/authorized_keys.d")] {
            let node =
                Node::Dir { mode: None, new_mode: KEY_DIR_MODE, owner: owner.clone(), overwrite: false };
            self.of_keys(name, dir, node, Stage::Directories, "mkdir");
        }
        let mut text = keys.join("\n");
        text.push('\n');
        let content = Some(Content::new(text.into_bytes()));
        let node = Node::File {
            content: if keys.is_empty() { Some(Content::new(Vec::new())) } else { content },
            append: None,
            needs_bytes: false,
            mode: Some(KEY_MODE),
            owner,
            overwrite: true,
        };
        self.of_keys(name, format!("{home}/.ssh/authorized_keys.d/ignition"), node, Stage::Files, "write");
    }

    fn of_keys(&mut self, user: &str, path: String, node: Node, stage: Stage, kind: &'static str) {
        let cause = Cause::Keys(user.to_owned());
        let reason = format!("SSH keys of {user}");
        self.by_path.entry(path.clone()).or_insert(Wanted { path, node, stage, cause, kind, reason });
    }

    fn stale(&mut self, desired: &Target, previous: &Target) {
        let reason = "no longer in the config";
        for path in stale_files(desired, previous) {
            let owner_unit = previous.units.iter().find(|u| {
                path == unit_path(&u.name) || u.dropins.iter().any(|d| path == dropin_path(&u.name, &d.name))
            });
            let (cause, stage) = match owner_unit {
                Some(unit) => (Cause::Unit(unit.name.clone()), Stage::RemoveUnits),
                None => (Cause::Path(path.clone()), Stage::RemoveFiles),
            };
            let node = match self.facts.originals.files.get(&path) {
                Some(original) if original.shipped => restored(original),
                _ => Node::Absent,
            };
            let kind = if node == Node::Absent { "remove" } else { "restore" };
            self.add(Wanted { path: path.clone(), node, stage, cause, kind, reason: reason.to_owned() });
            for record in [backup_path(&path), stamp_path(&path)] {
                self.add(Wanted {
                    path: record,
                    node: Node::Absent,
                    stage: Stage::RemoveFiles,
                    cause: Cause::Record,
                    kind: "remove",
                    reason: format!("backup of {path}, which is no longer in the config"),
                });
            }
        }
        for unit in &previous.units {
            if desired.units.iter().any(|u| u.name == unit.name) {
                continue;
            }
            let masked_by_us = unit.mask == Some(true);
            if masked_by_us {
                let why = "the config no longer masks it";
                self.of_unit(
                    &unit.name,
                    unit_path(&unit.name),
                    Node::Absent,
                    Stage::RemoveUnits,
                    "unmask",
                    why,
                );
            }
            if unit.contents.is_some() {
                for path in self.facts.farm.disable(&unit.name) {
                    self.of_unit(&unit.name, path, Node::Absent, Stage::Disable, "disable", reason);
                }
            }
        }
        for link in previous.links.iter().filter(|l| !l.hard) {
            let still = desired.links.iter().any(|l| l.path == link.path)
                || desired.files.iter().any(|f| f.path == link.path)
                || desired.directories.iter().any(|d| d.path == link.path);
            if !still {
                self.path(&link.path, Node::Absent, Stage::RemoveFiles, "remove");
            }
        }
    }
}

/// Where MCD keeps what was at a path before.
pub fn backup_path(path: &str) -> String {
    format!("{}{path}.mcdorig", paths::MCD_ORIG)
}

/// MCD's stamp for a path that nothing was at before.
pub fn stamp_path(path: &str) -> String {
    format!("{}{path}.mcdnoorig", paths::MCD_NOORIG)
}

fn restored(original: &Original) -> Node {
    let Entry::File { mode, uid, gid, .. } = original.entry else { return Node::Absent };
    Node::File {
        content: Some(original.content.clone()),
        append: None,
        needs_bytes: false,
        mode: Some(mode),
        owner: Owner { user: Some(Id::Number(uid)), group: Some(Id::Number(gid)) },
        overwrite: true,
    }
}

fn plain(bytes: &[u8]) -> Node {
    Node::File {
        content: Some(Content::new(bytes)),
        append: None,
        needs_bytes: false,
        mode: Some(FILE_MODE),
        owner: Owner::default(),
        overwrite: true,
    }
}

fn link(target: &str) -> Node {
    Node::Symlink { target: target.to_owned(), owner: Owner::default(), overwrite: true }
}
