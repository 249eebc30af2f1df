//! Laws that hold for every config and tree: proptest looks for the one for which they do not.

use std::{fs, os::unix::fs::symlink, path::Path};

use oneboot_agent::{
    apply::{self, Restored},
    machineconfig::MachineConfig,
    verify::verify,
};
use proptest::{prelude::*, sample::Index};
use serde_json::{Value, json};

use crate::support::{difference, machine_config, open, plan, put, request, run, scratch, tree};

/// Few names, so that entries meet each other and what is there.
const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

#[derive(Debug, Clone)]
enum There {
    File(String, u32),
    Link(String),
    Dir,
}

fn content() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z]{1,8}", Just("same".to_owned())]
}

fn mode() -> impl Strategy<Value = u32> {
    prop_oneof![Just(0o644), Just(0o600), Just(0o755), Just(0o400)]
}

/// What is in the tree before: at `/etc/t/<name>` and one level deeper.
fn there() -> impl Strategy<Value = Vec<(String, There)>> {
    let node = prop_oneof![
        (content(), mode()).prop_map(|(c, m)| There::File(c, m)),
        prop_oneof![Just("/etc/t/a"), Just("nowhere"), Just("../../usr")]
            .prop_map(|t| There::Link(t.to_owned())),
        Just(There::Dir),
    ];
    prop::collection::vec((any::<Index>(), any::<bool>(), any::<Index>(), node), 0..6).prop_map(|list| {
        let path = |(a, deep, b, node): (Index, bool, Index, There)| {
            let (a, b) = (a.get(&NAMES), b.get(&NAMES));
            (if deep { format!("etc/t/{a}/{b}") } else { format!("etc/t/{a}") }, node)
        };
        list.into_iter().map(path).collect()
    })
}

fn lay(root: &Path, nodes: &[(String, There)]) {
    for (path, node) in nodes {
        let path_buf = root.join(path);
        // An earlier entry may be in the way; then this one is left out.
        if fs::create_dir_all(path_buf.parent().unwrap()).is_err() || fs::symlink_metadata(&path_buf).is_ok()
        {
            continue;
        }
        match node {
            There::File(content, mode) => put(root, path, content, *mode),
            There::Link(target) => symlink(target, &path_buf).unwrap(),
            There::Dir => fs::create_dir(&path_buf).unwrap(),
        }
    }
}

/// Sections of a config over the same few names; duplicates are left out, since they are refused anyway.
fn sections() -> impl Strategy<Value = Value> {
    let entry = (0..5_u8, any::<Index>(), content(), mode(), any::<bool>());
    let unit = (any::<Index>(), prop::option::of(any::<bool>()), prop::option::of(any::<bool>()), content());
    (prop::collection::vec(entry, 0..8), prop::collection::vec(unit, 0..4), prop::option::of("[a-z]{3}")).prop_map(
        |(entries, units, key)| {
            let mut taken = std::collections::BTreeSet::new();
            let (mut files, mut directories, mut links) = (Vec::new(), Vec::new(), Vec::new());
            for (kind, name, content, mode, overwrite) in entries {
                let path = format!("/etc/t/{}", name.get(&NAMES));
                if !taken.insert(path.clone()) {
                    continue;
                }
                let source = format!("data:,{content}");
                match kind {
                    0 | 1 => files.push(json!({"path": path, "mode": mode, "overwrite": overwrite, "contents": {"source": source}})),
                    2 => files.push(json!({"path": path, "append": [{"source": source}]})),
                    3 => directories.push(json!({"path": path, "mode": mode | 0o700, "overwrite": overwrite})),
                    _ => links.push(json!({"path": path, "target": "/etc/t/target", "overwrite": overwrite})),
                }
            }
            let units: Vec<Value> = units
                .into_iter()
                .filter_map(|(name, enabled, mask, content)| {
                    let name = format!("{}.service", name.get(&NAMES));
                    let text = format!("[Unit]\nDescription={content}\n[Install]\nWantedBy=multi-user.target\nAlias=al-{name}\n");
                    taken.insert(name.clone()).then(|| json!({"name": name, "enabled": enabled, "mask": mask, "contents": text,
                        "dropins": [{"name": "10-x.conf", "contents": content}]}))
                })
                .collect();
            let keys: Vec<Value> = key.into_iter().map(|k| json!({"name": "core", "sshAuthorizedKeys": [k]})).collect();
            json!({"storage": {"files": files, "directories": directories, "links": links},
                "systemd": {"units": units}, "passwd": {"users": keys}})
        },
    )
}

/// The same config with every list in another order.
fn reversed(sections: &Value) -> Value {
    let mut other = sections.clone();
    for list in
        ["/storage/files", "/storage/directories", "/storage/links", "/systemd/units", "/passwd/users"]
    {
        if let Some(Value::Array(entries)) = other.pointer_mut(list) {
            entries.reverse();
        }
    }
    other
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_after_apply_is_empty_and_revert_is_the_identity(nodes in there(), one in sections(), two in sections()) {
        let root = scratch();
        lay(root.path(), &nodes);
        // The lock makes its folder's parents; they are part of any system.
        let (first, second) = (machine_config("one", one), machine_config("two", two));
        let before = tree(root.path());
        match run(root.path(), &request(&first)) {
            Ok(_) => {}
            Err(apply::Error::Refused(_)) => {
                prop_assert_eq!(tree(root.path()), before, "a refusal changes nothing");
                return Ok(());
            }
            Err(e) => return Err(TestCaseError::fail(e.to_string())),
        }
        let laid = tree(root.path());
        let again = plan(root.path(), &request(&first)).unwrap();
        prop_assert!(again.is_empty(), "{:?}", again.steps);

        // From one config to the next, and back.
        let next = apply::Request { current: Some(&first), ..request(&second) };
        match run(root.path(), &next) {
            Ok(applied) if !applied.plan.is_empty() => {
                let again = plan(root.path(), &next).unwrap();
                prop_assert!(again.is_empty(), "{:?}", again.steps);
                apply::revert(&open(root.path())).unwrap();
            }
            Ok(_) | Err(apply::Error::Refused(_)) => {}
            Err(e) => return Err(TestCaseError::fail(e.to_string())),
        }
        let after = tree(root.path());
        prop_assert!(after == laid, "after the second revert: {:?}", difference(&after, &laid));

        if laid != before {
            let undone = apply::revert(&open(root.path())).unwrap();
            prop_assert_ne!(undone, Restored::Nothing);
        }
        let after = tree(root.path());
        prop_assert!(after == before, "after the first revert: {:?}", difference(&after, &before));
    }

    #[test]
    fn planning_does_not_depend_on_the_order_of_entries(nodes in there(), sections in sections()) {
        let root = scratch();
        lay(root.path(), &nodes);
        let (config, other) = (machine_config("c", sections.clone()), machine_config("c", reversed(&sections)));
        let plans = [&config, &other].map(|c| plan(root.path(), &request(c)));
        match plans {
            [Ok(a), Ok(b)] => prop_assert_eq!(a, b),
            [Err(_), Err(_)] => {}
            [a, b] => prop_assert!(false, "{a:?} {b:?}"),
        }
    }

    #[test]
    fn what_was_applied_for_mcd_passes_its_validation(nodes in there(), sections in sections()) {
        let root = scratch();
        lay(root.path(), &nodes);
        let config = machine_config("c", sections);
        let request = apply::Request { mcd_present: true, settle: true, ..request(&config) };
        match run(root.path(), &request) {
            Ok(_) => prop_assert_eq!(verify(&open(root.path()), &config), []),
            Err(apply::Error::Refused(_)) => {}
            Err(e) => return Err(TestCaseError::fail(e.to_string())),
        }
    }
}

#[test]
fn appending_twice_appends_once() {
    let root = scratch();
    put(root.path(), "etc/log.conf", "old\n", 0o640);
    let config = crate::support::ignition(json!({"storage": {"files": [
        {"path": "/etc/log.conf", "append": [{"source": "data:,new%0A"}, {"source": "data:,er%0A"}]}]}}));
    run(root.path(), &request(&config)).unwrap();
    let read = || fs::read_to_string(root.path().join("etc/log.conf")).unwrap();
    assert_eq!(read(), "old\nnew\ner\n");
    assert!(plan(root.path(), &request(&config)).unwrap().is_empty());
    run(root.path(), &request(&config)).unwrap();
    assert_eq!(read(), "old\nnew\ner\n");
    apply::revert(&open(root.path())).unwrap();
    assert_eq!(read(), "old\n");
    assert!(!plan(root.path(), &request(&config)).unwrap().is_empty(), "the record went with it");
}

#[test]
fn hard_links_survive_apply_and_revert() {
    let root = scratch();
    put(root.path(), "etc/one", "x", 0o644);
    fs::hard_link(root.path().join("etc/one"), root.path().join("etc/two")).unwrap();
    let before = tree(root.path());
    let config: MachineConfig = machine_config(
        "c",
        json!({"storage": {"files": [{"path": "/etc/one", "contents": {"source": "data:,new"}}]}}),
    );
    run(root.path(), &request(&config)).unwrap();
    assert_ne!(tree(root.path()), before);
    apply::revert(&open(root.path())).unwrap();
    assert_eq!(tree(root.path()), before, "the second name stands for the same file again");
}
