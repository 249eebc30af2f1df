//! What the demo says to arguments that it cannot use.

use std::fs;
use std::process::Command;

#[test]
fn unusable_arguments_have_their_own_code() {
    let tmp = tempfile::tempdir().expect("a scratch folder");
    fs::write(tmp.path().join("mine"), "precious").expect("a file");
    let dir = tmp.path().to_str().expect("UTF-8");
    let nowhere = format!("{dir}/nowhere.json");
    for (arguments, says) in [
        (vec!["--keep", dir], "exists already"),
        (vec!["--nodes", "0"], "--nodes"),
        (vec!["--pre", &nowhere, "--post", &nowhere], "nowhere.json"),
        (vec!["--nonsense"], "Usage"),
    ] {
        let demo = Command::new(env!("CARGO_BIN_EXE_oneboot-journey"))
            .args(&arguments)
            .env("TMPDIR", tmp.path())
            .output()
            .expect("it runs");
        let stderr = String::from_utf8_lossy(&demo.stderr);
        assert_eq!(demo.status.code(), Some(64), "{arguments:?}: {stderr}");
        assert!(stderr.contains(says), "{arguments:?}: {stderr}");
        assert_eq!(fs::read_dir(tmp.path()).expect("a folder").count(), 1, "{arguments:?}: nothing was made");
    }
}
