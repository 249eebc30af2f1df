//! The approver's table: the real one's own cases, when they are there, and one defect at a time from us.

use crate::harness::{CSRS, Cluster as Running, csr_object, node_csr, wait_for};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use oneboot_cluster::approve::{
    Cluster, Current, Decision, HostSubnet, decide, internal_ip, limit, recently_pending, renewal,
    renewal_with_egress,
};
use oneboot_cluster::certs::Request;
use oneboot_cluster::stamp;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use rustls_pki_types::{CertificateDer, pem::PemObject as _};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

fn der(pem: &Value) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_str().unwrap().as_bytes()).unwrap().to_vec()
}

fn authorities(input: &Value) -> Vec<Vec<u8>> {
    input["caPEM"].as_array().unwrap().iter().map(der).collect()
}

fn subnet(input: &Value) -> Option<HostSubnet> {
    let list = |key: &str| serde_json::from_value(input["hostSubnet"][key].clone()).unwrap_or_default();
    input["hostSubnet"]
        .is_object()
        .then(|| HostSubnet { addresses: list("egressIPs"), ranges: list("egressCIDRs") })
}

/// The case as the table sees it. The real one dials the node's kubelet; the cases' kubelets listen on these ports of
/// 127.0.0.1, and what they serve is in the case.
fn cluster(input: &Value) -> Cluster {
    let node = Some(&input["node"]).filter(|node| node.is_object());
    let reached = node.is_some_and(|node| {
        let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64().unwrap_or_default();
        internal_ip(node).is_ok_and(|ip| ip == "127.0.0.1") && port != 0
    });
    let known = !input["caPEM"].as_array().unwrap().is_empty();
    let current = (reached && known)
        .then(|| Current { certificate: der(&input["kubeletServesPEM"]), authorities: authorities(input) });
    Cluster {
        machines: input["machines"].as_array().cloned().unwrap_or_default(),
        node: node.cloned(),
        client_disabled: input["config"]["nodeClientCert"]["disabled"] == true,
        current,
        network_type: input["networkType"].as_str().unwrap_or_default().to_owned(),
        host_subnet: subnet(input),
    }
}

fn outcome(decision: Decision) -> (bool, String) {
    match decision {
        Decision::Approve => (true, String::new()),
        Decision::Ignore(_) => (false, String::new()),
        Decision::Retry(why) => (false, why),
    }
}

/// `Ok` as an empty error, as the cases have it.
fn error(result: Result<(), String>) -> String {
    result.err().unwrap_or_default()
}

#[test]
fn every_decision_of_cluster_machine_approvers_own_tests() {
    let Some(path) = crate::harness::cases("approver.json") else { return };
    let cases: Vec<Value> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    assert_eq!(cases.len(), 79);
    for (at, case) in cases.iter().enumerate() {
        let (input, want) = (&case["in"], &case["want"]);
        let what = format!("case {at}, {} {}", case["table"], case["name"]);
        let now = stamp::parse(case["verifyTime"].as_str().unwrap()).unwrap();
        let time = |key: &str| stamp::parse(input[key].as_str().unwrap()).unwrap();
        let missing = || "CSR, serving cert, or CA not provided".to_owned();
        match case["table"].as_str().unwrap() {
            "authorizeCSR" => {
                let got = outcome(decide(&input["req"], &cluster(input), now));
                assert_eq!(
                    got,
                    (want["authorize"] == true, want["err"].as_str().unwrap().to_owned()),
                    "{what}"
                );
            }
            table @ ("authorizeServingRenewal" | "authorizeServingRenewalWithEgressIPs") => {
                let node = input["nodeName"].as_str().unwrap();
                let got = Request::parse(input["csrPEM"].as_str().unwrap().as_bytes()).map_or_else(
                    |_| missing(),
                    |request| {
                        let current = Current {
                            certificate: der(&input["currentCertPEM"]),
                            authorities: authorities(input),
                        };
                        if table == "authorizeServingRenewal" {
                            error(renewal(node, &request, &current, time("time")))
                        } else {
                            error(renewal_with_egress(
                                node,
                                &request,
                                &current,
                                subnet(input).as_ref(),
                                time("time"),
                            ))
                        }
                    },
                );
                assert_eq!(want["err"], got, "{what}");
            }
            "recentlyPendingNodeCSRs" => {
                let got = recently_pending(input["csrs"].as_array().unwrap(), time("now"));
                assert_eq!(want["pending"], got, "{what}");
            }
            "nodeInternalIP" => match internal_ip(&input["node"]) {
                Ok(ip) => assert_eq!(want["ip"], ip, "{what}"),
                Err(why) => assert_eq!(want["err"], why, "{what}"),
            },
            "getMaxPending" => {
                let number = |key: &str| usize::try_from(input[key].as_u64().unwrap()).unwrap();
                assert_eq!(want["max"], limit(number("machines"), number("nodes")), "{what}");
            }
            other => panic!("a table that nobody knows: {other}"),
        }
    }
}

/// A CSR for a node with a name, organizations, alternative names.
fn request(node: &str, organizations: &[&str], names: Vec<SanType>) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.remove(DnType::CommonName);
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.distinguished_name.push(DnType::CommonName, node);
    params.subject_alt_names = names;
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

/// What is approved: a fresh bootstrapper's CSR, its Machine, no Node. One value of it changed is one defect.
fn good() -> Value {
    let mut csr = csr_object(&request("system:node:panda", &["system:nodes"], vec![]));
    csr["metadata"] = json!({"name": "csr", "creationTimestamp": "2026-01-01T00:10:00Z"});
    csr["spec"]["username"] = BOOTSTRAPPER.into();
    csr["spec"]["groups"] = json!(["system:authenticated", "system:serviceaccounts", BOOTSTRAPPER_GROUP]);
    csr["status"] = json!({"conditions": []});
    let machine = json!({
        "metadata": {"creationTimestamp": "2026-01-01T00:00:00Z"},
        "status": {"nodeRef": null, "addresses": [{"type": "InternalDNS", "address": "panda"}]},
    });
    json!({"csr": csr, "machines": [machine], "node": null, "disabled": false})
}

const BOOTSTRAPPER: &str = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
const BOOTSTRAPPER_GROUP: &str = "system:serviceaccounts:openshift-machine-config-operator";

/// Decides about that world, a minute later, with one value changed.
fn decide_with(pointer: &str, value: &Value) -> Decision {
    let mut world = good();
    *world.pointer_mut(pointer).unwrap() = value.clone();
    let cluster = Cluster {
        machines: world["machines"].as_array().unwrap().clone(),
        node: Some(world["node"].clone()).filter(Value::is_object),
        client_disabled: world["disabled"] == true,
        ..Cluster::default()
    };
    decide(&world["csr"], &cluster, stamp::parse("2026-01-01T00:11:00Z").unwrap())
}

#[test]
fn one_defect_in_the_request_keeps_it_from_being_approved() {
    let dns = || vec![SanType::DnsName("panda".try_into().unwrap())];
    let mail = || vec![SanType::Rfc822Name("a@b".try_into().unwrap())];
    let address = || vec![SanType::IpAddress([10, 0, 0, 1].into())];
    let (panda, nodes) = ("system:node:panda", "system:nodes");
    let not_a_node = "not requested by a node"; // judged as a serving certificate, which it is not either
    for (what, pem, why) in [
        ("another organization", request(panda, &["system:masters"], vec![]), not_a_node),
        ("one organization more", request(panda, &[nodes, "system:masters"], vec![]), not_a_node),
        ("no organization", request(panda, &[], vec![]), not_a_node),
        ("a DNS name", request(panda, &[nodes], dns()), not_a_node),
        ("an address", request(panda, &[nodes], address()), not_a_node),
        ("a mail address", request(panda, &[nodes], mail()), not_a_node),
        ("no node's common name", request("system:admin", &[nodes], vec![]), not_a_node),
        ("no node name", request("system:node:", &[nodes], vec![]), "no node name"),
    ] {
        let encoded = STANDARD.encode(pem).into();
        assert_eq!(decide_with("/csr/spec/request", &encoded), Decision::Ignore(why), "{what}");
    }
    let garbage = decide_with("/csr/spec/request", &json!("aGVsbG8="));
    assert_eq!(garbage, Decision::Retry("PEM block type must be CERTIFICATE REQUEST".into()));
}

#[test]
fn one_defect_around_the_request_keeps_it_from_being_approved() {
    let ignored = Decision::Ignore;
    let waits = |why: &str| Decision::Retry(why.to_owned());
    let (stranger, window) =
        ("not requested by the node bootstrapper", "filed outside of the machine's window");
    let no_machine = "failed to find machine for node panda";
    let (usages, groups, filed) = ("/csr/spec/usages", "/csr/spec/groups", "/csr/metadata/creationTimestamp");
    let (authenticated, accounts) = ("system:authenticated", "system:serviceaccounts");
    let all = [authenticated, accounts, BOOTSTRAPPER_GROUP, "system:masters"];
    let machine = "/machines/0/status/addresses/0";
    for (what, pointer, value, wanted) in [
        (
            "a usage more",
            usages,
            json!(["digital signature", "client auth", "server auth"]),
            ignored("not requested by a node"),
        ),
        ("a usage less", usages, json!(["client auth"]), ignored("not requested by a node")),
        (
            "another usage",
            usages,
            json!(["digital signature", "server auth"]),
            ignored("not requested by a node"),
        ),
        (
            "another requester",
            "/csr/spec/username",
            json!("system:serviceaccount:default:node-bootstrapper"),
            ignored(stranger),
        ),
        ("a group more", groups, json!(all), ignored(stranger)),
        ("a group less", groups, json!([authenticated, accounts]), ignored(stranger)),
        ("the node exists", "/node", json!({}), ignored("the node already exists")),
        ("no machine", "/machines", json!([]), waits(no_machine)),
        ("another kind of address", &format!("{machine}/type"), json!("Hostname"), waits(no_machine)),
        (
            "a machine with a longer name",
            &format!("{machine}/address"),
            json!("panda.local"),
            waits(no_machine),
        ),
        (
            "the machine has a node",
            "/machines/0/status/nodeRef",
            json!({"name": "x"}),
            ignored("the machine already has a node"),
        ),
        ("ten seconds before the machine", filed, json!("2025-12-31T23:59:50Z"), ignored(window)),
        ("two hours after the machine", filed, json!("2026-01-01T02:00:00Z"), ignored(window)),
        (
            "the flow is off",
            "/disabled",
            json!(true),
            waits("CSR csr for node client cert rejected as the flow is disabled"),
        ),
        ("approved", "/csr/status/conditions", json!([{"type": "Approved"}]), ignored("already approved")),
        ("denied", "/csr/status/conditions", json!([{"type": "Denied"}]), ignored("denied or failed")),
        ("failed", "/csr/status/conditions", json!([{"type": "Failed"}]), ignored("denied or failed")),
    ] {
        assert_eq!(decide_with(pointer, &value), wanted, "{what}");
    }
    for (what, pointer, value) in [
        ("nothing", "/node", json!(null)),
        ("upper case", &*format!("{machine}/address"), json!("PANDA")),
        ("a final dot", &format!("{machine}/address"), json!("panda.")),
        ("an RSA key's usages", usages, json!(["key encipherment", "digital signature", "client auth"])),
        ("nine seconds before the machine", filed, json!("2025-12-31T23:59:51Z")),
        ("a second less than two hours after it", filed, json!("2026-01-01T01:59:59Z")),
    ] {
        assert_eq!(decide_with(pointer, &value), Decision::Approve, "{what} changed");
    }
}

#[test]
fn pending_is_recent_ours_and_undecided() {
    let now = OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap();
    let mut csr = good()["csr"].take();
    let at = |csr: &mut Value, offset: Duration| {
        csr["metadata"]["creationTimestamp"] = stamp::rfc3339(now + offset).into();
    };
    let count = |csr: &Value| recently_pending(std::slice::from_ref(csr), now);
    for (offset, wanted) in
        [(Duration::ZERO, 1), (-Duration::hours(1), 0), (Duration::seconds(10), 0), (Duration::seconds(9), 1)]
    {
        at(&mut csr, offset);
        assert_eq!(count(&csr), wanted, "{offset}");
    }
    for kind in ["Approved", "Denied", "Failed"] {
        csr["status"] = json!({"conditions": [{"type": kind}]});
        assert_eq!(count(&csr), 0, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_without_a_machine_waits_says_why_and_is_approved_when_the_machine_comes() {
    let running = Running::start().await;
    let filed = running.bootstrapper().await.post(CSRS, &csr_object(&node_csr("late").0)).await.unwrap();
    let name = filed["metadata"]["name"].as_str().unwrap();
    let path = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}");
    let event = wait_for(&running.admin, &path, |event| event["reason"] == "NotApproved").await;
    assert_eq!(event["message"], "failed to find machine for node late");
    assert_eq!(running.admin.get(&format!("{CSRS}/{name}")).await.unwrap()["status"], json!({}));
    oneboot_cluster::cmd::machine_add(&running.admin, "late", "worker").await.unwrap();
    let certificate = running.certificate(name).await;
    assert!(certificate.starts_with("-----BEGIN CERTIFICATE-----"));
    let csr = running.admin.get(&format!("{CSRS}/{name}")).await.unwrap();
    let condition = &csr["status"]["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("Approved"), &json!("NodeCSRApprove")));
}
