//! Rendered configs that somebody brings: installed as a pool's pre and post, and left alone by the renderer.

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::client::{Client, Error};
use crate::exit::{DATA, failure};
use crate::names::{BY_HAND_ANNOTATION, FULL_NAME_ANNOTATION, PRE_NAME_ANNOTATION, ROLE_LABEL};

const MCO: &str = "/apis/machineconfiguration.openshift.io/v1";

/// Installs both as the pool's; the pool is made if it is not there. Owners are stripped: those written at bootstrap
/// have no uid, and the API refuses them (facts/trust.md 9).
pub async fn install(client: &Client, pool: &str, mut pre: Value, mut post: Value) -> anyhow::Result<()> {
    let names = [name(&pre)?, name(&post)?];
    for (object, annotation, other) in
        [(&mut pre, FULL_NAME_ANNOTATION, &names[1]), (&mut post, PRE_NAME_ANNOTATION, &names[0])]
    {
        let annotations = object["metadata"]["annotations"].clone();
        object["metadata"] = json!({"name": object["metadata"]["name"], "annotations": annotations});
        object["metadata"]["annotations"][annotation] = other.clone().into();
        if names[0] == names[1] {
            // One object is both (a control plane before the cluster: pre = post).
            object["metadata"]["annotations"][PRE_NAME_ANNOTATION] = names[0].clone().into();
        }
        replace(client, &format!("{MCO}/machineconfigs"), object).await?;
    }
    let configuration = json!({"name": names[1], "source": []});
    let path = format!("{MCO}/machineconfigpools/{pool}");
    let annotations = json!({BY_HAND_ANNOTATION: "true"});
    let spec = json!({
        "configuration": configuration,
        "machineConfigSelector": {"matchLabels": {ROLE_LABEL: pool}},
        "nodeSelector": {"matchLabels": {format!("node-role.kubernetes.io/{pool}"): ""}},
    });
    let patched = client
        .merge(
            &path,
            &json!({"metadata": {"annotations": annotations}, "spec": {"configuration": configuration}}),
        )
        .await;
    let mut object = match patched {
        Err(Error::Status { code: 404, .. }) => {
            let object = json!({"apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
                "metadata": {"name": pool, "annotations": annotations}, "spec": spec});
            client.post(&format!("{MCO}/machineconfigpools"), &object).await?
        }
        other => other?,
    };
    // Served at once, also when no renderer runs to copy it.
    loop {
        object["status"]["configuration"] = configuration.clone();
        match client.put(&format!("{path}/status"), &object).await {
            Err(Error::Status { code: 409, .. }) => object = client.get(&path).await?,
            other => return other.map(|_| ()).context("cannot set the pool's configuration"),
        }
    }
}

fn name(object: &Value) -> anyhow::Result<String> {
    if object["kind"] != "MachineConfig" {
        return Err(failure(
            DATA,
            "not a MachineConfig: give files as `oc get machineconfig rendered-... -o json` writes them",
        ));
    }
    object["metadata"]["name"]
        .as_str()
        .map(str::to_owned)
        .ok_or_else(|| failure(DATA, "the MachineConfig has no name"))
}

async fn replace(client: &Client, collection: &str, object: &Value) -> Result<(), Error> {
    match client.post(collection, object).await {
        Err(Error::Status { code: 409, .. }) => {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            client.put(&format!("{collection}/{name}"), object).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}
