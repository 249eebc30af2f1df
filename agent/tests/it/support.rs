//! Scratch trees, and comparing them.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use oneboot_agent::{
    apply::{self, Applied, Error, Progress, Request},
    machineconfig::MachineConfig,
    plan::{Disruption, Phase, Plan},
    root::Root,
    units::NoUnits,
};

/// One name of a tree, with everything that revert must bring back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) owner: (u32, u32),
    pub(crate) content: Vec<u8>,
    /// `security.selinux`, where there is one.
    pub(crate) label: Option<Vec<u8>>,
    /// First name of the same inode: tells hard links from copies.
    pub(crate) same_as: PathBuf,
}

pub(crate) type Tree = BTreeMap<PathBuf, Node>;

/// Everything below a directory but oneboot's own records.
pub(crate) fn tree(root: &Path) -> Tree {
    let mut found = Tree::new();
    let mut inodes = BTreeMap::new();
    walk(root, root, &mut found, &mut inodes);
    found
}

fn walk(root: &Path, dir: &Path, found: &mut Tree, inodes: &mut BTreeMap<u64, PathBuf>) {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).collect();
    names.sort();
    for path in names {
        let name = path.strip_prefix(root).unwrap().to_owned();
        if name == Path::new("var/lib/oneboot") {
            continue;
        }
        let meta = fs::symlink_metadata(&path).unwrap();
        let (kind, content) = if meta.is_symlink() {
            ('l', fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes())
        } else if meta.is_dir() {
            ('d', Vec::new())
        } else {
            ('f', fs::read(&path).unwrap())
        };
        let same_as = inodes.entry(meta.ino()).or_insert_with(|| name.clone()).clone();
        let mode = meta.permissions().mode() & 0o7777;
        let (owner, label) = ((meta.uid(), meta.gid()), label(&path));
        found.insert(name, Node { kind, mode, owner, content, label, same_as });
        if meta.is_dir() {
            walk(root, &path, found, inodes);
        }
    }
}

fn label(path: &Path) -> Option<Vec<u8>> {
    let mut buffer = [0; 4096];
    let length = rustix::fs::lgetxattr(path, "security.selinux", &mut buffer).ok()?;
    Some(buffer[..length].to_vec())
}

/// What differs, for an assertion's message.
pub(crate) fn difference(a: &Tree, b: &Tree) -> Vec<String> {
    let mut out = Vec::new();
    for name in a.keys().chain(b.keys()).collect::<std::collections::BTreeSet<_>>() {
        match (a.get(name), b.get(name)) {
            (Some(x), Some(y)) if x == y => {}
            (x, y) => out.push(format!("{}: {x:?} | {y:?}", name.display())),
        }
    }
    out
}

/// A scratch tree with what a system has that no config makes.
pub(crate) fn scratch() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in ["etc", "usr/lib/systemd/system", "var/lib"] {
        fs::create_dir_all(dir.path().join(path)).unwrap();
    }
    dir
}

/// Puts a file into a tree.
pub(crate) fn put(root: &Path, path: &str, content: impl AsRef<[u8]>, mode: u32) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

/// A bare Ignition config of spec 3.5 with these sections.
pub(crate) fn ignition(sections: serde_json::Value) -> MachineConfig {
    let mut config = serde_json::json!({"ignition": {"version": "3.5.0"}});
    config.as_object_mut().unwrap().extend(sections.as_object().unwrap().clone());
    MachineConfig::parse(&serde_json::to_vec(&config).unwrap()).unwrap()
}

/// A MachineConfig around an Ignition config.
pub(crate) fn machine_config(name: &str, sections: serde_json::Value) -> MachineConfig {
    let config = ignition(sections).raw;
    let document =
        serde_json::json!({"kind": "MachineConfig", "metadata": {"name": name}, "spec": {"config": config}});
    MachineConfig::parse(&serde_json::to_vec(&document).unwrap()).unwrap()
}

pub(crate) fn request(desired: &MachineConfig) -> Request<'_> {
    Request {
        desired,
        current: None,
        policy: None,
        phase: Phase::FirstBoot,
        max_disruption: Disruption::Reboot,
        unknown_path: Disruption::SoftReboot,
        mcd_present: false,
        settle: false,
    }
}

pub(crate) fn open(root: &Path) -> Root {
    Root::open(root).unwrap()
}

pub(crate) fn run(root: &Path, request: &Request) -> Result<Applied, Error> {
    apply::apply(&open(root), request, &NoUnits, &mut |_: Progress| {})
}

pub(crate) fn plan(root: &Path, request: &Request) -> Result<Plan, Error> {
    apply::prepare(&open(root), request)
}

/// The folder of real data beside the repository (or where `ONEBOOT_CASES` says), if somebody has put it there.
pub(crate) fn shared_cases() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/cases");
    let named = std::env::var_os("ONEBOOT_CASES").map(PathBuf::from);
    // A folder that was named must be there.
    let found = named.or_else(|| beside.is_dir().then_some(beside));
    if found.is_none() {
        println!("../shared/cases is not there: nothing compared with it");
    }
    found
}

/// One of its files, which must be there if the folder is.
pub(crate) fn shared_file(dir: &Path, name: &str) -> Vec<u8> {
    fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{} has no {name}: {e}", dir.display()))
}

pub(crate) fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
