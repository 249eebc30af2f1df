//! Owns: one test's world: a scratch folder, a control plane, and nodes.
//! Given which MachineConfigs the pool has, gives a cluster that has rendered them, a pointer with a token, and installed nodes.
//! Never: shares anything with another test.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use oneboot_node::cluster::{Admin, Cluster};
use oneboot_node::input;
use oneboot_node::node::{Node, paths};
use oneboot_node::process::{Child, Programs};
use oneboot_node::tree::Tree;

/// What may change below a node's root when nothing of the configuration does: our own state and report.
pub const OURS: [&str; 2] = ["run/oneboot", "var/lib/oneboot"];

/// A control plane and what a node needs to meet it.
pub struct World {
    /// The control plane.
    pub cluster: Cluster,
    /// The pool that is rendered.
    pub pool: String,
    /// A pointer with a token that is good.
    pub pointer: PathBuf,
    programs: Programs,
    scratch: TempDir,
}

impl World {
    /// With the project's own worker MachineConfigs.
    ///
    /// # Errors
    /// When any part of it does not start.
    pub fn with_worker(options: &[&str]) -> anyhow::Result<Self> {
        Self::with(options, input::worker)
    }

    /// With two rendered MachineConfigs of pool `worker`.
    ///
    /// # Errors
    /// When any part of it does not start.
    pub fn with_rendered(options: &[&str], pre: &Value, post: &Value) -> anyhow::Result<Self> {
        Self::with(options, |cluster, scratch| {
            let (pre_file, post_file) = (scratch.join("pre.json"), scratch.join("post.json"));
            fs::write(&pre_file, pre.to_string()).context("writing pre")?;
            fs::write(&post_file, post.to_string()).context("writing post")?;
            input::rendered(cluster, &pre_file, &post_file)
        })
    }

    /// With two rendered MachineConfigs of files that are there already.
    ///
    /// # Errors
    /// When any part of it does not start.
    pub fn with_files(options: &[&str], pre: &Path, post: &Path) -> anyhow::Result<Self> {
        Self::with(options, |cluster, _| input::rendered(cluster, pre, post))
    }

    fn with(
        options: &[&str],
        fill: impl FnOnce(&Admin, &Path) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir().context("making a scratch folder")?;
        let programs = Programs::beside_this()?;
        let cluster = Cluster::start(&programs, &scratch.path().join("cluster"), scratch.path(), options)?;
        let pool = fill(&cluster.admin, scratch.path())?;
        let pointer = input::pointer(&cluster.admin, &pool, scratch.path())?;
        Ok(Self { cluster, pool, pointer, programs, scratch })
    }

    /// A node with a Machine, installed and switched off.
    ///
    /// # Errors
    /// When its root cannot be made.
    pub fn node(&self, name: &str) -> anyhow::Result<Node> {
        self.cluster.admin.command(&["machine", "add", name, "--pool", &self.pool])?;
        Node::install(
            &self.programs,
            &self.scratch.path().join(name),
            name,
            &self.pool,
            &self.scratch.path().join("logs").join(name),
        )
    }

    /// A node that has gone as far as its switch of roots: pre-approved configuration and report in place.
    ///
    /// # Errors
    /// When one of the steps fails.
    pub fn booted_node(&self, name: &str) -> anyhow::Result<Node> {
        let node = self.node(name)?;
        node.fetch(&self.pointer, &[])?.success("fetch")?;
        node.lay_down()?.success("laying down")?;
        node.keep_report()?;
        Ok(node)
    }

    /// The good pointer, to put a defect into.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pointer_json(&self) -> anyhow::Result<Value> {
        let text = fs::read_to_string(&self.pointer).context("reading the pointer")?;
        serde_json::from_str(&text).context("the pointer is JSON")
    }

    /// Writes a pointer and gives its path, which is outside every root.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_pointer(&self, pointer: &Value) -> anyhow::Result<PathBuf> {
        let path = self.scratch.path().join("defective-pointer.ign");
        fs::write(&path, pointer.to_string()).context("writing a pointer")?;
        Ok(path)
    }

    /// The scratch folder.
    pub fn path(&self) -> &Path {
        self.scratch.path()
    }

    /// The token that the pointer carries.
    ///
    /// # Errors
    /// When the pointer has none.
    pub fn token(&self) -> anyhow::Result<String> {
        let pointer = self.pointer_json()?;
        let header = pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"].as_str();
        let token = header
            .and_then(|value| value.strip_prefix("Bearer "))
            .context("the pointer carries a bearer token")?;
        Ok(token.to_owned())
    }

    /// The MCS address as `https://host:port`.
    ///
    /// # Errors
    /// When the pointer has no source.
    pub fn mcs(&self) -> anyhow::Result<String> {
        let pointer = self.pointer_json()?;
        let source = pointer["ignition"]["config"]["merge"][0]["source"]
            .as_str()
            .context("the pointer has a source")?;
        let end = source.find("/config/").context("the source names a pool")?;
        Ok(source[..end].to_owned())
    }

    /// The full rendered config of the pool, from the API.
    ///
    /// # Errors
    /// When the pool has none.
    pub fn full_config(&self) -> anyhow::Result<Value> {
        let pool = self.cluster.admin.get("machineconfigpool", &self.pool)?;
        let name = pool["spec"]["configuration"]["name"].as_str().context("the pool is rendered")?;
        self.cluster.admin.get("machineconfig", name)
    }
}

/// Everything below a node's root but what is ours to write.
///
/// # Errors
/// When it cannot be read.
pub fn configuration(node: &Node) -> anyhow::Result<Tree> {
    Tree::of(node.root(), &OURS)
}

/// Waits until the agent shows what `wanted` looks for. The agent prints a line after each change of what it shows.
///
/// # Errors
/// When the agent ends before.
pub fn agent_shows<T>(
    node: &Node,
    agent: &mut Child,
    mut wanted: impl FnMut(&Value) -> Option<T>,
) -> anyhow::Result<T> {
    agent.wait_for(|_| wanted(&node.json(paths::AGENT).ok()?))
}

/// Waits until the agent is in `state`, and gives the reason it shows.
///
/// # Errors
/// When the agent ends before.
pub fn agent_reaches(node: &Node, agent: &mut Child, state: &str) -> anyhow::Result<String> {
    agent_shows(node, agent, |shown| {
        (shown["state"] == state).then(|| shown["reason"].as_str().unwrap_or_default().to_owned())
    })
}

/// A small rendered MachineConfig of pool `worker`.
pub fn rendered(hash: &str, config: &Value) -> Value {
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": format!("rendered-worker-{hash}") },
        "spec": {
            "baseOSExtensionsContainerImage": "", "config": config, "extensions": [], "fips": false,
            "kernelArguments": [], "kernelType": "default", "osImageURL": "",
        },
    })
}

/// A small Ignition config with these files, each with its path as content.
pub fn files(list: &[&str]) -> Value {
    let entries: Vec<Value> = list
        .iter()
        .map(|path| json!({ "path": path, "mode": 420, "overwrite": true, "contents": { "source": format!("data:,content-of{path}") } }))
        .collect();
    json!({ "ignition": { "version": "3.5.0" }, "storage": { "files": entries } })
}
