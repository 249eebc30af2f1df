//! Owns: `user.ign`, the file that Ignition reads next: where it looks, complete, 0600, in one rename, or not at all.
//! Given the resolved config, gives the digest and size of what was written.
//! Never: leaves an older one of ours in place once this boot is ours to decide.

use crate::atomic;
use crate::failure::Failure;
use crate::paths::Paths;
use crate::record::Directory;
use crate::resolve::Resolved;
use crate::system_dir;
use crate::trust::hex;
use serde::Serialize;
use sha2::{Digest, Sha512};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// What was handed over, for the report and whoever compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// SHA-512 of the file, in lower-case hex.
    pub sha512: String,
    /// Its bytes.
    pub size: u64,
}

/// Where the hand-over goes.
pub struct Place {
    out: PathBuf,
    /// An Ignition before 2.27 has to be told where to look.
    old: Option<Paths>,
}

impl Place {
    /// This very file: whoever names it knows who reads it.
    pub fn exactly(out: PathBuf) -> Self {
        Self { out, old: None }
    }

    /// Where the image's Ignition looks.
    pub fn recorded(directory: Directory, paths: &Paths) -> Self {
        match directory {
            Directory::Runtime => Self::exactly(paths.handoff()),
            Directory::Own => Self { out: paths.own_handoff().join("user.ign"), old: Some(paths.clone()) },
        }
    }

    /// The file itself.
    pub fn file(&self) -> &Path {
        &self.out
    }

    /// Removes a hand-over of an earlier run, so that a failure from here on leaves none. The pointer itself is spared.
    pub fn clear(&self, pointer: Option<&Path>) -> Result<(), Failure> {
        if let Some(paths) = &self.old {
            return system_dir::clear(paths).map_err(|error| Failure::local(&error));
        }
        if pointer == Some(&self.out) {
            return Ok(());
        }
        match std::fs::remove_file(&self.out) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Failure::local(&atomic::WriteError { path: self.out.clone(), source: error }))
            }
            _ => Ok(()),
        }
    }

    /// Removes a hand-over of an earlier run that nothing has cleared yet: it is known by what that run's report says of it, since the
    /// file at the same path may also be the platform's own pointer.
    pub fn forget(&self, earlier: Option<&str>) -> Result<(), Failure> {
        let ours = match std::fs::read(&self.out) {
            Ok(bytes) => earlier.is_some_and(|sha512| hex(&Sha512::digest(&bytes)) == sha512),
            Err(_) => false,
        };
        if ours { self.clear(None) } else { Ok(()) }
    }

    /// Writes the config, and whatever makes Ignition find it; all of it or nothing.
    pub fn write(&self, config: &Resolved) -> Result<Written, Failure> {
        let Some(paths) = &self.old else { return write(&self.out, config) };
        let local = |error: system_dir::SystemDirError| Failure::local(&error);
        let written = system_dir::prepare(paths)
            .map_err(local)
            .and_then(|()| write(&self.out, config))
            .and_then(|written| system_dir::announce(paths).map(|()| written).map_err(local));
        if written.is_err()
            && let Err(error) = system_dir::clear(paths)
        {
            tracing::warn!("{error}"); // the first error is the one to report
        }
        written
    }
}

/// Writes the config, making the directory if it is not there.
fn write(out: &Path, config: &Resolved) -> Result<Written, Failure> {
    make_parent(out)?;
    let mut digest = Sha512::new();
    let mut size = 0;
    atomic::write_with(out, 0o600, |file| {
        let mut tee = BufWriter::with_capacity(64 << 10, Tee { file, digest: &mut digest, size: &mut size });
        config.write_to(&mut tee)?;
        tee.flush()
    })
    .map_err(|error| Failure::local(&error))?;
    Ok(Written { sha512: hex(&digest.finalize()), size })
}

/// The directory of a file of ours, if it is not there yet.
pub fn make_parent(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) else { return Ok(()) };
    std::fs::create_dir_all(parent)
        .map_err(|source| Failure::local(&atomic::WriteError { path: parent.to_owned(), source }))
}

/// Counts and digests what goes by, so that the config is never in memory a second time.
struct Tee<'a, W> {
    file: W,
    digest: &'a mut Sha512,
    size: &'a mut u64,
}

impl<W: Write> Write for Tee<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.digest.update(&bytes[..written]);
        *self.size += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
