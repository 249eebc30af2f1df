//! The controller manager's part: what is approved is signed, if it keeps the signer's strict rules
//! (facts/trust.md 1.6); otherwise the CSR gets the condition Failed.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::ExtendedKeyUsagePurpose;
use serde_json::{Value, json};
use std::sync::Arc;
use time::{Duration, OffsetDateTime};

use super::admission;
use super::status::Refusal;
use super::store::{Decision, Key, Store};
use crate::certs::{Authority, Request, YEAR};
use crate::names::{CLIENT_SIGNER, NODE_USER_PREFIX, NODES_GROUP, SERVING_SIGNER};
use crate::stamp;

/// The shortest certificate that the signer gives, whatever is asked for.
const SHORTEST: Duration = Duration::minutes(10);

/// Signs whatever is approved, now and as it comes, until the store is gone.
pub(crate) async fn run(store: Arc<Store>, ca: Authority) {
    let mut latest = store.latest();
    loop {
        latest.borrow_and_update();
        for csr in store.list(BUCKET, "").1 {
            if wants_certificate(&csr) {
                sign(&store, &ca, &csr);
            }
        }
        if latest.changed().await.is_err() {
            return;
        }
    }
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
