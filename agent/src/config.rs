//! Owns: the agent's settings, read from fragments in three directories (design 4.7).
//! Given a tree it gives every setting with the file it came from, and what is wrong with the fragments.
//! Never: stops at an unknown key: after an OS rollback an older agent meets a newer file.

use std::{collections::BTreeMap, fmt, time::Duration};

use oneboot_firstboot::duration;

use crate::{
    cli::Mcd,
    paths,
    plan::Disruption,
    root::{self, Root},
};

/// How the node becomes a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// The kubelet files the certificate request.
    Wait,
    /// The agent does, before the kubelet starts.
    Enroll,
}

/// A value and where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting<T> {
    /// The value.
    pub value: T,
    /// The fragment; none for a built-in default.
    pub from: Option<String>,
}

impl<T> Setting<T> {
    const fn default(value: T) -> Self {
        Self { value, from: None }
    }
}

/// All settings, valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `join`.
    pub join: Setting<Join>,
    /// `enroll_timeout`: after it, `wait`.
    pub enroll_timeout: Setting<Duration>,
    /// `mcd`: whether a Machine Config Daemon looks at this node.
    pub mcd: Setting<Mcd>,
    /// `cordon`: keep the Node unschedulable until it is settled.
    pub cordon: Setting<bool>,
    /// `max_disruption`; none: by phase, `reboot` at first boot and `restart` when joined.
    pub max_disruption: Setting<Option<Disruption>>,
    /// `unknown_path`; none: `soft-reboot` where systemd can, else `reboot`.
    pub unknown_path: Setting<Option<Disruption>>,
    /// `health_timeout`: how long units may take to come back.
    pub health_timeout: Setting<Duration>,
    /// `pool`, where firstboot left no report.
    pub pool: Setting<Option<String>>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            join: Setting::default(Join::Wait),
            // As long as a kubelet waits for one request (facts/trust.md 2.2).
            enroll_timeout: Setting::default(Duration::from_secs(15 * 60)),
            mcd: Setting::default(Mcd::Auto),
            cordon: Setting::default(true),
            max_disruption: Setting::default(None),
            unknown_path: Setting::default(None),
            // systemd's own default for a unit to start is 90 s; after it a job has ended one way or the other.
            health_timeout: Setting::default(Duration::from_secs(90)),
            pool: Setting::default(None),
        }
    }
}

/// What is wrong with the fragments.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree cannot be read.
    #[error(transparent)]
    Io(#[from] root::Error),
    /// Not TOML.
    #[error("{file}: {message}")]
    Syntax {
        /// The fragment.
        file: String,
        /// Where and what.
        message: String,
    },
    /// A value that a key cannot have.
    #[error("{file}: {key} is {found}, expected {expected}")]
    Value {
        /// The fragment.
        file: String,
        /// The key.
        key: String,
        /// What it is.
        found: String,
        /// What it could be.
        expected: String,
    },
}

/// A key that no agent of this version knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownKey {
    /// The fragment.
    pub file: String,
    /// The key.
    pub key: String,
}

impl fmt::Display for UnknownKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: unknown key {}", self.file, self.key)
    }
}

/// A fragment's path and text.
struct Fragment {
    path: String,
    text: String,
}

/// Reads the settings of a tree.
pub fn read(root: &Root) -> Result<(Settings, Vec<UnknownKey>), Error> {
    let mut settings = Settings::default();
    let mut unknown = Vec::new();
    for fragment in fragments(root)? {
        settings.merge(&fragment, &mut unknown)?;
    }
    Ok((settings, unknown))
}

/// By file name, as systemd does it: of two with the same name the higher directory's counts, and a later name wins.
fn fragments(root: &Root) -> Result<Vec<Fragment>, Error> {
    let mut by_name = BTreeMap::new();
    for directory in paths::CONFIG_DIRS {
        for name in root.list(directory)? {
            let is_toml = std::path::Path::new(&name).extension().is_some_and(|e| e == "toml");
            if is_toml && !name.starts_with('.') {
                let path = format!("{directory}/{name}");
                by_name.insert(name, path);
            }
        }
    }
    let mut fragments = Vec::new();
    for path in by_name.into_values() {
        // A link to /dev/null masks a fragment: nothing to read, nothing set.
        let Some(bytes) = root.read_following(&path)? else { continue };
        let text = String::from_utf8(bytes)
            .map_err(|_| Error::Syntax { file: path.clone(), message: "not UTF-8".to_owned() })?;
        fragments.push(Fragment { path, text });
    }
    Ok(fragments)
}

impl Settings {
    fn merge(&mut self, fragment: &Fragment, unknown: &mut Vec<UnknownKey>) -> Result<(), Error> {
        let file = &fragment.path;
        let table: toml::Table = fragment.text.parse().map_err(|e: toml::de::Error| Error::Syntax {
            file: file.clone(),
            message: e.message().to_owned(),
        })?;
        for (key, value) in table {
            let from = |expected: String| Error::Value {
                file: file.clone(),
                key: key.clone(),
                found: shown(&value),
                expected,
            };
            let from_file = Some(file.clone());
            match key.as_str() {
                "join" => self.join = Setting { value: join(&value).map_err(from)?, from: from_file },
                "enroll_timeout" => {
                    self.enroll_timeout = Setting { value: time(&value).map_err(from)?, from: from_file };
                }
                "mcd" => self.mcd = Setting { value: mcd(&value).map_err(from)?, from: from_file },
                "cordon" => self.cordon = Setting { value: flag(&value).map_err(from)?, from: from_file },
                "max_disruption" => {
                    self.max_disruption =
                        Setting { value: Some(level(&value).map_err(from)?), from: from_file };
                }
                "unknown_path" => {
                    self.unknown_path =
                        Setting { value: Some(level(&value).map_err(from)?), from: from_file };
                }
                "health_timeout" => {
                    self.health_timeout = Setting { value: time(&value).map_err(from)?, from: from_file };
                }
                "pool" => self.pool = Setting { value: Some(pool(&value).map_err(from)?), from: from_file },
                _ => unknown.push(UnknownKey { file: file.clone(), key }),
            }
        }
        Ok(())
    }

    /// Every key, its value as it would be written, and its file.
    pub fn lines(&self) -> Vec<(&'static str, String, Option<&str>)> {
        fn line<'a, T>(
            key: &'static str,
            setting: &'a Setting<T>,
            show: impl Fn(&T) -> String,
        ) -> (&'static str, String, Option<&'a str>) {
            (key, show(&setting.value), setting.from.as_deref())
        }

        let quoted = |text: &str| format!("{text:?}");
        let time = |t: &Duration| quoted(&seconds(*t));
        vec![
            line("join", &self.join, |j| quoted(if *j == Join::Wait { "wait" } else { "enroll" })),
            line("enroll_timeout", &self.enroll_timeout, time),
            line("mcd", &self.mcd, |m| {
                quoted(match m {
                    Mcd::Auto => "auto",
                    Mcd::Present => "present",
                    Mcd::Absent => "absent",
                })
            }),
            line("cordon", &self.cordon, ToString::to_string),
            line("max_disruption", &self.max_disruption, |d| {
                d.map_or("by phase: reboot at first boot, restart when joined".to_owned(), |d| {
                    quoted(d.name())
                })
            }),
            line("unknown_path", &self.unknown_path, |d| {
                d.map_or("soft-reboot where systemd can, else reboot".to_owned(), |d| quoted(d.name()))
            }),
            line("health_timeout", &self.health_timeout, time),
            line("pool", &self.pool, |p| p.as_deref().map_or("the one firstboot fetched".to_owned(), quoted)),
        ]
    }
}

/// A duration as the parser takes it back.
fn seconds(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{}s", duration.as_secs()),
        _ => format!("{}ms", duration.as_millis()),
    }
}

/// A value as it stands in a message: what fits a line is shown, the rest named by its type.
fn shown(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => format!("{text:?}"),
        toml::Value::Integer(number) => number.to_string(),
        toml::Value::Boolean(flag) => flag.to_string(),
        other => format!("a TOML {}", other.type_str()),
    }
}

fn text(value: &toml::Value) -> Option<&str> {
    value.as_str()
}

fn join(value: &toml::Value) -> Result<Join, String> {
    match text(value) {
        Some("wait") => Ok(Join::Wait),
        Some("enroll") => Ok(Join::Enroll),
        _ => Err("\"wait\" or \"enroll\"".to_owned()),
    }
}

fn mcd(value: &toml::Value) -> Result<Mcd, String> {
    match text(value) {
        Some("auto") => Ok(Mcd::Auto),
        Some("present") => Ok(Mcd::Present),
        Some("absent") => Ok(Mcd::Absent),
        _ => Err("\"auto\", \"present\" or \"absent\"".to_owned()),
    }
}

fn flag(value: &toml::Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| "true or false".to_owned())
}

fn level(value: &toml::Value) -> Result<Disruption, String> {
    text(value).unwrap_or_default().parse()
}

fn time(value: &toml::Value) -> Result<Duration, String> {
    duration::parse(text(value).unwrap_or_default())
        .map_err(|_| "a number and a unit in quotes, as in \"200ms\", \"8s\", \"15m\" or \"1h\"".to_owned())
}

fn pool(value: &toml::Value) -> Result<String, String> {
    text(value)
        .filter(|name| crate::api::resource::is_name(name))
        .map(ToOwned::to_owned)
        .ok_or_else(|| "the name of a MachineConfigPool, as in \"worker\"".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn without_fragments_everything_is_the_default_and_says_so() {
        let (_dir, root) = tree(&[]);
        let (settings, unknown) = read(&root).unwrap();
        assert_eq!((settings.clone(), unknown), (Settings::default(), vec![]));
        assert!(settings.lines().iter().all(|(_, _, from)| from.is_none()));
    }

    #[test]
    fn etc_wins_over_run_over_usr_and_a_later_name_over_an_earlier_one() {
        let (_dir, root) = tree(&[
            ("/usr/lib/oneboot/agent.d/10-image.toml", "cordon = false\npool = \"image\"\n"),
            ("/run/oneboot/agent.d/10-image.toml", "pool = \"run\"\n"),
            ("/etc/oneboot/agent.d/10-image.toml", "pool = \"etc\"\nmcd = \"absent\"\n"),
            ("/usr/lib/oneboot/agent.d/20-later.toml", "mcd = \"present\"\n"),
        ]);
        let (settings, _) = read(&root).unwrap();
        let etc = Some("/etc/oneboot/agent.d/10-image.toml".to_owned());
        assert_eq!(settings.pool, Setting { value: Some("etc".to_owned()), from: etc });
        assert_eq!(
            settings.mcd,
            Setting { value: Mcd::Present, from: Some("/usr/lib/oneboot/agent.d/20-later.toml".to_owned()) }
        );
        // The whole file of the same name is replaced, not only the keys it repeats.
        assert_eq!(settings.cordon, Setting::default(true));
    }

    #[test]
    fn a_fragment_is_masked_by_a_link_to_nothing() {
        let (dir, root) = tree(&[("/usr/lib/oneboot/agent.d/10-image.toml", "cordon = false\n")]);
        std::fs::create_dir_all(dir.path().join("etc/oneboot/agent.d")).unwrap();
        std::os::unix::fs::symlink("/dev/null", dir.path().join("etc/oneboot/agent.d/10-image.toml"))
            .unwrap();
        assert!(read(&root).unwrap().0.cordon.value);
    }

    #[test]
    fn an_unknown_key_is_a_warning_and_the_rest_holds() {
        let file = "/etc/oneboot/agent.d/a.toml";
        let (_dir, root) = tree(&[(file, "future = 1\ncordon = false\n")]);
        let (settings, unknown) = read(&root).unwrap();
        assert_eq!(unknown, [UnknownKey { file: file.to_owned(), key: "future".to_owned() }]);
        assert!(!settings.cordon.value);
    }

    #[test]
    fn a_wrong_value_names_file_key_and_what_it_could_be() {
        let message = |text: &str| {
            let (_dir, root) = tree(&[("/etc/oneboot/agent.d/a.toml", text)]);
            let error = read(&root).unwrap_err();
            assert!(matches!(error, Error::Value { .. }), "{error}");
            error.to_string()
        };
        assert_eq!(
            message("max_disruption = \"some\""),
            "/etc/oneboot/agent.d/a.toml: max_disruption is \"some\", expected none, reload, restart, soft-reboot, kexec or reboot"
        );
        assert_eq!(message("cordon = 1"), "/etc/oneboot/agent.d/a.toml: cordon is 1, expected true or false");
        assert!(message("health_timeout = 90").ends_with("as in \"200ms\", \"8s\", \"15m\" or \"1h\""));
        assert!(message("pool = \"../worker\"").contains("the name of a MachineConfigPool"));
        assert!(message("join = \"now\"").contains("\"wait\" or \"enroll\""));
        assert!(message("mcd = true").contains("\"auto\", \"present\" or \"absent\""));
    }

    #[test]
    fn what_is_not_toml_is_named() {
        let (_dir, root) = tree(&[("/etc/oneboot/agent.d/a.toml", "cordon =\n")]);
        let error = read(&root).unwrap_err();
        assert!(
            matches!(&error, Error::Syntax { file, .. } if file == "/etc/oneboot/agent.d/a.toml"),
            "{error}"
        );
    }

    #[test]
    fn the_readmes_table_has_every_key_with_its_default() {
        let readme = include_str!("../README.md");
        let keys: Vec<_> = Settings::default().lines().iter().map(|(key, _, _)| *key).collect();
        let table = readme.split("## Configuration").nth(1).unwrap().split("## ").next().unwrap();
        let documented: Vec<_> =
            table.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(documented, keys);
        for (key, value, _) in Settings::default().lines() {
            let by_rule = matches!(key, "max_disruption" | "unknown_path" | "pool");
            assert!(by_rule || table.contains(&format!("| `{key}` | `{value}` |")), "{key} = {value}");
        }
    }

    #[test]
    fn what_show_prints_can_be_read_back() {
        let (_dir, root) = tree(&[(
            "/etc/oneboot/agent.d/a.toml",
            "join = \"enroll\"\nenroll_timeout = \"200ms\"\nmcd = \"absent\"\ncordon = false\nmax_disruption = \"restart\"\n\
             unknown_path = \"reboot\"\nhealth_timeout = \"1h\"\npool = \"infra\"\n",
        )]);
        let (settings, _) = read(&root).unwrap();
        let shown: Vec<_> =
            settings.lines().iter().map(|(key, value, _)| format!("{key} = {value}")).collect();
        let (_dir2, again) = tree(&[("/etc/oneboot/agent.d/a.toml", &shown.join("\n"))]);
        assert_eq!(read(&again).unwrap().0, settings);
    }
}
