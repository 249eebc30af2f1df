//! Owns: the attempt to get a client certificate, and the backoff between attempts.
//! Given the bootstrap identity and a node name, gives a certificate and its key, however many CSRs that takes.
//! Never: keeps a key of an earlier attempt: as in the kubelet, approving an orphaned CSR gives a certificate nobody holds the key for.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use base64::Engine as _;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};

use super::client::Client;
use super::kubeconfig::Bootstrap;
use super::say;
use super::store::Credentials;

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

/// The kubelet's: 2 s doubling, five steps, then every 32 s (`certificate_manager.go:454-463`). Its jitter is left out, so that a
/// run of the stand-in is the same twice.
#[derive(Debug, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The pause after one more failed attempt.
    pub fn after_failure(&mut self) -> Duration {
        self.attempts = (self.attempts + 1).min(5);
        Duration::from_secs(1 << self.attempts)
    }
}

/// Files CSRs until one is signed.
pub(super) fn certificate(
    bootstrap: &Bootstrap,
    node_name: &str,
    csr_timeout: Duration,
    backoff: &mut Backoff,
) -> anyhow::Result<Credentials> {
    let client = Client::with_token(bootstrap)?;
    loop {
        match attempt(&client, node_name, csr_timeout) {
            Ok(credentials) => return Ok(credentials),
            Err(error) => {
                let pause = backoff.after_failure();
                say("csr-retry", &format!("{error:#}; again in {} s", pause.as_secs()));
                std::thread::sleep(pause);
            }
        }
    }
}

fn attempt(client: &Client, node_name: &str, timeout: Duration) -> anyhow::Result<Credentials> {
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).context("making a key")?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "system:nodes");
    params.distinguished_name.push(DnType::CommonName, format!("system:node:{node_name}"));
    let request =
        params.serialize_request(&key).and_then(|r| r.pem()).context("making a certificate request")?;

    let created = client.post(
        CSRS,
        &json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": { "generateName": "csr-" },
            "spec": {
                "signerName": "kubernetes.io/kube-apiserver-client-kubelet",
                "request": base64::engine::general_purpose::STANDARD.encode(request),
                "usages": ["digital signature", "client auth"],
            },
        }),
    )?;
    anyhow::ensure!(
        created.status == 201,
        "filing the CSR: status {}: {}",
        created.status,
        message(&created.body)
    );
    let name = created.body["metadata"]["name"].as_str().context("the API gave the CSR no name")?.to_owned();
    say("csr-filed", &name);
    let certificate = signed(client, &name, timeout).with_context(|| format!("waiting for {name}"))?;
    say("csr-signed", &name);
    Ok(Credentials { certificate, key: key.serialize_pem() })
}

/// LIST, then WATCH from there, by name; ended by a certificate, a denial, a failure, a deletion, or the timeout.
fn signed(client: &Client, name: &str, timeout: Duration) -> anyhow::Result<Vec<u8>> {
    let deadline = Instant::now() + timeout;
    let selector = format!("fieldSelector=metadata.name%3D{name}");
    loop {
        let list = client.get(&format!("{CSRS}?{selector}"))?;
        anyhow::ensure!(list.status == 200, "listing: status {}: {}", list.status, message(&list.body));
        match list.body["items"].as_array().and_then(|items| items.first()) {
            None => anyhow::bail!("the CSR is gone"),
            Some(csr) => {
                if let Some(verdict) = verdict(csr) {
                    return verdict;
                }
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        anyhow::ensure!(!left.is_zero(), "not signed within {} s", timeout.as_secs());
        let version = list.body["metadata"]["resourceVersion"].as_str().unwrap_or("0");
        let path = format!("{CSRS}?{selector}&watch=true&resourceVersion={version}");
        let found = client.watch(&path, left, |event| match event["type"].as_str() {
            Some("DELETED") => Some(Err(anyhow::anyhow!("the CSR was deleted"))),
            Some("ADDED" | "MODIFIED") => verdict(&event["object"]),
            _ => None,
        })?;
        if let Some(verdict) = found {
            return verdict;
        }
    }
}

/// What a CSR object says: nothing yet, a certificate, or why there will be none.
fn verdict(csr: &Value) -> Option<anyhow::Result<Vec<u8>>> {
    for condition in csr["status"]["conditions"].as_array().into_iter().flatten() {
        if let Some(kind @ ("Denied" | "Failed")) = condition["type"].as_str() {
            let reason = condition["message"].as_str().unwrap_or("no message");
            return Some(Err(anyhow::anyhow!("{kind}: {reason}")));
        }
    }
    let certificate = csr["status"]["certificate"].as_str().filter(|text| !text.is_empty())?;
    Some(
        base64::engine::general_purpose::STANDARD
            .decode(certificate)
            .context("status.certificate is not base64"),
    )
}

fn message(status: &Value) -> &str {
    status["message"].as_str().unwrap_or("no message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_is_the_kubelets() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u64> = (0..7).map(|_| backoff.after_failure().as_secs()).collect();
        assert_eq!(pauses, [2, 4, 8, 16, 32, 32, 32]);
    }

    #[test]
    fn a_denied_csr_ends_the_attempt_even_with_a_certificate() {
        let csr = json!({"status": {"conditions": [{"type": "Denied", "message": "by hand"}], "certificate": "Zm9v"}});
        let error = verdict(&csr).expect("a verdict").expect_err("denied");
        assert_eq!(error.to_string(), "Denied: by hand");
    }

    #[test]
    fn an_approved_csr_without_a_certificate_is_waited_for() {
        assert!(verdict(&json!({"status": {"conditions": [{"type": "Approved"}]}})).is_none());
    }
}
