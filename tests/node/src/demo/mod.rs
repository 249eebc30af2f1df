//! Owns: `cargo demo`: what is asked for on its command line, and the order of what happens.
//! Given options, gives a node (or several) taken from its first fetch to Settled against a control plane of its own, told as it goes
//! and as a timeline at the end.
//! Never: passes anything from one part to the next in memory: each part is a process that sees its files and sockets only.

mod journey;
mod progress;
mod timeline;

use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::input;
use crate::node::Node;
use crate::process::Programs;

use self::journey::Journey;
use self::progress::Progress;

/// What `cargo demo` understands.
#[derive(Debug, clap::Parser)]
#[command(
    name = "cargo demo",
    about = "One node from its first fetch to Settled, on loopback, with no reboot",
    max_term_width = 110
)]
pub struct Options {
    /// Print one JSON object on standard output instead of the timeline.
    #[arg(long)]
    json: bool,
    /// Make DIR, which must not exist, the node's root and leave it there (DIR/1, DIR/2, ... with --nodes).
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// A rendered MachineConfig of your own, served before approval; needs --post.
    #[arg(long, value_name = "FILE", requires = "post")]
    pre: Option<PathBuf>,
    /// The rendered MachineConfig that the node is to end up with; needs --pre.
    #[arg(long, value_name = "FILE", requires = "pre")]
    post: Option<PathBuf>,
    /// How many nodes go through at the same time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    nodes: u16,
}

/// Runs the demo.
///
/// # Errors
/// With the step that failed, what the program of that step printed last, and where the logs are.
pub fn run(options: &Options) -> anyhow::Result<()> {
    if let Some(dir) = &options.keep {
        anyhow::ensure!(
            !dir.exists(),
            "--keep {}: it exists already; name a folder that is not there yet",
            dir.display()
        );
    }
    let progress = Progress::start();
    let programs = Programs::beside_this()?;

    let scratch =
        tempfile::Builder::new().prefix("oneboot-demo-").tempdir().context("making a scratch folder")?;
    let result = go(options, &programs, scratch.path(), &progress);
    if result.is_err() {
        // Kept, because the logs are what explains a failure.
        eprintln!("the logs are in {}", scratch.keep().join("logs").display());
    }
    result
}

fn go(options: &Options, programs: &Programs, scratch: &Path, progress: &Progress) -> anyhow::Result<()> {
    let logs = scratch.join("logs");
    std::fs::create_dir(&logs).context("making the log folder")?;
    progress.say("cluster", "starting: API, MCS, renderer, approver");
    let cluster = Cluster::start(programs, &scratch.join("cluster"), &logs, &[])?;
    let pool = match (&options.pre, &options.post) {
        (Some(pre), Some(post)) => input::rendered(&cluster.admin, pre, post)?,
        _ => input::worker(&cluster.admin, scratch)?,
    };
    progress.say(
        "cluster",
        &format!("pool {pool} is rendered: one config to serve before approval, one for after"),
    );
    let pointer = input::pointer(&cluster.admin, &pool, scratch)?;
    progress.say("cluster", "a provisioning token is out, and a pointer config that carries it");

    let mut nodes = Vec::new();
    if let (Some(dir), true) = (&options.keep, options.nodes > 1) {
        std::fs::create_dir(dir).with_context(|| format!("creating {}", dir.display()))?;
    }
    for n in 1..=options.nodes {
        let root = match (&options.keep, options.nodes) {
            (Some(dir), 1) => dir.clone(),
            (Some(dir), _) => dir.join(n.to_string()),
            (None, _) => scratch.join(format!("root-{n}")),
        };
        let name = format!("{pool}-{n}.demo.internal");
        cluster.admin.command(&["machine", "add", &name, "--pool", &pool])?;
        nodes.push(Node::install(programs, &root, &name, &pool, &logs.join(&name))?);
    }

    let mut journeys: Vec<anyhow::Result<Journey>> = Vec::new();
    thread::scope(|scope| {
        let (cluster, pointer) = (&cluster.admin, pointer.as_path());
        let running: Vec<_> = nodes
            .iter()
            .map(|node| scope.spawn(move || journey::go(cluster, node, pointer, progress)))
            .collect();
        for one in running {
            journeys.push(one.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a journey panicked"))));
        }
    });
    let journeys = journeys.into_iter().collect::<anyhow::Result<Vec<Journey>>>()?;
    report(options, &pool, &journeys);
    Ok(())
}

fn report(options: &Options, pool: &str, journeys: &[Journey]) {
    if options.json {
        println!("{}", summary(pool, journeys));
        return;
    }
    for journey in journeys {
        println!("\n{}", journey.plan.trim_end());
        println!("\n{}", timeline::text(&journey.node, &journey.events));
        println!("{}", journey.line());
    }
}

/// The JSON object: the first node's figures on top, and with several nodes each of them below `nodes`.
fn summary(pool: &str, journeys: &[Journey]) -> Value {
    let each: Vec<Value> = journeys.iter().map(Journey::json).collect();
    let total = |key: &str| each.iter().filter_map(|one| one[key].as_u64()).sum::<u64>();
    let mut summary = each[0].clone();
    summary["pool"] = pool.into();
    if each.len() > 1 {
        let settled = each.iter().all(|one| one["state"] == "Settled");
        summary["state"] = if settled { "Settled".into() } else { "mixed".into() };
        for key in ["reboots", "files_written", "files_laid_down"] {
            summary[key] = json!(total(key));
        }
        summary["nodes"] = each.into();
    }
    summary
}
