//! The loop: on any change, look at every CSR; approve what the table allows, bind whoever has been approved.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use time::OffsetDateTime;

use super::bind::{approve, bind, pool_of};
use super::decide::{Cluster, Decision, decide, node_name};
use super::pending::{is_ours, limit, recently_pending};
use crate::certs::Request;
use crate::client::{Client, Error};
use crate::informer::Informer;
use crate::names::{BOOTSTRAPPER, CLIENT_SIGNER, SERVING_SIGNER};
use crate::stamp;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const MACHINES: &str = "/apis/machine.openshift.io/v1beta1/machines";
/// After a pass that could not be finished.
const RETRY: Duration = Duration::from_millis(500);
/// What the real approver writes (facts/trust.md 1).
const REASON: &str = "NodeCSRApprove";
const MESSAGE: &str = "This CSR was approved by the Node CSR Approver (cluster-machine-approver)";

/// Approves (if `automatic`) and binds for ever.
pub async fn run(client: Client, automatic: bool) {
    let informer = Informer::start(&client, &[CSRS, MACHINES, "/api/v1/nodes"]);
    let mut told = BTreeSet::new();
    loop {
        informer.changed().await;
        if let Err(error) = pass(&client, automatic, &mut told).await {
            tracing::debug!(%error, "approving again");
            informer.again_in(RETRY);
        }
    }
}

async fn items(client: &Client, path: &str) -> Result<Vec<Value>, Error> {
    match client.get(path).await?["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

async fn pass(client: &Client, automatic: bool, told: &mut BTreeSet<String>) -> Result<(), Error> {
    let machines = items(client, MACHINES).await?;
    let nodes = items(client, "/api/v1/nodes").await?;
    let csrs = items(client, CSRS).await?;
    let (pending, most) =
        (recently_pending(&csrs, OffsetDateTime::now_utc()), limit(machines.len(), nodes.len()));
    let automatic = automatic && pending <= most;
    if pending > most {
        tracing::warn!(pending, most, "too many requests are pending: nothing is approved");
    }
    for csr in csrs {
        let signer = csr["spec"]["signerName"].as_str().unwrap_or_default();
        if signer != CLIENT_SIGNER && signer != SERVING_SIGNER {
            continue;
        }
        let Some(request) = request(&csr) else { continue };
        let Some(node) = node_name(&request) else { continue };
        let bootstrapping = signer == CLIENT_SIGNER && csr["spec"]["username"] == BOOTSTRAPPER;
        if bootstrapping && approved(&csr) {
            follow(client, &csr, node, told).await?;
            continue;
        }
        if !automatic || !is_ours(&csr) {
            continue;
        }
        let cluster = Cluster {
            machines: machines.clone(),
            node: nodes.iter().find(|object| object["metadata"]["name"] == node).cloned(),
            ..Cluster::default()
        };
        let name = csr["metadata"]["name"].as_str().unwrap_or_default();
        match decide(&csr, &cluster, OffsetDateTime::now_utc()) {
            Decision::Approve => {
                if bootstrapping && !follow(client, &csr, node, told).await? {
                    continue;
                }
                approve(client, &csr, "Approved", REASON, MESSAGE).await?;
                tracing::info!(csr = name, node, "approved");
            }
            Decision::Ignore(why) => tell(client, &csr, "NotApproved", why, told).await?,
            // Nothing to poll for: what it waits for is a Machine, and that is watched.
            Decision::Retry(why) => tell(client, &csr, "NotApproved", &why, told).await?,
        }
    }
    Ok(())
}

fn request(csr: &Value) -> Option<Request> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    Request::parse(&STANDARD.decode(csr["spec"]["request"].as_str()?).ok()?).ok()
}

fn approved(csr: &Value) -> bool {
    csr["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|condition| condition["type"] == "Approved")
}

/// Binds a node to its pool; false if nobody knows the pool.
async fn follow(
    client: &Client,
    csr: &Value,
    node: &str,
    told: &mut BTreeSet<String>,
) -> Result<bool, Error> {
    if let Some(pool) = pool_of(client, node).await? {
        bind(client, &pool, node).await?;
        return Ok(true);
    }
    let name = csr["metadata"]["name"].as_str().unwrap_or_default();
    let why = format!(
        "no Machine and no token says which pool {node} is of: oneboot-cluster approve {name} --pool POOL"
    );
    tell(client, csr, "PoolUnknown", &why, told).await?;
    Ok(false)
}

/// Says once, as an Event and in the log, why a CSR is left alone.
async fn tell(
    client: &Client,
    csr: &Value,
    reason: &str,
    why: &str,
    told: &mut BTreeSet<String>,
) -> Result<(), Error> {
    let name = csr["metadata"]["name"].as_str().unwrap_or_default();
    if approved(csr) && reason == "NotApproved" || !told.insert(format!("{name} {why}")) {
        return Ok(());
    }
    tracing::info!(csr = name, why, "left alone");
    let now = stamp::now();
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"generateName": format!("{name}."), "namespace": "default"},
        "involvedObject": {"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "name": name, "uid": csr["metadata"]["uid"]},
        "reason": reason, "message": why, "type": "Warning", "count": 1, "firstTimestamp": now, "lastTimestamp": now,
        "source": {"component": "machine-approver"},
    });
    client.post("/api/v1/namespaces/default/events", &event).await.map(|_| ())
}
