//! The plug is pulled at every file-changing system call of an apply, of a recovery and of a revert; and every such call fails once.
//!
//! Each call is found by tracing a run that succeeds, then hit by its own name and number (strace counts per call and thread,
//! and does not execute the one that it hits). What is left must be the old tree or the new one, never a mixture.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::json;

use crate::support::{Tree, difference, put, scratch, tree};

const AGENT: &str = env!("CARGO_BIN_EXE_oneboot-agent");

/// Every call that changes a file, a name or its metadata, or makes changes durable.
const CALLS: &str = "openat,write,/^rename,/^unlink,/^mkdir,/^symlink,/^link,/^fchmod,/^fchown,syncfs,fsync,/^copy_file,/^sendfile,ftruncate";

/// A tree with something of everything that the config replaces, removes or leaves alone.
fn fixture() -> tempfile::TempDir {
    let root = scratch();
    let at = |path: &str| root.path().join(path);
    for i in 0..10 {
        put(root.path(), &format!("etc/old/{i}"), format!("old {i}"), if i % 2 == 0 { 0o644 } else { 0o600 });
    }
    put(root.path(), "etc/appended", "first\n", 0o640);
    put(root.path(), "etc/in-the-way/of/a/file", "x", 0o644);
    put(root.path(), "etc/full/stale", "x", 0o600);
    put(root.path(), "etc/hard-old", "twice", 0o644);
    fs::hard_link(at("etc/hard-old"), at("etc/hard-twin")).unwrap();
    symlink("/nowhere", at("etc/a-link")).unwrap();
    put(root.path(), "etc/systemd/system/old.service", "[Service]\n[Install]\nWantedBy=a.target\n", 0o644);
    fs::create_dir_all(at("etc/systemd/system/a.target.wants")).unwrap();
    symlink("/etc/systemd/system/old.service", at("etc/systemd/system/a.target.wants/old.service")).unwrap();
    root
}

/// More than sixty entries, of all kinds.
fn config(dir: &Path) -> PathBuf {
    let file = |path: String, text: &str| json!({"path": path, "mode": 420, "overwrite": true, "contents": {"source": format!("data:,{text}")}});
    let mut files: Vec<_> = (0..25).map(|i| file(format!("/etc/new/{}/{i}", i % 3), "new")).collect();
    files.extend((0..10).map(|i| file(format!("/etc/old/{i}"), "changed")));
    files.push(json!({"path": "/etc/appended", "append": [{"source": "data:,second%0A"}]}));
    files.push(file("/etc/in-the-way".to_owned(), "a%20file%20now"));
    files.push(file("/etc/hard-old".to_owned(), "once"));
    let directories = json!([{"path": "/etc/full", "overwrite": true, "mode": 488}, {"path": "/var/data", "mode": 448}, {"path": "/etc/old", "mode": 448}]);
    let links = json!([{"path": "/etc/a-link", "target": "/etc/new", "overwrite": true},
        {"path": "/etc/b-link", "target": "../x"}, {"path": "/etc/second-name", "target": "/etc/new/0/0", "hard": true}]);
    let unit = |name: String, target: &str| {
        json!({"name": name, "enabled": true, "contents": format!("[Service]\nExecStart=/bin/true\n[Install]\nWantedBy={target}\n"),
            "dropins": [{"name": "10-x.conf", "contents": "[Service]\n"}]})
    };
    let mut units: Vec<_> = (0..8).map(|i| unit(format!("unit{i}.service"), "multi-user.target")).collect();
    units.push(unit("old.service".to_owned(), "b.target"));
    units.push(json!({"name": "masked.service", "mask": true}));
    let config = json!({"ignition": {"version": "3.5.0"},
        "storage": {"files": files, "directories": directories, "links": links}, "systemd": {"units": units},
        "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA k"]}]}});
    let path = dir.join("config.json");
    fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
    path
}

fn agent(verb: &str, root: &Path, config: &Path) -> Vec<String> {
    let mut args = vec![AGENT.to_owned(), verb.to_owned(), "--root".to_owned(), root.display().to_string()];
    if verb == "apply" {
        args.extend(["--desired".to_owned(), config.display().to_string()]);
    }
    args
}

fn run(args: &[String]) -> ExitStatus {
    let output = Command::new(&args[0]).args(&args[1..]).output().expect("it runs");
    output.status
}

/// One call of a run: its name and which of that name it is.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    call: String,
    nth: usize,
}

/// Every file-changing call of a run that succeeds.
fn points(args: &[String], log: &Path) -> Vec<Point> {
    let status = Command::new("strace")
        .args(["-f", "-qq", "-o"])
        .arg(log)
        .args(["-e", &format!("trace={CALLS}")])
        .args(args)
        .output()
        .expect("strace is installed");
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    let mut counts = std::collections::BTreeMap::new();
    let mut points = Vec::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let Some((call, arguments)) =
            line.split_once(' ').and_then(|(_, rest)| rest.trim_start().split_once('('))
        else {
            continue;
        };
        let nth = counts.entry(call.to_owned()).and_modify(|n| *n += 1).or_insert(1_usize);
        let output = call == "write" && (arguments.starts_with("1,") || arguments.starts_with("2,"));
        let reads = call == "openat" && !arguments.contains("O_CREAT");
        if !output && !reads {
            points.push(Point { call: call.to_owned(), nth: *nth });
        }
    }
    points
}

/// Runs a command with one call hit: `signal=SIGKILL`, or `error=ENOSPC`.
fn hit(args: &[String], point: &Point, how: &str) -> ExitStatus {
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null"])
        .args(["-e", &format!("trace={}", point.call)])
        .args(["-e", &format!("inject={}:{how}:when={}", point.call, point.nth)])
        .args(args)
        .output()
        .expect("strace is installed");
    output.status
}

/// Set by `tests/run --all`: what takes longer than a change should wait for.
fn exhaustive() -> bool {
    std::env::var_os("ONEBOOT_TEST_ALL").is_some()
}

/// Runs a check for every point, on both processors; what fails is collected.
fn each<P: Sync + std::fmt::Debug>(points: &[P], check: impl Fn(&P) -> Result<(), String> + Sync) {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(point) = points.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(e) = check(point) {
                        failures.lock().unwrap().push(format!("{point:?}: {e}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {}:\n{}", failures.len(), points.len(), failures.join("\n"));
}

struct Scene {
    _dir: tempfile::TempDir,
    config: PathBuf,
    log: PathBuf,
    old: Tree,
    new: Tree,
}

impl Scene {
    fn set() -> Scene {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path());
        let root = fixture();
        let old = tree(root.path());
        assert!(run(&agent("apply", root.path(), &config)).success());
        let new = tree(root.path());
        assert!(new.len() > old.len() + 60);
        Scene { log: dir.path().join("strace.log"), _dir: dir, config, old, new }
    }

    /// Old or new, and nothing left to recover.
    fn one_or_the_other(&self, root: &Path) -> Result<(), String> {
        let now = tree(root);
        if same(&now, &self.old) || same(&now, &self.new) {
            Ok(())
        } else {
            Err(format!(
                "neither old nor new: {:?}",
                difference(&now, &self.old).iter().take(3).collect::<Vec<_>>()
            ))
        }
    }
}

/// Inode identity compares by first name; nothing else is forgiven.
fn same(a: &Tree, b: &Tree) -> bool {
    a == b
}

/// A tree as another one is: owners, links among names and times included.
fn copy(of: &Path) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let status = Command::new("cp").arg("-a").arg(of.join(".")).arg(dir.path()).status().unwrap();
    assert!(status.success());
    dir
}

fn recover_twice(root: &Path, config: &Path) -> Result<(), String> {
    for attempt in ["first", "second"] {
        let output = Command::new(AGENT).args(&agent("recover", root, config)[1..]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            return Err(format!("{attempt} recover: {} {}", text, String::from_utf8_lossy(&output.stderr)));
        }
        if attempt == "second" && !text.contains("nothing to recover") {
            return Err(format!("the second recover did something: {text}"));
        }
    }
    Ok(())
}

#[test]
fn a_kill_at_every_call_of_an_apply_leaves_the_old_tree_or_the_new_one() {
    let scene = Scene::set();
    let root = fixture();
    let points = points(&agent("apply", root.path(), &scene.config), &scene.log);
    assert!(points.len() > 300, "found only {} calls", points.len());
    println!("{} calls", points.len());
    each(&points, |point| {
        let root = fixture();
        if hit(&agent("apply", root.path(), &scene.config), point, "signal=SIGKILL").success() {
            return Err("it was not hit".to_owned());
        }
        recover_twice(root.path(), &scene.config)?;
        scene.one_or_the_other(root.path())
    });
}

#[test]
fn a_call_that_fails_leaves_the_old_tree() {
    let scene = Scene::set();
    let root = fixture();
    let points = points(&agent("apply", root.path(), &scene.config), &scene.log);
    let errors = ["ENOSPC", "EIO", "EROFS"];
    // One error at each point, and all three at each with `tests/run --all`.
    let turns = points.iter().enumerate().flat_map(|(n, point)| {
        let errors = if exhaustive() { errors.to_vec() } else { vec![errors[n % errors.len()]] };
        errors.into_iter().map(move |error| (point.clone(), error))
    });
    let turns: Vec<_> = turns.collect();
    each(&turns, |(point, error)| {
        let root = fixture();
        let status = hit(&agent("apply", root.path(), &scene.config), point, &format!("error={error}"));
        let now = tree(root.path());
        let expected = if status.success() { &scene.new } else { &scene.old };
        if !same(&now, expected) {
            return Err(format!(
                "{error}, {status}: {:?}",
                difference(&now, expected).iter().take(3).collect::<Vec<_>>()
            ));
        }
        recover_twice(root.path(), &scene.config)
    });
}

#[test]
fn a_kill_at_every_call_of_a_recovery_is_recovered_from() {
    let scene = Scene::set();
    let root = fixture();
    let all = points(&agent("apply", root.path(), &scene.config), &scene.log);
    // In the middle of the renames; with `tests/run --all` also before anything has a name, and just before it is closed.
    let renames: Vec<_> = all.iter().filter(|p| p.call.starts_with("rename")).collect();
    let mut moments = vec![renames[renames.len() / 2]];
    if exhaustive() {
        moments.extend([renames[1], renames[renames.len() - 1]]);
    }
    for crash in moments {
        let crashed = || {
            let root = fixture();
            assert!(!hit(&agent("apply", root.path(), &scene.config), crash, "signal=SIGKILL").success());
            root
        };
        let points = points(&agent("recover", crashed().path(), &scene.config), &scene.log);
        let wreck = crashed();
        each(&points, |point| {
            let root = copy(wreck.path());
            hit(&agent("recover", root.path(), &scene.config), point, "signal=SIGKILL");
            recover_twice(root.path(), &scene.config)?;
            scene.one_or_the_other(root.path())
        });
    }
}

#[test]
fn a_kill_at_every_call_of_a_revert_is_recovered_from() {
    let scene = Scene::set();
    let root = fixture();
    assert!(run(&agent("apply", root.path(), &scene.config)).success());
    let all = points(&agent("revert", copy(root.path()).path(), &scene.config), &scene.log);
    assert!(all.len() > 100, "found only {} calls", all.len());
    // Every third; with `tests/run --all` each of them.
    let step = if exhaustive() { 1 } else { 3 };
    let points: Vec<_> = all.into_iter().step_by(step).collect();
    each(&points, |point| {
        let root = copy(root.path());
        if hit(&agent("revert", root.path(), &scene.config), point, "signal=SIGKILL").success() {
            return Err("it was not hit".to_owned());
        }
        recover_twice(root.path(), &scene.config)?;
        scene.one_or_the_other(root.path())
    });
}

#[test]
fn an_apply_takes_at_most_six_barriers() {
    for files in [5, 50, 500] {
        let dir = tempfile::tempdir().unwrap();
        let list: Vec<_> = (0..files)
            .map(|i| json!({"path": format!("/etc/d{}/{i}", i % 7), "contents": {"source": "data:,x"}}))
            .collect();
        let config = dir.path().join("c.json");
        let document = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": list}});
        fs::write(&config, serde_json::to_vec(&document).unwrap()).unwrap();
        let root = scratch();
        let log = dir.path().join("log");
        let points = points(&agent("apply", root.path(), &config), &log);
        let barriers = points
            .iter()
            .filter(|p| p.call == "syncfs" || p.call.contains("fsync") || p.call.contains("fdatasync"))
            .count();
        assert!((1..=6).contains(&barriers), "{files} files: {barriers} barriers");
    }
}
