//! Owns: `cargo demo`: what is asked for on its command line, the order of what happens, and the exit code.
//! Given arguments, gives a node (or several) taken from its first fetch to Settled against a control plane of its own, told as it goes
//! and as a timeline at the end.
//! Never: passes anything from one part to the next in memory: each part is a process that sees its files and sockets only.

mod exit;
mod journey;
mod progress;
mod supervise;
mod timeline;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::Context as _;
use clap::Parser as _;
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
    after_help = "Exit codes: 0 every node is Settled; 1 a step failed or a node is not (Blocked, RolledBack), the logs are \
        kept; 64 unusable arguments, nothing was started; 128+N ended by signal N, nothing is left but --keep's DIR.",
    max_term_width = 110
)]
struct Options {
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
    /// Where everything but the kept root is; whoever gives it removes it.
    #[arg(long, value_name = "DIR", hide = true)]
    scratch: Option<PathBuf>,
}

/// Arguments, the program's name first -> exit code.
pub fn main(mut arguments: Vec<OsString>) -> ExitCode {
    // `cargo demo -- --json` arrives with the separator still in it, `cargo demo --json` without: both mean the same.
    if arguments.get(1).is_some_and(|first| first == "--") {
        arguments.remove(1);
    }
    let options = match Options::try_parse_from(&arguments) {
        Ok(options) => options,
        Err(error) => {
            let code = if error.use_stderr() { exit::USAGE } else { 0 };
            let printed = error.print();
            return ExitCode::from(if printed.is_err() { exit::FAILURE } else { code });
        }
    };
    let ended = if let Some(scratch) = &options.scratch {
        run(&options, scratch).map(|()| 0)
    } else if let Err(why) = usable(&options) {
        eprintln!("oneboot-journey: {why:#}");
        return ExitCode::from(exit::USAGE);
    } else {
        supervise::run(&arguments[1..])
    };
    ended.map_or_else(
        |error| {
            eprintln!("oneboot-journey: {error:#}");
            ExitCode::from(exit::FAILURE)
        },
        ExitCode::from,
    )
}

/// What can be said against the arguments before anything is started.
fn usable(options: &Options) -> anyhow::Result<()> {
    if let Some(dir) = &options.keep {
        anyhow::ensure!(
            !dir.exists(),
            "--keep {}: it exists already; name a folder that is not there yet",
            dir.display()
        );
    }
    for (option, file) in [("--pre", &options.pre), ("--post", &options.post)] {
        if let Some(file) = file {
            std::fs::File::open(file).with_context(|| format!("{option} {}", file.display()))?;
        }
    }
    Ok(())
}

/// Runs the demo; an error is the step that failed, with what the program of that step printed last.
fn run(options: &Options, scratch: &Path) -> anyhow::Result<()> {
    let progress = &Progress::start();
    let programs = &Programs::beside_this()?;
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
