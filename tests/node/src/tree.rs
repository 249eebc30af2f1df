//! Owns: looking at a whole tree at once.
//! Given a directory, gives every path below it with its kind, mode, owner and content (as a digest), and what differs between two looks.
//! Never: follows a link.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::Context as _;

/// One look at a tree: path below the root -> what is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree(BTreeMap<String, String>);

impl Tree {
    /// Looks at everything below `root` but the subtrees named in `except` (paths below the root).
    ///
    /// # Errors
    /// When something below cannot be read.
    pub fn of(root: &Path, except: &[&str]) -> anyhow::Result<Self> {
        let mut tree = BTreeMap::new();
        look(root, "", except, &mut tree)?;
        Ok(Self(tree))
    }

    /// One sentence for each path that is not the same in `after`.
    pub fn changes(&self, after: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (path, was) in &self.0 {
            match after.0.get(path) {
                None => changes.push(format!("{path} is gone")),
                Some(is) if is != was => changes.push(format!("{path}: {was} -> {is}")),
                Some(_) => {}
            }
        }
        changes.extend(
            after.0.keys().filter(|path| !self.0.contains_key(*path)).map(|path| format!("{path} is new")),
        );
        changes
    }
}

fn look(
    root: &Path,
    below: &str,
    except: &[&str],
    tree: &mut BTreeMap<String, String>,
) -> anyhow::Result<()> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).with_context(|| format!("listing {}", dir.display()))? {
        let entry = entry.with_context(|| format!("listing {}", dir.display()))?;
        let name = entry.file_name();
        let path =
            if below.is_empty() { name.display().to_string() } else { format!("{below}/{}", name.display()) };
        if except.contains(&path.as_str()) {
            continue;
        }
        let meta = entry.metadata().with_context(|| format!("looking at {path}"))?;
        let mut what = format!("{:06o} {}:{}", meta.mode(), meta.uid(), meta.gid());
        if meta.is_symlink() {
            let target = fs::read_link(entry.path()).with_context(|| format!("reading the link {path}"))?;
            what = format!("link to {}", target.display());
        } else if meta.is_file() {
            let bytes = fs::read(entry.path()).with_context(|| format!("reading {path}"))?;
            what = format!("{what} {} bytes {}", bytes.len(), digest(&bytes));
        }
        tree.insert(path.clone(), what);
        if meta.is_dir() {
            look(root, &path, except, tree)?;
        }
    }
    Ok(())
}

fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    sha2::Sha256::digest(bytes).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn every_kind_of_change_is_seen() {
        let dir = tempfile::tempdir().expect("a scratch folder");
        let path = |name: &str| dir.path().join(name);
        for name in ["content", "mode", "gone"] {
            fs::write(path(name), "same").expect("a file");
        }
        symlink("one", path("link")).expect("a link");
        fs::create_dir(path("skipped")).expect("a folder");
        let before = Tree::of(dir.path(), &["skipped"]).expect("a look");
        assert_eq!(before.changes(&before), Vec::<String>::new());

        fs::write(path("content"), "diff").expect("same length");
        fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o600)).expect("another mode");
        fs::remove_file(path("gone")).expect("gone");
        fs::remove_file(path("link")).expect("gone");
        symlink("two", path("link")).expect("another link");
        fs::write(path("new"), "").expect("a new file");
        fs::write(path("skipped/unseen"), "").expect("not looked at");
        let changes = before.changes(&Tree::of(dir.path(), &["skipped"]).expect("a look"));
        let mut paths: Vec<&str> =
            changes.iter().filter_map(|change| change.split([':', ' ']).next()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["content", "gone", "link", "mode", "new"], "{changes:?}");
    }
}
