//! Owns: `/run/oneboot/ignition`, the system directory of an Ignition before 2.27, and the line in `/run/ignition.env`
//! that makes it so. Given the root, gives a directory with all that Ignition reads there, or none and no such line.
//! Never: touches `/usr`, which is read-only in today's initramfs, or changes another line of the file.

use crate::atomic;
use crate::paths::Paths;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Understood by every Ignition from 2.9 to 2.26; its units read `/run/ignition.env`.
const VARIABLE: &str = "IGNITION_SYSTEM_CONFIG_DIR=";
/// As Ignition sees it, whatever the root.
const VALUE: &str = "/run/oneboot/ignition";
/// Where it looks unless told otherwise.
const DEFAULT: &str = "/usr/lib/ignition";
/// What it reads there besides `user.ign`: fragments, and fragments by platform, which is one level deeper.
const FRAGMENTS: [&str; 2] = ["base.d", "base.platform.d"];
const FRAGMENT_DEPTH: u32 = 2;

/// A step of it failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}")]
pub struct SystemDirError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Removes the directory and the line, as far as they are there.
pub fn clear(paths: &Paths) -> Result<(), SystemDirError> {
    let env = paths.ignition_env();
    let text = read(&env)?;
    if text.lines().any(is_ours) {
        let others: String = text.split_inclusive('\n').filter(|line| !is_ours(line.trim_end())).collect();
        replace(&env, &others)?;
    }
    let directory = paths.own_handoff();
    match std::fs::remove_dir_all(&directory) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(SystemDirError { what: "remove", path: directory, source })
        }
        _ => Ok(()),
    }
}

/// The directory, with copies of what Ignition reads in the one that it would look in otherwise.
pub fn prepare(paths: &Paths) -> Result<(), SystemDirError> {
    let text = read(&paths.ignition_env())?;
    let usual =
        text.lines().rev().find_map(|line| line.strip_prefix(VARIABLE)).filter(|value| *value != VALUE);
    let (from, to) = (paths.below(usual.unwrap_or(DEFAULT)), paths.own_handoff());
    make(&to)?;
    FRAGMENTS.iter().try_for_each(|name| copy(&from.join(name), &to.join(name), FRAGMENT_DEPTH))
}

/// Points Ignition there. The last step: until then it does not know of any of this.
pub fn announce(paths: &Paths) -> Result<(), SystemDirError> {
    let env = paths.ignition_env();
    let mut text = read(&env)?;
    if text.lines().rev().find(|line| line.starts_with(VARIABLE)).is_some_and(is_ours) {
        return Ok(());
    }
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.extend([VARIABLE, VALUE, "\n"]);
    replace(&env, &text)
}

fn is_ours(line: &str) -> bool {
    line.strip_prefix(VARIABLE) == Some(VALUE)
}

fn read(env: &Path) -> Result<String, SystemDirError> {
    match std::fs::read_to_string(env) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        other => other.map_err(|source| SystemDirError { what: "read", path: env.to_owned(), source }),
    }
}

fn replace(env: &Path, text: &str) -> Result<(), SystemDirError> {
    let mode = std::fs::metadata(env).map_or(0o644, |meta| meta.mode() & 0o7777); // Ignition's generator: 0644
    atomic::write(env, mode, text.as_bytes()).map_err(|error| SystemDirError {
        what: "write",
        path: error.path,
        source: error.source,
    })
}

fn make(directory: &Path) -> Result<(), SystemDirError> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.map_err(|source| SystemDirError { what: "make", path: directory.to_owned(), source })
}

/// Files and directories, links followed: what they point to is what Ignition would have read.
fn copy(from: &Path, to: &Path, depth: u32) -> Result<(), SystemDirError> {
    let failed = |source| SystemDirError { what: "copy", path: from.to_owned(), source };
    let entries = match std::fs::read_dir(from) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(failed)?,
    };
    make(to)?;
    for entry in entries {
        let entry = entry.map_err(failed)?;
        let (path, copied) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            if depth > 1 {
                copy(&path, &copied, depth - 1)?;
            }
        } else {
            std::fs::copy(&path, &copied).map_err(|source| SystemDirError { what: "copy", path, source })?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(env: &str) -> (tempfile::TempDir, Paths) {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("run")).unwrap();
        std::fs::write(root.path().join("run/ignition.env"), env).unwrap();
        let paths = Paths::new(root.path());
        (root, paths)
    }

    fn put(root: &tempfile::TempDir, name: &str, text: &str) {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    const OURS: &str = "IGNITION_SYSTEM_CONFIG_DIR=/run/oneboot/ignition\n";

    #[test]
    fn the_line_is_there_once_and_goes_without_a_trace() {
        for before in ["PLATFORM_ID=qemu\n", "PLATFORM_ID=qemu", "IGNITION_SYSTEM_CONFIG_DIR=/x\n", ""] {
            let (root, paths) = root(before);
            let env = || std::fs::read_to_string(root.path().join("run/ignition.env")).unwrap();
            announce(&paths).unwrap();
            announce(&paths).unwrap();
            assert_eq!(env(), format!("{}{OURS}", [before.trim_end(), "\n"].concat().trim_start()));
            clear(&paths).unwrap();
            assert_eq!(env().trim_end(), before.trim_end());
        }
    }

    #[test]
    fn fragments_are_copied_from_where_ignition_would_look() {
        for (env, home) in [("", "usr/lib/ignition"), ("IGNITION_SYSTEM_CONFIG_DIR=/opt/ign\n", "opt/ign")] {
            let (root, paths) = root(env);
            put(&root, &format!("{home}/base.d/00-core.ign"), "core");
            put(&root, &format!("{home}/base.platform.d/qemu/10.ign"), "qemu");
            put(&root, &format!("{home}/user.ign"), "not this one");
            prepare(&paths).unwrap();
            let copied =
                |name: &str| std::fs::read_to_string(root.path().join("run/oneboot/ignition").join(name));
            assert_eq!(copied("base.d/00-core.ign").unwrap(), "core", "{home}");
            assert_eq!(copied("base.platform.d/qemu/10.ign").unwrap(), "qemu", "{home}");
            assert_eq!(copied("user.ign").unwrap_err().kind(), io::ErrorKind::NotFound);
            clear(&paths).unwrap();
            assert!(!root.path().join("run/oneboot/ignition").exists());
        }
    }
}
