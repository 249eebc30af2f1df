//! Owns: the rules of the spec that a schema cannot say (facts/ignition.md 4.3), and those Ignition leaves to the kernel to find.
//! Given a typed config; gives the first rule that is broken.
//! Never looks at a tree: these refusals hold anywhere.

use std::collections::{HashMap, HashSet};

use ignition_config::v3_6::{Config, NodeGroup, NodeUser, Resource, Storage, Systemd};

use super::Error;
use crate::paths;

/// More entries than this is not a node's configuration but an attack on its memory; real ones have about a hundred.
pub const MAX_ENTRIES: usize = 65_536;

/// What a unit's name may end in (systemd.unit(5); `snapshot` is gone from systemd, but Ignition still takes it).
const UNIT_TYPES: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];

/// Longest name of a unit (`UNIT_NAME_MAX`).
const UNIT_NAME_MAX: usize = 255;

/// Checks everything; the first broken rule is the error.
pub(super) fn check(config: &Config) -> Result<(), Error> {
    let empty_storage = Storage::default();
    let empty_systemd = Systemd::default();
    let storage = config.storage.as_ref().unwrap_or(&empty_storage);
    let systemd = config.systemd.as_ref().unwrap_or(&empty_systemd);
    for (what, present) in [
        ("storage.disks (partitions)", some(storage.disks.as_ref())),
        ("storage.raid", some(storage.raid.as_ref())),
        ("storage.filesystems", some(storage.filesystems.as_ref())),
        ("storage.luks", some(storage.luks.as_ref())),
    ] {
        if present {
            return Err(Error::FirstBootOnly { what });
        }
    }
    let entries = count(storage.files.as_ref())
        + count(storage.directories.as_ref())
        + count(storage.links.as_ref())
        + count(systemd.units.as_ref());
    if entries > MAX_ENTRIES {
        return Err(invalid("storage", format!("found {entries} entries, at most {MAX_ENTRIES} are taken")));
    }
    let mut nodes = Nodes::default();
    check_storage(storage, &mut nodes)?;
    check_units(systemd, &mut nodes)?;
    nodes.check_ancestors()?;
    check_passwd(config)?;
    check_kernel_arguments(config)
}

fn some<T>(list: Option<&Vec<T>>) -> bool {
    list.is_some_and(|l| !l.is_empty())
}

fn count<T>(list: Option<&Vec<T>>) -> usize {
    list.map_or(0, Vec::len)
}

fn invalid(entry: &str, message: impl Into<String>) -> Error {
    // A terminal obeys what a path may hold: it is shown, not sent.
    Error::Invalid { entry: entry.escape_debug().to_string(), message: message.into() }
}

#[derive(Clone, Copy, PartialEq)]
enum NodeKind {
    File,
    Directory,
    Link,
}

/// Every path that a config lays down, whatever list it comes from.
#[derive(Default)]
struct Nodes(HashMap<String, NodeKind>);

impl Nodes {
    fn add(&mut self, path: &str, kind: NodeKind) -> Result<(), Error> {
        match self.0.insert(path.to_owned(), kind) {
            None => Ok(()),
            Some(_) => Err(invalid(path, "found twice; a path may be laid down once")),
        }
    }

    fn check_ancestors(&self) -> Result<(), Error> {
        for path in self.0.keys() {
            let mut at = path.as_str();
            while let Some((parent, _)) = at.rsplit_once('/').filter(|(parent, _)| !parent.is_empty()) {
                match self.0.get(parent) {
                    Some(NodeKind::File) => {
                        return Err(invalid(
                            path,
                            format!("{parent} is a file in the same config and cannot be a folder"),
                        ));
                    }
                    Some(NodeKind::Link) => {
                        return Err(invalid(
                            path,
                            format!("{parent} is a link in the same config; use its target"),
                        ));
                    }
                    _ => at = parent,
                }
            }
        }
        Ok(())
    }
}

fn check_storage(storage: &Storage, nodes: &mut Nodes) -> Result<(), Error> {
    for file in storage.files.iter().flatten() {
        check_path(&file.path)?;
        nodes.add(&file.path, NodeKind::File)?;
        check_mode(&file.path, file.mode)?;
        check_owner(&file.path, file.user.as_ref(), file.group.as_ref())?;
        let source = file.contents.as_ref().and_then(|c| c.source.as_ref());
        if file.overwrite == Some(true) && source.is_none() {
            return Err(invalid(
                &file.path,
                "`overwrite` is set without `contents.source`: nothing to write",
            ));
        }
        for resource in file.contents.iter().chain(file.append.iter().flatten()) {
            check_resource(&file.path, resource)?;
        }
    }
    for directory in storage.directories.iter().flatten() {
        check_path(&directory.path)?;
        nodes.add(&directory.path, NodeKind::Directory)?;
        check_mode(&directory.path, directory.mode)?;
        check_owner(&directory.path, directory.user.as_ref(), directory.group.as_ref())?;
    }
    for link in storage.links.iter().flatten() {
        check_path(&link.path)?;
        nodes.add(&link.path, NodeKind::Link)?;
        check_owner(&link.path, link.user.as_ref(), link.group.as_ref())?;
        let target = link.target.as_deref().unwrap_or_default();
        if target.is_empty() || target.contains('\0') {
            return Err(invalid(&link.path, "a link needs a `target`"));
        }
        if link.hard == Some(true) && nodes.0.get(target) == Some(&NodeKind::Directory) {
            return Err(invalid(&link.path, format!("{target} is a directory; a hard link needs a file")));
        }
    }
    Ok(())
}

fn check_path(path: &str) -> Result<(), Error> {
    let problem = if path.is_empty() {
        "a path is empty"
    } else if !path.starts_with('/') {
        "not an absolute path"
    } else if path.contains('\0') {
        "a path holds a zero byte"
    } else if path.split('/').any(|part| part == "..") {
        "a path may not climb with `..`"
    } else if path == "/" || path[1..].split('/').any(|part| part.is_empty() || part == ".") {
        "not a clean path (no `.`, no `//`, no trailing `/`)"
    } else if path == paths::STATE_DIR
        || path.strip_prefix(paths::STATE_DIR).is_some_and(|r| r.starts_with('/'))
    {
        "oneboot's own records are not configuration"
    } else {
        return Ok(());
    };
    Err(invalid(path, problem))
}

fn check_mode(path: &str, mode: Option<i64>) -> Result<(), Error> {
    match mode {
        Some(m) if !(0..=0o7777).contains(&m) => {
            Err(invalid(path, format!("found mode {m} (decimal), expected 0 to {} (07777)", 0o7777)))
        }
        _ => Ok(()),
    }
}

fn check_owner(path: &str, user: Option<&NodeUser>, group: Option<&NodeGroup>) -> Result<(), Error> {
    let user = user.map(|u| (u.id, u.name.as_deref()));
    let group = group.map(|g| (g.id, g.name.as_deref()));
    for (what, owner) in [("user", user), ("group", group)] {
        let Some((id, name)) = owner else { continue };
        if id.is_some() && name.is_some_and(|n| !n.is_empty()) {
            return Err(invalid(path, format!("{what} is given both by id and by name")));
        }
        // The last value means "leave as it is" to chown(2).
        if id.is_some_and(|i| u32::try_from(i).map_or(true, |i| i == u32::MAX)) {
            return Err(invalid(path, format!("{what} id is out of range")));
        }
    }
    Ok(())
}

fn check_resource(path: &str, resource: &Resource) -> Result<(), Error> {
    let hash = resource.verification.as_ref().and_then(|v| v.hash.as_deref());
    if hash.is_some() && resource.source.is_none() {
        return Err(invalid(path, "`verification` is set without `source`"));
    }
    if resource.compression.as_deref().is_some_and(|c| !c.is_empty()) && resource.source.is_none() {
        return Err(invalid(path, "`compression` is set without `source`"));
    }
    Ok(())
}

fn check_units(systemd: &Systemd, nodes: &mut Nodes) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for unit in systemd.units.iter().flatten() {
        check_unit_name(&unit.name)?;
        if !seen.insert(&unit.name) {
            return Err(invalid(&unit.name, "found twice; a unit may be given once"));
        }
        let path = format!("{}/{}", paths::UNITS, unit.name);
        if unit.contents.as_deref().is_some_and(|c| !c.is_empty()) || unit.mask == Some(true) {
            nodes.add(&path, NodeKind::File)?;
        }
        check_unit_text(&unit.name, unit.contents.as_deref())?;
        let mut dropins = HashSet::new();
        for dropin in unit.dropins.iter().flatten() {
            let name = &dropin.name;
            let entry = format!("{}.d/{name}", unit.name);
            if name.contains(['/', '\0']) {
                return Err(invalid(&entry, "the name of a drop-in may not hold a slash"));
            }
            if !crate::root::has_extension(name, "conf") || name.starts_with('.') {
                return Err(invalid(
                    &entry,
                    "the name of a drop-in must end in .conf and not begin with a dot",
                ));
            }
            if !dropins.insert(name) {
                return Err(invalid(&entry, "found twice; a drop-in may be given once"));
            }
            if dropin.contents.is_some() {
                nodes.add(&format!("{path}.d/{name}"), NodeKind::File)?;
            }
            check_unit_text(&entry, dropin.contents.as_deref())?;
        }
    }
    Ok(())
}

fn check_unit_name(name: &str) -> Result<(), Error> {
    if name.contains('/') {
        return Err(invalid(name, "a unit's name may not hold a slash"));
    }
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b":-_.\\@".contains(&b);
    let (stem, kind) = name.rsplit_once('.').unwrap_or((name, ""));
    if stem.is_empty() || stem == "." || !name.bytes().all(allowed) || name.len() > UNIT_NAME_MAX {
        return Err(invalid(name, "not a unit's name (letters, digits and :-_.\\@, at most 255)"));
    }
    if !UNIT_TYPES.contains(&kind) && kind != "snapshot" {
        return Err(invalid(
            name,
            format!("found the type {kind:?}, expected one of {}", UNIT_TYPES.join(", ")),
        ));
    }
    Ok(())
}

/// systemd reads lines; what it could not even split into sections is not worth writing.
fn check_unit_text(entry: &str, text: Option<&str>) -> Result<(), Error> {
    for (i, line) in text.unwrap_or_default().lines().enumerate() {
        let line = line.trim();
        if line.starts_with('[') && !line.ends_with(']') {
            return Err(invalid(
                entry,
                format!("line {} begins a section and does not end it with ]", i + 1),
            ));
        }
        if line.contains('\0') {
            return Err(invalid(entry, format!("line {} holds a zero byte", i + 1)));
        }
    }
    Ok(())
}

fn check_passwd(config: &Config) -> Result<(), Error> {
    let Some(passwd) = &config.passwd else { return Ok(()) };
    let mut seen = HashSet::new();
    for user in passwd.users.iter().flatten() {
        check_account("user", &user.name)?;
        if !seen.insert(("user", &user.name)) {
            return Err(invalid(&user.name, "found twice; a user may be given once"));
        }
        check_line(&user.name, "passwordHash", user.password_hash.as_deref())?;
        check_line(&user.name, "gecos", user.gecos.as_deref())?;
        check_line(&user.name, "shell", user.shell.as_deref())?;
        if let Some(home) = &user.home_dir {
            check_path(home)?;
            check_line(&user.name, "homeDir", Some(home))?;
        }
        if user.uid.is_some_and(|i| u32::try_from(i).map_or(true, |i| i == u32::MAX)) {
            return Err(invalid(&user.name, "uid is out of range"));
        }
        let mut keys = HashSet::new();
        for key in user.ssh_authorized_keys.iter().flatten() {
            if !keys.insert(key) {
                return Err(invalid(&user.name, "an SSH key is given twice"));
            }
        }
    }
    for group in passwd.groups.iter().flatten() {
        check_account("group", &group.name)?;
        if !seen.insert(("group", &group.name)) {
            return Err(invalid(&group.name, "found twice; a group may be given once"));
        }
        check_line(&group.name, "passwordHash", group.password_hash.as_deref())?;
        if group.gid.is_some_and(|i| u32::try_from(i).map_or(true, |i| i == u32::MAX)) {
            return Err(invalid(&group.name, "gid is out of range"));
        }
    }
    Ok(())
}

/// Account names end up in paths and in lines with colons.
fn check_account(what: &str, name: &str) -> Result<(), Error> {
    let bad =
        name.is_empty() || name.starts_with(['-', '.']) || name.contains(['/', ':', ',', '\n', '\0', ' ']);
    if bad { Err(invalid(name, format!("not a {what}'s name"))) } else { Ok(()) }
}

fn check_line(entry: &str, field: &str, value: Option<&str>) -> Result<(), Error> {
    match value {
        Some(v) if v.contains([':', '\n', '\0']) => {
            Err(invalid(entry, format!("{field} may not hold a colon or a line break")))
        }
        _ => Ok(()),
    }
}

fn check_kernel_arguments(config: &Config) -> Result<(), Error> {
    let Some(kargs) = &config.kernel_arguments else { return Ok(()) };
    let mut seen = HashSet::new();
    for argument in kargs.should_exist.iter().chain(&kargs.should_not_exist).flatten() {
        if !seen.insert(argument) {
            return Err(invalid(argument, "a kernel argument is given twice"));
        }
    }
    Ok(())
}
