//! Owns: what the image has recorded about its own Ignition when its initramfs was built: two files beside the binary.
//! Given the root, gives the newest spec that Ignition accepts and the directory in which it looks for `user.ign`.
//! Never: guesses from a version number: distributions patch Ignition, so whoever builds the image asks the program.

use crate::document::Spec;
use crate::paths::Paths;
use std::io;
use std::path::{Path, PathBuf};

/// Where the hand-over goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Directory {
    /// `/run/ignition`, where Ignition looks from 2.27 on.
    #[default]
    Runtime,
    /// `/run/oneboot/ignition`, which Ignition before that has to be pointed to, since `/usr` is read-only.
    Own,
}

/// The two files' content. Where there is none, that of a current Ignition is assumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Record {
    /// `ignition-spec`: one line, such as `3.4.0`.
    pub spec: Option<Spec>,
    /// `ignition-dir`: one line, `/run/ignition` or `/run/oneboot/ignition`.
    pub directory: Directory,
}

/// The image is not what its builder meant it to be.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// A file is there but cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: io::Error,
    },
    /// A file says something else.
    #[error("{path}: {reason}")]
    Value {
        /// The file.
        path: PathBuf,
        /// What was found and what was expected.
        reason: String,
    },
}

impl Record {
    /// Reads both files.
    pub fn load(paths: &Paths) -> Result<Self, BadRecord> {
        let spec = line(&paths.recorded_spec(), str::parse)?;
        let directory = line(&paths.recorded_directory(), |text| match text {
            "/run/ignition" => Ok(Directory::Runtime),
            "/run/oneboot/ignition" => Ok(Directory::Own),
            other => Err(format!("{other:?} is neither /run/ignition nor /run/oneboot/ignition")),
        })?;
        Ok(Self { spec, directory: directory.unwrap_or_default() })
    }
}

fn line<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<Option<T>, BadRecord> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(text.trim_end())
            .map(Some)
            .map_err(|reason| BadRecord::Value { path: path.to_owned(), reason }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(BadRecord::Read { path: path.to_owned(), reason }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(files: &[(&str, &str)]) -> Result<Record, BadRecord> {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("usr/lib/oneboot");
        std::fs::create_dir_all(&home).unwrap();
        for (name, text) in files {
            std::fs::write(home.join(name), text).unwrap();
        }
        Record::load(&Paths::new(root.path()))
    }

    #[test]
    fn one_line_each() {
        let old = load(&[("ignition-spec", "3.3.0\n"), ("ignition-dir", "/run/oneboot/ignition\n")]).unwrap();
        assert_eq!(old, Record { spec: Some(Spec(3)), directory: Directory::Own });
        let new = load(&[("ignition-spec", "3.6.0\n"), ("ignition-dir", "/run/ignition\n")]).unwrap();
        assert_eq!(new, Record { spec: Some(Spec(6)), directory: Directory::Runtime });
        assert_eq!(load(&[]).unwrap(), Record { spec: None, directory: Directory::Runtime });
    }

    #[test]
    fn anything_else_names_its_file() {
        for (name, text) in
            [("ignition-spec", "3.4\n"), ("ignition-spec", ""), ("ignition-dir", "/usr/lib/ignition")]
        {
            let error = load(&[(name, text)]).unwrap_err();
            assert!(matches!(&error, BadRecord::Value { path, .. } if path.ends_with(name)), "{error}");
        }
    }
}
