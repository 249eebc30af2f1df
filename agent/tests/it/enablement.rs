//! Enablement is what `systemctl --root` makes: compared with it, directive by directive.

use std::{fs, path::Path, process::Command};

use serde_json::json;

use crate::support::{ignition, put, request, run, scratch, tree};

/// Units of the vendor's, one for every directive of `[Install]` and every shape of a name.
const UNITS: [(&str, &str); 9] = [
    ("wanted.service", "WantedBy=multi-user.target other.target"),
    ("required.service", "RequiredBy=multi-user.target"),
    ("aliased.service", "Alias=other-name.service\nWantedBy=multi-user.target"),
    ("also.service", "WantedBy=multi-user.target\nAlso=also.socket wanted.service"),
    ("also.socket", "WantedBy=sockets.target"),
    ("default@.service", "WantedBy=multi-user.target w@%i.target\nDefaultInstance=def"),
    ("plain@.service", "WantedBy=multi-user.target w@.target"),
    ("static.service", ""),
    ("specifier.service", "WantedBy=%p.target\nAlias=%N-alias.service"),
];

/// What is enabled or disabled: a unit, a template, an instance.
const NAMES: [&str; 10] = [
    "wanted.service",
    "required.service",
    "aliased.service",
    "also.service",
    "also.socket",
    "default@.service",
    "default@x.service",
    "plain@y.service",
    "static.service",
    "specifier.service",
];

fn system(with: impl Fn(&Path)) -> tempfile::TempDir {
    let root = scratch();
    for (name, install) in UNITS {
        let text = format!("[Unit]\nDescription=d\n[Service]\nExecStart=/bin/true\n[Install]\n{install}\n");
        let text = if name.ends_with(".socket") {
            text.replace("[Service]\nExecStart=/bin/true", "[Socket]\nListenStream=/run/s")
        } else {
            text
        };
        put(root.path(), &format!("usr/lib/systemd/system/{name}"), text, 0o644);
    }
    fs::create_dir_all(root.path().join("etc/systemd/system")).unwrap();
    with(root.path());
    root
}

/// What systemd itself makes of it. Not having systemctl is a failure, not a pass.
fn systemctl(root: &Path, arguments: &[&str]) {
    let output =
        Command::new("systemctl").arg("--root").arg(root).args(arguments).output().expect("systemctl runs");
    assert!(output.status.success(), "systemctl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Links only: systemd leaves empty folders behind in another way than we do, and nobody reads those.
fn links(root: &Path) -> Vec<(String, String)> {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    let found = tree(root);
    let links = found.iter().filter(|(_, n)| n.kind == 'l');
    links.map(|(path, n)| (path.display().to_string(), text(&n.content))).collect()
}

#[test]
fn enabling_makes_systemds_links() {
    for name in NAMES {
        let (ours, theirs) = (system(|_| {}), system(|_| {}));
        let config = ignition(json!({"systemd": {"units": [{"name": name, "enabled": true}]}}));
        run(ours.path(), &request(&config)).unwrap();
        systemctl(theirs.path(), &["enable", name]);
        assert_eq!(links(ours.path()), links(theirs.path()), "{name}");
    }
}

#[test]
fn disabling_removes_systemds_links() {
    let enabled = |root: &Path| {
        let instances = ["default@x.service", "plain@y.service"];
        for name in NAMES.iter().chain(&instances).filter(|n| **n != "static.service") {
            systemctl(root, &["enable", name]);
        }
    };
    for name in NAMES {
        let (ours, theirs) = (system(enabled), system(enabled));
        let config = ignition(json!({"systemd": {"units": [{"name": name, "enabled": false}]}}));
        assert!(!links(ours.path()).is_empty());
        run(ours.path(), &request(&config)).unwrap();
        systemctl(theirs.path(), &["disable", name]);
        assert_eq!(links(ours.path()), links(theirs.path()), "{name}");
    }
}

#[test]
fn masking_is_systemds_masking_and_comes_off_again() {
    let (ours, theirs) = (system(|_| {}), system(|_| {}));
    let config =
        |mask: bool| ignition(json!({"systemd": {"units": [{"name": "wanted.service", "mask": mask}]}}));
    run(ours.path(), &request(&config(true))).unwrap();
    systemctl(theirs.path(), &["mask", "wanted.service"]);
    assert_eq!(links(ours.path()), links(theirs.path()));
    assert_eq!(links(ours.path()).len(), 1);
    run(ours.path(), &request(&config(false))).unwrap();
    assert_eq!(links(ours.path()), []);
}

#[test]
fn presets_decide_where_the_config_does_not() {
    let unit = "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n";
    for (preset, expected) in [("enable new.service\ndisable *\n", 1), ("disable *\n", 0)] {
        let root = system(|root| put(root, "usr/lib/systemd/system-preset/90-x.preset", preset, 0o644));
        let twin = system(|root| {
            put(root, "usr/lib/systemd/system-preset/90-x.preset", preset, 0o644);
            put(root, "etc/systemd/system/new.service", unit, 0o644);
        });
        let config = ignition(json!({"systemd": {"units": [{"name": "new.service", "contents": unit}]}}));
        run(root.path(), &request(&config)).unwrap();
        systemctl(twin.path(), &["preset", "new.service"]);
        assert_eq!(links(root.path()), links(twin.path()), "{preset}");
        assert_eq!(links(root.path()).len(), expected, "{preset}");
    }
}

#[test]
fn a_rewritten_unit_loses_the_links_it_no_longer_asks_for() {
    let unit = |target: &str| format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n");
    let config = |target: &str| {
        ignition(
            json!({"systemd": {"units": [{"name": "u.service", "enabled": true, "contents": unit(target)}]}}),
        )
    };
    let root = scratch();
    run(root.path(), &request(&config("a.target"))).unwrap();
    run(root.path(), &request(&config("b.target"))).unwrap();
    let expected = [(
        "etc/systemd/system/b.target.wants/u.service".to_owned(),
        "/etc/systemd/system/u.service".to_owned(),
    )];
    assert_eq!(links(root.path()), expected);
}
