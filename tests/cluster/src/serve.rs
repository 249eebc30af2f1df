//! Owns starting and ending: which parts run in this process, where they listen, the lines that tell people.
//! Given options, gives running parts and `ready`.
//! Never lets a part reach another but over HTTP: each gets its own kubeconfig.

use anyhow::Context as _;
use clap::ValueEnum;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::client::Client;
use crate::clock::Clock;
use crate::layout::{Layout, write_private};
use crate::{api, approve, mcs, render};

/// A part that can run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The Kubernetes-style API.
    Api,
    /// The machine config server.
    Mcs,
    /// MachineConfigs to rendered configs.
    Renderer,
    /// Certificate requests to approvals and read bindings.
    Approver,
}

/// How to serve.
#[derive(Debug, Clone)]
pub struct Options {
    /// Where state and kubeconfigs are.
    pub dir: PathBuf,
    /// Where the API listens.
    pub api: SocketAddr,
    /// Where the MCS listens.
    pub mcs: SocketAddr,
    /// Names for the certificates; the first one is in URLs.
    pub names: Vec<String>,
    /// Only these parts.
    pub only: Vec<Part>,
    /// Another kubeconfig for the parts than their own in `dir`.
    pub kubeconfig: Option<PathBuf>,
    /// Approve what the decision table allows; otherwise people approve.
    pub approve: bool,
    /// The MCS asks for no token.
    pub no_token: bool,
    /// The MachineConfig CRD has `spec.neededBeforeNodeApproved`.
    pub extended: bool,
    /// How long an approved bootstrap request may wait for its node to be in a read binding.
    pub signer_waits: std::time::Duration,
    /// What the MCS takes the time from.
    pub clock: Clock,
}

/// Serves until SIGTERM or SIGINT. Prints where everything is, then `ready`.
pub async fn run(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let (stop, stopped) = watch::channel(false);
    let started = tokio::select! {
        started = start(&options, stopped) => started?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    for line in started.lines {
        println!("{line}");
    }
    println!("ready");
    let mut tasks = started.tasks;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        // Parts run for ever: one that ends has failed, and half a control plane helps nobody.
        Some(ended) = tasks.join_next() => {
            ended.context("a part of the control plane crashed")?;
            anyhow::bail!("a part of the control plane ended by itself");
        }
    }
    stop.send_replace(true);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// What runs, and what to tell people.
pub struct Started {
    /// One line each.
    pub lines: Vec<String>,
    /// Everything that runs.
    pub tasks: tokio::task::JoinSet<()>,
}

/// Starts the parts; when this returns they all answer.
pub async fn start(options: &Options, stop: watch::Receiver<bool>) -> anyhow::Result<Started> {
    let layout =
        Layout::open(&options.dir).with_context(|| format!("cannot make {}", options.dir.display()))?;
    let wanted = |part| options.only.is_empty() || options.only.contains(&part);
    let dir = options.dir.display();
    let mut lines = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    if wanted(Part::Api) {
        let api = api::Options {
            layout: layout.clone(),
            listen: options.api,
            names: options.names.clone(),
            extended: options.extended,
            signer_waits: options.signer_waits,
        };
        let running = api::start(api, stop.clone()).await.context("cannot start the API")?;
        lines.push(format!("API            {}", running.url));
        lines.push(format!("API CA         {}", layout.certificate("serving-ca").display()));
        lines.push(format!("kubeconfig     {}", layout.kubeconfig("admin").display()));
        for task in running.tasks {
            tasks.spawn(async move { task.await.expect("the API's tasks do not panic") });
        }
    }
    let client = |part: &str| Client::open(options.kubeconfig.as_deref().unwrap_or(&layout.kubeconfig(part)));
    if wanted(Part::Renderer) {
        tasks.spawn(until(stop.clone(), render::run(client("renderer")?)));
    }
    if wanted(Part::Approver) {
        tasks.spawn(until(stop.clone(), approve::run(client("approver")?, options.approve)));
    }
    if wanted(Part::Mcs) {
        let mcs = mcs::Options {
            layout: layout.clone(),
            listen: options.mcs,
            names: options.names.clone(),
            gate: !options.no_token,
            clock: options.clock.clone(),
        };
        let running =
            mcs::start(mcs, client("mcs")?, stop).await.context("cannot start the machine config server")?;
        lines.push(format!("MCS            {}", running.url));
        lines.push(format!("MCS CA         {}", layout.mcs_bundle().display()));
        tasks.spawn(async move { running.task.await.expect("the MCS's task does not panic") });
        lines.push(format!("a token        oneboot-cluster token --dir {dir} new --pool worker"));
        lines.push(format!("a pointer      oneboot-cluster pointer --dir {dir} --pool worker"));
    }
    Ok(Started { lines, tasks })
}

async fn until(mut stop: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        () = work => {}
        _ = stop.wait_for(|stop| *stop) => {}
    }
}

/// Binds a listener. Port 0 is the port of last time if there was one, so that a restarted server is found again.
pub(crate) async fn bind(
    layout: &Layout,
    name: &str,
    listen: SocketAddr,
) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let file = layout.address(name);
    let last = std::fs::read_to_string(&file).ok().and_then(|text| text.trim().parse::<SocketAddr>().ok());
    let port = match (listen.port(), last) {
        (0, Some(last)) => last.port(),
        (port, _) => port,
    };
    let wanted = SocketAddr::new(listen.ip(), port);
    let listener = TcpListener::bind(wanted).await.with_context(|| {
        format!(
            "cannot listen on {wanted}; choose another address with --{name} ADDRESS:PORT (port 0 is any)"
        )
    })?;
    let address = listener.local_addr()?;
    write_private(&file, address.to_string().as_bytes())?;
    Ok((listener, address))
}

/// URL of a listener: the first name, and the port that it really has.
pub(crate) fn url(names: &[String], address: SocketAddr) -> String {
    let host = match (names.first(), address.ip()) {
        (Some(name), _) => name.clone(),
        (None, ip) if ip.is_unspecified() => IpAddr::from(Ipv4Addr::LOCALHOST).to_string(),
        (None, ip) => ip.to_string(),
    };
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    format!("https://{host}:{}", address.port())
}
