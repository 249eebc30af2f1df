//! Owns: one node's way through the demo.
//! Given a cluster, an installed node and a pointer, starts each program of the node in its order and gives what they left behind.
//! Never: takes a program's word for the end: the kept root is verified, and the figures are read from the node's files.

use std::path::Path;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::clock::boottime_us;
use crate::cluster::Admin;
use crate::node::{Node, paths};

use super::progress::Progress;
use super::timeline::{self, Event};

/// What is left of a journey.
pub(super) struct Journey {
    pub(super) node: String,
    pub(super) events: Vec<Event>,
    /// The plan as the agent prints it for people.
    pub(super) plan: String,
    state: String,
    config: String,
    laid_down: u64,
    written: u64,
    reboots: u64,
    /// What a running node would still have to do; nothing for what the demo has by default.
    needed: Option<String>,
}

impl Journey {
    /// The line that says how it ended.
    pub(super) fn line(&self) -> String {
        use std::fmt::Write as _;

        let mut line = format!(
            "{}: {}, {} files laid down before approval, {} files written live, {} reboots",
            self.node, self.state, self.laid_down, self.written, self.reboots
        );
        if let Some(kind) = &self.needed {
            // A scratch root has nothing to reboot, and a demo that kept quiet about it would be a lie.
            let _ = write!(line, "; on a running node a {kind} would finish it");
        }
        line
    }

    /// The same, and the timeline, as JSON.
    pub(super) fn json(&self) -> Value {
        json!({
            "node": self.node,
            "config": self.config,
            "state": self.state,
            "reboots": self.reboots,
            "files_written": self.written,
            "files_laid_down": self.laid_down,
            "reboot_needed": self.needed,
            "timeline": timeline::json(&self.events),
        })
    }
}

/// Takes `node` from its first fetch to the end.
pub(super) fn go(
    cluster: &Admin,
    node: &Node,
    pointer: &Path,
    progress: &Progress,
) -> anyhow::Result<Journey> {
    let mut events = vec![Event::new(boottime_us(), "node", "powers on")];

    node.fetch(pointer, &[])?.success("oneboot-firstboot fetch")?;
    let report = node.json(paths::REPORT)?;
    let size = report["config"]["size"].as_u64().unwrap_or(0);
    progress.say(
        node.name(),
        &format!("firstboot: {} KB fetched with the token, which is gone now", size / 1000),
    );

    let started = boottime_us();
    let laid_down = to_lay_down(node)?;
    node.lay_down()?.success("laying the pre-approved config down")?;
    events.push(
        Event::new(started, "ignition", "files stage (oneboot-agent apply plays it)").until(boottime_us()),
    );
    node.keep_report()?;
    progress.say(node.name(), &format!("{laid_down} files are laid down; switching root"));

    events.push(Event::new(boottime_us(), "node", "switches root; kubelet and agent start"));
    let mut agent = node.start_agent()?;
    let mut kubelet = node.start_kubelet()?;
    follow(node, &mut agent, progress)?;
    agent.wait()?; // it hands the node to the Machine Config Daemon, and is done

    // Settled before anything is scheduled: only now does the node get its network, and the kubelet says Ready.
    node.bring_up_network()?;
    kubelet.wait_for(|line| line.contains("\"node-ready\"").then_some(()))?;

    let state = node.json(paths::STATE)?;
    let config = node.json("etc/machine-config-daemon/currentconfig")?["metadata"]["name"]
        .as_str()
        .context("currentconfig has no name")?
        .to_owned();
    let desired = cluster.command(&["get", "machineconfig", &config, "-o", "json"])?;
    let file = node.log("desired");
    std::fs::write(&file, desired).context("writing the full config")?;
    let file = file.to_str().context("the scratch folder's name is not UTF-8")?;
    node.agent(&["verify", "--desired", file])?.success("oneboot-agent verify")?;
    progress.say(node.name(), "verified: the Machine Config Daemon would find nothing to do");

    timeline::add_firstboot(&mut events, &report);
    timeline::add_kubelet(&mut events, &std::fs::read_to_string(node.output("kubelet")).unwrap_or_default());
    timeline::add_agent(&mut events, &state);
    events.sort_by_key(|event| event.at_us);
    Ok(Journey {
        node: node.name().to_owned(),
        events,
        plan: std::fs::read_to_string(node.output("agent"))
            .context("reading the plan that the agent printed")?,
        state: node.state().context("the agent shows no state")?,
        config,
        laid_down,
        written: state["files_written"].as_u64().context("state.json has no files_written")?,
        reboots: state["reboots_taken"].as_u64().context("state.json has no reboots_taken")?,
        needed: state["reboot_needed"].as_str().map(str::to_owned),
    })
}

/// Passes on what the agent says until it has settled, or needs somebody.
fn follow(node: &Node, agent: &mut crate::process::Child, progress: &Progress) -> anyhow::Result<()> {
    let ended = agent.wait_for(|line| {
        if line.is_log {
            progress.say(node.name(), line); // its output is the plan, which comes at the end
        }
        match node.state().as_deref() {
            Some("Settled") => Some(Ok(())),
            Some(stuck @ ("Blocked" | "RolledBack")) => {
                Some(Err(anyhow::anyhow!("the agent is {stuck}: {}", line.text)))
            }
            _ => None,
        }
    });
    match ended {
        Ok(verdict) => verdict,
        Err(_) if node.state().as_deref() == Some("Settled") => Ok(()), // its last line came before the file
        Err(error) => Err(error),
    }
}

/// How many files the pre-approved config brings, by the agent's own plan.
fn to_lay_down(node: &Node) -> anyhow::Result<u64> {
    let desired = node.path(paths::USER_IGN);
    let desired = desired.to_str().context("the node's root is not UTF-8")?;
    let planned = node.agent(&["plan", "--json", "--desired", desired])?.success("oneboot-agent plan")?;
    let plan: Value = serde_json::from_str(&planned.stdout).context("reading the plan")?;
    let writes = plan["steps"].as_array().into_iter().flatten().filter(|step| step["kind"] == "write");
    Ok(writes.count() as u64)
}
