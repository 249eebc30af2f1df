//! Owns: a drive that a platform attaches to hand something over, for as long as one file of it is read.
//! Given the device, the file systems it may have and the file's name, gives the file's bytes.
//! Never: leaves it mounted, or executes, writes or follows a device node on it.

use super::{Pointer, PointerError, optional};
use crate::paths::Paths;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::io;
use std::path::{Path, PathBuf};

/// The file, if there is such a drive and the file is on it.
pub(super) fn read(
    paths: &Paths,
    device: &Path,
    types: &[&str],
    name: &str,
) -> Result<Option<Pointer>, PointerError> {
    if !device.exists() {
        return Ok(None);
    }
    let mounted = Mounted::new(device, types, paths.drive())
        .map_err(|source| PointerError::Read { path: device.to_owned(), source })?;
    optional(mounted.0.join(name))
}

/// A read-only mount that ends with this value.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Path, types: &[&str], at: PathBuf) -> io::Result<Self> {
        std::fs::create_dir_all(&at)?;
        let flags = MsFlags::MS_RDONLY | MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for kind in types {
            match mount(Some(device), &at, Some(*kind), flags, None::<&str>) {
                Ok(()) => return Ok(Self(at)),
                Err(error) => last = error.into(),
            }
        }
        let _ = std::fs::remove_dir(&at); // the mount's error is the one to report
        Err(last)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // What was read is in memory; a mount that stays until the root is switched harms nobody.
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
        let _ = std::fs::remove_dir(&self.0);
    }
}
