//! Owns: the fragments in `firstboot.d` and the settings they add up to.
//! Given the fragments' texts in order, gives `Settings` and the warnings about what nobody understood.
//! Never: fails a boot over an unknown key; a known key with a bad value is refused with its file.

use crate::document::Spec;
use crate::duration;
use crate::paths::Paths;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What happens where a patient retry would end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnFailure {
    /// Exit with the row's code; the unit's `OnFailure=` takes over.
    #[default]
    Exit,
    /// Go on retrying slowly: for machines that nobody stands next to.
    Retry,
}

/// The settings of all fragments.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// `give_up_after`, if any fragment has it.
    pub give_up_after: Option<Duration>,
    /// `spec`, if any fragment has it.
    pub spec: Option<Spec>,
    /// `on_failure`
    pub on_failure: OnFailure,
}

/// A fragment cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is there but cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The fragment or its directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not TOML.
    #[error("{path} is not TOML: {reason}")]
    Toml {
        /// The fragment.
        path: PathBuf,
        /// The parser's words.
        reason: String,
    },
    /// A known key has a value that it cannot have.
    #[error("{path}: {key} = {found}: {expected}")]
    Value {
        /// The fragment.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// As found.
        found: String,
        /// What it should be.
        expected: String,
    },
}

/// Reads every fragment: directories from lowest to highest precedence, the last one's file of a name hiding the
/// others', files in the order of their names. `instead` replaces all three directories.
pub fn load(paths: &Paths, instead: Option<&PathBuf>) -> Result<(Settings, Vec<String>), ConfigError> {
    let directories = instead.map_or_else(|| paths.fragments().to_vec(), |directory| vec![directory.clone()]);
    let mut fragments = BTreeMap::new();
    for directory in directories {
        let read = |source| ConfigError::Read { path: directory.clone(), source };
        let entries = match std::fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && instead.is_none() => continue,
            entries => entries.map_err(read)?,
        };
        for entry in entries {
            let path = entry.map_err(read)?.path();
            if let Some(name) = path.file_name().filter(|_| path.extension().is_some_and(|e| e == "toml")) {
                fragments.insert(name.to_owned(), path);
            }
        }
    }
    let mut settings = Settings::default();
    let mut warnings = Vec::new();
    for path in fragments.into_values() {
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        apply(&mut settings, &path, &text, &mut warnings)?;
    }
    Ok((settings, warnings))
}

/// One fragment over what came before.
fn apply(
    settings: &mut Settings,
    path: &Path,
    text: &str,
    warnings: &mut Vec<String>,
) -> Result<(), ConfigError> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| ConfigError::Toml {
        path: path.to_owned(),
        reason: error.message().into(),
    })?;
    for (key, value) in table {
        let bad = |key, expected| ConfigError::Value {
            path: path.to_owned(),
            key,
            found: value.as_str().map_or_else(|| value.type_str().to_owned(), |text| format!("{text:?}")),
            expected,
        };
        let text = value.as_str().unwrap_or_default();
        match key.as_str() {
            "give_up_after" => {
                let parsed =
                    duration::parse(text).map_err(|error| bad("give_up_after", error.to_string()))?;
                settings.give_up_after = Some(parsed);
            }
            "spec" => settings.spec = Some(text.parse().map_err(|error| bad("spec", error))?),
            "on_failure" => {
                settings.on_failure = match text {
                    "exit" => OnFailure::Exit,
                    "retry" => OnFailure::Retry,
                    _ => return Err(bad("on_failure", "expected \"exit\" or \"retry\"".into())),
                }
            }
            unknown => warnings.push(format!("{}: unknown key {unknown:?} ignored", path.display())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> (tempfile::TempDir, Paths) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let paths = Paths::new(dir.path());
        (dir, paths)
    }

    #[test]
    fn etc_over_run_over_usr_by_file_name() {
        let (_dir, paths) = root(&[
            ("usr/lib/oneboot/firstboot.d/10-image.toml", "spec = '3.2.0'\ngive_up_after = '1h'"),
            ("run/oneboot/firstboot.d/10-image.toml", "spec = '3.3.0'"),
            ("usr/lib/oneboot/firstboot.d/20-more.toml", "give_up_after = '2s'"),
            ("etc/oneboot/firstboot.d/05-site.toml", "give_up_after = '1s'\non_failure = 'retry'"),
            ("etc/oneboot/firstboot.d/README", "not a fragment"),
        ]);
        let (settings, warnings) = load(&paths, None).unwrap();
        assert_eq!(settings.spec, Some(Spec(3)), "run hides usr's file of the same name");
        assert_eq!(settings.give_up_after, Some(Duration::from_secs(2)), "20 comes after 05");
        assert_eq!(settings.on_failure, OnFailure::Retry);
        assert_eq!(warnings, Vec::<String>::new());
    }

    #[test]
    fn unknown_keys_warn_with_their_file() {
        let (_dir, paths) = root(&[("etc/oneboot/firstboot.d/a.toml", "give_up_afer = '1s'")]);
        let (settings, warnings) = load(&paths, None).unwrap();
        assert_eq!(settings, Settings::default());
        assert!(warnings[0].ends_with("a.toml: unknown key \"give_up_afer\" ignored"), "{warnings:?}");
    }

    #[test]
    fn a_bad_value_is_refused_with_file_key_and_expectation() {
        for (text, key) in [
            ("give_up_after = 900", "give_up_after"),
            ("spec = '3.2'", "spec"),
            ("on_failure = 'x'", "on_failure"),
        ] {
            let (_dir, paths) = root(&[("etc/oneboot/firstboot.d/a.toml", text)]);
            match load(&paths, None) {
                Err(ConfigError::Value { key: found, .. }) => assert_eq!(found, key),
                other => panic!("{text}: {other:?}"),
            }
        }
        let (_dir, paths) = root(&[("etc/oneboot/firstboot.d/a.toml", "=")]);
        assert!(matches!(load(&paths, None), Err(ConfigError::Toml { .. })));
    }

    #[test]
    fn a_directory_that_was_asked_for_must_be_there() {
        let (dir, paths) = root(&[]);
        let missing = dir.path().join("missing");
        assert!(matches!(load(&paths, Some(&missing)), Err(ConfigError::Read { .. })));
    }
}
