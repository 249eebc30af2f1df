//! Owns: the kubelet stand-in's connection to the API.
//! Given the bootstrap token or the node's certificate, gives one JSON answer per call, or the lines of a watch.
//! Never: retries; the caller knows what an answer means.

use std::io::{BufRead as _, BufReader};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use serde_json::Value;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::kubeconfig::Bootstrap;
use super::store::Credentials;

/// An API client with one identity.
pub(super) struct Client {
    agent: ureq::Agent,
    server: String,
    authorization: Option<String>,
}

/// An answer of the API: the status code and the body, `Null` where there was none.
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: Value,
}

impl Client {
    /// As the node-bootstrapper.
    pub(super) fn with_token(bootstrap: &Bootstrap) -> anyhow::Result<Self> {
        Ok(Self {
            agent: agent(&bootstrap.ca, None)?,
            server: bootstrap.server.clone(),
            authorization: Some(format!("Bearer {}", bootstrap.token)),
        })
    }

    /// As the node itself.
    pub(super) fn with_certificate(bootstrap: &Bootstrap, credentials: &Credentials) -> anyhow::Result<Self> {
        let chain = certificates(&credentials.certificate)?;
        let key = PrivateKey::from_pem(credentials.key.as_bytes()).context("reading our own key")?;
        Ok(Self {
            agent: agent(&bootstrap.ca, Some(ClientCert::new_with_certs(&chain, key)))?,
            server: bootstrap.server.clone(),
            authorization: None,
        })
    }

    /// `GET path`.
    pub(super) fn get(&self, path: &str) -> anyhow::Result<Answer> {
        let mut request = self.agent.get(format!("{}{path}", self.server));
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        answer(request.call().with_context(|| format!("GET {path}"))?)
    }

    /// `POST path` with a JSON body.
    pub(super) fn post(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let mut request = self.agent.post(format!("{}{path}", self.server)).content_type("application/json");
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        answer(request.send(body.to_string()).with_context(|| format!("POST {path}"))?)
    }

    /// `PATCH path` with a strategic merge patch, which is what a kubelet sends.
    pub(super) fn patch(&self, path: &str, body: &Value) -> anyhow::Result<Answer> {
        let mut request = self
            .agent
            .patch(format!("{}{path}", self.server))
            .content_type("application/strategic-merge-patch+json");
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        answer(request.send(body.to_string()).with_context(|| format!("PATCH {path}"))?)
    }

    /// Follows a watch until `wanted` gives a value, the stream ends (`None`), or nothing came for `timeout`.
    pub(super) fn watch<T>(
        &self,
        path: &str,
        timeout: Duration,
        mut wanted: impl FnMut(&Value) -> Option<T>,
    ) -> anyhow::Result<Option<T>> {
        let mut request = self
            .agent
            .get(format!("{}{path}", self.server))
            .config()
            .timeout_recv_body(Some(timeout))
            .build();
        if let Some(value) = &self.authorization {
            request = request.header("authorization", value);
        }
        let response = request.call().with_context(|| format!("watching {path}"))?;
        anyhow::ensure!(response.status() == 200, "watching {path}: status {}", response.status());
        for line in BufReader::new(response.into_body().into_reader()).lines() {
            let line = line.with_context(|| format!("reading the watch of {path}"))?;
            let event: Value =
                serde_json::from_str(&line).with_context(|| format!("an event of the watch of {path}"))?;
            if let Some(found) = wanted(&event) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn agent(ca: &[u8], client: Option<ClientCert>) -> anyhow::Result<ureq::Agent> {
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&certificates(ca)?))
        .client_cert(client)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    Ok(ureq::Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .timeout_connect(Some(Duration::from_secs(10))) // a dead API is noticed, and tried again by the caller
        .build()
        .into())
}

fn certificates(pem: &[u8]) -> anyhow::Result<Vec<Certificate<'static>>> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) = item.context("reading a PEM bundle")? {
            found.push(certificate);
        }
    }
    anyhow::ensure!(!found.is_empty(), "a PEM bundle without a certificate");
    Ok(found)
}

fn answer(mut response: ureq::http::Response<ureq::Body>) -> anyhow::Result<Answer> {
    let status = response.status().as_u16();
    let text = response.body_mut().read_to_string().context("reading the API's answer")?;
    Ok(Answer { status, body: serde_json::from_str(&text).unwrap_or(Value::Null) })
}
