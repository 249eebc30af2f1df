//! Owns: what the tests put around the real binary: a certificate maker, a TLS server, a scratch node.
//! Given a script of answers, gives what was asked and what the program left behind.
//! Never: touches anything outside its temporary directory and loopback.

#![allow(dead_code, missing_docs, unreachable_pub)] // each test binary uses its part of this
#![allow(clippy::unwrap_used, clippy::must_use_candidate)] // a failed step of the set-up is a failed test

pub mod pki;
pub mod server;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub const TOKEN: &str = "dGhpcy1pcy10aGUtc2VjcmV0LXRva2VuLW9mLXRoZS10ZXN0";

/// A scratch root with a pointer, a token, and what a run left in it.
pub struct Node {
    pub dir: tempfile::TempDir,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
}

pub struct Ran {
    pub code: i32,
    pub stderr: String,
    pub stdout: String,
}

impl Node {
    /// With this pointer, and the token in a file.
    pub fn new(pointer: &str) -> Self {
        let node = Self { dir: tempfile::tempdir().unwrap(), arguments: Vec::new(), environment: Vec::new() };
        node.put("pointer.ign", pointer);
        node.put("token", TOKEN);
        node
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn put(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    pub fn with_token(self) -> Self {
        let file = self.path("token");
        self.with(&["--token-file", file.to_str().unwrap()])
    }

    pub fn fragment(self, text: &str) -> Self {
        self.put("etc/oneboot/firstboot.d/test.toml", text);
        self
    }

    /// `fetch --root DIR --pointer DIR/pointer.ign` and whatever was added.
    pub fn fetch(&self) -> Ran {
        let pointer = self.path("pointer.ign");
        self.run(&["fetch", "--pointer", pointer.to_str().unwrap()])
    }

    pub fn run(&self, first: &[&str]) -> Ran {
        let output = Command::new(env!("CARGO_BIN_EXE_oneboot-firstboot"))
            .args(first)
            .arg("--root")
            .arg(self.dir.path())
            .args(&self.arguments)
            .env_remove("CREDENTIALS_DIRECTORY")
            .envs(self.environment.iter().cloned())
            .output()
            .unwrap();
        Ran::from(output)
    }

    pub fn out(&self) -> PathBuf {
        self.path("run/ignition/user.ign")
    }

    pub fn handed_over(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.out()).unwrap()).unwrap()
    }

    pub fn report(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path("run/oneboot/firstboot.json")).unwrap()).unwrap()
    }

    /// Nothing of ours is there: neither a config nor, where it is not our boot, a report.
    pub fn assert_nothing_handed_over(&self) {
        assert!(!self.out().exists(), "a config was handed over");
        assert!(
            !self.path("run/ignition").exists()
                || std::fs::read_dir(self.path("run/ignition")).unwrap().count() == 0
        );
    }

    /// The token is in no file but the ones it was put into, and in no output.
    pub fn assert_token_nowhere(&self, ran: &Ran) {
        for text in [&ran.stderr, &ran.stdout] {
            assert!(!text.contains(TOKEN), "the token is in the output");
        }
        for name in ["run"] {
            if self.path(name).exists() {
                search(&self.path(name));
            }
        }
    }
}

fn search(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            search(&path);
        } else {
            let content = std::fs::read(&path).unwrap();
            let found = content.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
            assert!(!found, "the token is in {}", path.display());
        }
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("no signal"),
            stderr: String::from_utf8(output.stderr).unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
        }
    }
}

impl Ran {
    #[track_caller]
    pub fn assert(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{}", self.stderr);
        self
    }

    #[track_caller]
    pub fn says(&self, words: &str) -> &Self {
        assert!(self.stderr.contains(words), "{words:?} is not in: {}", self.stderr);
        self
    }
}

/// A pointer as the operator renders it.
pub fn pointer(url: &str, ca: &str) -> String {
    pointer_with(&format!(r#"{{"source":"{url}","verification":{{}}}}"#), &[ca])
}

/// A pointer with this entry and these PEM bundles.
pub fn pointer_with(entry: &str, authorities: &[&str]) -> String {
    use base64::Engine;
    let encode = |pem: &&str| {
        let data = base64::engine::general_purpose::STANDARD.encode(pem);
        format!(r#"{{"source":"data:text/plain;charset=utf-8;base64,{data}","verification":{{}}}}"#)
    };
    let authorities: Vec<String> = authorities.iter().map(encode).collect();
    format!(
        r#"{{"ignition":{{"config":{{"merge":[{entry}],"replace":{{"verification":{{}}}}}},"proxy":{{}},"security":{{"tls":{{"certificateAuthorities":[{}]}}}},"timeouts":{{}},"version":"3.2.0"}},"passwd":{{}},"storage":{{}},"systemd":{{}}}}"#,
        authorities.join(",")
    )
}

/// A small rendered config.
pub const CONFIG: &str = r#"{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,a"}}]}}"#;

/// The config behind a `data:` URL of ours.
pub fn embedded(entry: &Value) -> String {
    let source = entry["source"].as_str().unwrap();
    String::from_utf8(oneboot_firstboot::dataurl::decode(source).unwrap()).unwrap()
}
