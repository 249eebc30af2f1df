//! Configs that want out, and configs that cannot be: each refused with its own message, before anything has changed.

use std::{fs, os::unix::fs::symlink};

use base64::Engine;
use oneboot_agent::{apply::Error, machineconfig::MachineConfig};
use serde_json::{Value, json};

use crate::support::{ignition, put, request, run, scratch, tree};

/// Runs a config that must be refused with a message that holds `expected`, and checks that nothing was created.
fn refused(config: &MachineConfig, expected: &str) {
    let root = scratch();
    put(root.path(), "etc/there", "there", 0o644);
    let before = tree(root.path());
    let message = match run(root.path(), &request(config)) {
        Err(Error::Refused(message)) => message,
        other => panic!("expected a refusal with {expected:?}, found {other:?}"),
    };
    assert!(message.contains(expected), "expected {expected:?} in {message:?}");
    assert_eq!(tree(root.path()), before);
    assert!(!root.path().join("var/lib/oneboot").exists(), "not even the lock's folder");
}

fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,x"}})
}

fn files(list: Value) -> MachineConfig {
    ignition(json!({"storage": {"files": list}}))
}

fn units(list: Value) -> MachineConfig {
    ignition(json!({"systemd": {"units": list}}))
}

#[test]
fn paths_that_are_none() {
    for (path, expected) in [
        ("/etc/../../x", "/etc/../../x: a path may not climb with `..`"),
        ("etc/x", "etc/x: not an absolute path"),
        ("/etc//x", "/etc//x: not a clean path"),
        ("/etc/x/", "/etc/x/: not a clean path"),
        ("/etc/./x", "/etc/./x: not a clean path"),
        ("/", "/: not a clean path"),
        ("", ": a path is empty"),
        ("/etc/\u{0}x", "a path holds a zero byte"),
        ("/var/lib/oneboot/receipts/1", "oneboot's own records are not configuration"),
    ] {
        refused(&files(json!([file(path)])), expected);
    }
}

#[test]
fn paths_that_collide() {
    refused(&files(json!([file("/a"), file("/a")])), "/a: found twice");
    refused(&files(json!([file("/a"), file("/a/b")])), "/a/b: /a is a file in the same config");
    let link = json!({"storage": {"files": [file("/l/b")], "links": [{"path": "/l", "target": "/etc"}]}});
    refused(&ignition(link), "/l/b: /l is a link in the same config");
    let unit = json!({"storage": {"files": [file("/etc/systemd/system/u.service")]},
        "systemd": {"units": [{"name": "u.service", "contents": "[Unit]\n"}]}});
    refused(&ignition(unit), "/etc/systemd/system/u.service: found twice");
    refused(&files(json!([file("/etc/there/x")])), "/etc/there is not a folder on this system");
}

#[test]
fn two_entries_that_meet_behind_a_link() {
    let root = scratch();
    symlink("real", root.path().join("etc/alias")).unwrap();
    fs::create_dir(root.path().join("etc/real")).unwrap();
    let config = files(json!([file("/etc/alias/x"), file("/etc/real/x")]));
    let before = tree(root.path());
    let e = run(root.path(), &request(&config)).unwrap_err().to_string();
    assert!(e.contains("lands on the same place as /etc/"), "{e}");
    assert_eq!(tree(root.path()), before);
}

#[test]
fn links_do_not_lead_out_of_the_tree() {
    let outside = tempfile::tempdir().unwrap();
    let root = scratch();
    symlink(outside.path(), root.path().join("etc/out")).unwrap();
    symlink("../../../../../../../..", root.path().join("etc/up")).unwrap();
    let inside = root.path().join(outside.path().strip_prefix("/").unwrap());
    fs::create_dir_all(&inside).unwrap();
    run(root.path(), &request(&files(json!([file("/etc/out/x"), file("/etc/up/y")])))).unwrap();
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0, "nothing outside");
    assert_eq!(fs::read(inside.join("x")).unwrap(), b"x", "an absolute link starts at the tree's top");
    assert_eq!(fs::read(root.path().join("y")).unwrap(), b"x", "and `..` stops there");
}

#[test]
fn units_that_are_none() {
    for (name, expected) in [
        ("../../evil.service", "../../evil.service: a unit's name may not hold a slash"),
        ("evil", "evil: found the type"),
        ("evil.txt", "evil.txt: found the type \"txt\""),
        (".service", ".service: not a unit's name"),
        ("a b.service", "a b.service: not a unit's name"),
    ] {
        refused(&units(json!([{"name": name, "contents": "[Unit]\n"}])), expected);
    }
    refused(&units(json!([{"name": "a.service"}, {"name": "a.service"}])), "a.service: found twice");
    let dropin =
        |name: &str| units(json!([{"name": "a.service", "dropins": [{"name": name, "contents": "x"}]}]));
    refused(&dropin("../x.conf"), "a.service.d/../x.conf: the name of a drop-in may not hold a slash");
    refused(&dropin("x.txt"), "must end in .conf");
    refused(
        &units(json!([{"name": "a.service", "contents": "[Unit\n"}])),
        "a.service: line 1 begins a section",
    );
}

#[test]
fn values_that_no_spec_knows() {
    refused(&files(json!([{"path": "/a", "mode": 4096}])), "/a: found mode 4096 (decimal)");
    refused(
        &files(json!([{"path": "/a", "overwrite": true}])),
        "/a: `overwrite` is set without `contents.source`",
    );
    let both = json!([{"path": "/a", "user": {"id": 1, "name": "root"}}]);
    refused(&files(both), "/a: user is given both by id and by name");
    let user = json!({"passwd": {"users": [{"name": "../x", "sshAuthorizedKeys": ["k"]}]}});
    refused(&ignition(user), "../x: not a user's name");
    let remote = json!([{"path": "/a", "contents": {"source": "https://example.com/x"}}]);
    refused(&files(remote), "/a: found a source with https");
    for (section, what) in [("disks", "storage.disks"), ("luks", "storage.luks"), ("raid", "storage.raid")] {
        let entry = json!({"name": "n", "device": "/dev/d"});
        refused(&ignition(json!({"storage": {section: [entry]}})), what);
        let config = ignition(json!({"storage": {section: [{"name": "n", "device": "/dev/d"}]}}));
        refused(&config, "neededBeforeNodeApproved: true");
    }
}

#[test]
fn specs_that_are_not_ours() {
    for (version, expected) in [
        ("3.7.0", "Ignition spec 3.7.0 is not understood, expected 3.0.0 to 3.6.0"),
        ("3.6.0-experimental", "Ignition spec 3.6.0-experimental is not understood"),
        ("2.2.0", "Ignition spec 2.2.0 is not understood"),
        ("3.4", "Ignition spec 3.4 is not understood"),
    ] {
        let text = json!({"ignition": {"version": version}, "storage": {"files": [file("/a")]}}).to_string();
        refused(&MachineConfig::parse(text.as_bytes()).unwrap(), expected);
    }
}

#[test]
fn bombs() {
    let many: Vec<Value> = (0..100_000).map(|i| file(&format!("/many/{i}"))).collect();
    refused(&files(json!(many)), "storage: found 100000 entries, at most 65536 are taken");

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..1024 {
        std::io::Write::write_all(&mut gzip, &zeros).unwrap();
    }
    let packed = base64::engine::general_purpose::STANDARD.encode(gzip.finish().unwrap());
    let bomb = json!([{"path": "/a", "contents": {"source": format!("data:;base64,{packed}"), "compression": "gzip"}}]);
    refused(&files(bomb), "/a: the content unpacks to more than 64 MiB");

    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    let text = format!(r#"{{"ignition":{{"version":"3.5.0"}},"x":{deep}}}"#);
    let e = MachineConfig::parse(text.as_bytes()).unwrap_err().to_string();
    assert!(e.contains("line 1"), "{e}");
    let e = MachineConfig::parse(b"{\"ignition\":{\"version\":\"\xff\"}}").unwrap_err().to_string();
    assert!(e.starts_with("not JSON or YAML"), "{e}");
}

#[test]
fn what_mcd_can_never_accept_is_refused_where_it_will_look() {
    for (list, expected) in [
        (json!([{"path": "/a", "append": [{"source": "data:,x"}]}]), "/a: found `append`"),
        (json!([file("/run/machine-config-daemon-force")]), "found its force file"),
    ] {
        let config = files(list);
        let request = oneboot_agent::apply::Request { mcd_present: true, ..request(&config) };
        let root = scratch();
        let before = tree(root.path());
        let e = run(root.path(), &request).unwrap_err().to_string();
        assert!(e.contains(expected) && e.contains("can never accept"), "{e}");
        assert_eq!(tree(root.path()), before);
    }
}

#[test]
fn an_existing_file_is_not_replaced_without_leave() {
    refused(
        &files(json!([file("/etc/there")])),
        "/etc/there: another file is there and `overwrite` is not set",
    );
    let link = json!({"storage": {"links": [{"path": "/etc/there", "target": "/x"}]}});
    refused(&ignition(link), "/etc/there: found");
    let owner = json!([{"path": "/a", "contents": {"source": "data:,x"}, "user": {"name": "nobody-here"}}]);
    if crate::support::is_root() {
        refused(&files(owner), "/a: there is no user \"nobody-here\"");
    }
}
