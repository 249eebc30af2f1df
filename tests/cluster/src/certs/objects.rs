//! The MCS's CA and serving certificate as objects of the API (facts/mco.md 1.8): made once, found again, rotated.

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::rotation::{Holding, Step, first_ca};
use super::{CertError, Pair};
use crate::client::{Client, Error};
use crate::names::{MCO_NAMESPACE, MCS_CA, MCS_TLS};

/// On the serving Secret: what it was made for.
const NAMES: &str = "oneboot.dev/names";
/// In the CA's Secret: certificates for CAs by their predecessors.
const CROSSES: &str = "cross.crt";

/// The objects as they were read: written back with their versions, so that nobody's change is lost.
struct Objects {
    ca: Value,
    bundle: Option<Value>,
    serving: Option<Value>,
    held: Holding,
}

/// Makes what is missing, does what is due, until nothing is; what there is then. Without `names` the serving
/// certificate keeps those that it has.
pub async fn settle(
    client: &Client,
    names: Option<&[String]>,
    now: OffsetDateTime,
) -> anyhow::Result<Holding> {
    loop {
        let Some(objects) = read(client).await? else {
            let secret = secret(MCS_CA, &first_ca(now)?, &[]);
            match create(client, "secrets", &secret).await {
                Ok(()) | Err(Error::Status { code: 409, .. }) => continue, // another server, at the same moment
                Err(error) => return Err(error.into()),
            }
        };
        let stored = objects.held.serving.as_ref().map(|(_, names)| names.clone()).unwrap_or_default();
        let names = names.unwrap_or(&stored);
        let Some(step) = objects.held.next(names, now)? else { return Ok(objects.held) };
        perform(client, &objects, step, names).await?;
    }
}

/// What somebody asks for, whether it is due or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rotation {
    /// The next of the two steps.
    Next,
    /// A new CA into the bundle.
    Ca,
    /// The serving certificate by the newest CA.
    Serving,
    /// Every CA but the newest out of the bundle.
    Retire,
}

/// Why a rotation cannot be.
#[derive(Debug, thiserror::Error)]
pub enum RotationError {
    /// There is nothing to rotate.
    #[error("no machine config server has run yet: start `oneboot-cluster serve --dir DIR`")]
    Nothing,
    /// The old CA is the one that new pointers need.
    #[error(
        "the serving certificate is still by an older CA: first `oneboot-cluster certs rotate --serving`"
    )]
    InUse,
}

/// Rotates and settles; what there is then.
pub async fn rotate(client: &Client, rotation: Rotation, now: OffsetDateTime) -> anyhow::Result<Holding> {
    loop {
        let objects = read(client).await?.ok_or(RotationError::Nothing)?;
        let held = &objects.held;
        let (_, names) = held.serving.clone().ok_or(RotationError::Nothing)?;
        let step = match rotation {
            Rotation::Next if held.serves_newest() => held.new_ca(now)?,
            Rotation::Ca => held.new_ca(now)?,
            Rotation::Next | Rotation::Serving => held.reissue(&names, now)?,
            Rotation::Retire if !held.serves_newest() => return Err(RotationError::InUse.into()),
            Rotation::Retire => held.retire()?,
        };
        if perform(client, &objects, step, &names).await? {
            return settle(client, None, now).await;
        }
    }
}

/// Writes a step; false if somebody else has written meanwhile: look again.
async fn perform(client: &Client, objects: &Objects, step: Step, names: &[String]) -> anyhow::Result<bool> {
    let written = match step {
        Step::Bundle(bundle) => write_bundle(client, objects, &bundle).await,
        Step::NewCa { bundle, ca, crosses } => match write_bundle(client, objects, &bundle).await {
            Ok(()) => {
                let mut data = secret(MCS_CA, &ca, &[])["data"].take();
                data[CROSSES] = STANDARD.encode(crosses).into();
                let mut object = objects.ca.clone();
                object["data"] = data;
                put(client, "secrets", MCS_CA, &object).await
            }
            other => other,
        },
        Step::Serving(pair) => {
            let new = secret(MCS_TLS, &pair, names);
            match &objects.serving {
                Some(stored) => {
                    let mut object = stored.clone();
                    object["data"] = new["data"].clone();
                    object["metadata"]["annotations"] = new["metadata"]["annotations"].clone();
                    put(client, "secrets", MCS_TLS, &object).await
                }
                None => create(client, "secrets", &new).await,
            }
        }
    };
    match written {
        Err(Error::Status { code: 409, .. }) => Ok(false),
        Err(error) => Err(error.into()),
        Ok(()) => Ok(true),
    }
}

async fn write_bundle(client: &Client, objects: &Objects, bundle: &str) -> Result<(), Error> {
    if let Some(stored) = &objects.bundle {
        let mut object = stored.clone();
        object["data"]["ca-bundle.crt"] = bundle.into();
        return put(client, "configmaps", MCS_CA, &object).await;
    }
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": MCS_CA, "namespace": MCO_NAMESPACE}, "data": {"ca-bundle.crt": bundle}});
    create(client, "configmaps", &object).await
}

async fn read(client: &Client) -> anyhow::Result<Option<Objects>> {
    let Some(ca) = get(client, "secrets", MCS_CA).await? else { return Ok(None) };
    let (bundle, serving) =
        (get(client, "configmaps", MCS_CA).await?, get(client, "secrets", MCS_TLS).await?);
    let damaged = |name: &str| format!("the Secret {name} is damaged: delete it, and a new one is made");
    let pair_and_names = |secret: &Value| {
        let names = secret["metadata"]["annotations"][NAMES].as_str().unwrap_or_default();
        Some((pair(secret)?, names.split(',').map(str::to_owned).collect()))
    };
    let held = Holding {
        ca: pair(&ca).ok_or(CertError::Damaged).with_context(|| damaged(MCS_CA))?,
        crosses: decoded(&ca, CROSSES).unwrap_or_default(),
        bundle: bundle
            .as_ref()
            .and_then(|map| map["data"]["ca-bundle.crt"].as_str())
            .unwrap_or_default()
            .to_owned(),
        serving: match &serving {
            Some(secret) => Some(pair_and_names(secret).with_context(|| damaged(MCS_TLS))?),
            None => None,
        },
    };
    Ok(Some(Objects { ca, bundle, serving, held }))
}

fn path(plural: &str) -> String {
    format!("/api/v1/namespaces/{MCO_NAMESPACE}/{plural}")
}

async fn get(client: &Client, plural: &str, name: &str) -> Result<Option<Value>, Error> {
    match client.get(&format!("{}/{name}", path(plural))).await {
        Err(Error::Status { code: 404, .. }) => Ok(None),
        other => other.map(Some),
    }
}

async fn put(client: &Client, plural: &str, name: &str, object: &Value) -> Result<(), Error> {
    client.put(&format!("{}/{name}", path(plural)), object).await.map(drop)
}

async fn create(client: &Client, plural: &str, object: &Value) -> Result<(), Error> {
    client.post(&path(plural), object).await.map(drop)
}

fn decoded(secret: &Value, key: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret["data"][key].as_str()?).ok()?).ok()
}

fn pair(secret: &Value) -> Option<Pair> {
    Some(Pair { certificate: decoded(secret, "tls.crt")?, key: decoded(secret, "tls.key")? })
}

fn secret(name: &str, pair: &Pair, names: &[String]) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": MCO_NAMESPACE, "annotations": {NAMES: names.join(",")}},
        "data": {"tls.crt": STANDARD.encode(&pair.certificate), "tls.key": STANDARD.encode(&pair.key)},
    })
}
