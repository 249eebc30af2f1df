//! Owns: the hand-over of a node that has nothing left to do (design 4.6).
//! Given a tree and the administrator's word it says whether an MCD takes over, and marks the node as settled.
//! Never: writes `currentconfig` (that is the last step of the apply's own receipt), or MCD's annotations where there is one.

use crate::{
    cli::Mcd,
    desired::{Seed, SeedError},
    paths, record,
    root::{self, Root},
};

/// Whether a Machine Config Daemon looks at this node: as told, else by the seed that only an MCS lays down for one.
pub fn mcd_present(root: &Root, configured: Mcd) -> Result<bool, root::Error> {
    Ok(match configured {
        Mcd::Present => true,
        Mcd::Absent => false,
        Mcd::Auto => {
            root.lstat(paths::NODE_ANNOTATIONS)?.is_some()
                || root.lstat(paths::NODE_ANNOTATIONS_TAKEN)?.is_some()
        }
    })
}

/// The seed, while MCD has not taken it.
pub fn seed(root: &Root) -> Result<Option<Result<Seed, SeedError>>, root::Error> {
    Ok(root.read(paths::NODE_ANNOTATIONS)?.map(|bytes| Seed::parse(&bytes)))
}

/// Has MCD take another configuration than the one the MCS had named. The file keeps the mode that the MCS gave it.
pub fn reseed(root: &Root, seed: &Seed) -> Result<(), root::Error> {
    let mode = root.lstat(paths::NODE_ANNOTATIONS)?.map_or(0o644, |stat| stat.mode);
    let json = serde_json::to_vec(&seed.annotations).expect("a map of strings is always JSON");
    root.write_atomic(paths::NODE_ANNOTATIONS, &json, mode)
}

/// From now on this is a member.
pub fn mark(root: &Root, config: &str) -> Result<(), record::Error> {
    record::mark_settled(root, config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{CURRENT_CONFIG, DESIRED_CONFIG};

    fn tree(path: &str, text: &str) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn the_seed_or_what_mcd_left_of_it_means_mcd_unless_told_otherwise() {
        for path in [paths::NODE_ANNOTATIONS, paths::NODE_ANNOTATIONS_TAKEN] {
            let (_dir, root) = tree(path, "{}");
            assert!(mcd_present(&root, Mcd::Auto).unwrap(), "{path}");
            assert!(!mcd_present(&root, Mcd::Absent).unwrap(), "{path}");
        }
        let (_dir, root) = tree("/etc/hostname", "node-a");
        assert!(!mcd_present(&root, Mcd::Auto).unwrap());
        assert!(mcd_present(&root, Mcd::Present).unwrap());
    }

    #[test]
    fn a_rewritten_seed_is_read_back_with_the_new_name() {
        let old =
            format!(r#"{{"{CURRENT_CONFIG}":"rendered-a","{DESIRED_CONFIG}":"rendered-a","other":"kept"}}"#);
        let (dir, root) = tree(paths::NODE_ANNOTATIONS, &old);
        let before = seed(&root).unwrap().unwrap().unwrap();
        reseed(&root, &before.renamed("rendered-b")).unwrap();
        let after = seed(&root).unwrap().unwrap().unwrap();
        assert_eq!(after.config, "rendered-b");
        assert_eq!(after.annotations.get("other").map(String::as_str), Some("kept"));
        let names = std::fs::read_dir(dir.path().join("etc/machine-config-daemon")).unwrap().count();
        assert_eq!(names, 1, "no temporary file stays");
    }
}
