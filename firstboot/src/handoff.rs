//! Owns: `user.ign`, the file that Ignition reads next: complete, 0600, in one rename, or not at all.
//! Given the resolved config, gives the digest and size of what was written.
//! Never: leaves an older one of ours in place once this boot is ours to decide.

use crate::atomic;
use crate::failure::Failure;
use crate::resolve::Resolved;
use crate::trust::hex;
use serde::Serialize;
use sha2::{Digest, Sha512};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// What was handed over, for the report and whoever compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Written {
    /// SHA-512 of the file, in lower-case hex.
    pub sha512: String,
    /// Its bytes.
    pub size: u64,
}

/// Removes a hand-over of an earlier run, so that a failure from here on leaves none. The pointer itself is spared.
pub fn clear(out: &Path, pointer: Option<&Path>) -> Result<(), Failure> {
    if pointer == Some(out) {
        return Ok(());
    }
    match std::fs::remove_file(out) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Failure::local(&atomic::WriteError { path: out.to_owned(), source: error }))
        }
        _ => Ok(()),
    }
}

/// Writes the config, making the directory if it is not there.
pub fn write(out: &Path, config: &Resolved) -> Result<Written, Failure> {
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
