//! SELinux labels: Debian's own policy on the tree, `matchpathcon` as the judge.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command};

use oneboot_agent::{apply, labels::Labels, root::Kind};
use serde_json::{Value, json};

use crate::support::{Tree, difference, ignition, is_root, open, plan, put, request, run, scratch, tree};

/// From the package selinux-policy-default.
const POLICY: &str = "/etc/selinux/default/contexts/files";

/// A tree with the policy of this machine, in force.
fn system() -> tempfile::TempDir {
    assert!(is_root(), "only root sets labels: run the tests as root");
    let root = scratch();
    put(root.path(), "etc/selinux/config", "SELINUX=enforcing\nSELINUXTYPE=default\n", 0o644);
    for name in ["file_contexts", "file_contexts.homedirs", "file_contexts.subs_dist"] {
        let text = fs::read(format!("{POLICY}/{name}"))
            .unwrap_or_else(|e| panic!("{POLICY}/{name}: {e}: install selinux-policy-default"));
        put(root.path(), &format!("{}/{name}", &POLICY[1..]), text, 0o644);
    }
    root
}

/// What the policy's own tool says about paths of one kind; nothing where it says `<<none>>`.
fn reference(kind: &str, paths: &[String]) -> Vec<Option<String>> {
    let output = Command::new("matchpathcon")
        .args(["-n", "-m", kind, "-f", &format!("{POLICY}/file_contexts")])
        .args(paths)
        .output()
        .expect("matchpathcon is installed (selinux-utils)");
    let text = String::from_utf8(output.stdout).unwrap();
    let labels: Vec<_> = text.lines().map(|l| (l != "<<none>>").then(|| l.to_owned())).collect();
    assert_eq!(labels.len(), paths.len(), "{}", String::from_utf8_lossy(&output.stderr));
    labels
}

#[test]
fn every_path_has_the_label_that_matchpathcon_says() {
    let root = system();
    let labels = Labels::load(&open(root.path())).unwrap();
    // Paths out of the policy itself: every pattern up to where it branches, with what often comes behind it.
    let policy = fs::read_to_string(format!("{POLICY}/file_contexts")).unwrap();
    let mut paths: Vec<String> = Vec::new();
    for line in policy.lines().filter(|l| l.starts_with('/')) {
        let pattern = line.split_whitespace().next().unwrap();
        let stem: String = pattern.chars().take_while(|c| !"([?*+.^$|{\\".contains(*c)).collect();
        let stem = stem.trim_end_matches('/');
        for more in ["", "/x.conf"] {
            if !stem.is_empty() {
                paths.push(format!("{stem}{more}"));
            }
        }
    }
    for path in [
        "/etc/passwd",
        "/etc/shadow",
        "/etc/systemd/system/a.service",
        "/var/run/x",
        "/usr/lib64/x",
        "/lib/x",
        "/home/core/.ssh/authorized_keys.d/ignition",
        "/root/.ssh",
        "/run/x",
        "/tmp/x",
        "/nowhere",
    ] {
        paths.push(path.to_owned());
    }
    paths.sort();
    paths.dedup();
    assert!(paths.len() > 5000, "found only {} paths", paths.len());
    for (name, kind) in [("file", Kind::File), ("dir", Kind::Dir), ("link", Kind::Symlink)] {
        for chunk in paths.chunks(2000) {
            for (path, expected) in chunk.iter().zip(reference(name, chunk)) {
                assert_eq!(labels.of(path, kind).unwrap(), expected, "{name} {path}");
            }
        }
    }
}

fn config() -> Value {
    json!({"storage": {
        "files": [{"path": "/etc/shadow", "overwrite": true, "contents": {"source": "data:,x"}, "mode": 384},
            {"path": "/usr/local/bin/tool", "contents": {"source": "data:,x"}, "mode": 493}],
        "directories": [{"path": "/var/log/audit"}, {"path": "/etc/ssh", "overwrite": true}],
        "links": [{"path": "/etc/localtime", "target": "/x", "overwrite": true}]},
      "systemd": {"units": [{"name": "a.service", "enabled": true, "contents": "[Install]\nWantedBy=a.target\n"}]},
      "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k"]}]}})
}

#[test]
fn what_is_made_has_its_label_and_what_comes_back_its_own() {
    let root = system();
    let at = |path: &str| root.path().join(path);
    put(root.path(), "etc/shadow", "old", 0o600);
    put(root.path(), "etc/ssh/old", "old", 0o600);
    symlink("/y", at("etc/localtime")).unwrap();
    for (n, path) in ["etc/shadow", "etc/ssh", "etc/ssh/old", "etc/localtime"].into_iter().enumerate() {
        let label = format!("somebody_u:object_r:odd{n}_t:s0\0");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(at(path), "security.selinux", label.as_bytes(), flags).unwrap();
    }
    let before = tree(root.path());
    let config = ignition(config());
    run(root.path(), &request(&config)).unwrap();
    let now = tree(root.path());
    let made: Vec<_> = now.iter().filter(|(path, node)| before.get(*path) != Some(*node)).collect();
    assert!(made.len() > 12, "{made:?}");
    for (path, node) in made {
        let kind = match node.kind {
            'd' => "dir",
            'l' => "link",
            _ => "file",
        };
        let expected = reference(kind, &[format!("/{}", path.display())]).remove(0);
        assert_eq!(label_of(&now, path), expected, "{}", path.display());
    }
    assert!(plan(root.path(), &request(&config)).unwrap().is_empty());
    apply::revert(&open(root.path())).unwrap();
    let after = tree(root.path());
    assert_eq!(after, before, "{:?}", difference(&after, &before));
}

fn label_of(tree: &Tree, path: &Path) -> Option<String> {
    let label = tree[path].label.clone()?;
    Some(String::from_utf8(label).unwrap().trim_end_matches('\0').to_owned())
}

#[test]
fn a_policy_that_cannot_be_used_is_refused_before_anything_changed() {
    let root = system();
    put(root.path(), &format!("{}/file_contexts.local", &POLICY[1..]), "/etc/sha( x\n", 0o644);
    put(root.path(), "etc/shadow", "old", 0o600);
    let before = tree(root.path());
    let e = run(root.path(), &request(&ignition(config()))).unwrap_err();
    assert!(matches!(&e, apply::Error::Labels(_)) && e.to_string().contains("/etc/sha("), "{e}");
    assert_eq!(tree(root.path()), before);
    assert!(!root.path().join("var/lib/oneboot").exists());
}
