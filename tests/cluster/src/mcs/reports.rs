//! Boot reports that nodes offer (design 3.7): bounded in size and number, kept as `ConfigMap`s.

use serde_json::{Value, json};

use crate::client::{Client, Error};
use crate::names::MCO_NAMESPACE;
use crate::stamp;

/// Largest report, bytes (design 3.7).
pub const REPORT_LIMIT: usize = 64 << 10;
/// Reports kept; the oldest go first. Whoever can send many must not fill the API.
const KEPT: usize = 200;
/// What report objects are labelled with.
pub const REPORT_LABEL: &str = "oneboot.dev/report";

/// Keeps a report.
pub(crate) async fn keep(client: &Client, report: &Value, from: &str) -> Result<(), Error> {
    let collection = format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps");
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"generateName": "oneboot-report-", "labels": {REPORT_LABEL: "true"}},
        "data": {"report.json": report.to_string(), "from": from, "received": stamp::now()},
    });
    client.post(&collection, &object).await?;
    let list = client.get(&format!("{collection}?labelSelector={REPORT_LABEL}")).await?;
    let version =
        |object: &Value| object["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok());
    let mut all: Vec<&Value> = list["items"].as_array().into_iter().flatten().collect();
    all.sort_by_key(|object| version(object));
    for old in all.iter().take(all.len().saturating_sub(KEPT)) {
        let name = old["metadata"]["name"].as_str().unwrap_or_default();
        match client.delete(&format!("{collection}/{name}")).await {
            Ok(_) | Err(Error::Status { code: 404, .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
