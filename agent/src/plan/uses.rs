//! Owns: who uses a path: units of the config, by what their texts name and by the links on the way.
//! Given units and links; gives the units for each path.
//! Never reads a tree: the links are brought along.

use std::collections::{BTreeMap, BTreeSet};

use crate::{ignition::Unit, root::split, unitfile::used_paths};

/// Links that lead to links; a longer chain is a loop (the kernel's own limit).
const LINKS_FOLLOWED: usize = 40;

/// What the units' own texts do not say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Uses {
    /// Symbolic links of the config and of the tree, by path: their targets as written. Who uses a link uses its target.
    pub links: BTreeMap<String, String>,
    /// Units that are not on the tree yet: nothing of them runs that a change could disturb.
    pub new_units: BTreeSet<String>,
}

impl Uses {
    /// Every path that units of the config use, with the units.
    pub(super) fn by_path(&self, units: &[Unit]) -> BTreeMap<String, BTreeSet<String>> {
        let mut users: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (unit, mut path) in named(units) {
            for _ in 0..LINKS_FOLLOWED {
                let target = self.links.get(&path).map(|target| absolute(&path, target));
                users.entry(path).or_default().insert(unit.to_owned());
                match target {
                    Some(target) => path = target,
                    None => break,
                }
            }
        }
        users
    }
}

/// Units with the paths that they and their drop-ins name.
pub fn named(units: &[Unit]) -> Vec<(&str, String)> {
    let texts = |u: &Unit| -> BTreeSet<String> {
        let dropins = u.dropins.iter().filter_map(|d| d.contents.as_ref());
        u.contents.iter().chain(dropins).flat_map(|text| used_paths(text)).collect()
    };
    units.iter().flat_map(|u| texts(u).into_iter().map(|path| (u.name.as_str(), path))).collect()
}

/// Where a link at `path` points, as a path from the top.
pub fn absolute(path: &str, target: &str) -> String {
    let base = if target.starts_with('/') { "/" } else { split(path).0 };
    let mut parts: Vec<&str> = base.split('/').filter(|p| !p.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}
