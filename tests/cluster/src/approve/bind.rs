//! From a node to its pool, and the binding that follows (facts/trust.md 3.3): the node first, then the approval.

use serde_json::{Value, json};
use time::OffsetDateTime;

use super::decide::has_internal_dns;
use crate::client::{Client, Error};
use crate::names::{MACHINE_ROLE_LABEL, NODE_USER_PREFIX, pool_reader};
use crate::{stamp, tokens};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";

/// The pool that a node belongs to: its Machine's, else that of a token made for it. Never the node's own labels: a
/// node can give itself those.
pub async fn pool_of(client: &Client, node: &str) -> Result<Option<String>, Error> {
    let machines = client.get("/apis/machine.openshift.io/v1beta1/machines").await?;
    let machine =
        machines["items"].as_array().into_iter().flatten().find(|machine| has_internal_dns(machine, node));
    if let Some(pool) = machine.and_then(|machine| machine["metadata"]["labels"][MACHINE_ROLE_LABEL].as_str())
    {
        return Ok(Some(pool.to_owned()));
    }
    let secret = match client.get(&tokens::path()).await {
        Err(Error::Status { code: 404, .. }) => return Ok(None),
        other => other?,
    };
    let now = OffsetDateTime::now_utc();
    let fits = |record: &tokens::Record| {
        record.node.as_deref() == Some(node) && stamp::parse(&record.not_after).is_some_and(|end| now < end)
    };
    Ok(tokens::records(&secret).into_iter().find(fits).and_then(|record| record.pool))
}

/// Adds a node to its pool's readers. The binding is made if it is not there.
pub async fn bind(client: &Client, pool: &str, node: &str) -> Result<(), Error> {
    let name = pool_reader(pool);
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": format!("{NODE_USER_PREFIX}{node}")});
    loop {
        let written = match client.get(&format!("{BINDINGS}/{name}")).await {
            Ok(mut binding) => {
                let subjects = &mut binding["subjects"];
                if !subjects.is_array() {
                    *subjects = json!([]);
                }
                let subjects = subjects.as_array_mut().expect("made an array above");
                if subjects.contains(&subject) {
                    return Ok(());
                }
                subjects.push(subject.clone());
                client.put(&format!("{BINDINGS}/{name}"), &binding).await
            }
            Err(Error::Status { code: 404, .. }) => {
                let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                    "metadata": {"name": name}, "subjects": [subject],
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}});
                client.post(BINDINGS, &binding).await
            }
            Err(error) => return Err(error),
        };
        match written {
            Err(Error::Status { code: 409, .. }) => {} // another node of the pool, at the same moment
            other => return other.map(|_| ()),
        }
    }
}

/// Adds a condition through the approval subresource. `kind` is `Approved` or `Denied`.
pub async fn approve(
    client: &Client,
    csr: &Value,
    kind: &str,
    reason: &str,
    message: &str,
) -> Result<(), Error> {
    let name = csr["metadata"]["name"].as_str().unwrap_or_default();
    let mut csr = csr.clone();
    let condition = json!({"type": kind, "status": "True", "reason": reason, "message": message});
    match &mut csr["status"]["conditions"] {
        Value::Array(conditions) => conditions.push(condition),
        other => *other = json!([condition]),
    }
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval");
    client.put(&path, &csr).await.map(|_| ())
}
