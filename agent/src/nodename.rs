//! Owns: the name the kubelet will register this node under (design 4.2).
//! Given a tree with the kubelet's units and their environment files, and the host's names, it gives that name.
//! Never: runs systemd, and never calls a node `localhost`.

use std::collections::BTreeMap;

use crate::{
    paths,
    root::{self, Root},
};

/// The variable that OpenShift's kubelet unit passes as `--hostname-override`.
const VARIABLE: &str = "KUBELET_NODE_NAME";

/// The name that the kubelet of this tree would use, as far as it can be told now.
pub fn of(root: &Root) -> Result<Option<String>, root::Error> {
    let mut environment = Environment::default();
    for path in unit_files(root)? {
        environment.add_unit(&text(root, &path)?.unwrap_or_default());
    }
    if let Some(name) = environment.node_name(|path| text(root, path).ok().flatten()) {
        return Ok(Some(name));
    }
    // The kubelet asks the kernel. A tree that is not running has only its file, and the kernel is then a last resort.
    let kernel =
        || std::fs::read_to_string(paths::KERNEL_HOSTNAME).ok().and_then(|name| from_hostname(&name));
    let file = || Ok(text(root, paths::HOSTNAME)?.and_then(|name| from_hostname(&name)));
    if root.is_system() {
        kernel().map_or_else(file, |name| Ok(Some(name)))
    } else {
        Ok(file()?.or_else(kernel))
    }
}

/// The kubelet's unit and its drop-ins in systemd's order: of two with one name the first directory's counts.
fn unit_files(root: &Root) -> Result<Vec<String>, root::Error> {
    let unit = paths::KUBELET_UNIT;
    let mut files = Vec::new();
    let mut drop_ins = BTreeMap::new();
    for directory in paths::UNIT_PATH {
        if files.is_empty() && root.lstat(&format!("{directory}/{unit}"))?.is_some() {
            files.push(format!("{directory}/{unit}"));
        }
        let directory = format!("{directory}/{unit}.d");
        for name in root
            .list(&directory)?
            .into_iter()
            .filter(|name| name.rsplit_once('.').is_some_and(|(_, suffix)| suffix == "conf"))
        {
            drop_ins.entry(name.clone()).or_insert_with(|| format!("{directory}/{name}"));
        }
    }
    files.extend(drop_ins.into_values());
    Ok(files)
}

fn text(root: &Root, path: &str) -> Result<Option<String>, root::Error> {
    Ok(root.read_following(path)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Settings of a unit's environment, in systemd's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// `Environment=` assignments, later ones win.
    pub assigned: BTreeMap<String, String>,
    /// `EnvironmentFile=` paths in order; their contents win over [`Self::assigned`].
    pub files: Vec<String>,
}

impl Environment {
    /// Adds what one unit file or drop-in says. Called for the unit first, then for its drop-ins by name.
    pub fn add_unit(&mut self, text: &str) {
        let mut in_service = false;
        for line in logical_lines(text) {
            let line = line.trim();
            if let Some(section) = line.strip_prefix('[') {
                in_service = section.trim_end() == "Service]";
            } else if in_service && let Some((key, value)) = line.split_once('=') {
                self.set(key.trim_end(), value.trim());
            }
        }
    }

    fn set(&mut self, key: &str, value: &str) {
        match key {
            // An empty assignment resets the list: systemd.exec(5).
            "Environment" if value.is_empty() => self.assigned.clear(),
            "Environment" => self.assigned.extend(words(value).iter().filter_map(|w| assignment(w))),
            "EnvironmentFile" if value.is_empty() => self.files.clear(),
            "EnvironmentFile" => self.files.push(value.trim_start_matches('-').to_owned()),
            _ => {}
        }
    }

    /// The node's name after all files, whose texts `read` gives; a file that is not there says nothing.
    pub fn node_name(&self, read: impl Fn(&str) -> Option<String>) -> Option<String> {
        let mut name = self.assigned.get(VARIABLE).cloned();
        for text in self.files.iter().filter_map(|path| read(path)) {
            for line in logical_lines(&text) {
                if let Some((key, value)) = assignment(line.trim())
                    && key == VARIABLE
                {
                    name = Some(words(&value).concat());
                }
            }
        }
        name.filter(|n| !n.is_empty())
    }
}

/// The host's name as the kubelet would use it: trimmed, lower case, and none at all while it is `localhost`.
pub fn from_hostname(text: &str) -> Option<String> {
    let name = text.lines().map(str::trim).find(|l| !l.is_empty() && !l.starts_with('#'))?.to_lowercase();
    let local = name == "localhost" || name.starts_with("localhost.");
    (!local).then_some(name)
}

/// Lines with a trailing backslash joined to the next; comments dropped, also inside a continuation.
fn logical_lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut pending = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with(['#', ';']) {
            continue;
        }
        if let Some(head) = line.strip_suffix('\\') {
            pending.push_str(head);
            pending.push(' ');
        } else {
            lines.push(std::mem::take(&mut pending) + line);
        }
    }
    lines.extend((!pending.is_empty()).then_some(pending));
    lines
}

fn assignment(word: &str) -> Option<(String, String)> {
    let (key, value) = word.split_once('=')?;
    Some((key.trim().to_owned(), value.trim().to_owned()))
}

/// Words as systemd splits them: blanks separate, single and double quotes hold together and disappear.
fn words(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let (mut word, mut quote, mut started) = (String::new(), None, false);
    for c in value.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '"' | '\'') => (quote, started) = (Some(c), true),
            (None, c) if c.is_whitespace() => {
                if std::mem::take(&mut started) {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, c) => {
                word.push(c);
                started = true;
            }
        }
    }
    words.extend(started.then_some(word));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(units: &[&str], files: &[(&str, &str)]) -> Option<String> {
        let mut environment = Environment::default();
        for unit in units {
            environment.add_unit(unit);
        }
        environment
            .node_name(|path| files.iter().find(|(p, _)| *p == path).map(|(_, text)| (*text).to_owned()))
    }

    #[test]
    fn the_name_is_found_wherever_systemd_would_find_it() {
        type Case = (
            &'static str,
            &'static [&'static str],
            &'static [(&'static str, &'static str)],
            Option<&'static str>,
        );
        let cases: &[Case] = &[
            ("nowhere", &["[Service]\nExecStart=/usr/bin/kubelet\n"], &[], None),
            ("a drop-in", &["[Service]\nEnvironment=KUBELET_NODE_NAME=node-a\n"], &[], Some("node-a")),
            (
                "quoted among others",
                &["[Service]\nEnvironment=\"A=b c\" \"KUBELET_NODE_NAME=node-a\" D=e\n"],
                &[],
                Some("node-a"),
            ),
            (
                "a later drop-in wins",
                &[
                    "[Service]\nEnvironment=KUBELET_NODE_NAME=a\n",
                    "[Service]\nEnvironment=KUBELET_NODE_NAME=b\n",
                ],
                &[],
                Some("b"),
            ),
            (
                "an empty assignment resets",
                &["[Service]\nEnvironment=KUBELET_NODE_NAME=a\n", "[Service]\nEnvironment=\n"],
                &[],
                None,
            ),
            ("another section", &["[Unit]\nEnvironment=KUBELET_NODE_NAME=a\n[Service]\n"], &[], None),
            ("commented out", &["[Service]\n#Environment=KUBELET_NODE_NAME=a\n"], &[], None),
            ("a continued line", &["[Service]\nEnvironment=A=b \\\n  KUBELET_NODE_NAME=a\n"], &[], Some("a")),
            (
                "an environment file wins",
                &["[Service]\nEnvironment=KUBELET_NODE_NAME=a\nEnvironmentFile=-/etc/kubernetes/node.env\n"],
                &[("/etc/kubernetes/node.env", "OTHER=1\nKUBELET_NODE_NAME=\"b\"\n")],
                Some("b"),
            ),
            (
                "a file that is not there says nothing",
                &["[Service]\nEnvironment=KUBELET_NODE_NAME=a\nEnvironmentFile=-/etc/gone\n"],
                &[],
                Some("a"),
            ),
            ("an empty value is none", &["[Service]\nEnvironment=KUBELET_NODE_NAME=\n"], &[], None),
        ];
        for (what, units, files, expected) in cases {
            assert_eq!(name(units, files).as_deref(), *expected, "{what}");
        }
    }

    #[test]
    fn the_tree_is_read_as_systemd_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::open(dir.path()).unwrap();
        write("etc/hostname", "From-File\n");
        assert_eq!(of(&root).unwrap().as_deref(), Some("from-file"));

        write("usr/lib/systemd/system/kubelet.service", "[Service]\nEnvironment=KUBELET_NODE_NAME=vendor\n");
        write(
            "usr/lib/systemd/system/kubelet.service.d/20-name.conf",
            "[Service]\nEnvironment=KUBELET_NODE_NAME=image\n",
        );
        assert_eq!(of(&root).unwrap().as_deref(), Some("image"), "a drop-in wins over its unit");
        write(
            "etc/systemd/system/kubelet.service.d/20-name.conf",
            "[Service]\nEnvironmentFile=/etc/kubernetes/node.env\n",
        );
        assert_eq!(
            of(&root).unwrap().as_deref(),
            Some("vendor"),
            "the same name in /etc replaces the image's"
        );
        write("etc/kubernetes/node.env", "KUBELET_NODE_NAME=node-a\n");
        assert_eq!(of(&root).unwrap().as_deref(), Some("node-a"));
    }

    #[test]
    fn a_hostname_is_lower_case_and_never_localhost() {
        for (text, expected) in [
            ("Node-A\n", Some("node-a")),
            ("# set by hand\n\nnode-a.example.com\n", Some("node-a.example.com")),
            ("localhost\n", None),
            ("localhost.localdomain\n", None),
            ("LOCALHOST\n", None),
            ("localhoster\n", Some("localhoster")),
            ("", None),
        ] {
            assert_eq!(from_hostname(text).as_deref(), expected, "{text:?}");
        }
    }
}
