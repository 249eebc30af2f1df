//! Users, groups and password hashes: Ignition's fields one by one, through the one receipt, and hashes in no argument list.

use std::{fs, path::Path, process::Command};

use oneboot_agent::apply::{self, Error};
use serde_json::{Value, json};

use crate::support::{
    difference, ignition, is_root, machine_config, open, plan, put, request, run, scratch, tree,
};

/// Nobody's password.
const HASH: &str = "$6$saltsalt$hunter2hunter2";

/// A system as an image-based one comes: its own users in `/etc`, what is shipped in `/usr/lib`.
fn system() -> tempfile::TempDir {
    assert!(is_root(), "accounts can only be changed by root: run the tests as root");
    let root = scratch();
    let file = |path, text, mode| put(root.path(), path, text, mode);
    file(
        "etc/passwd",
        "root:x:0:0:root:/root:/bin/bash\ncore:x:1000:1000:Core:/home/core:/bin/bash\n",
        0o644,
    );
    file("etc/shadow", "root:*:15887:0:99999:7:::\ncore:*:15887:0:99999:7:::\n", 0o640);
    file("etc/group", "root:x:0:\ncore:x:1000:\nsudo:x:27:core\n", 0o644);
    file("etc/gshadow", "root:*::\ncore:!::\nsudo:*::core\n", 0o640);
    std::os::unix::fs::chown(root.path().join("etc/shadow"), Some(0), Some(42)).unwrap();
    file("etc/login.defs", "USERGROUPS_ENAB yes\nSYS_UID_MIN 201\nSYS_UID_MAX 999\n", 0o644);
    file("etc/default/useradd", "SHELL=/bin/zsh\n", 0o644);
    file("etc/skel/.bashrc", "umask 077\n", 0o644);
    file("usr/lib/passwd", "chrony:x:994:991::/var/lib/chrony:/sbin/nologin\n", 0o644);
    file("usr/lib/group", "wheel:x:10:\nchrony:x:991:\n", 0o644);
    root
}

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap()
}

fn line(root: &Path, path: &str, name: &str) -> String {
    let text = read(root, path);
    text.lines().find(|l| l.starts_with(&format!("{name}:"))).unwrap_or_default().to_owned()
}

/// Lays a config down, has a second plan be empty, looks, takes everything back and compares.
fn laid(passwd: Value, look: impl Fn(&Path)) {
    let root = system();
    let before = tree(root.path());
    let config = ignition(json!({"passwd": passwd}));
    run(root.path(), &request(&config)).unwrap();
    look(root.path());
    let again = plan(root.path(), &request(&config)).unwrap();
    assert!(again.is_empty(), "{again:?}");
    apply::revert(&open(root.path())).unwrap();
    let after = tree(root.path());
    assert_eq!(after, before, "{:?}", difference(&after, &before));
}

fn users(list: Value, look: impl Fn(&Path)) {
    laid(json!({"users": list}), look);
}

#[test]
fn a_new_user_with_every_field() {
    let user = json!([{"name": "ann", "uid": 1500, "gecos": "Ann A.", "homeDir": "/var/ann", "primaryGroup": "core",
        "groups": ["sudo", "wheel"], "shell": "/bin/sh", "noLogInit": true, "passwordHash": HASH}]);
    users(user, |root| {
        assert_eq!(line(root, "etc/passwd", "ann"), "ann:x:1500:1000:Ann A.:/var/ann:/bin/sh");
        assert!(line(root, "etc/shadow", "ann").starts_with(&format!("ann:{HASH}:")));
        assert_eq!(line(root, "etc/group", "sudo"), "sudo:x:27:core,ann");
        assert_eq!(
            line(root, "etc/group", "wheel"),
            "wheel:x:10:ann",
            "shipped in /usr/lib, changed in /etc"
        );
        assert_eq!(line(root, "etc/group", "chrony"), "", "what is shipped and not changed stays there");
        let found = tree(root);
        let node = |path: &str| found.get(Path::new(path)).unwrap_or_else(|| panic!("no {path}"));
        assert_eq!((node("var/ann").mode, node("var/ann").owner), (0o700, (1500, 1000)));
        assert_eq!((node("var/ann/.bashrc").mode, node("var/ann/.bashrc").owner), (0o644, (1500, 1000)));
        assert_eq!((node("etc/shadow").mode, node("etc/shadow").owner), (0o640, (0, 42)), "as it was");
    });
}

#[test]
fn a_new_users_defaults_and_refusals_of_them() {
    users(json!([{"name": "bob", "gecos": "Bob"}]), |root| {
        assert_eq!(line(root, "etc/passwd", "bob"), "bob:x:1001:1001:Bob:/home/bob:/bin/zsh");
        assert_eq!(line(root, "etc/group", "bob"), "bob:x:1001:");
        assert!(line(root, "etc/shadow", "bob").starts_with("bob:*:"), "no password, and not locked");
        assert!(root.join("home/bob/.bashrc").exists());
    });
    users(json!([{"name": "bob", "noCreateHome": true, "noUserGroup": true}]), |root| {
        assert!(!root.join("home").exists());
        assert_eq!(line(root, "etc/group", "bob"), "");
    });
    users(json!([{"name": "sys", "system": true}]), |root| {
        let line = line(root, "etc/passwd", "sys");
        let uid: u32 = line.split(':').nth(2).unwrap().parse().unwrap();
        assert!((201..=999).contains(&uid) && uid != 994, "{line}: 994 is shipped");
    });
}

#[test]
fn a_user_that_is_there_changes_in_what_differs() {
    users(json!([{"name": "core", "passwordHash": HASH}]), |root| {
        assert!(line(root, "etc/shadow", "core").starts_with(&format!("core:{HASH}:")));
        assert_eq!(line(root, "etc/passwd", "core"), "core:x:1000:1000:Core:/home/core:/bin/bash");
    });
    let change = json!([{"name": "core", "uid": 2000, "gecos": "New", "homeDir": "/var/home/core", "shell": "/bin/sh",
        "primaryGroup": "sudo", "groups": ["wheel"]}]);
    users(change, |root| {
        assert_eq!(line(root, "etc/passwd", "core"), "core:x:2000:27:New:/var/home/core:/bin/sh");
        assert_eq!(line(root, "etc/group", "sudo"), "sudo:x:27:", "the list of groups is replaced");
        assert_eq!(line(root, "etc/group", "wheel"), "wheel:x:10:core");
        assert!(line(root, "etc/shadow", "core").starts_with("core:*:15887:"), "the password is left alone");
    });
    users(
        json!([{"name": "core", "shouldExist": false}, {"name": "nobody-here", "shouldExist": false}]),
        |root| {
            for file in ["etc/passwd", "etc/shadow", "etc/group"] {
                assert_eq!(line(root, file, "core"), "", "{file}");
            }
        },
    );
}

#[test]
fn groups() {
    let groups = json!({"groups": [{"name": "new", "gid": 1600, "passwordHash": HASH}, {"name": "sudo", "gid": 28},
        {"name": "gone", "shouldExist": false}, {"name": "sys", "system": true}]});
    laid(groups, |root| {
        assert_eq!(line(root, "etc/group", "new"), "new:x:1600:");
        assert_eq!(line(root, "etc/gshadow", "new"), format!("new:{HASH}::"));
        assert_eq!(line(root, "etc/group", "sudo"), "sudo:x:28:core");
        let gid: u32 = line(root, "etc/group", "sys").split(':').nth(2).unwrap().parse().unwrap();
        assert!(gid < 1000 && gid != 991, "{gid}");
    });
    laid(json!({"groups": [{"name": "sudo", "shouldExist": false}]}), |root| {
        assert_eq!(line(root, "etc/group", "sudo"), "");
    });
}

#[test]
fn files_and_keys_belong_to_users_of_the_same_config() {
    let root = system();
    let config = ignition(
        json!({"passwd": {"users": [{"name": "ann", "uid": 1500, "sshAuthorizedKeys": ["k"]}]},
        "storage": {"files": [{"path": "/srv/of-ann", "contents": {"source": "data:,x"}, "user": {"name": "ann"}, "group": {"name": "ann"}}]}}),
    );
    run(root.path(), &request(&config)).unwrap();
    let found = tree(root.path());
    for path in ["srv/of-ann", "home/ann", "home/ann/.ssh/authorized_keys.d/ignition"] {
        assert_eq!(found[Path::new(path)].owner.0, 1500, "{path}");
    }
}

#[test]
fn what_a_tool_refuses_is_refused_before_anything_changed() {
    let root = system();
    let before = tree(root.path());
    for (passwd, expected) in [
        (json!({"users": [{"name": "ann", "uid": 1000}]}), "useradd ended with"),
        (json!({"users": [{"name": "ann", "groups": ["nowhere"]}]}), "group 'nowhere' does not exist"),
        (json!({"groups": [{"name": "new", "gid": 27}]}), "groupadd ended with"),
    ] {
        let config = ignition(json!({"passwd": passwd}));
        match run(root.path(), &request(&config)) {
            Err(Error::Refused(message)) => {
                assert!(message.contains(expected), "{expected:?} in {message:?}");
            }
            other => panic!("expected {expected:?}, found {other:?}"),
        }
        assert_eq!(tree(root.path()), before);
        assert!(!root.path().join("var/lib/oneboot").exists());
    }
}

#[test]
fn with_an_mcd_only_core_its_keys_and_its_hash() {
    let root = system();
    let before = tree(root.path());
    let plain = machine_config("plain", json!({}));
    for (passwd, expected) in [
        (
            json!({"users": [{"name": "ann", "sshAuthorizedKeys": ["k"]}]}),
            "ann: found a user other than core",
        ),
        (
            json!({"users": [{"name": "core", "sshAuthorizedKeys": ["k"], "shell": "/bin/sh"}]}),
            "core: found more or less",
        ),
        (json!({"users": [{"name": "core"}]}), "core: found more or less"),
        (json!({"groups": [{"name": "new"}]}), "passwd.groups: found another list"),
    ] {
        let config = machine_config("c", json!({"passwd": passwd}));
        let request = apply::Request { mcd_present: true, current: Some(&plain), ..request(&config) };
        let e = run(root.path(), &request).unwrap_err().to_string();
        assert!(e.contains(expected) && e.contains("can never accept"), "{e}");
        assert_eq!(tree(root.path()), before);
        let unchanged = apply::Request { current: Some(&config), ..request };
        assert!(
            plan(root.path(), &unchanged).is_ok(),
            "what Ignition has done already is no change: {expected}"
        );
    }
    let config = machine_config("c", json!({"passwd": {"users": [{"name": "core", "passwordHash": HASH}]}}));
    let request = apply::Request { mcd_present: true, current: Some(&plain), ..request(&config) };
    run(root.path(), &request).unwrap();
    assert!(line(root.path(), "etc/shadow", "core").starts_with(&format!("core:{HASH}:")));
}

#[test]
fn a_hash_is_in_no_argument_list_and_in_nothing_that_is_printed() {
    let root = system();
    let config = root.path().join("config.json");
    let text = json!({"ignition": {"version": "3.5.0"}, "passwd": {
        "users": [{"name": "ann", "gecos": "seen", "passwordHash": HASH}, {"name": "core", "shell": "/bin/sh", "passwordHash": HASH}],
        "groups": [{"name": "new", "passwordHash": HASH}]}});
    fs::write(&config, text.to_string()).unwrap();
    let log = root.path().join("log");
    for (verb, more) in [("plan", &["--diff"][..]), ("plan", &["--json"]), ("apply", &[])] {
        let output = Command::new("strace")
            .args(["-f", "-qq", "-s", "65536", "-e", "trace=execve", "-o"])
            .arg(&log)
            .args([env!("CARGO_BIN_EXE_oneboot-agent"), verb, "--root"])
            .arg(root.path())
            .arg("--desired")
            .arg(&config)
            .args(more)
            .output()
            .expect("strace is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let executed = fs::read_to_string(&log).unwrap();
        assert!(
            executed.contains("useradd") && executed.contains("seen"),
            "the log has arguments: {executed}"
        );
        let printed = [output.stdout, output.stderr].concat();
        for text in [executed, String::from_utf8_lossy(&printed).into_owned()] {
            assert!(!text.contains("hunter2"), "{verb}: {text}");
        }
    }
    assert!(read(root.path(), "etc/shadow").contains("hunter2"), "but it is where it belongs");
}
