//! `approve`, `deny`, `machine add`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use time::Duration;

use crate::approve::{self as approval, bind, node_name, pool_of};
use crate::certs::Request;
use crate::client::{Client, Error};
use crate::exit::{CONFIG, DATA, TEMPFAIL, failure};
use crate::names::{BOOTSTRAPPER, CLIENT_SIGNER, MACHINE_NAMESPACE, MACHINE_ROLE_LABEL};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Approves; a bootstrapping node is bound to its pool before anybody can see the approval. Succeeds with the
/// certificate: an approval is only leave to sign, and signers have rules of their own. With no `wait`, does not look.
pub async fn approve(client: &Client, name: &str, pool: Option<&str>, wait: Duration) -> anyhow::Result<()> {
    let signer = loop {
        let csr = client.get(&format!("{CSRS}/{name}")).await?;
        if csr["spec"]["signerName"] == CLIENT_SIGNER && csr["spec"]["username"] == BOOTSTRAPPER {
            let pem = csr["spec"]["request"]
                .as_str()
                .and_then(|text| STANDARD.decode(text).ok())
                .unwrap_or_default();
            let request = Request::parse(&pem).map_err(|error| failure(DATA, format!("{name}: {error}")))?;
            let node =
                node_name(&request).ok_or_else(|| failure(DATA, format!("{name} is not for a node")))?;
            let found = match pool {
                Some(pool) => Some(pool.to_owned()),
                None => pool_of(client, node).await?,
            };
            let Some(pool) = found else {
                return Err(failure(
                    CONFIG,
                    format!("no Machine and no token says which pool {node} is of; add --pool POOL"),
                ));
            };
            bind(client, &pool, node).await?;
        }
        match approval::approve(
            client,
            &csr,
            "Approved",
            "OnebootApprove",
            "This CSR was approved by oneboot-cluster approve.",
        )
        .await
        {
            Err(Error::Status { code: 409, .. }) => {} // somebody wrote to it meanwhile: look again
            other => {
                other?;
                break csr["spec"]["signerName"].as_str().unwrap_or_default().to_owned();
            }
        }
    };
    println!("certificatesigningrequest.certificates.k8s.io/{name} approved");
    if wait.is_zero() {
        return Ok(());
    }
    tokio::time::timeout(wait.unsigned_abs(), signed(client, name)).await.unwrap_or_else(|_| {
        let message = format!(
            "{name} is approved, but has no certificate after {wait}: nobody here signs for {signer}, or not yet"
        );
        Err(failure(TEMPFAIL, message))
    })
}

/// Waits until the signer has given a certificate, or said why not.
async fn signed(client: &Client, name: &str) -> anyhow::Result<()> {
    let gone = || failure(DATA, format!("{name} was approved, but is gone: somebody has deleted it"));
    loop {
        let (items, mut watch) =
            client.list_and_watch(&format!("{CSRS}?fieldSelector=metadata.name={name}")).await?;
        let mut csr = items.into_iter().next().ok_or_else(gone)?;
        loop {
            if csr["status"]["certificate"].is_string() {
                return Ok(());
            }
            if let Some(failed) = condition(&csr, "Failed") {
                let text = |key: &str| failed[key].as_str().unwrap_or_default();
                let message = format!(
                    "{name} is approved, but its signer refuses it: {} ({})",
                    text("message"),
                    text("reason")
                );
                return Err(failure(DATA, message));
            }
            csr = match watch.next().await {
                None => break, // the server ends watches when it likes
                Some(event) if event.kind == "DELETED" => return Err(gone()),
                Some(event) => event.object,
            };
        }
    }
}

fn condition<'a>(csr: &'a Value, kind: &str) -> Option<&'a Value> {
    csr["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// Denies.
pub async fn deny(client: &Client, name: &str) -> anyhow::Result<()> {
    let csr = client.get(&format!("{CSRS}/{name}")).await?;
    approval::approve(client, &csr, "Denied", "OnebootDeny", "This CSR was denied by oneboot-cluster deny.")
        .await?;
    println!("certificatesigningrequest.certificates.k8s.io/{name} denied");
    Ok(())
}

/// Adds a Machine.
pub async fn machine_add(client: &Client, name: &str, pool: &str) -> anyhow::Result<()> {
    let collection = format!("/apis/machine.openshift.io/v1beta1/namespaces/{MACHINE_NAMESPACE}/machines");
    let machine = json!({
        "apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine",
        "metadata": {"name": name, "namespace": MACHINE_NAMESPACE, "labels": {MACHINE_ROLE_LABEL: pool}}, "spec": {},
    });
    client.post(&collection, &machine).await?;
    let status = json!({"status": {"addresses": [{"type": "InternalDNS", "address": name}, {"type": "Hostname", "address": name}]}});
    client.merge(&format!("{collection}/{name}/status"), &status).await?;
    println!("machine.machine.openshift.io/{name} created");
    Ok(())
}
