//! The serving half of the table: S1 to S9 (facts/trust.md 1.6). Pure.

use serde_json::Value;
use time::OffsetDateTime;

use super::decide::{Cluster, Decision, texts};
use crate::certs::Request;
use crate::names::{NODE_USER_PREFIX, NODES_GROUP};

/// What a kubelet serves today, and the CAs that it is checked against.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// The CAs, DER.
    pub authorities: Vec<Vec<u8>>,
}

/// A node's egress addresses.
#[derive(Debug, Clone, Default)]
pub struct HostSubnet {
    /// `egressIPs`.
    pub addresses: Vec<String>,
    /// `egressCIDRs`.
    pub ranges: Vec<String>,
}

pub(super) fn decide(
    csr: &Value,
    request: &Request,
    usages: &[&str],
    cluster: &Cluster,
    _now: OffsetDateTime,
) -> Decision {
    let username = csr["spec"]["username"].as_str().unwrap_or_default();
    let Some(node) = username.strip_prefix(NODE_USER_PREFIX).filter(|node| !node.is_empty()) else {
        return Decision::Ignore("not requested by a node");
    };
    let groups = texts(&csr["spec"]["groups"]);
    if groups.len() < 2 || !groups.contains(&NODES_GROUP) || !groups.contains(&"system:authenticated") {
        return Decision::Ignore("the requester's groups are not a node's");
    }
    if !(2..=3).contains(&usages.len())
        || !usages.contains(&"digital signature")
        || !usages.contains(&"server auth")
    {
        return Decision::Ignore("the usages are not a serving certificate's");
    }
    if request.subject.common_name != username {
        return Decision::Ignore("the common name is not the requester");
    }
    if !request.subject.organizations.iter().any(|organization| organization == NODES_GROUP) {
        return Decision::Ignore("the organization is not the nodes'");
    }
    let errors = match from_machine(node, request, cluster) {
        Ok(()) => return Decision::Approve,
        Err(why) => vec![why],
    };
    Decision::Retry(format!(
        "could not authorize CSR: exhausted all authorization methods: {}",
        errors.join(", ")
    ))
}

/// S7: every name and address is one of the node's Machine.
fn from_machine(node: &str, request: &Request, cluster: &Cluster) -> Result<(), String> {
    let machine = cluster.machines.iter().find(|machine| machine["status"]["nodeRef"]["name"] == node);
    let machine = machine.ok_or("unable to find machine for node")?;
    let of = |kinds: &[&str]| -> Vec<&str> {
        let addresses = machine["status"]["addresses"].as_array().into_iter().flatten();
        let wanted =
            addresses.filter(|address| kinds.contains(&address["type"].as_str().unwrap_or_default()));
        wanted.filter_map(|address| address["address"].as_str()).collect()
    };
    let names = of(&["InternalDNS", "ExternalDNS", "Hostname"]);
    for dns in request.dns.iter().filter(|dns| !dns.is_empty()) {
        if !names.iter().any(|name| name.strip_suffix('.').unwrap_or(name).eq_ignore_ascii_case(dns)) {
            return Err(format!("DNS name '{dns}' not in machine names: {}", names.join(" ")));
        }
    }
    let addresses = of(&["InternalIP", "ExternalIP"]);
    for ip in &request.addresses {
        if !addresses.contains(&ip.to_string().as_str()) {
            return Err(format!("IP address '{ip}' not in machine addresses: {}", addresses.join(" ")));
        }
    }
    Ok(())
}
