//! The command line from the outside: exit codes, refusals, interference, and what is never printed.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use nix::fcntl::{Flock, FlockArg};
use oneboot_agent::{apply, root::Root};
use serde_json::{Value, json};

use crate::support::{ignition, put, request, scratch, tree};

fn agent(root: &Path, args: &[&str], input: &Value) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_oneboot-agent"))
        .args(args)
        .arg("--root")
        .arg(root)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A command that takes no document has ended before it is written.
    let _ = child.stdin.take().unwrap().write_all(input.to_string().as_bytes());
    child.wait_with_output().unwrap()
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn config() -> Value {
    json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "/etc/sysctl.d/90-x.conf", "mode": 420, "contents": {"source": "data:,vm.x%3D1%0A"}},
        {"path": "/etc/secret", "mode": 384, "overwrite": true, "contents": {"source": "data:,hunter2"}}]}})
}

const DESIRED: [&str; 2] = ["--desired", "-"];

fn with<'a>(verb: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&[verb][..], &DESIRED, more].concat()
}

#[test]
fn from_plan_to_revert() {
    let root = scratch();
    put(root.path(), "etc/secret", "before", 0o600);
    let before = tree(root.path());
    let (code, out, _) = text(&agent(root.path(), &with("plan", &[]), &config()));
    assert_eq!(code, Some(0));
    assert!(
        out.contains("/etc/sysctl.d/90-x.conf") && out.contains("restart systemd-sysctl.service"),
        "{out}"
    );
    assert!(out.contains("2 changes") && out.ends_with("disruption: soft-reboot\n"), "{out}");
    assert_eq!(tree(root.path()), before, "planning changes nothing");

    let (code, ..) = text(&agent(root.path(), &with("verify", &[]), &config()));
    assert_eq!(code, Some(82));
    let (code, out, err) = text(&agent(root.path(), &with("apply", &[]), &config()));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("laid down; a soft-reboot finishes it"), "{out}");
    let (code, out, _) = text(&agent(root.path(), &with("verify", &[]), &config()));
    assert_eq!((code, out.as_str()), (Some(0), "valid: the tree is what the config asks for\n"));
    let (_, out, _) = text(&agent(root.path(), &with("plan", &[]), &config()));
    assert!(out.starts_with("nothing to do"), "{out}");

    let (code, out, err) = text(&agent(root.path(), &["revert"], &Value::Null));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.starts_with("the old tree is back"), "{out}");
    assert_eq!(tree(root.path()), before);
    let (code, _, err) = text(&agent(root.path(), &["revert"], &Value::Null));
    assert_eq!((code, err.contains("there is no apply to undo")), (Some(65), true), "{err}");
    let (code, out, _) = text(&agent(root.path(), &["recover"], &Value::Null));
    assert_eq!((code, out.as_str()), (Some(0), "nothing to recover: no apply was interrupted\n"));
}

#[test]
fn json_has_the_documented_shape() {
    let root = scratch();
    let (code, out, _) =
        text(&agent(root.path(), &with("plan", &["--json", "--unknown-path", "none"]), &config()));
    assert_eq!(code, Some(0));
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&plan["format"], &plan["phase"], &plan["disruption"]),
        (&json!(1), &json!("first-boot"), &json!("restart"))
    );
    let steps = plan["steps"].as_array().unwrap();
    let write = steps.iter().find(|s| s["path"] == "/etc/sysctl.d/90-x.conf").unwrap();
    assert_eq!(
        (&write["kind"], &write["from"], &write["disruption"]),
        (&json!("write"), &json!("absent"), &json!("restart"))
    );
    assert!(write["to"].as_str().unwrap().starts_with("sha256:"), "{write}");
    let restart = steps.iter().find(|s| s["unit"] == "systemd-sysctl.service").unwrap();
    assert_eq!(restart["kind"], "restart");
    for step in steps {
        assert!(step["path"].is_string() != step["unit"].is_string(), "{step}");
        assert_eq!(step.as_object().unwrap().len(), 6, "{step}");
    }
}

#[test]
fn secrets_are_never_printed() {
    let root = scratch();
    put(root.path(), "etc/secret", "old-secret", 0o600);
    for args in
        [with("plan", &["--json"]), with("plan", &["--diff"]), with("verify", &[]), with("apply", &[])]
    {
        let (_, out, err) = text(&agent(root.path(), &args, &config()));
        for secret in ["hunter2", "old-secret"] {
            assert!(!out.contains(secret) && !err.contains(secret), "{args:?}: {out} {err}");
        }
    }
    let other = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
        {"path": "/etc/sysctl.d/90-x.conf", "overwrite": true, "contents": {"source": "data:,vm.x%3D2%0A"}}]}});
    let (_, out, _) = text(&agent(root.path(), &with("plan", &["--diff"]), &other));
    assert!(out.contains("-vm.x=1\n+vm.x=2\n"), "what others may read is shown: {out}");
}

#[test]
fn bad_input_has_its_exit_code() {
    let root = scratch();
    let before = tree(root.path());
    let code = |args: &[&str], input: &Value| text(&agent(root.path(), args, input)).0;
    assert_eq!(code(&["plan"], &Value::Null), Some(64));
    assert_eq!(code(&["plan", "--desired", "/nowhere"], &Value::Null), Some(74));
    assert_eq!(code(&with("plan", &[]), &json!({"kind": "Pod"})), Some(65));
    let newer = json!({"ignition": {"version": "3.9.0"}});
    assert_eq!(code(&with("apply", &[]), &newer), Some(65));
    assert_eq!(tree(root.path()), before);
    assert!(!root.path().join("var/lib/oneboot").exists());
}

#[test]
fn a_cap_that_is_asked_for_holds_on_any_tree_and_without_one_a_tree_is_laid_down() {
    let root = scratch();
    let before = tree(root.path());
    let (code, _, err) =
        text(&agent(root.path(), &with("apply", &["--max-disruption", "restart"]), &config()));
    assert_eq!(code, Some(81), "{err}");
    assert!(err.contains("--max-disruption soft-reboot"), "{err}");
    assert_eq!(tree(root.path()), before);
    let joined = with("apply", &["--phase", "joined"]);
    let (code, out, err) = text(&agent(root.path(), &joined, &config()));
    assert_eq!(code, Some(0), "{err}");
    assert!(out.contains("laid down; a reboot finishes it"), "{out}");
}

#[test]
fn what_is_skipped_is_said_even_if_it_is_all_there_is() {
    let root = scratch();
    let units = json!({"ignition": {"version": "3.5.0"}, "systemd": {"units": [{"name": "nowhere.service", "enabled": true}]}});
    let (code, _, err) = text(&agent(root.path(), &with("apply", &[]), &units));
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("nowhere.service"), "{err}");
}

#[test]
fn a_state_folder_that_others_could_look_into_is_closed() {
    use std::os::unix::fs::PermissionsExt;
    let root = scratch();
    let state = root.path().join("var/lib/oneboot");
    fs::create_dir_all(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(text(&agent(root.path(), &with("apply", &[]), &config())).0, Some(0));
    assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o7777, 0o700);
}

#[test]
fn two_applies_at_once() {
    let root = scratch();
    let (code, ..) = text(&agent(root.path(), &with("apply", &[]), &config()));
    assert_eq!(code, Some(0));
    let lock = fs::File::open(root.path().join("var/lib/oneboot/lock")).unwrap();
    let held = Flock::lock(lock, FlockArg::LockExclusiveNonblock).unwrap();
    let before = tree(root.path());
    let other = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [{"path": "/etc/other"}]}});
    let (code, _, err) = text(&agent(root.path(), &with("apply", &[]), &other));
    assert_eq!((code, err.contains("/var/lib/oneboot/lock")), (Some(75), true), "{err}");
    assert_eq!(tree(root.path()), before);
    drop(held);
    assert_eq!(text(&agent(root.path(), &with("apply", &[]), &other)).0, Some(0));
}

/// Somebody works on the same file: the hook runs when the receipt is durable and the first step is about to be taken.
fn interfered(with: impl Fn(&Path)) -> (apply::Error, tempfile::TempDir) {
    let root = scratch();
    put(root.path(), "etc/a", "planned for this", 0o644);
    put(root.path(), "etc/b", "and this", 0o644);
    let file = |path: &str| json!({"path": path, "overwrite": true, "contents": {"source": "data:,new"}});
    let config = ignition(json!({"storage": {"files": [file("/etc/a"), file("/etc/b")]}}));
    let mut hook = |p: apply::Progress| {
        if p == apply::Progress::Phase("files") {
            with(root.path());
        }
    };
    let opened = Root::open(root.path()).unwrap();
    let e = apply::apply(&opened, &request(&config), &oneboot_agent::units::NoUnits, &mut hook).unwrap_err();
    (e, root)
}

#[test]
fn what_somebody_else_has_changed_is_left_alone() {
    let read = |root: &Path, path: &str| fs::read_to_string(root.join(path)).unwrap();
    let (e, root) = interfered(|root| fs::write(root.join("etc/b"), "edited").unwrap());
    assert!(
        matches!(&e, apply::Error::RolledBack { cause } if cause.starts_with("/etc/b is not what it was")),
        "{e}"
    );
    assert_eq!(
        (read(root.path(), "etc/a"), read(root.path(), "etc/b")),
        ("planned for this".into(), "edited".into())
    );

    let (e, root) = interfered(|root| fs::remove_file(root.join("etc/b")).unwrap());
    assert!(matches!(&e, apply::Error::RolledBack { .. }), "{e}");
    assert!(!root.path().join("etc/b").exists());
    assert_eq!(read(root.path(), "etc/a"), "planned for this");

    let (e, root) = interfered(|root| {
        fs::remove_file(root.join("etc/b")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", root.join("etc/b")).unwrap();
    });
    assert!(matches!(&e, apply::Error::RolledBack { .. }), "{e}");
    assert_eq!(fs::read_link(root.path().join("etc/b")).unwrap(), Path::new("/etc/passwd"));
    assert_eq!(read(root.path(), "etc/a"), "planned for this");
}

#[test]
fn the_last_three_receipts_are_kept_and_newer_ones_left_alone() {
    let root = scratch();
    for i in 0..5 {
        let config = json!({"ignition": {"version": "3.5.0"}, "storage": {"files": [
            {"path": "/etc/x", "mode": 384, "overwrite": true, "contents": {"source": format!("data:,secret-{i}")}}]}});
        assert_eq!(text(&agent(root.path(), &with("apply", &[]), &config)).0, Some(0));
    }
    let receipts = root.path().join("var/lib/oneboot/receipts");
    let mut names: Vec<_> =
        fs::read_dir(&receipts).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["000003", "000004", "000005"]);
    let newer = receipts.join("000006");
    fs::create_dir(&newer).unwrap();
    fs::write(newer.join("receipt.json"), r#"{"format": 2, "whatever": []}"#).unwrap();
    let before = tree(root.path());
    for verb in ["revert", "recover"] {
        let (code, _, err) = text(&agent(root.path(), &[verb], &Value::Null));
        assert_eq!((code, err.contains("receipt 6 has format 2")), (Some(65), true), "{err}");
    }
    let (code, _, err) = text(&agent(root.path(), &with("apply", &[]), &config()));
    assert_eq!((code, err.contains("receipt 6 has format 2")), (Some(65), true), "{err}");
    assert_eq!(tree(root.path()), before);
}
