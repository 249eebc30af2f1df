//! The limit that stops all approvals when too many requests are pending (facts/trust.md 1.3). Pure.

use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::decide::texts;
use crate::names::{BOOTSTRAPPER, CLIENT_SIGNER, NODES_GROUP, SERVING_SIGNER};
use crate::stamp;

/// How many more requests than Machines or Nodes may be pending.
const SLACK: usize = 100;
/// What was filed longer ago no longer counts.
const RECENT: Duration = Duration::hours(1);
/// Clocks differ.
const SKEW: Duration = Duration::seconds(10);

/// The most that may be pending.
pub fn limit(machines: usize, nodes: usize) -> usize {
    machines.max(nodes) + SLACK
}

/// How many node requests are pending and recent.
pub fn recently_pending(csrs: &[Value], now: OffsetDateTime) -> usize {
    let recent = |csr: &&Value| {
        let filed = csr["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse);
        filed.is_some_and(|filed| filed > now - RECENT && filed < now + SKEW)
    };
    csrs.iter().filter(|csr| is_ours(csr)).filter(recent).count()
}

/// Stage A: a node's request that nobody has decided about. The real one counts denied and failed ones too, so that
/// one denied node, which files two a minute, stops a whole cluster (facts/trust.md 2.2).
pub(super) fn is_ours(csr: &Value) -> bool {
    let decided = csr["status"]["conditions"].as_array().is_some_and(|all| !all.is_empty());
    let spec = &csr["spec"];
    !decided
        && match spec["signerName"].as_str() {
            Some(SERVING_SIGNER) => texts(&spec["groups"]).contains(&NODES_GROUP),
            Some(CLIENT_SIGNER) => spec["username"] == BOOTSTRAPPER,
            _ => false,
        }
}

/// Where a node's kubelet is reached.
pub fn internal_ip(node: &Value) -> Result<String, String> {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let mut internal = addresses.filter(|address| address["type"] == "InternalIP");
    let found = internal.next().and_then(|address| address["address"].as_str()).map(str::to_owned);
    found.ok_or_else(|| {
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        format!("node {name} has no internal addresses")
    })
}
