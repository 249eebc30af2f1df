//! Owns: a private copy of a tree's account databases, and the system's own tools at work on it.
//! Given calls; gives what the databases are afterwards.
//! Never lets a tool see the tree itself, nor a password hash: those are written into the copy.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Error, database};
use crate::{paths, root::Root};

/// The databases, and what the tools read beside them.
const DATABASES: [&str; 6] = ["passwd", "shadow", "group", "gshadow", "subuid", "subgid"];
/// Settings that decide about ids and defaults (login.defs(5), useradd(8)).
const SETTINGS: [&str; 2] = ["login.defs", "default/useradd"];
/// What holds where a tree has no `login.defs`: a group for each user, as every distribution of ours has it.
const LOGIN_DEFS: &str = "USERGROUPS_ENAB yes\n";
/// Only for us: it holds hashes.
const PRIVATE: u32 = 0o600;
/// Where the tools are; the caller's own search path is nobody's business.
const TOOLS: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The copy; gone when it is dropped.
pub(super) struct Copy {
    dir: tempfile::TempDir,
    /// By name: what `/etc` has, and what the image ships beside it.
    before: Vec<(&'static str, Option<String>, String)>,
}

impl Copy {
    /// Takes it.
    pub(super) fn of(root: &Root) -> Result<Copy, Error> {
        // In memory where that can be had: a hash does not reach a disk it was not on.
        let base = if root.is_system() { PathBuf::from(paths::RUN) } else { std::env::temp_dir() };
        let dir =
            tempfile::Builder::new().prefix("oneboot-accounts-").tempdir_in(base).map_err(Error::Copy)?;
        fs::create_dir_all(dir.path().join("etc/default")).map_err(Error::Copy)?;
        let mut copy = Copy { dir, before: Vec::new() };
        for name in DATABASES {
            let read = |folder: &str| root.read_following(&format!("{folder}/{name}"));
            let etc = read("/etc")?.map(|b| String::from_utf8_lossy(&b).into_owned());
            // Only these two are looked up in a second place (nss-altfiles).
            let shipped = if matches!(name, "passwd" | "group") { read("/usr/lib")? } else { None };
            let shipped = String::from_utf8_lossy(&shipped.unwrap_or_default()).into_owned();
            if etc.is_some() || !shipped.is_empty() {
                copy.write(name, &database::with_shipped(etc.as_deref().unwrap_or_default(), &shipped))?;
            }
            copy.before.push((name, etc, shipped));
        }
        for name in ["passwd", "group"] {
            if copy.read(name)?.is_empty() {
                copy.write(name, "")?; // the tools want the two to be there
            }
        }
        for name in SETTINGS {
            match root.read_following(&format!("/etc/{name}"))? {
                Some(bytes) => copy.write(name, &String::from_utf8_lossy(&bytes))?,
                None if name == "login.defs" => copy.write(name, LOGIN_DEFS)?,
                None => {}
            }
        }
        Ok(copy)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("etc").join(name)
    }

    /// A database as it is now; empty where there is none.
    pub(super) fn read(&self, name: &str) -> Result<String, Error> {
        match fs::read(self.path(name)) {
            Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(e) => Err(Error::Copy(e)),
        }
    }

    fn write(&self, name: &str, text: &str) -> Result<(), Error> {
        let path = self.path(name);
        fs::write(&path, text).map_err(Error::Copy)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE)).map_err(Error::Copy)
    }

    /// Writes a hash where the tools would: `shadow` and `gshadow`, else the database itself.
    pub(super) fn set_hash(&self, databases: [&str; 2], name: &str, hash: &str) -> Result<(), Error> {
        let [shadow, plain] = databases;
        let in_shadow = database::field(&self.read(shadow)?, name, 0).is_some();
        let file = if in_shadow { shadow } else { plain };
        let day = (file == "shadow").then(today);
        self.write(file, &database::with_hash(&self.read(file)?, name, hash, day))
    }

    /// Runs one tool on the copy.
    pub(super) fn run(&self, tool: &'static str, args: &[String]) -> Result<(), Error> {
        let output = Command::new(Self::find(tool)?)
            .arg("--prefix")
            .arg(self.dir.path())
            .args(args)
            .env_clear()
            .env("PATH", TOOLS)
            .env("LC_ALL", "C") // what it says ends up in a message
            .output()
            .map_err(|source| Error::Start { tool, source })?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
        Err(Error::Tool { tool, said, status: output.status })
    }

    fn find(tool: &'static str) -> Result<PathBuf, Error> {
        let found = TOOLS.split(':').map(|dir| Path::new(dir).join(tool)).find(|path| path.exists());
        found.ok_or(Error::Missing { tool })
    }

    /// The databases that are now another text than `/etc` has, without what the image ships anyway.
    pub(super) fn changed(&self) -> Result<Vec<(&'static str, String)>, Error> {
        let mut changed = Vec::new();
        for (name, etc, shipped) in &self.before {
            let before = etc.as_deref().unwrap_or_default();
            let now = database::without_shipped(&self.read(name)?, before, shipped);
            if now.trim_end() != before.trim_end() {
                changed.push((*name, now));
            }
        }
        Ok(changed)
    }
}

/// Days since 1970, as `shadow` counts.
fn today() -> u64 {
    const DAY: u64 = 24 * 60 * 60;
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |since| since.as_secs() / DAY) // a clock before 1970: the day is not known
}
