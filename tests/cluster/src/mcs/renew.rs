//! The server's own certificate: taken up whenever it changes, renewed when that is due, while it serves.

use anyhow::Context as _;
use rustls::ServerConfig;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;

use super::server::Options;
use crate::certs::{self, Holding};
use crate::client::{Client, Error};
use crate::informer::Informer;
use crate::layout::write_private;
use crate::names::{MCO_NAMESPACE, MCS_CA, MCS_ENDPOINT, MCS_TLS};
use crate::{stamp, tls};

/// After a pass that failed: the API is away, or a Secret is damaged and somebody is repairing it.
const RETRY: Duration = Duration::from_secs(1);

/// Keeps the certificate as it should be, for ever. Connections keep the one that they began with.
pub(super) async fn run(
    options: Options,
    client: Client,
    url: String,
    tls: watch::Sender<Arc<ServerConfig>>,
    held: Holding,
    settled: OffsetDateTime,
) {
    let one = |plural: &str, name: &str| {
        format!("/api/v1/namespaces/{MCO_NAMESPACE}/{plural}?fieldSelector=metadata.name={name}")
    };
    let (ca, bundle, serving) = (one("secrets", MCS_CA), one("configmaps", MCS_CA), one("secrets", MCS_TLS));
    let informer = Informer::start(&client, &[&ca, &bundle, &serving]);
    // From the moment that was judged, not from now: what has come due in between is not to be slept through.
    let mut wake = held.wake(settled);
    loop {
        tokio::select! {
            () = informer.changed() => {}
            () = options.clock.reaches(wake) => {}
        }
        wake = loop {
            match pass(&options, &client, &url, &tls).await {
                Ok(next) => break next,
                Err(error) => {
                    // The last good certificate goes on being served.
                    tracing::warn!(error = format!("{error:#}"), "cannot renew the serving certificate");
                    informer.again_in(RETRY);
                    informer.changed().await;
                }
            }
        };
    }
}

/// One look; when the next is due.
async fn pass(
    options: &Options,
    client: &Client,
    url: &str,
    tls: &watch::Sender<Arc<ServerConfig>>,
) -> anyhow::Result<OffsetDateTime> {
    let now = options.clock.now();
    let held = certs::settle(client, Some(&options.names), now).await?;
    tls.send_replace(config(&held)?);
    publish(options, client, url, &held).await?;
    Ok(held.wake(now))
}

/// What the listener needs.
pub(super) fn config(held: &Holding) -> anyhow::Result<Arc<ServerConfig>> {
    let (pair, _) = held.serving.as_ref().context("there is no serving certificate")?;
    tls::server(pair, None)
        .context("the Secret machine-config-server-tls is damaged: delete it, and a new one is made")
}

/// Says where the MCS is and what it serves: last, so that who reads it finds it so.
pub(super) async fn publish(
    options: &Options,
    client: &Client,
    url: &str,
    held: &Holding,
) -> anyhow::Result<()> {
    write_private(&options.layout.mcs_bundle(), held.bundle.as_bytes())
        .context("cannot write the MCS CA bundle")?;
    let serving = held.serving.as_ref().map(|(pair, _)| stamp::sha256(&pair.certificate));
    let data = json!({"url": url, "serving": serving});
    let collection = format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps");
    match client.merge(&format!("{collection}/{MCS_ENDPOINT}"), &json!({"data": data})).await {
        Err(Error::Status { code: 404, .. }) => {
            let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MCS_ENDPOINT}, "data": data});
            client.post(&collection, &object).await.map(drop).map_err(Into::into)
        }
        other => other.map(drop).map_err(Into::into),
    }
}
