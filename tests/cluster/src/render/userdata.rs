//! The Secrets that machines boot from, `<pool>-user-data` in `openshift-machine-api`: each holds its pool's pointer,
//! written again whenever the token, the CA bundle or the MCS's URL changes.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;

use crate::client::{Client, Error};
use crate::informer::Informer;
use crate::names::{CONFIG_NAMESPACE, MACHINE_NAMESPACE, MCO_NAMESPACE, MCS_CA, MCS_ENDPOINT, TOKEN_SECRET};
use crate::pointer::{TokenIn, pointer_config};
use crate::tokens;

const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
/// After a pass that failed half-way.
const RETRY: Duration = Duration::from_millis(300);

/// Writes for ever.
pub(super) async fn run(client: Client) {
    let one = |namespace: &str, plural: &str, name: &str| {
        format!("/api/v1/namespaces/{namespace}/{plural}?fieldSelector=metadata.name={name}")
    };
    let informer = Informer::start(
        &client,
        &[
            POOLS,
            &one(CONFIG_NAMESPACE, "secrets", TOKEN_SECRET),
            &one(MCO_NAMESPACE, "configmaps", MCS_CA),
            &one(MCO_NAMESPACE, "configmaps", MCS_ENDPOINT),
        ],
    );
    loop {
        informer.changed().await;
        if let Err(error) = pass(&client).await {
            tracing::debug!(%error, "writing user data again");
            informer.again_in(RETRY);
        }
    }
}

async fn pass(client: &Client) -> Result<(), Error> {
    let map = |name| format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps/{name}");
    let (Some(endpoint), Some(bundle)) =
        (found(client, &map(MCS_ENDPOINT)).await?, found(client, &map(MCS_CA)).await?)
    else {
        return Ok(()); // no MCS has run yet: there is nothing to point at
    };
    let (Some(url), Some(bundle)) =
        (endpoint["data"]["url"].as_str(), bundle["data"]["ca-bundle.crt"].as_str())
    else {
        return Ok(());
    };
    let secret = found(client, &tokens::path()).await?;
    for pool in client.get(POOLS).await?["items"].as_array().into_iter().flatten() {
        let name = pool["metadata"]["name"].as_str().unwrap_or_default();
        let token = secret.as_ref().and_then(|s| tokens::current(s, name, OffsetDateTime::now_utc()));
        let pointer = pointer_config(url, name, bundle, token.as_deref(), TokenIn::Header);
        write(client, name, &pointer).await?;
    }
    Ok(())
}

async fn found(client: &Client, path: &str) -> Result<Option<Value>, Error> {
    match client.get(path).await {
        Err(Error::Status { code: 404, .. }) => Ok(None),
        other => other.map(Some),
    }
}

/// Only when something changes: a write that changes nothing wakes whoever watches.
async fn write(client: &Client, pool: &str, pointer: &Value) -> Result<(), Error> {
    let collection = format!("/api/v1/namespaces/{MACHINE_NAMESPACE}/secrets");
    let name = format!("{pool}-user-data");
    let data = json!({
        "disableTemplating": STANDARD.encode("true\n"), "userData": STANDARD.encode(pointer.to_string()),
    });
    let Some(mut stored) = found(client, &format!("{collection}/{name}")).await? else {
        let object = json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque",
            "metadata": {"name": name, "namespace": MACHINE_NAMESPACE}, "data": data});
        return client.post(&collection, &object).await.map(drop);
    };
    if stored["data"]["userData"] == data["userData"] {
        return Ok(());
    }
    stored["data"] = data;
    client.put(&format!("{collection}/{name}"), &stored).await.map(drop)
}
