//! `get` and `reports`.

use serde_json::Value;

use crate::api::Resource;
use crate::cli::Output;
use crate::client::Client;
use crate::exit::{USAGE, failure};
use crate::mcs::REPORT_LABEL;
use crate::names::MCO_NAMESPACE;

/// Prints objects.
pub async fn get(
    client: &Client,
    kind: &str,
    name: Option<&str>,
    namespace: Option<&str>,
    output: Output,
) -> anyhow::Result<()> {
    let Some(resource) = Resource::named(kind) else {
        return Err(failure(
            USAGE,
            format!("no kind {kind:?}; try nodes, csr, mc, mcp, machines, secrets, configmaps, events"),
        ));
    };
    let path = match (resource.namespaced, namespace, name) {
        (true, None, Some(_)) => {
            return Err(failure(USAGE, format!("say where {kind} lives: --namespace NAMESPACE")));
        }
        (true, None, None) => resource.path("", None).replace("/namespaces//", "/"),
        _ => resource.path(namespace.unwrap_or_default(), name),
    };
    let found = client.get(&path).await?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&found)?),
        Output::Yaml => print!("{}", serde_norway::to_string(&found)?),
        Output::Name => {
            let one = [found.clone()];
            let objects = found["items"].as_array().map_or(&one[..], Vec::as_slice);
            for object in objects {
                let text = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
                let place = if text("namespace").is_empty() {
                    String::new()
                } else {
                    format!("{}/", text("namespace"))
                };
                println!("{place}{}", text("name"));
            }
        }
    }
    Ok(())
}

/// Prints boot reports, oldest first.
pub async fn reports(client: &Client) -> anyhow::Result<()> {
    let list = client
        .get(&format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps?labelSelector={REPORT_LABEL}"))
        .await?;
    let mut all: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    all.sort_by_key(|object| {
        object["metadata"]["resourceVersion"].as_str().and_then(|version| version.parse::<u64>().ok())
    });
    for object in all {
        let data = &object["data"];
        let report: Value =
            serde_json::from_str(data["report.json"].as_str().unwrap_or_default()).unwrap_or_default();
        println!(
            "{}",
            serde_json::json!({"received": data["received"], "from": data["from"], "report": report})
        );
    }
    Ok(())
}
