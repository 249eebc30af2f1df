//! The MCS's CA and serving certificate as objects of the API (facts/mco.md 1.8): made once, found again.

use super::{Authority, Pair, YEAR};
use crate::client::{Client, Error};
use crate::names::{MCO_NAMESPACE, MCS_CA, MCS_TLS};
use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use time::OffsetDateTime;

/// CA and serving certificate live for ten years (facts/mco.md 1.8).
const LIFETIME: time::Duration = time::Duration::days(3650);

/// The MCS's serving pair for these names: the stored one if it is there, else a new CA and a new pair.
pub async fn ensure_mcs(client: &Client, names: &[String]) -> anyhow::Result<Pair> {
    let now = OffsetDateTime::now_utc();
    let ca = if let Some(pair) = read_pair(client, MCS_CA).await? {
        Authority::load(&pair)?
    } else {
        let (ca, pair) = Authority::generate("machine-config-server-ca", now, LIFETIME)?;
        create(client, "secrets", &secret(MCS_CA, &pair, names)).await?;
        ca
    };
    let bundle = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": MCS_CA, "namespace": MCO_NAMESPACE}, "data": {"ca-bundle.crt": ca.certificate()}});
    match create(client, "configmaps", &bundle).await {
        Ok(_) | Err(Error::Status { code: 409, .. }) => {} // there already: it may hold more than this CA
        Err(error) => return Err(error.into()),
    }
    let path = format!("/api/v1/namespaces/{MCO_NAMESPACE}/secrets/{MCS_TLS}");
    match client.get(&path).await {
        Ok(stored) if stored["metadata"]["annotations"]["oneboot.dev/names"] == names.join(",") => {
            pair(&stored).context(
                "the stored MCS serving certificate is damaged: delete the Secret machine-config-server-tls",
            )
        }
        Ok(mut stored) => {
            let fresh = ca.serving("system:machine-config-server", names, now, 10 * YEAR)?;
            let new = secret(MCS_TLS, &fresh, names);
            stored["data"] = new["data"].clone();
            stored["metadata"]["annotations"] = new["metadata"]["annotations"].clone();
            client.put(&path, &stored).await?;
            Ok(fresh)
        }
        Err(Error::Status { code: 404, .. }) => {
            let fresh = ca.serving("system:machine-config-server", names, now, 10 * YEAR)?;
            create(client, "secrets", &secret(MCS_TLS, &fresh, names)).await?;
            Ok(fresh)
        }
        Err(error) => Err(error.into()),
    }
}

async fn read_pair(client: &Client, name: &str) -> anyhow::Result<Option<Pair>> {
    match client.get(&format!("/api/v1/namespaces/{MCO_NAMESPACE}/secrets/{name}")).await {
        Ok(secret) => Ok(Some(pair(&secret).with_context(|| format!("the Secret {name} is damaged"))?)),
        Err(Error::Status { code: 404, .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn pair(secret: &Value) -> Option<Pair> {
    let text = |key: &str| String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok();
    Some(Pair { certificate: text("tls.crt")?, key: text("tls.key")? })
}

fn secret(name: &str, pair: &Pair, names: &[String]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": MCO_NAMESPACE, "annotations": {"oneboot.dev/names": names.join(",")}},
        "data": {"tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key)},
    })
}

async fn create(client: &Client, plural: &str, object: &Value) -> Result<Value, Error> {
    client.post(&format!("/api/v1/namespaces/{MCO_NAMESPACE}/{plural}"), object).await
}
