//! Owns: what a kubelet does between its first start and a registered Node, as `/var/lib/kubelet` and the API see it.
//! Given a node's root and name, gives the files in the kubelet's own order (facts/trust.md 2.1): kubeconfig first, then per attempt
//! a fresh key in memory, a CSR, and once it is signed the pem and its symlink; then the Node object.
//! Never: runs containers, or tells the agent anything but through those files and the API.

mod bootstrap;
mod client;
mod kubeconfig;
mod register;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;

pub use bootstrap::Backoff;

/// What the kubelet stand-in is told on its command line.
#[derive(Debug, clap::Parser)]
#[command(name = "oneboot-kubelet", about = "A kubelet's bootstrap, and nothing else of a kubelet")]
pub struct Options {
    /// The node's root directory.
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// The node's name; the real one takes `--hostname-override` or the host name.
    #[arg(long, value_name = "NAME")]
    pub node_name: String,
    /// Labels the Node registers with, as `key=value` (the real one: `--node-labels`).
    #[arg(long = "node-label", value_name = "KEY=VALUE")]
    pub node_labels: Vec<String>,
    /// Give up on one CSR after this many seconds (the real one: 15 minutes, `certificate_manager.go:50`).
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    pub csr_timeout: u64,
}

/// Goes through the bootstrap once and registers the Node; returns when the Node is registered and, with a CNI configuration on
/// the node, Ready.
///
/// # Errors
/// When there is no usable bootstrap kubeconfig, or the root cannot be written. A denied, failed or forgotten CSR is not an error:
/// it is tried again for ever with the kubelet's backoff.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let bootstrap = kubeconfig::read_bootstrap(&options.root)?;
    let left = store::current(&options.root)?.filter(|_| kubeconfig::is_there(&options.root));
    let credentials = if let Some(credentials) = left {
        say("certificate-found", "kubeconfig and certificate are there: no CSR is filed");
        credentials
    } else {
        say("kubeconfig", "writing /var/lib/kubelet/kubeconfig, before any CSR");
        kubeconfig::write(&options.root, &bootstrap)?;
        let credentials = bootstrap::certificate(
            &bootstrap,
            &options.node_name,
            Duration::from_secs(options.csr_timeout),
            &mut Backoff::default(),
        )?;
        let current = store::update(&options.root, &credentials).context("storing the client certificate")?;
        say("certificate", &format!("{} is in place", current.display()));
        credentials
    };

    let client = client::Client::with_certificate(&bootstrap, &credentials)?;
    register::node(&client, &options.root, &options.node_name, &options.node_labels)
}

/// One line of JSON on standard output: what happened, and when on the machine's own clock (microseconds of `CLOCK_BOOTTIME`), so
/// that whoever collects it can put it into one timeline with the other programs.
fn say(event: &str, detail: &str) {
    println!(
        "{}",
        serde_json::json!({ "at_us": crate::clock::boottime_us(), "event": event, "detail": detail })
    );
}
