//! `approve`, `deny`, `machine add`.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;

use crate::approve::{self as approval, bind, node_name, pool_of};
use crate::certs::Request;
use crate::client::{Client, Error};
use crate::exit::{CONFIG, DATA, failure};
use crate::names::{BOOTSTRAPPER, CLIENT_SIGNER, MACHINE_NAMESPACE, MACHINE_ROLE_LABEL};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// Approves; a bootstrapping node is bound to its pool before anybody can see the approval.
pub async fn approve(client: &Client, name: &str, pool: Option<&str>) -> anyhow::Result<()> {
    loop {
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
            other => break other?,
        }
    }
    println!("certificatesigningrequest.certificates.k8s.io/{name} approved");
    Ok(())
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
