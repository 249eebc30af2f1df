//! Owns: which SELinux label a new name gets: the tree's own policy, `/etc/selinux/<type>/contexts/files`.
//! Given a path and what will be there; gives the label, as matchpathcon(8) would.
//! Never asks the running kernel: the tree may be another system's.

use std::cell::OnceCell;

use regex_lite::Regex;

use crate::{
    paths,
    root::{self, Kind, Root},
};

/// What a policy says where a path gets no label.
const NONE: &str = "<<none>>";
/// Where a pattern begins (libselinux: `label_file.h`).
const META: &[u8] = b".^$?*+|[({";

/// Why there is no label to be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The policy cannot be read.
    #[error(transparent)]
    Root(#[from] root::Error),
    /// The policy has a pattern that is none. A wrong label is worse than none, so nothing is written.
    #[error("{file} has a pattern that cannot be used: {pattern}")]
    Pattern {
        /// The file.
        file: String,
        /// The pattern.
        pattern: String,
    },
}

/// A tree's policy; without one there are no labels.
#[derive(Debug, Default)]
pub struct Labels {
    file: String,
    /// In the order in which they are tried: literal ones first, and of equals the last that was read.
    specs: Vec<Spec>,
    /// Paths that stand for others: those of the administrator, then the policy's.
    aliases: [Vec<(String, String)>; 2],
}

#[derive(Debug)]
struct Spec {
    pattern: String,
    /// What every match begins with; all of it where the pattern is none.
    literal: String,
    is_literal: bool,
    kind: Option<Kind>,
    label: Option<String>,
    regex: OnceCell<Option<Regex>>,
}

impl Labels {
    /// Reads a tree's policy. No `/etc/selinux/config`, and SELinux disabled there: no labels.
    pub fn load(root: &Root) -> Result<Labels, Error> {
        let read = |path: &str| -> Result<String, root::Error> {
            let bytes = root.read_following(path)?.unwrap_or_default();
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let config = read(paths::SELINUX_CONFIG)?;
        let setting = |key: &str| {
            let values = config.lines().filter_map(|l| l.trim().strip_prefix(key)?.strip_prefix('='));
            values.map(str::trim).next_back().map(str::to_owned)
        };
        let Some(kind) = setting("SELINUXTYPE") else { return Ok(Labels::default()) };
        if setting("SELINUX").as_deref() == Some("disabled") {
            return Ok(Labels::default());
        }
        let file = format!("{}/{kind}/contexts/files/file_contexts", paths::SELINUX);
        let mut specs = Vec::new();
        for part in ["", ".homedirs", ".local"] {
            specs.extend(read(&format!("{file}{part}"))?.lines().filter_map(Spec::parse));
        }
        specs.reverse();
        specs.sort_by_key(|spec| !spec.is_literal); // stable: the order among equals stays
        let aliases = [read(&format!("{file}.subs"))?, read(&format!("{file}.subs_dist"))?];
        Ok(Labels { file, specs, aliases: aliases.map(|text| aliases_in(&text)) })
    }

    /// The label for what will be at a path.
    pub fn of(&self, path: &str, kind: Kind) -> Result<Option<String>, Error> {
        let mut path = path.to_owned();
        for aliases in &self.aliases {
            let alias = aliases.iter().find_map(|(from, to)| {
                let rest = path.strip_prefix(from)?;
                (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
            });
            path = alias.unwrap_or(path);
        }
        for spec in &self.specs {
            if spec.kind.is_none_or(|k| k == kind) && path.starts_with(&spec.literal) {
                let found = spec.matches(&path).ok_or_else(|| Error::Pattern {
                    file: self.file.clone(),
                    pattern: spec.pattern.clone(),
                })?;
                if found {
                    return Ok(spec.label.clone());
                }
            }
        }
        Ok(None)
    }
}

fn aliases_in(text: &str) -> Vec<(String, String)> {
    let pair = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    text.lines().filter(|l| l.starts_with('/')).filter_map(pair).collect()
}

impl Spec {
    /// `pattern [type] label` (`file_contexts(5)`).
    fn parse(line: &str) -> Option<Spec> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (pattern, kind, label) = match words[..] {
            [pattern, _, _] | [pattern, _] if pattern.starts_with('#') => return None,
            [pattern, kind, label] => (pattern, Some(kind), label),
            [pattern, label] => (pattern, None, label),
            _ => return None,
        };
        let kind = match kind {
            None => None,
            Some("--") => Some(Kind::File),
            Some("-d") => Some(Kind::Dir),
            Some("-l") => Some(Kind::Symlink),
            Some(_) => return None, // devices, sockets and pipes are never ours
        };
        let (literal, is_literal) = literal(pattern);
        let label = (label != NONE).then(|| label.to_owned());
        Some(Spec { pattern: pattern.to_owned(), literal, is_literal, kind, label, regex: OnceCell::new() })
    }

    /// Whether a path that begins right matches; nothing where the pattern is none.
    fn matches(&self, path: &str) -> Option<bool> {
        if self.is_literal {
            return Some(path == self.literal);
        }
        // Policies have thousands of patterns, and few are ever asked.
        let regex = self.regex.get_or_init(|| Regex::new(&format!("^(?:{})$", self.pattern)).ok());
        regex.as_ref().map(|r| r.is_match(path))
    }
}

/// What a pattern begins with without being one, and whether that is all of it.
fn literal(pattern: &str) -> (String, bool) {
    let mut bytes = Vec::new();
    let mut rest = pattern.bytes();
    while let Some(byte) = rest.next() {
        if META.contains(&byte) {
            // The character before may be there or not.
            if matches!(byte, b'?' | b'*' | b'{') {
                bytes.pop();
            }
            let alternatives =
                pattern.find('|').is_some_and(|at| pattern.find('(').is_none_or(|group| at < group));
            return (if alternatives { String::new() } else { text(bytes) }, false);
        }
        match (byte, rest.clone().next()) {
            // A class (`\d`), not an escaped character.
            (b'\\', Some(next)) if next.is_ascii_alphanumeric() => return (text(bytes), false),
            (b'\\', Some(next)) => {
                rest.next();
                bytes.push(next);
            }
            _ => bytes.push(byte),
        }
    }
    (text(bytes), true)
}

fn text(bytes: Vec<u8>) -> String {
    // A character that is cut in half was optional: what is whole before it is still a beginning.
    match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(e) => String::from_utf8_lossy(&e.as_bytes()[..e.utf8_error().valid_up_to()]).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_begins_with() {
        for (pattern, expected, all) in [
            ("/etc/passwd", "/etc/passwd", true),
            (r"/etc/a\.b", "/etc/a.b", true),
            ("/etc/x(/.*)?", "/etc/x", false),
            ("/etc/xy?z", "/etc/x", false),
            ("/etc/xy*", "/etc/x", false),
            (r"/etc/x\d+", "/etc/x", false),
            ("/etc/é?z", "/etc/", false),
            ("/a|/b", "", false),
            ("/[ab]", "/", false),
        ] {
            assert_eq!(literal(pattern), (expected.to_owned(), all), "{pattern}");
        }
    }

    #[test]
    fn a_policy_as_it_counts() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("etc/selinux/config", "#c\nSELINUX=enforcing\nSELINUXTYPE=t\n");
        let file = "etc/selinux/t/contexts/files/file_contexts";
        put(
            file,
            "# a comment of four\n/etc/a -- first\n/etc/.* any\n/etc/a.* -d folder\n/dev/x -c device\n/run/.* <<none>>\n",
        );
        put(&format!("{file}.local"), "/etc/b.* mine\n");
        put(&format!("{file}.subs_dist"), "# alias\n/usr/etc /etc\n");
        let root = Root::open(dir.path()).unwrap();
        let labels = Labels::load(&root).unwrap();
        for (path, kind, expected) in [
            ("/etc/a", Kind::File, Some("first")),
            ("/etc/a", Kind::Symlink, Some("any")),
            ("/etc/ab", Kind::Dir, Some("folder")),
            ("/etc/ab", Kind::File, Some("any")),
            ("/etc/bc", Kind::File, Some("mine")),
            ("/usr/etc/a", Kind::File, Some("first")),
            ("/usr/etcetera", Kind::File, None),
            ("/run/x", Kind::File, None),
        ] {
            assert_eq!(labels.of(path, kind).unwrap().as_deref(), expected, "{path}");
        }
        put(&format!("{file}.local"), "/etc/( mine\n");
        let e = Labels::load(&root).unwrap().of("/etc/x", Kind::File).unwrap_err();
        assert!(matches!(&e, Error::Pattern { pattern, .. } if pattern == "/etc/("), "{e}");
        put("etc/selinux/config", "SELINUX=disabled\nSELINUXTYPE=t\n");
        assert_eq!(Labels::load(&root).unwrap().of("/etc/a", Kind::File).unwrap(), None);
    }
}
