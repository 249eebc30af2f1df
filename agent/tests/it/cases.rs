//! Real data: Ignition's own black-box cases, and MachineConfigs that the real machine-config-operator rendered.

use std::{fs, os::unix::fs::symlink, path::Path};

use oneboot_agent::{apply::Error, machineconfig::MachineConfig, verify::verify};
use serde_json::Value;

use crate::support::{is_root, open, plan, put, request, run, scratch, shared_cases, shared_file, tree};

/// Cases whose tree is deliberately another one, with the reason (README, "Differences from Ignition").
const DIFFERENT: [(&str, &str); 1] = [("systemd.unit.create", "enabled by links, not by a preset file")];
/// The one id that the cases leave to the image they were made on.
const LOGIN_DEFS: &str = "USERGROUPS_ENAB yes\nSYS_GID_MIN 201\nSYS_GID_MAX 201\n";

#[test]
fn every_ignition_case_gives_ignitions_tree() {
    let Some(dir) = shared_cases() else { return };
    let cases: Vec<Value> = serde_json::from_slice(&shared_file(&dir, "ignition-files.json")).unwrap();
    assert!(cases.len() >= 20, "found only {} cases", cases.len());
    for case in &cases {
        let name = case["name"].as_str().unwrap();
        let root = tempfile::tempdir().unwrap();
        lay(root.path(), &case["in"]);
        if case["config"].as_str().unwrap().contains("passwd") {
            put(root.path(), "etc/login.defs", LOGIN_DEFS, 0o644);
        }
        let config = MachineConfig::parse(case["config"].as_str().unwrap().as_bytes()).unwrap();
        let before = tree(root.path());
        let outcome = run(root.path(), &request(&config));
        if case["kind"] == "negative" {
            assert!(matches!(outcome, Err(Error::Refused(_))), "{name}: {outcome:?}");
            assert_eq!(tree(root.path()), before, "{name}: a refusal changes nothing");
            assert!(!root.path().join("var/lib/oneboot").exists(), "{name}: not even the lock's folder");
            continue;
        }
        outcome.unwrap_or_else(|e| panic!("{name}: {e}"));
        let different = DIFFERENT.iter().find(|(n, _)| *n == name);
        let wrong = compare(root.path(), &case["out"]);
        match different {
            None => assert!(wrong.is_empty(), "{name}: {wrong:?}"),
            // A difference that is gone must leave the list.
            Some((_, why)) => assert!(!wrong.is_empty(), "{name}: no longer different ({why})"),
        }
        let again = plan(root.path(), &request(&config)).unwrap();
        assert!(again.is_empty(), "{name}: a second plan is not empty: {again:?}");
    }
}

fn entries<'a>(side: &'a Value, list: &str) -> impl Iterator<Item = (String, &'a Value)> {
    side[list].as_array().unwrap().iter().map(|e| {
        let dir = e["Directory"].as_str().unwrap().trim_matches('/');
        (format!("{dir}/{}", e["Name"].as_str().unwrap()).trim_start_matches('/').to_owned(), e)
    })
}

fn number(value: &Value) -> u32 {
    u32::try_from(value.as_u64().unwrap()).unwrap()
}

fn lay(root: &Path, side: &Value) {
    for (path, entry) in entries(side, "files") {
        let mode = number(&entry["Mode"]);
        put(root, &path, entry["Contents"].as_str().unwrap(), if mode == 0 { 0o644 } else { mode });
        if is_root() {
            let (uid, gid) = (number(&entry["User"]), number(&entry["Group"]));
            std::os::unix::fs::chown(root.join(&path), Some(uid), Some(gid)).unwrap();
        }
    }
    for (path, _) in entries(side, "directories") {
        fs::create_dir_all(root.join(path)).unwrap();
    }
    for (path, entry) in entries(side, "links") {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let target = entry["Target"].as_str().unwrap();
        if entry["Hard"] == true {
            fs::hard_link(root.join(target.trim_start_matches('/')), &path).unwrap();
        } else {
            symlink(target, &path).unwrap();
        }
    }
}

/// What is not as the case wants it.
fn compare(root: &Path, side: &Value) -> Vec<String> {
    let found = tree(root);
    let mut wrong = Vec::new();
    let mut check = |ok: bool, what: String| {
        if !ok {
            wrong.push(what);
        }
    };
    for (path, entry) in entries(side, "files") {
        let Some(node) = found.get(Path::new(&path)) else {
            check(false, format!("{path} is missing"));
            continue;
        };
        check(node.kind == 'f', format!("{path} is no file"));
        check(node.content == entry["Contents"].as_str().unwrap().as_bytes(), format!("{path}: content"));
        let mode = number(&entry["Mode"]);
        check(mode == 0 || node.mode == mode, format!("{path}: mode {:o}, not {mode:o}", node.mode));
        let owner = (number(&entry["User"]), number(&entry["Group"]));
        check(!is_root() || node.owner == owner, format!("{path}: owner {:?}, not {owner:?}", node.owner));
    }
    for (path, entry) in entries(side, "directories") {
        let node = found.get(Path::new(&path));
        check(node.is_some_and(|n| n.kind == 'd'), format!("{path} is no directory"));
        let mode = number(&entry["Mode"]);
        check(mode == 0 || node.is_some_and(|n| n.mode == mode), format!("{path}: mode"));
    }
    for (path, entry) in entries(side, "links") {
        let target = entry["Target"].as_str().unwrap();
        let node = found.get(Path::new(&path));
        let ok = if entry["Hard"] == true {
            let other = found.get(Path::new(target.trim_start_matches('/')));
            node.zip(other).is_some_and(|(a, b)| a.same_as == b.same_as)
        } else {
            node.is_some_and(|n| n.kind == 'l' && n.content == target.as_bytes())
        };
        check(ok, format!("{path} is no link to {target}"));
    }
    for (path, _) in entries(side, "removed") {
        check(!found.contains_key(Path::new(&path)), format!("{path} is still there"));
    }
    wrong
}

#[test]
fn what_the_operator_rendered_is_laid_down_and_passes_mcds_validation() {
    let Some(dir) = shared_cases() else { return };
    let read = |name| MachineConfig::parse(&shared_file(&dir, name)).unwrap();
    let (pre, post) = (read("rendered/aws-worker-pre.json"), read("rendered/aws-worker-post.json"));
    let root = scratch();
    run(root.path(), &request(&pre)).unwrap();
    assert_eq!(verify(&open(root.path()), &pre), []);
    assert!(!verify(&open(root.path()), &post).is_empty(), "the post-approved part is not there yet");

    let settle = oneboot_agent::apply::Request {
        current: Some(&pre),
        mcd_present: true,
        settle: true,
        ..request(&post)
    };
    let before = tree(root.path());
    let applied = run(root.path(), &settle).unwrap();
    assert_eq!(applied.plan.disruption, oneboot_agent::plan::Disruption::Restart, "{:?}", applied.plan);
    assert_eq!(verify(&open(root.path()), &post), []);
    assert!(plan(root.path(), &settle).unwrap().is_empty());
    let current = fs::read(root.path().join("etc/machine-config-daemon/currentconfig")).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&current).unwrap(), post.raw);
    oneboot_agent::apply::revert(&open(root.path())).unwrap();
    let after = tree(root.path());
    assert_eq!(after, before, "{:?}", crate::support::difference(&after, &before));
}
