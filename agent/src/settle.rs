//! Owns: the hand-over of a node that has nothing left to do (design 4.6).
//! Given a tree and the administrator's word it says whether an MCD takes over, and marks the node as settled.
//! Never: writes `currentconfig` (that is the last step of the apply's own receipt), or MCD's annotations where there is one.

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
};

use crate::{
    cli::Mcd,
    desired::{Seed, SeedError},
    paths, record,
    root::{self, Root},
};

/// What systemd mounts its credentials with; a remount that leaves one out would take it away.
const SYSTEMD_FLAGS: MsFlags = MsFlags::MS_NODEV.union(MsFlags::MS_NOEXEC).union(MsFlags::MS_NOSUID);
/// What the kubelet calls the log folder of an MCD pod: `<namespace>_<pod>_<uid>`.
const MCD_POD: &str = "openshift-machine-config-operator_machine-config-daemon-";

/// Whether a Machine Config Daemon looks at this node: as told, else by the seed that only an MCS lays down for one, by
/// what MCD leaves of it, or by MCD's own pod. The pod is looked for where the kubelet puts every pod's logs: that asks no
/// permission of the API, and is right on a tree that is looked at offline too.
pub fn mcd_present(root: &Root, configured: Mcd) -> Result<bool, root::Error> {
    Ok(match configured {
        Mcd::Present => true,
        Mcd::Absent => false,
        Mcd::Auto => {
            root.lstat(paths::NODE_ANNOTATIONS)?.is_some()
                || root.lstat(paths::NODE_ANNOTATIONS_TAKEN)?.is_some()
                || root.list(paths::POD_LOGS)?.iter().any(|pod| pod.starts_with(MCD_POD))
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

/// Removes what a kill in the middle of a write has left under a temporary name: a certificate's holds a key.
pub fn sweep(root: &Root) -> Result<(), root::Error> {
    let ours = [paths::STATE, paths::SETTLED, paths::RUN_STATUS, paths::NODE_ANNOTATIONS, paths::KUBECONFIG];
    let mut left: Vec<_> = ours.iter().map(|path| root::temporary(path)).collect();
    let pki = root.list(paths::KUBELET_PKI)?;
    left.extend(
        pki.iter()
            .filter(|name| name.ends_with(root::TEMPORARY))
            .map(|name| format!("{}/{name}", paths::KUBELET_PKI)),
    );
    left.iter().try_for_each(|path| root.remove(path).map(drop))
}

/// A settled node needs no provisioning token any more, and systemd imports it again at every boot (design 3.2).
pub fn forget_token(root: &Root) {
    // The node is settled either way: what is left is readable by root only, and expires.
    match remove_token(root) {
        Ok(true) => tracing::info!("the provisioning token is removed"),
        Ok(false) => {}
        Err(error) => tracing::warn!("the provisioning token stays: {}", crate::apply::chain(&error)),
    }
}

/// Says whether there was one.
fn remove_token(root: &Root) -> Result<bool, root::Error> {
    match root.remove(paths::TOKEN_CREDENTIAL) {
        // systemd leaves the folder as a read-only mount of its own.
        Err(error) if error.is(Errno::EROFS) && root.is_system() => {
            let again = |flags: MsFlags| {
                let flags = flags | MsFlags::MS_REMOUNT | MsFlags::MS_BIND | SYSTEMD_FLAGS;
                mount(None::<&str>, paths::CREDENTIALS, None::<&str>, flags, None::<&str>).map_err(|errno| {
                    root::Error { op: "remount", path: paths::CREDENTIALS.to_owned(), source: errno.into() }
                })
            };
            again(MsFlags::empty())?;
            let removed = root.remove(paths::TOKEN_CREDENTIAL);
            again(MsFlags::MS_RDONLY)?;
            removed
        }
        other => other,
    }
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
        let pod = "machine-config-daemon-x7k2p_0b2f";
        let (_dir, root) =
            tree(&format!("{}/openshift-machine-config-operator_{pod}/0.log", paths::POD_LOGS), "");
        assert!(mcd_present(&root, Mcd::Auto).unwrap(), "its pod");
        let (_dir, root) = tree(&format!("{}/default_{pod}/0.log", paths::POD_LOGS), "");
        assert!(!mcd_present(&root, Mcd::Auto).unwrap(), "a workload of the same name");
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

    #[test]
    fn a_settled_node_keeps_no_provisioning_token_and_every_other_credential() {
        let (dir, root) = tree(paths::TOKEN_CREDENTIAL, "hunter2");
        let other = dir.path().join("run/credentials/@system/passwd.hashed-password.root");
        std::fs::write(&other, "x").unwrap();
        assert!(remove_token(&root).unwrap());
        assert!(root.lstat(paths::TOKEN_CREDENTIAL).unwrap().is_none());
        assert!(other.exists());
        assert!(!remove_token(&root).unwrap(), "there is none any more, which is as good");
    }
}
