//! The serving half of the table: S1 to S9 (facts/trust.md 1.6). Pure.

use serde_json::Value;
use std::net::IpAddr;
use time::OffsetDateTime;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::decide::{Cluster, Decision, texts};
use crate::certs::Request;
use crate::names::{NODE_USER_PREFIX, NODES_GROUP};
use crate::stamp;

/// What a kubelet serves today, and the CAs that it is checked against.
#[derive(Debug, Clone, Default)]
pub struct Current {
    /// The certificate, DER.
    pub certificate: Vec<u8>,
    /// The CAs, DER.
    pub authorities: Vec<Vec<u8>>,
}

impl Current {
    /// Go's `Verify` with the cluster's CAs as roots, as far as a kubelet's certificate needs it: time, purpose, signature.
    fn verify(&self, now: OffsetDateTime) -> Result<(), String> {
        let parse = |der: &'_ [u8]| {
            X509Certificate::from_der(der).map(|(_, certificate)| certificate.validity().clone())
        };
        let validity = parse(&self.certificate).map_err(|_| "the current serving cert cannot be read")?;
        let (from, to) = (validity.not_before.to_datetime(), validity.not_after.to_datetime());
        let outside = |word: &str, bound| {
            let (now, bound) = (stamp::rfc3339(now), stamp::rfc3339(bound));
            Err(format!(
                "x509: certificate has expired or is not yet valid: current time {now} is {word} {bound}"
            ))
        };
        if now < from {
            return outside("before", from);
        }
        if now > to {
            return outside("after", to);
        }
        if self.authorities.iter().any(|authority| signed_by(&self.certificate, authority, now)) {
            return Ok(());
        }
        Err("x509: certificate signed by unknown authority".to_owned())
    }
}

/// Whether one CA, in its own time, has signed a serving certificate.
fn signed_by(certificate: &[u8], authority: &[u8], now: OffsetDateTime) -> bool {
    let (Ok((_, leaf)), Ok((_, ca))) =
        (X509Certificate::from_der(certificate), X509Certificate::from_der(authority))
    else {
        return false;
    };
    let serves = leaf
        .extended_key_usage()
        .ok()
        .flatten()
        .is_some_and(|usage| usage.value.server_auth || usage.value.any);
    let in_time =
        now >= ca.validity().not_before.to_datetime() && now <= ca.validity().not_after.to_datetime();
    serves
        && in_time
        && ca.is_ca()
        && leaf.issuer() == ca.subject()
        && leaf.verify_signature(Some(ca.public_key())).is_ok()
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
    now: OffsetDateTime,
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
    let mut errors = Vec::new();
    if let Some(current) = &cluster.current {
        match renewal(node, request, current, now) {
            Ok(()) => return Decision::Approve,
            Err(why) => errors.push(why),
        }
    }
    match from_machine(node, request, cluster) {
        Ok(()) => return Decision::Approve,
        Err(why) => errors.push(why),
    }
    if let (Some(current), "OpenShiftSDN") = (&cluster.current, cluster.network_type.as_str()) {
        match renewal_with_egress(node, request, current, cluster.host_subnet.as_ref(), now) {
            Ok(()) => return Decision::Approve,
            Err(why) => errors.push(why),
        }
    }
    let all = if errors.len() == 1 { errors.remove(0) } else { format!("[{}]", errors.join(", ")) };
    Decision::Retry(format!("could not authorize CSR: exhausted all authorization methods: {all}"))
}

/// S6: the same names as what the node serves today, which is genuine.
pub fn renewal(node: &str, request: &Request, current: &Current, now: OffsetDateTime) -> Result<(), String> {
    let names = genuine(node, request, current, now)?;
    let same = sorted(&names.dns) == sorted(&request.dns)
        && sorted(&names.emails) == sorted(&request.emails)
        && sorted(&names.uris) == sorted(&request.uris)
        && sorted(&names.addresses) == sorted(&request.addresses);
    same.then_some(())
        .ok_or_else(|| "CSR Subject Alternate Name values do not match current certificate".to_owned())
}

/// S8: as S6, with the node's egress addresses added.
pub fn renewal_with_egress(
    node: &str,
    request: &Request,
    current: &Current,
    subnet: Option<&HostSubnet>,
    now: OffsetDateTime,
) -> Result<(), String> {
    let names = genuine(node, request, current, now)?;
    let same = sorted(&names.dns) == sorted(&request.dns)
        && sorted(&names.emails) == sorted(&request.emails)
        && sorted(&names.uris) == sorted(&request.uris);
    if !same {
        return Err("CSR Subject Alternate Name values do not match current certificate".to_owned());
    }
    let no_egress = HostSubnet::default();
    let subnet = subnet.unwrap_or(&no_egress);
    let egress = |ip: &IpAddr| {
        subnet.addresses.contains(&ip.to_string()) || subnet.ranges.iter().any(|r| within(r, ip))
    };
    if request.addresses.iter().all(|ip| names.addresses.contains(ip) || egress(ip)) {
        return Ok(());
    }
    Err("CSR Subject Alternate Names includes unknown IP addresses".to_owned())
}

/// S6a: the certificate that the node serves is signed by the cluster, in its time, for this node; its names.
fn genuine(node: &str, request: &Request, current: &Current, now: OffsetDateTime) -> Result<Request, String> {
    current.verify(now)?;
    let names =
        Request::of_certificate(&current.certificate).ok_or("the current serving cert cannot be read")?;
    if names.subject.common_name != format!("{NODE_USER_PREFIX}{node}") {
        return Err("current serving cert has bad common name".to_owned());
    }
    if names.subject.common_name != request.subject.common_name {
        return Err("current serving cert and CSR common name mismatch".to_owned());
    }
    Ok(names)
}

fn sorted<T: Ord + Clone>(list: &[T]) -> Vec<T> {
    let mut list = list.to_vec();
    list.sort();
    list
}

/// Whether `range`, as `10.0.0.0/8`, holds an address.
fn within(range: &str, ip: &IpAddr) -> bool {
    let Some((base, length)) = range.split_once('/') else { return false };
    let (Ok(base), Ok(length)) = (base.parse::<IpAddr>(), length.parse::<u32>()) else { return false };
    match (base, ip) {
        (IpAddr::V4(base), IpAddr::V4(ip)) if length <= 32 => {
            (u32::from(base) ^ u32::from(*ip)).checked_shr(32 - length).unwrap_or_default() == 0
        }
        (IpAddr::V6(base), IpAddr::V6(ip)) if length <= 128 => {
            (u128::from(base) ^ u128::from(*ip)).checked_shr(128 - length).unwrap_or_default() == 0
        }
        _ => false,
    }
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
