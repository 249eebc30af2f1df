//! The controller manager's part: what is approved is signed, if it keeps the signer's strict rules
//! (facts/trust.md 1.6); otherwise the CSR gets the condition Failed. A node's first certificate waits until the node
//! is in a pool's read binding: a certificate that can be seen can be used, and its first use is to read the config.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use time::{Duration, OffsetDateTime};
use tokio::time::Instant;

use super::admission;
use super::status::Refusal;
use super::store::{Decision, Key, Store};
use crate::certs::{Authority, Request, YEAR};
use crate::names::{BOOTSTRAPPER, CLIENT_SIGNER, NODE_USER_PREFIX, NODES_GROUP, SERVING_SIGNER, pool_reader};
use crate::stamp;

/// The shortest certificate that the signer gives, whatever is asked for.
const SHORTEST: Duration = Duration::minutes(10);

/// Signs whatever is approved, now and as it comes, until the store is gone. `patience` is how long a node's first
/// certificate waits for the binding: there may be no approver, or nobody who knows the pool.
pub(crate) async fn run(store: Arc<Store>, ca: Authority, patience: std::time::Duration) {
    let mut latest = store.latest();
    let mut waiting: BTreeMap<String, Instant> = BTreeMap::new();
    loop {
        latest.borrow_and_update();
        let (now, readers) = (Instant::now(), readers(&store));
        let mut still = BTreeMap::new();
        for csr in store.list(BUCKET, "").1.iter().filter(|csr| wants_certificate(csr)) {
            if let Some(user) = newcomer(csr)
                && !readers.contains(&user)
            {
                let name = csr["metadata"]["name"].as_str().unwrap_or_default();
                let end = waiting.get(name).copied().unwrap_or(now + patience);
                if now < end {
                    still.insert(name.to_owned(), end);
                    continue;
                }
                tracing::warn!(csr = name, user, "signed, though its node may read no pool's config");
            }
            sign(&store, &ca, csr);
        }
        waiting = still;
        let first = waiting.values().min().copied();
        tokio::select! {
            changed = latest.changed() => if changed.is_err() { return },
            () = tokio::time::sleep_until(first.unwrap_or(now)), if first.is_some() => {}
        }
    }
}

/// Users in any pool's read binding.
fn readers(store: &Store) -> BTreeSet<String> {
    let bindings = store.list("rbac.authorization.k8s.io/clusterrolebindings", "").1;
    let of_pools = bindings.iter().filter(|binding| {
        binding["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&pool_reader("")))
    });
    of_pools
        .flat_map(|binding| binding["subjects"].as_array().into_iter().flatten())
        .filter_map(|subject| subject["name"].as_str().map(str::to_owned))
        .collect()
}

/// The user of a node's first certificate; nobody's if it will not be signed anyway.
fn newcomer(csr: &Value) -> Option<String> {
    if csr["spec"]["signerName"] != CLIENT_SIGNER || csr["spec"]["username"] != BOOTSTRAPPER {
        return None;
    }
    let request = admission::request(csr)?;
    validate(csr, &request).is_ok().then_some(request.subject.common_name)
}

const BUCKET: &str = "certificates.k8s.io/certificatesigningrequests";

fn wants_certificate(csr: &Value) -> bool {
    let has =
        |kind: &str| csr["status"]["conditions"].as_array().into_iter().flatten().any(|c| c["type"] == kind);
    let ours =
        [CLIENT_SIGNER, SERVING_SIGNER].contains(&csr["spec"]["signerName"].as_str().unwrap_or_default());
    ours && has("Approved") && !has("Denied") && !has("Failed") && csr["status"]["certificate"].is_null()
}

fn sign(store: &Store, ca: &Authority, csr: &Value) {
    let name = csr["metadata"]["name"].as_str().unwrap_or_default();
    let outcome = issue(ca, csr);
    let key = Key { resource: BUCKET.to_owned(), namespace: String::new(), name: name.to_owned() };
    let written = store.write(&key, |existing| {
        let mut new = existing.cloned().ok_or_else(Refusal::no_such_path)?;
        match &outcome {
            Ok(certificate) => new["status"]["certificate"] = STANDARD.encode(certificate).into(),
            Err(why) => {
                let now = stamp::now();
                let failed = json!({"type": "Failed", "status": "True", "reason": "SignerValidationFailure",
                    "message": why, "lastUpdateTime": now, "lastTransitionTime": now});
                if let Value::Array(conditions) = &mut new["status"]["conditions"] {
                    conditions.push(failed);
                }
            }
        }
        Ok::<_, Refusal>(Decision::Put(new))
    });
    match (written, outcome) {
        (Ok(_), Ok(_)) => tracing::info!(csr = name, "certificate issued"),
        (Ok(_), Err(why)) => tracing::warn!(csr = name, why, "not signed"),
        (Err(refusal), _) => {
            tracing::warn!(csr = name, why = refusal.message, "cannot store the certificate");
        }
    }
}

fn issue(ca: &Authority, csr: &Value) -> Result<String, String> {
    let request = admission::request(csr).ok_or("unable to parse the request")?;
    let purpose = validate(csr, &request)?;
    let asked = csr["spec"]["expirationSeconds"].as_i64().map_or(YEAR, Duration::seconds);
    let lifetime = asked.clamp(SHORTEST, YEAR);
    ca.sign_request(&request, purpose, OffsetDateTime::now_utc(), lifetime).map_err(|error| error.to_string())
}

/// What the signer demands of a kubelet CSR, stricter than any approver.
fn validate(csr: &Value, request: &Request) -> Result<ExtendedKeyUsagePurpose, String> {
    let fail = |why: &str| Err(why.to_owned());
    let serving = csr["spec"]["signerName"] == SERVING_SIGNER;
    if request.subject.organizations != [NODES_GROUP] {
        return fail("subject organization is not system:nodes");
    }
    if !request.subject.common_name.starts_with(NODE_USER_PREFIX) {
        return fail("subject common name does not begin with system:node: ");
    }
    if !request.emails.is_empty() || !request.uris.is_empty() {
        return fail("email and URI subjectAltNames are not allowed");
    }
    let named = !request.dns.is_empty() || !request.addresses.is_empty();
    if serving && !named {
        return fail("DNS or IP subjectAltName is required");
    }
    if !serving && named {
        return fail("DNS and IP subjectAltNames are not allowed");
    }
    let mut usages: Vec<&str> =
        csr["spec"]["usages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    usages.retain(|usage| *usage != "key encipherment");
    usages.sort_unstable();
    let wanted = if serving { "server auth" } else { "client auth" };
    let mut allowed = ["digital signature", wanted];
    allowed.sort_unstable();
    if usages != allowed {
        return Err(format!(
            "usages did not match [digital signature {wanted}] with or without key encipherment"
        ));
    }
    Ok(if serving { ExtendedKeyUsagePurpose::ServerAuth } else { ExtendedKeyUsagePurpose::ClientAuth })
}
