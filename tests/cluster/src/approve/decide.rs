//! The table for one CSR (facts/trust.md 1.4 to 1.6), in its order. Pure.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use time::{Duration, OffsetDateTime};

use super::serving::{self, Current, HostSubnet};
use crate::certs::{Request, Subject};
use crate::names::{BOOTSTRAPPER, NODE_USER_PREFIX, NODES_GROUP};
use crate::stamp;

/// How far a CSR may be before its Machine: clocks differ.
const SKEW: Duration = Duration::seconds(10);
/// How far a CSR may be after its Machine.
const WINDOW: Duration = Duration::hours(2);

/// What happens to a CSR.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Approve.
    Approve,
    /// Not ours, or not ours any more: looked at again only when it changes.
    Ignore(&'static str),
    /// Not now: tried again.
    Retry(String),
}

/// What the table looks at, besides the CSR.
#[derive(Debug, Clone, Default)]
pub struct Cluster {
    /// All Machines.
    pub machines: Vec<Value>,
    /// The Node of the CSR's name, if it exists.
    pub node: Option<Value>,
    /// `nodeClientCert.disabled` of the approver's configuration.
    pub client_disabled: bool,
    /// What the node's kubelet serves today, if that is known.
    pub current: Option<Current>,
    /// `status.networkType` of the cluster's network.
    pub network_type: String,
    /// The node's egress addresses (`OpenShiftSDN`).
    pub host_subnet: Option<HostSubnet>,
}

/// The node that a kubelet CSR is for.
pub fn node_name(request: &Request) -> Option<&str> {
    request.subject.common_name.strip_prefix(NODE_USER_PREFIX).filter(|name| !name.is_empty())
}

/// Decides about one CSR object.
pub fn decide(csr: &Value, cluster: &Cluster, now: OffsetDateTime) -> Decision {
    let has =
        |kind: &str| csr["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == kind);
    if has("Approved") {
        return Decision::Ignore("already approved");
    }
    // The real one does not look at these and would try for ever (facts/trust.md 1.2, 8).
    if has("Denied") || has("Failed") {
        return Decision::Ignore("denied or failed");
    }
    let pem = csr["spec"]["request"].as_str().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let request = match Request::parse(&pem) {
        Ok(request) => request,
        Err(error) => return Decision::Retry(error.to_string()),
    };
    let usages = texts(&csr["spec"]["usages"]);
    if looks_like_client(&request, &usages) {
        return client(csr, &request, cluster);
    }
    serving::decide(csr, &request, &usages, cluster, now)
}

pub(super) fn texts(list: &Value) -> Vec<&str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

/// C0. Anything that is not exactly a node's client certificate is judged as a serving one.
fn looks_like_client(request: &Request, usages: &[&str]) -> bool {
    let Subject { common_name, organizations } = &request.subject;
    let exactly =
        |wanted: &[&str]| usages.len() == wanted.len() && wanted.iter().all(|usage| usages.contains(usage));
    let usages_fit = exactly(&["key encipherment", "digital signature", "client auth"])
        || exactly(&["digital signature", "client auth"]);
    organizations == &[NODES_GROUP]
        && request.dns.is_empty()
        && request.emails.is_empty()
        && request.addresses.is_empty()
        && usages_fit
        && common_name.starts_with(NODE_USER_PREFIX)
}

/// C1 to C7.
fn client(csr: &Value, request: &Request, cluster: &Cluster) -> Decision {
    if cluster.client_disabled {
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        return Decision::Retry(format!("CSR {name} for node client cert rejected as the flow is disabled"));
    }
    if !from_bootstrapper(csr) {
        return Decision::Ignore("not requested by the node bootstrapper");
    }
    let Some(node) = node_name(request) else { return Decision::Ignore("no node name") };
    if cluster.node.is_some() {
        return Decision::Ignore("the node already exists");
    }
    let Some(machine) = cluster.machines.iter().find(|machine| has_internal_dns(machine, node)) else {
        return Decision::Retry(format!("failed to find machine for node {node}"));
    };
    if !machine["status"]["nodeRef"].is_null() {
        return Decision::Ignore("the machine already has a node");
    }
    let (created, filed) = (created(machine), created(csr));
    if filed <= created - SKEW || filed >= created + WINDOW {
        return Decision::Ignore("filed outside of the machine's window");
    }
    Decision::Approve
}

fn from_bootstrapper(csr: &Value) -> bool {
    let mut groups = texts(&csr["spec"]["groups"]);
    groups.sort_unstable();
    groups.dedup();
    let wanted = [
        "system:authenticated",
        "system:serviceaccounts",
        "system:serviceaccounts:openshift-machine-config-operator",
    ];
    csr["spec"]["username"] == BOOTSTRAPPER && groups == wanted
}

/// C5: names are compared without case, and without a final dot on the Machine's side.
pub(super) fn has_internal_dns(machine: &Value, node: &str) -> bool {
    let addresses = machine["status"]["addresses"].as_array().into_iter().flatten();
    let named = |address: &Value| {
        let name = address["address"].as_str().unwrap_or_default();
        address["type"] == "InternalDNS" && name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(node)
    };
    addresses.into_iter().any(named)
}

/// An object that says no creation time was created at Go's zero time, as in the real table's own cases.
fn created(object: &Value) -> OffsetDateTime {
    const ZERO: OffsetDateTime = time::macros::datetime!(0001-01-01 00:00:00 UTC);
    object["metadata"]["creationTimestamp"].as_str().and_then(stamp::parse).unwrap_or(ZERO)
}
