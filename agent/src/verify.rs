//! Owns: the verdict of MCD's on-disk validation (facts/mco.md 3.5), without MCD.
//! Given a tree and a MachineConfig; gives every mismatch.
//! Never changes anything, and never shows content.

use crate::{
    enablement::State,
    ignition::{File, Target, Unit},
    machineconfig::MachineConfig,
    observe, paths,
    root::Root,
    tree::{Digest, Entry},
};

/// Files that MCD writes itself and therefore does not check.
const IGNORED: [&str; 3] = [
    "/etc/kubernetes/kubelet-ca.crt",
    "/etc/kubernetes/static-pod-resources/configmaps/cloud-config/ca-bundle.pem",
    "/etc/mco/internal-registry-pull-secret.json",
];
/// Mode of files for which none is given, of units and of drop-ins.
const DEFAULT_MODE: u32 = 0o644;

/// One thing that MCD would find.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// The path or unit it is about.
    pub path: String,
    /// What was found and what was expected, without content.
    pub message: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Checks a tree; an empty list is MCD's "validated on-disk state".
///
/// MCD stops at the first mismatch; all of them are more use.
pub fn verify(root: &Root, desired: &MachineConfig) -> Vec<Mismatch> {
    match crate::apply::read(desired) {
        Ok(target) => Check { root, found: Vec::new() }.target(&target),
        Err(e) => vec![Mismatch { path: "spec.config".to_owned(), message: e.to_string() }],
    }
}

struct Check<'a> {
    root: &'a Root,
    found: Vec<Mismatch>,
}

impl Check<'_> {
    fn target(mut self, target: &Target) -> Vec<Mismatch> {
        for file in target.files.iter().filter(|f| !IGNORED.contains(&f.path.as_str())) {
            self.file(file);
        }
        match observe::farm(self.root, target, None) {
            Ok(farm) => {
                for unit in &target.units {
                    self.unit(unit, &|name| farm.state(name));
                }
            }
            Err(e) => self.say(paths::UNITS, crate::apply::chain(&e)),
        }
        self.found
    }

    fn say(&mut self, path: &str, message: impl Into<String>) {
        self.found.push(Mismatch { path: path.to_owned(), message: message.into() });
    }

    fn file(&mut self, file: &File) {
        if file.append.is_some() {
            self.say(&file.path, "the config appends to it, which cannot be validated");
            return;
        }
        // No source is empty content to MCD.
        let content = file.contents.as_deref().unwrap_or_default();
        self.content(&file.path, content, file.mode.unwrap_or(DEFAULT_MODE));
    }

    fn content(&mut self, path: &str, content: &[u8], mode: u32) {
        let entry = match observe::entry(self.root, path) {
            Ok(entry) => entry,
            Err(e) => return self.say(path, crate::apply::chain(&e)),
        };
        match entry {
            Entry::Absent => self.say(path, "could not stat file: it is not there"),
            Entry::File { mode: found, .. } if found != mode => {
                self.say(path, format!("mode mismatch: found {found:04o}, expected {mode:04o}"));
            }
            Entry::File { digest, .. } if digest != Digest::of(content) => {
                self.say(path, format!("content mismatch: found {digest}, expected {}", Digest::of(content)));
            }
            Entry::File { .. } => {}
            other => self.say(path, format!("found {other}, expected a regular file")),
        }
    }

    fn unit(&mut self, unit: &Unit, state: &dyn Fn(&str) -> State) {
        let path = format!("{}/{}", paths::UNITS, unit.name);
        for dropin in &unit.dropins {
            let path = format!("{path}.d/{}", dropin.name);
            let content = dropin.contents.as_deref().unwrap_or_default();
            let absent = matches!(self.root.lstat(&path), Ok(None));
            // An empty drop-in is right when it is absent, and when it is an empty file.
            if !(content.is_empty() && absent) {
                self.content(&path, content.as_bytes(), DEFAULT_MODE);
            }
        }
        let Some(content) = &unit.contents else { return };
        if unit.mask == Some(true) {
            let masked = matches!(observe::entry(self.root, &path), Ok(Entry::Symlink { target, .. }) if target == "/dev/null");
            if !masked {
                self.say(&path, "state mismatch: the unit is not masked");
            }
            return;
        }
        self.content(&path, content.as_bytes(), DEFAULT_MODE);
        let found = state(&unit.name);
        let wrong = match unit.enabled {
            Some(true) => matches!(found, State::Disabled | State::Masked | State::NotFound),
            Some(false) => found == State::Enabled,
            None => false,
        };
        if wrong {
            let expected = if unit.enabled == Some(true) { "enabled" } else { "disabled" };
            self.say(&unit.name, format!("state mismatch: found {}, expected {expected}", found.word()));
        }
    }
}
