//! `apply` and `rendered`: objects from files.

use anyhow::Context as _;
use serde_json::{Value, json};
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use crate::api::Resource;
use crate::client::{Client, Error};
use crate::exit::{DATA, TEMPFAIL, failure};
use crate::names::{BY_HAND_ANNOTATION, RENDERED_UP_TO};
use crate::selector::labels_match;
use crate::{documents, render};

const POOLS: &str = "/apis/machineconfiguration.openshift.io/v1/machineconfigpools";
/// How long a renderer may take before `apply` says that there seems to be none.
const PATIENCE: Duration = Duration::from_secs(20);

/// Creates or updates every object of every file, then waits until what was applied is rendered.
pub async fn apply(client: &Client, files: &[String], wait: bool) -> anyhow::Result<()> {
    let mut objects = Vec::new();
    for file in files {
        objects.extend(read(file)?);
    }
    let mut configs = Vec::new();
    for object in objects {
        let stored = put(client, object).await?;
        if stored["kind"] == "MachineConfig" {
            configs.push(stored);
        }
    }
    if wait && !configs.is_empty() {
        let rendered = tokio::time::timeout(PATIENCE, rendered_pools(client, &configs)).await;
        rendered.map_err(|_| failure(TEMPFAIL, "applied, but nobody has rendered it: is a renderer running? (`oneboot-cluster serve`; --no-wait not to wait)"))??;
    }
    Ok(())
}

fn read(file: &str) -> anyhow::Result<Vec<Value>> {
    let text = if file == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).context("cannot read standard input")?;
        text
    } else {
        std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?
    };
    documents::parse(&text).map_err(|why| failure(DATA, format!("{file}: {why}")))
}

/// One object: created, or its given fields merged over what is there.
async fn put(client: &Client, mut object: Value) -> anyhow::Result<Value> {
    let text = |key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let Some(resource) = Resource::of_kind(&api_version, &kind) else {
        return Err(failure(DATA, format!("this API has no {kind:?} in {api_version:?}")));
    };
    let metadata = |key: &str| object["metadata"][key].as_str().unwrap_or_default().to_owned();
    let (name, namespace) = (metadata("name"), metadata("namespace"));
    let namespace =
        if resource.namespaced && namespace.is_empty() { "default".to_owned() } else { namespace };
    if let Value::Object(map) = &mut object["metadata"] {
        // Another cluster's: meaningless here, and owners without uid are refused (facts/trust.md 9).
        for key in
            ["resourceVersion", "uid", "creationTimestamp", "generation", "managedFields", "ownerReferences"]
        {
            map.remove(key);
        }
    }
    let status = object.get("status").cloned().filter(|_| resource.subresources.contains(&"status"));
    let path = resource.path(&namespace, Some(&name));
    let (mut stored, done) = match client.post(&resource.path(&namespace, None), &object).await {
        Ok(stored) => (stored, "created"),
        // A list that is given replaces the stored one, a map is merged: `spec` is replaced as a whole.
        Err(Error::Status { code: 409, .. }) => (replace(client, &path, &object).await?, "configured"),
        Err(error) => return Err(anyhow::Error::from(error).context(format!("cannot apply {kind} {name}"))),
    };
    if let Some(status) = status {
        stored = client.merge(&format!("{path}/status"), &json!({"status": status})).await?;
    }
    let name = stored["metadata"]["name"].as_str().unwrap_or_default();
    println!("{}/{name} {done}", resource.qualified());
    Ok(stored)
}

/// Everything but metadata is the file's; of metadata, labels and annotations are merged.
async fn replace(client: &Client, path: &str, object: &Value) -> Result<Value, Error> {
    loop {
        let stored = client.get(path).await?;
        let mut new = object.clone();
        let mut metadata = stored["metadata"].clone();
        for key in ["labels", "annotations"] {
            for (name, value) in object["metadata"][key].as_object().into_iter().flatten() {
                metadata[key][name] = value.clone();
            }
        }
        new["metadata"] = metadata;
        match client.put(path, &new).await {
            Err(Error::Status { code: 409, .. }) => {}
            other => return other,
        }
    }
}

/// Waits, by watching, until every pool that selects one of the configs shows them all, or says why it cannot.
async fn rendered_pools(client: &Client, configs: &[Value]) -> anyhow::Result<()> {
    loop {
        let (pools, mut watch) = client.list_and_watch(POOLS).await?;
        let mut waiting = Vec::new();
        for pool in pools {
            if !verdict(&pool, configs)? {
                waiting.push(pool["metadata"]["name"].clone());
            }
        }
        while !waiting.is_empty() {
            let Some(event) = watch.next().await else { break };
            if verdict(&event.object, configs)? {
                waiting.retain(|name| *name != event.object["metadata"]["name"]);
            }
        }
        if waiting.is_empty() {
            return Ok(());
        }
    }
}

/// Whether a pool is done with these configs; an error if it cannot be rendered with them.
fn verdict(pool: &Value, configs: &[Value]) -> anyhow::Result<bool> {
    let metadata = &pool["metadata"];
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok()).unwrap_or_default();
    let selected =
        configs.iter().filter(|config| labels_match(&pool["spec"]["machineConfigSelector"], config));
    let newest = selected.map(|config| number(&config["metadata"]["resourceVersion"])).max();
    if metadata["annotations"].get(BY_HAND_ANNOTATION).is_some()
        || newest.is_none_or(|newest| number(&metadata["annotations"][RENDERED_UP_TO]) < newest)
    {
        return Ok(newest.is_none() || metadata["annotations"].get(BY_HAND_ANNOTATION).is_some());
    }
    let degraded = pool["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|c| c["type"] == "RenderDegraded" && c["status"] == "True");
    match degraded {
        None => Ok(true),
        Some(condition) => {
            let name = metadata["name"].as_str().unwrap_or_default();
            Err(failure(
                DATA,
                format!(
                    "pool {name} cannot be rendered: {}",
                    condition["message"].as_str().unwrap_or_default()
                ),
            ))
        }
    }
}

/// Installs rendered MachineConfigs of the user's own.
pub async fn rendered(client: &Client, pool: &str, pre: &Path, post: &Path) -> anyhow::Result<()> {
    let one = |path: &Path| -> anyhow::Result<Value> {
        let shown = path.display();
        let mut objects = read(&path.to_string_lossy())?;
        match objects.len() {
            1 => Ok(objects.remove(0)),
            many => Err(failure(
                DATA,
                format!("{shown}: one MachineConfig is expected, {many} documents are there"),
            )),
        }
    };
    let (pre, post) = (one(pre)?, one(post)?);
    let names = (pre["metadata"]["name"].clone(), post["metadata"]["name"].clone());
    render::install(client, pool, pre, post).await?;
    println!("pool {pool} serves {} before approval and is {} after", names.0, names.1);
    Ok(())
}
