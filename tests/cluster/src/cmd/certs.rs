//! `certs rotate` and `certs retire`.

use std::time::Duration;
use time::OffsetDateTime;

use crate::certs::{Rotation, RotationError, rotate};
use crate::client::Client;
use crate::exit::{CONFIG, TEMPFAIL, failure};
use crate::names::{MCO_NAMESPACE, MCS_ENDPOINT};
use crate::stamp;

/// How long a machine config server may take before the command says that there seems to be none.
const PATIENCE: Duration = Duration::from_secs(20);

/// Rotates; returns when the machine config server serves what follows from it.
pub async fn certs(client: &Client, rotation: Rotation) -> anyhow::Result<()> {
    let held = rotate(client, rotation, OffsetDateTime::now_utc()).await.map_err(|error| match error
        .downcast_ref::<RotationError>(
    ) {
        Some(known) => failure(CONFIG, known.to_string()),
        None => error,
    })?;
    let chain = held.serving.as_ref().map(|(pair, _)| stamp::sha256(&pair.certificate)).unwrap_or_default();
    let waited = tokio::time::timeout(PATIENCE, served(client, &chain)).await;
    waited.map_err(|_| {
        failure(TEMPFAIL, "rotated, but nobody serves it yet: is a machine config server running? (`oneboot-cluster serve`)")
    })??;
    let count = held.bundle.matches("BEGIN CERTIFICATE").count();
    let by = if held.serves_newest() { "the newest of them" } else { "an older one" };
    println!("pointers carry {count} CAs; the serving certificate is by {by}");
    Ok(())
}

/// Waits, by watching, until the server says that it serves this chain.
async fn served(client: &Client, chain: &str) -> anyhow::Result<()> {
    let path =
        format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps?fieldSelector=metadata.name={MCS_ENDPOINT}");
    loop {
        let (items, mut watch) = client.list_and_watch(&path).await?;
        if items.iter().any(|map| map["data"]["serving"] == chain) {
            return Ok(());
        }
        while let Some(event) = watch.next().await {
            if event.object["data"]["serving"] == chain {
                return Ok(());
            }
        }
    }
}
