//! What `systemd/` installs, looked at with systemd's own tools.

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
};

use oneboot_agent::{config, root::Root};

const UNITS: [&str; 2] = ["oneboot-agent.service", "oneboot-recover.service"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../systemd")
}

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

/// An image with the agent in it.
fn image() -> tempfile::TempDir {
    let image = tempfile::tempdir().unwrap();
    let installed = Command::new(sources().join("install"))
        .arg(env!("CARGO_BIN_EXE_oneboot-agent"))
        .env("DESTDIR", image.path())
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    image
}

/// What systemd has to say about the units, among this machine's own: nothing, if all is well.
fn verified(image: &Path) -> String {
    let units = image.join("usr/lib/systemd/system");
    let copied = run("cp", &["--archive", "--no-clobber", "/lib/systemd/system/.", units.to_str().unwrap()]);
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    let root = format!("--root={}", image.display());
    let said = run("systemd-analyze", &[&["verify", &root][..], &UNITS].concat());
    String::from_utf8(said.stderr).unwrap()
}

#[test]
fn systemd_understands_every_line_and_finds_no_cycle() {
    assert_eq!(verified(image().path()), "");
}

#[test]
fn a_misspelt_option_would_be_found() {
    let image = image();
    let unit = image.path().join("usr/lib/systemd/system").join(UNITS[0]);
    let text = std::fs::read_to_string(&unit).unwrap();
    std::fs::write(&unit, text.replace("LockPersonality=", "LockPersonalty=")).unwrap();
    let said = verified(image.path());
    assert!(said.contains("Unknown key 'LockPersonalty'") || said.contains("Unknown key name"), "{said}");
}

#[test]
fn the_exposure_is_not_above_the_readmes_figure() {
    let readme = std::fs::read_to_string(sources().join("README.md")).unwrap();
    for unit in UNITS {
        let row = readme.lines().find(|line| line.starts_with(&format!("| `{unit}` |"))).expect("a row");
        let figure: f64 = row.split('|').nth(2).unwrap().trim().parse().unwrap();
        // The threshold is in tenths.
        let threshold = format!("--threshold={:.0}", figure * 10.0);
        let path = sources().join(unit);
        let args = ["security", "--offline=true", "--no-pager", &threshold, path.to_str().unwrap()];
        let said = run("systemd-analyze", &args);
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stdout));
    }
}

#[test]
fn the_preset_enables_the_service_and_recovery_needs_none() {
    let image = image();
    let root = format!("--root={}", image.path().display());
    let preset = run("systemctl", &[&root, "preset", UNITS[0]]);
    assert!(preset.status.success(), "{}", String::from_utf8_lossy(&preset.stderr));
    let wanted = image.path().join("etc/systemd/system/multi-user.target.wants").join(UNITS[0]);
    assert!(wanted.symlink_metadata().is_ok());
    let recovery = image.path().join("usr/lib/systemd/system/sysinit.target.wants").join(UNITS[1]);
    assert!(recovery.exists(), "the link leads to the unit");
}

#[test]
fn the_default_fragment_says_what_the_program_does_anyway() {
    let image = image();
    let root = Root::open(image.path()).unwrap();
    let (read, unknown) = config::read(&root).unwrap();
    assert_eq!(unknown, []);
    let defaults = config::Settings::default();
    assert_eq!(
        (
            read.join.value,
            read.enroll_timeout.value,
            read.mcd.value,
            read.cordon.value,
            read.health_timeout.value
        ),
        (
            defaults.join.value,
            defaults.enroll_timeout.value,
            defaults.mcd.value,
            defaults.cordon.value,
            defaults.health_timeout.value
        )
    );
    assert_eq!(
        (read.max_disruption, read.unknown_path, read.pool),
        (defaults.max_disruption, defaults.unknown_path, defaults.pool)
    );
    assert!(read.join.from.is_some(), "it was read from the fragment");
}
