//! Owns: enablement as links, equal to what `systemctl --root enable|disable|preset|mask` makes.
//! Given the links under `/etc/systemd/system` and the unit files; gives links to make and to remove.
//! Never touches a tree, and never writes a preset file.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    paths,
    unitfile::{self, Install, expand, is_template, template_of, with_instance},
};

/// A unit file as found, or as it will be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitFile {
    /// Where it is.
    pub path: String,
    /// Its `[Install]`, drop-ins included.
    pub install: Install,
}

/// Everything that enablement depends on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Farm {
    /// Links below `/etc/systemd/system`, by path: their targets as written.
    pub links: BTreeMap<String, String>,
    /// Unit files by name (templates under their own), those that are asked about and all they name with `Also=`.
    pub files: BTreeMap<String, UnitFile>,
    /// The same units as they are on disk now.
    pub before: BTreeMap<String, UnitFile>,
    /// Units whose file will be new or different.
    pub changed: BTreeSet<String>,
    /// Preset files' texts, in the order in which they count.
    pub presets: Vec<String>,
}

/// What `systemctl is-enabled` would say, as far as anybody branches on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Links point at it.
    Enabled,
    /// It could be enabled and is not.
    Disabled,
    /// It cannot be enabled: no `[Install]`, or only `Also=`.
    Static,
    /// `/dev/null`.
    Masked,
    /// There is no such unit.
    NotFound,
}

impl State {
    /// systemd's word for it.
    pub fn word(self) -> &'static str {
        match self {
            State::Enabled => "enabled",
            State::Disabled => "disabled",
            State::Static => "static",
            State::Masked => "masked",
            State::NotFound => "not-found",
        }
    }
}

impl Farm {
    /// The file that stands for a unit: its own, else its template's.
    pub fn file(&self, unit: &str) -> Option<&UnitFile> {
        self.files.get(unit).or_else(|| self.files.get(&template_of(unit)))
    }

    /// Links that enabling a unit makes, `Also=` included: path and target.
    pub fn enable(&self, unit: &str) -> BTreeMap<String, String> {
        let mut links = BTreeMap::new();
        for unit in self.with_also(unit) {
            let Some(file) = self.file(&unit) else { continue };
            Farm::links_of(&unit, file, &mut links);
        }
        links
    }

    /// Existing links that enabling made from the file as it was, and that the file as it will be no longer asks for.
    pub fn outdated(&self, unit: &str) -> BTreeSet<String> {
        let Some(file) = self.before.get(unit) else { return BTreeSet::new() };
        let mut old = BTreeMap::new();
        Farm::links_of(unit, file, &mut old);
        let new = self.enable(unit);
        old.into_keys().filter(|path| self.links.contains_key(path) && !new.contains_key(path)).collect()
    }

    /// Whether a link is there already, possibly written another way (`/lib` for `/usr/lib`, relative for absolute).
    pub fn has(&self, path: &str, target: &str) -> bool {
        let unit = |target: &str| crate::root::split(target).1.to_owned();
        self.links.get(path).is_some_and(|found| found == target || unit(found) == unit(target))
    }

    fn links_of(unit: &str, file: &UnitFile, links: &mut BTreeMap<String, String>) {
        let install = &file.install;
        // A template is enabled as its default instance.
        let name = match &install.default_instance {
            Some(instance) if is_template(unit) => with_instance(unit, instance),
            _ => unit.to_owned(),
        };
        for alias in install.alias.iter().filter_map(|a| expand(a, &name)) {
            // systemd takes names only: an alias cannot lead elsewhere.
            if !alias.contains('/') && alias != name {
                links.insert(format!("{}/{alias}", paths::UNITS), file.path.clone());
            }
        }
        for (list, folder) in [
            (&install.wanted_by, "wants"),
            (&install.required_by, "requires"),
            (&install.upheld_by, "upholds"),
        ] {
            for target in list.iter().filter_map(|t| expand(t, &name)) {
                // A bare template may only be wanted by templates and instances.
                let bare = is_template(&name) && !target.contains('@');
                if !target.contains('/') && !bare {
                    links.insert(format!("{}/{target}.{folder}/{name}", paths::UNITS), file.path.clone());
                }
            }
        }
    }

    /// Existing links that disabling a unit removes, `Also=` included.
    pub fn disable(&self, unit: &str) -> BTreeSet<String> {
        let mut names: BTreeSet<String> = self.with_also(unit);
        let mut removed = BTreeSet::new();
        // A removed alias takes with it what points at the alias: repeat until nothing more goes.
        loop {
            let before = removed.len();
            for (path, target) in &self.links {
                let (_, link_name) = crate::root::split(path);
                let (_, target_name) = crate::root::split(target);
                let is_one = |name: &str| names.contains(name);
                let instance_of_named =
                    is_template(&template_of(link_name)) && is_one(&template_of(link_name));
                if target != "/dev/null" && (is_one(link_name) || is_one(target_name) || instance_of_named) {
                    removed.insert(path.clone());
                }
            }
            names.extend(removed.iter().map(|path| crate::root::split(path).1.to_owned()));
            if removed.len() == before {
                return removed;
            }
        }
    }

    /// Whether the preset files want a unit enabled.
    pub fn preset(&self, unit: &str) -> bool {
        unitfile::preset_enables(unit, self.presets.iter().map(String::as_str))
    }

    /// A unit's state.
    pub fn state(&self, unit: &str) -> State {
        let own = format!("{}/{unit}", paths::UNITS);
        if self.links.get(&own).is_some_and(|target| target == "/dev/null") {
            return State::Masked;
        }
        let Some(file) = self.file(unit) else { return State::NotFound };
        let template = is_template(unit);
        let linked = self.links.iter().any(|(path, target)| {
            let (folder, name) = crate::root::split(path);
            let (_, target_name) = crate::root::split(target);
            let ours = name == unit || (target_name == unit && (template || name != target_name));
            // In the folder itself a link is an alias; one of the same name is only where the unit is.
            let in_farm = folder != paths::UNITS || name != unit;
            in_farm && ours && target != "/dev/null"
        });
        if linked {
            State::Enabled
        } else if file.install.is_empty() {
            State::Static
        } else {
            State::Disabled
        }
    }

    /// A unit and all that it names with `Also=`, over and over.
    fn with_also(&self, unit: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut todo = vec![unit.to_owned()];
        while let Some(name) = todo.pop() {
            if let Some(file) = self.file(&name) {
                todo.extend(
                    file.install.also.iter().filter_map(|a| expand(a, &name)).filter(|a| !names.contains(a)),
                );
            }
            names.insert(name);
        }
        names
    }
}
