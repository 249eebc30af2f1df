//! Owns: one node of a run: its root directory, and the programs that run on it.
//! Given a root, a name and a pool, gives each program of the node's journey as a process that sees only the node's files.
//! Never: touches the root itself, but for what an image or a unit would have put there, and says which.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::Value;

use crate::process::{Child, Finished, Programs, finish};

/// A node.
#[derive(Debug)]
pub struct Node {
    programs: Programs,
    root: PathBuf,
    name: String,
    pool: String,
    logs: PathBuf,
}

/// Paths below a node's root that more than one step looks at.
pub mod paths {
    /// What firstboot hands to Ignition.
    pub const USER_IGN: &str = "run/ignition/user.ign";
    /// firstboot's report, and where the real root keeps it.
    pub const REPORT: &str = "run/oneboot/firstboot.json";
    /// The copy that survives.
    pub const REPORT_KEPT: &str = "var/lib/oneboot/firstboot.json";
    /// What the agent shows.
    pub const AGENT: &str = "run/oneboot/agent.json";
    /// What the agent remembers.
    pub const STATE: &str = "var/lib/oneboot/state.json";
}

impl Node {
    /// Makes a root as an image would have it: account files, a host name, vendor units.
    ///
    /// # Errors
    /// When `root` exists, or cannot be written.
    pub fn install(
        programs: &Programs,
        root: &Path,
        name: &str,
        pool: &str,
        logs: &Path,
    ) -> anyhow::Result<Self> {
        fs::create_dir(root).with_context(|| format!("creating the node's root {}", root.display()))?;
        copy_tree(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/image"), root)?;
        // Folders that an image has and git cannot keep.
        for folder in ["etc/kubernetes/cni/net.d", "home/core", "run", "var/lib"] {
            fs::create_dir_all(root.join(folder)).with_context(|| format!("creating {folder}"))?;
        }
        fs::write(root.join("etc/hostname"), format!("{name}\n")).context("naming the node")?;
        fs::create_dir_all(logs).with_context(|| format!("creating {}", logs.display()))?;
        Ok(Self {
            programs: programs.clone(),
            root: root.to_owned(),
            name: name.to_owned(),
            pool: pool.to_owned(),
            logs: logs.to_owned(),
        })
    }

    /// Its root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A path below its root.
    pub fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }

    /// `oneboot-firstboot fetch`, as the initramfs unit runs it, with `extra` options.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn fetch(&self, pointer: &Path, extra: &[&str]) -> anyhow::Result<Finished> {
        let mut command = self.programs.command("oneboot-firstboot");
        command.arg("fetch").arg("--root").arg(&self.root).arg("--pointer").arg(pointer).args(extra);
        self.logged("firstboot", finish(&mut command)?)
    }

    /// Starts the same, for a test that does something while it waits.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_fetch(&self, pointer: &Path, extra: &[&str]) -> anyhow::Result<Child> {
        let mut command = self.programs.command("oneboot-firstboot");
        command.arg("fetch").arg("--root").arg(&self.root).arg("--pointer").arg(pointer).args(extra);
        Child::start("oneboot-firstboot", &mut command, &self.log("firstboot"))
    }

    /// `oneboot-firstboot report`, as the initramfs unit runs it after either end of `fetch`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn report(&self, pointer: &Path) -> anyhow::Result<Finished> {
        let mut command = self.programs.command("oneboot-firstboot");
        command.arg("report").arg("--root").arg(&self.root).arg("--pointer").arg(pointer);
        self.logged("report", finish(&mut command)?)
    }

    /// What the unit in the real root does with the report: one copy, 0600, that outlives `/run`.
    ///
    /// # Errors
    /// When there is no report.
    pub fn keep_report(&self) -> anyhow::Result<()> {
        let kept = self.path(paths::REPORT_KEPT);
        let folder = kept.parent().context("a path below the root")?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o700)).context("closing the state folder")?;
        let report = self.path(paths::REPORT);
        fs::copy(&report, &kept).with_context(|| format!("keeping {}", report.display()))?;
        fs::set_permissions(&kept, fs::Permissions::from_mode(0o600)).context("closing the kept report")
    }

    /// Lays the pre-approved configuration down. On a machine this is Ignition's files stage; here the agent plays it.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn lay_down(&self) -> anyhow::Result<Finished> {
        let mut command = self.agent_command(&["apply"]);
        command.arg("--desired").arg(self.path(paths::USER_IGN));
        self.logged("lay-down", finish(&mut command)?)
    }

    /// Starts the kubelet stand-in.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_kubelet(&self) -> anyhow::Result<Child> {
        let mut command = self.programs.command("oneboot-kubelet");
        command.arg("--root").arg(&self.root).arg("--node-name").arg(&self.name);
        command.arg("--node-label").arg(format!("node-role.kubernetes.io/{}=", self.pool));
        Child::start("oneboot-kubelet", &mut command, &self.log("kubelet"))
    }

    /// Starts `oneboot-agent run`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_agent(&self) -> anyhow::Result<Child> {
        Child::start("oneboot-agent", &mut self.agent_command(&["run"]), &self.log("agent"))
    }

    /// Runs one of the agent's commands on this root to its end.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn agent(&self, args: &[&str]) -> anyhow::Result<Finished> {
        finish(&mut self.agent_command(args))
    }

    /// What the network operator's pod leaves behind once it runs here: the kubelet is Ready from then on.
    ///
    /// # Errors
    /// When the root cannot be written.
    pub fn bring_up_network(&self) -> anyhow::Result<()> {
        let dir = self.path("etc/kubernetes/cni/net.d");
        fs::create_dir_all(&dir).with_context(|| format!("creating {}", dir.display()))?;
        fs::write(
            dir.join("10-ovn-kubernetes.conf"),
            "{\"cniVersion\":\"0.4.0\",\"name\":\"ovn-kubernetes\",\"type\":\"ovn-k8s-cni-overlay\"}\n",
        )
        .context("leaving a CNI configuration")
    }

    /// One of the node's JSON files.
    ///
    /// # Errors
    /// When it is not there, or not JSON.
    pub fn json(&self, below: &str) -> anyhow::Result<Value> {
        let path = self.path(below);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))
    }

    /// The state the agent shows, when it shows one.
    pub fn state(&self) -> Option<String> {
        Some(self.json(paths::AGENT).ok()?["state"].as_str()?.to_owned())
    }

    /// What one of its programs printed on standard error.
    pub fn log(&self, program: &str) -> PathBuf {
        self.logs.join(format!("{program}.log"))
    }

    /// What one of its programs printed on standard output.
    pub fn output(&self, program: &str) -> PathBuf {
        self.logs.join(format!("{program}.out"))
    }

    fn agent_command(&self, args: &[&str]) -> std::process::Command {
        let mut command = self.programs.command("oneboot-agent");
        command.args(args).arg("--root").arg(&self.root);
        command
    }

    fn logged(&self, program: &str, finished: Finished) -> anyhow::Result<Finished> {
        for (path, text) in [(self.log(program), &finished.stderr), (self.output(program), &finished.stdout)]
        {
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        }
        Ok(finished)
    }
}

/// Copies a tree of plain files and folders.
fn copy_tree(from: &Path, to: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("listing {}", from.display()))? {
        let entry = entry.with_context(|| format!("listing {}", from.display()))?;
        let target = to.join(entry.file_name());
        if entry.file_type().with_context(|| format!("looking at {}", entry.path().display()))?.is_dir() {
            fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target).with_context(|| format!("copying to {}", target.display()))?;
        }
    }
    Ok(())
}
