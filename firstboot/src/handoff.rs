//! Owns: `user.ign`, the file that Ignition reads next: where it looks, complete, 0600, in one rename, or not at all.
//! Given the resolved config, writes it; knows an earlier hand-over by what the report says of it.
//! Never: leaves an older one of ours in place once this boot is ours to decide.

use crate::atomic;
use crate::document::{Document, Reference, Resource};
use crate::failure::Failure;
use crate::paths::Paths;
use crate::record::Directory;
use crate::spliced::{Digested, Spliced};
use crate::system_dir;
use std::io;
use std::path::{Path, PathBuf};

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
        let bytes = earlier.and_then(|_| std::fs::read(&self.out).ok());
        match bytes.zip(earlier) {
            Some((bytes, sha512)) if handed_over(&bytes, sha512) => self.clear(None),
            _ => Ok(()),
        }
    }

    /// Writes the config, and whatever makes Ignition find it; all of it or nothing.
    pub fn write(&self, config: &Spliced) -> Result<(), Failure> {
        let Some(paths) = &self.old else { return write(&self.out, config) };
        let local = |error: system_dir::SystemDirError| Failure::local(&error);
        let written = system_dir::prepare(paths)
            .map_err(local)
            .and_then(|()| write(&self.out, config))
            .and_then(|()| system_dir::announce(paths).map_err(local));
        if written.is_err()
            && let Err(error) = system_dir::clear(paths)
        {
            tracing::warn!("{error}"); // the first error is the one to report
        }
        written
    }
}

/// Whether this is the hand-over of a run whose report has this digest: of the config in one of its `data:` URLs, or of the whole.
fn handed_over(bytes: &[u8], sha512: &str) -> bool {
    let wanted = format!("sha512-{sha512}");
    let holds = |reference: &Reference| {
        let Resource { source, hash, .. } = &reference.resource;
        source.expose().starts_with("data:") && hash.as_ref() == Some(&wanted)
    };
    Document::parse(bytes, None).is_ok_and(|document| document.references.iter().any(holds))
        || Digested::of(bytes).sha512 == sha512
}

/// Writes the config, making the directory if it is not there.
fn write(out: &Path, config: &Spliced) -> Result<(), Failure> {
    make_parent(out)?;
    atomic::write_with(out, 0o600, |file| config.write_to(file)).map_err(|error| Failure::local(&error))
}

/// The directory of a file of ours, if it is not there yet.
pub fn make_parent(path: &Path) -> Result<(), Failure> {
    let Some(parent) = path.parent().filter(|parent| *parent != Path::new("")) else { return Ok(()) };
    std::fs::create_dir_all(parent)
        .map_err(|source| Failure::local(&atomic::WriteError { path: parent.to_owned(), source }))
}
