//! Owns: how a whole file appears under its name: complete, with its final mode, or not at all.
//! Given a path, a mode and bytes (or a writer), gives a durable file in one rename.
//! Never: leaves a temporary file behind, follows a link at the name, or widens the mode after the fact.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The file could not be put there; whatever was there before still is.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {path}")]
pub struct WriteError {
    /// The file that was to appear.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Writes `content` to `path` with exactly `mode`, replacing what is there. The directory must exist.
pub fn write(path: &Path, mode: u32, content: &[u8]) -> Result<(), WriteError> {
    write_with(path, mode, |file| file.write_all(content))
}

/// As [`write()`], with the content coming from `fill`.
pub fn write_with(
    path: &Path,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> Result<(), WriteError> {
    let failed = |source| WriteError { path: path.to_owned(), source };
    let name = path.file_name().ok_or_else(|| failed(io::ErrorKind::InvalidInput.into()))?;
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    // Always the same name, so that what a killed writer leaves is replaced by the next one: in an initramfs it would be memory.
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = directory.join(temporary);

    let written = fresh(&temporary, mode).and_then(|mut file| {
        fill(&mut file)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)
    });
    if let Err(source) = written {
        let _ = std::fs::remove_file(&temporary); // the first error is the one to report
        return Err(failed(source));
    }
    // The name itself is durable only once its directory is.
    File::open(directory).and_then(|dir| dir.sync_all()).map_err(failed)
}

/// A new file that nobody else holds open and whose mode the umask has not narrowed.
fn fresh(path: &Path, mode: u32) -> io::Result<File> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn appears_whole_with_its_mode_and_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user.ign");
        std::fs::write(&path, "older and longer").unwrap();
        write(&path, 0o600, b"new").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"new");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_a_killed_writer_left_is_gone_after_the_next() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".user.ign.new"), "half of a config").unwrap();
        write(&dir.path().join("user.ign"), 0o600, b"new").unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["user.ign"]);
    }

    #[test]
    fn a_link_at_the_name_is_replaced_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "untouched").unwrap();
        let path = dir.path().join("user.ign");
        std::os::unix::fs::symlink(&victim, &path).unwrap();
        write(&path, 0o600, b"new").unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"untouched");
        assert!(std::fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn a_failure_half_way_leaves_the_old_file_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("user.ign");
        std::fs::write(&path, "old").unwrap();
        let error = write_with(&path, 0o600, |file| {
            file.write_all(b"half")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert_eq!(error.source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
