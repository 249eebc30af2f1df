//! The loop: on any change, bring every pool's rendered configs, configuration, status and role up to date.

use serde_json::{Value, json};
use std::time::Duration;
use time::OffsetDateTime;

use super::machineconfig::Defaults;
use super::pools::{readable, role, served_path, status};
use super::split::{Rendered, render};
use crate::client::{Client, Error};
use crate::informer::Informer;
use crate::names::{
    BY_HAND_ANNOTATION, FULL_NAME_ANNOTATION, PRE_NAME_ANNOTATION, RENDERED_UP_TO, pool_reader,
};
use crate::selector::labels_match;

const MCO: &str = "/apis/machineconfiguration.openshift.io/v1";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
/// After a pass that failed half-way: somebody else was faster, or the API is away.
const RETRY: Duration = Duration::from_millis(300);

/// Renders, and writes user data, for ever.
pub async fn run(client: Client) {
    tokio::join!(render_pools(client.clone()), super::userdata::run(client));
}

async fn render_pools(client: Client) {
    let served = format!(
        "{}?fieldSelector=metadata.name={}",
        served_path().rsplit_once('/').unwrap_or_default().0,
        crate::names::MCS_SERVED
    );
    let (configs, pools) = (format!("{MCO}/machineconfigs"), format!("{MCO}/machineconfigpools"));
    let informer = Informer::start(&client, &[&configs, &pools, "/api/v1/nodes", &served]);
    loop {
        informer.changed().await;
        if let Err(error) = pass(&client).await {
            tracing::debug!(%error, "rendering again");
            informer.again_in(RETRY);
        }
    }
}

async fn list(client: &Client, path: &str) -> Result<Vec<Value>, Error> {
    match client.get(path).await?["items"].take() {
        Value::Array(items) => Ok(items),
        _ => Ok(Vec::new()),
    }
}

async fn pass(client: &Client) -> Result<(), Error> {
    let controller = client.get(&format!("{MCO}/controllerconfigs/machine-config-controller")).await?;
    let text = |key: &str| controller["spec"][key].as_str().unwrap_or_default().to_owned();
    let defaults =
        Defaults { os_image: text("osImageURL"), extensions_image: text("baseOSExtensionsContainerImage") };
    let served = match client.get(&served_path()).await {
        Err(Error::Status { code: 404, .. }) => Value::Null,
        other => other?,
    };
    let nodes = list(client, "/api/v1/nodes").await?;
    let configs = list(client, &format!("{MCO}/machineconfigs")).await?;
    for pool in list(client, &format!("{MCO}/machineconfigpools")).await? {
        one_pool(client, pool, &configs, &nodes, &served, &defaults).await?;
    }
    Ok(())
}

async fn one_pool(
    client: &Client,
    mut pool: Value,
    configs: &[Value],
    nodes: &[Value],
    served: &Value,
    defaults: &Defaults,
) -> Result<(), Error> {
    let name = pool["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let path = format!("{MCO}/machineconfigpools/{name}");
    let by_hand = pool["metadata"]["annotations"].get(BY_HAND_ANNOTATION).is_some();
    let selected = |config: &&Value| {
        !by_hand && input(config) && labels_match(&pool["spec"]["machineConfigSelector"], config)
    };
    let inputs: Vec<Value> = configs.iter().filter(selected).cloned().collect();
    let version = |config: &Value| config["metadata"]["resourceVersion"].as_str()?.parse::<u64>().ok();
    let newest = inputs.iter().filter_map(version).max();
    let mut degraded = None;
    if newest.is_some() {
        match render(&name, &inputs, defaults) {
            Ok(rendered) => {
                publish(client, &rendered).await?;
                pool = client.merge(&path, &configuration(&rendered)).await?;
            }
            Err(error) => {
                tracing::warn!(pool = name, %error, "cannot render");
                degraded = Some(error.to_string());
            }
        }
    }
    if degraded.is_some() || !pool["spec"]["configuration"]["name"].is_null() {
        pool["status"] = status(&pool, nodes, degraded.as_deref());
        pool = client.put(&format!("{path}/status"), &pool).await?;
    }
    grant(client, &name, &role(&name, &readable(&pool, served, OffsetDateTime::now_utc()))).await?;
    // Last: who waits for this finds everything else done.
    if let Some(newest) = newest {
        let done = json!({"metadata": {"annotations": {RENDERED_UP_TO: newest.to_string()}}});
        client.merge(&path, &done).await?;
    }
    Ok(())
}

/// Rendered configs are outputs.
fn input(config: &Value) -> bool {
    let annotations = &config["metadata"]["annotations"];
    annotations.get(FULL_NAME_ANNOTATION).is_none() && annotations.get(PRE_NAME_ANNOTATION).is_none()
}

/// Puts both objects there, the part first: whoever sees the whole finds its part.
async fn publish(client: &Client, rendered: &Rendered) -> Result<(), Error> {
    for object in [&rendered.pre, &rendered.post] {
        match client.post(&format!("{MCO}/machineconfigs"), object).await {
            Ok(_) => tracing::info!(name = object["metadata"]["name"].as_str(), "rendered"),
            // The same whole with another part: what is needed before approval has changed, and nothing else.
            Err(Error::Status { code: 409, .. }) => {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                let patch = json!({"metadata": {"annotations": object["metadata"]["annotations"]}});
                client.merge(&format!("{MCO}/machineconfigs/{name}"), &patch).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The patch that points a pool at what was rendered for it.
fn configuration(rendered: &Rendered) -> Value {
    let source = |name: &String| json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig", "name": name});
    let sources: Vec<Value> = rendered.sources.iter().map(source).collect();
    json!({"spec": {"configuration": {"name": rendered.post["metadata"]["name"], "source": sources}}})
}

async fn grant(client: &Client, pool: &str, role: &Value) -> Result<(), Error> {
    match client.post(ROLES, role).await {
        Err(Error::Status { code: 409, .. }) => client
            .merge(&format!("{ROLES}/{}", pool_reader(pool)), &json!({"rules": role["rules"]}))
            .await
            .map(|_| ()),
        other => other.map(|_| ()),
    }
}
