//! Owns: the control plane of a run: the `oneboot-cluster` processes and their data directory.
//! Given programs and a folder, gives a cluster that is ready, and its command line.
//! Never: reads the cluster's files itself; everything goes through the program, as an administrator would.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::process::{Child, Finished, Programs, finish};

/// A running control plane.
#[derive(Debug)]
pub struct Cluster {
    /// Its administrator's command line.
    pub admin: Admin,
    logs: PathBuf,
    options: Vec<String>,
    server: Child,
}

/// The administrator's side of a control plane: needs its data directory, not its process.
#[derive(Debug, Clone)]
pub struct Admin {
    programs: Programs,
    dir: PathBuf,
}

impl Cluster {
    /// Starts one on ports of loopback that are free, with its data in `dir`, and waits until it listens.
    ///
    /// # Errors
    /// When it does not get ready, with its last lines.
    pub fn start(programs: &Programs, dir: &Path, logs: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let admin = Admin { programs: programs.clone(), dir: dir.to_owned() };
        let server = serve(&admin, logs, &options)?;
        Ok(Self { admin, logs: logs.to_owned(), options, server })
    }

    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        self.server.kill();
    }

    /// Starts it again over the same data, on the same ports.
    ///
    /// # Errors
    /// As `start`.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.server = serve(&self.admin, &self.logs, &self.options)?;
        Ok(())
    }

    /// The process id of the server.
    pub fn pid(&self) -> u32 {
        self.server.pid()
    }
}

impl Admin {
    /// Runs one of its administrator's commands to the end, whatever that is.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn try_command(&self, args: &[&str]) -> anyhow::Result<Finished> {
        finish(self.programs.command("oneboot-cluster").args(args).arg("--dir").arg(&self.dir))
    }

    /// Runs one of its administrator's commands and returns what it printed.
    ///
    /// # Errors
    /// When it fails, with what it printed last.
    pub fn command(&self, args: &[&str]) -> anyhow::Result<String> {
        Ok(self.try_command(args)?.success(&format!("oneboot-cluster {}", args.join(" ")))?.stdout)
    }

    /// One object as JSON.
    ///
    /// # Errors
    /// When it is not there.
    pub fn get(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let text = self.command(&["get", kind, name, "-o", "json"])?;
        serde_json::from_str(&text).with_context(|| format!("reading {kind} {name}"))
    }

    /// All objects of a kind.
    ///
    /// # Errors
    /// When the API does not answer.
    pub fn list(&self, kind: &str) -> anyhow::Result<Vec<Value>> {
        let text = self.command(&["get", kind, "-o", "json"])?;
        let list: Value = serde_json::from_str(&text).with_context(|| format!("reading {kind}"))?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }
}

fn serve(admin: &Admin, logs: &Path, options: &[String]) -> anyhow::Result<Child> {
    let mut command = admin.programs.command("oneboot-cluster");
    command
        .arg("serve")
        .arg("--dir")
        .arg(&admin.dir)
        .args(["--api", "127.0.0.1:0", "--mcs", "127.0.0.1:0"])
        .args(options);
    let mut server = Child::start("oneboot-cluster", &mut command, &logs.join("cluster.log"))?;
    server.wait_for(|line| (line.trim() == "ready").then_some(()))?;
    Ok(server)
}
