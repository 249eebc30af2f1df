//! The listener and its routes.

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use time::{Duration, OffsetDateTime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::reports::{self, REPORT_LIMIT};
use super::{Parts, build, negotiate, presented, renew};
use crate::client::{Client, Error};
use crate::clock::Clock;
use crate::http::{self, Body, Peer, empty, respond};
use crate::kubeconfig::{Credential, Kubeconfig};
use crate::layout::Layout;
use crate::names::{BOOTSTRAP_TOKEN_SECRET, MCO_NAMESPACE, MCS_SERVED, PRE_NAME_ANNOTATION};
use crate::tokens::{self, Presented, Verdict};
use crate::{certs, stamp};

/// How to run the MCS.
#[derive(Debug, Clone)]
pub struct Options {
    /// For the port of last time, and for the CA bundle that people read.
    pub layout: Layout,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Names and addresses for the certificate.
    pub names: Vec<String>,
    /// Ask for a token, where the cluster has tokens at all.
    pub gate: bool,
    /// Where the time is from.
    pub clock: Clock,
}

/// A running MCS.
pub struct Running {
    /// `https://host:port`.
    pub url: String,
    /// Ends after the stop signal.
    pub task: JoinHandle<()>,
}

struct Server {
    client: Client,
    gate: bool,
    clock: Clock,
    /// When each rendered config was last noted as served: noted once an hour, not at each request.
    noted: Mutex<BTreeMap<String, OffsetDateTime>>,
}

/// Starts it: when this returns, requests are answered.
pub async fn start(options: Options, client: Client, stop: watch::Receiver<bool>) -> anyhow::Result<Running> {
    let now = options.clock.now();
    let held = certs::settle(&client, Some(&options.names), now)
        .await
        .context("cannot get the serving certificate")?;
    let (sender, tls) = watch::channel(renew::config(&held)?);
    let (listener, address) = crate::serve::bind(&options.layout, "mcs", options.listen).await?;
    let url = crate::serve::url(&options.names, address);
    renew::publish(&options, &client, &url, &held).await.context("cannot publish the MCS's URL")?;
    let server = Arc::new(Server {
        client: client.clone(),
        gate: options.gate,
        clock: options.clock.clone(),
        noted: Mutex::default(),
    });
    let serving = http::serve(listener, tls, stop, move |request, peer| {
        let server = Arc::clone(&server);
        async move { server.answer(request, peer).await }
    });
    let renewing = renew::run(options, client, url.clone(), sender, held, now);
    let task = tokio::spawn(async move {
        tokio::select! {
            () = serving => {}
            () = renewing => {}
        }
    });
    Ok(Running { url, task })
}

/// A refusal or failure on the way to a config: the status, and the log's word for it.
struct Refused {
    status: StatusCode,
    why: String,
    /// What `WWW-Authenticate` adds.
    challenge: Option<&'static str>,
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self { status: StatusCode::INTERNAL_SERVER_ERROR, why: error.to_string(), challenge: None }
    }
}

fn refused(status: StatusCode, why: impl Into<String>) -> Refused {
    Refused { status, why: why.into(), challenge: None }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>, peer: Peer) -> Response<Body> {
        // Path only, never the query: it may hold a token. Text from outside is escaped and cut.
        let shown = |name: header::HeaderName| {
            let text = request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("-");
            text.chars().take(120).collect::<String>()
        };
        let (agent, accept) = (shown(header::USER_AGENT), shown(header::ACCEPT));
        let (method, path) =
            (request.method().clone(), request.uri().path().chars().take(120).collect::<String>());
        let (response, note) = match self.route(request, &peer).await {
            Ok((response, note)) => (response, note),
            Err(refused) => {
                let mut response = empty(refused.status);
                if let Some(challenge) = refused.challenge {
                    response
                        .headers_mut()
                        .insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static(challenge));
                }
                (response, refused.why)
            }
        };
        let status = response.status().as_u16();
        tracing::info!(target: "oneboot_cluster::mcs", from = %peer.address, %method, ?path, status, note, ?agent, ?accept, "request");
        response
    }

    async fn route(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<(Response<Body>, String), Refused> {
        let reading = [Method::GET, Method::HEAD].contains(request.method());
        let path = request.uri().path();
        if path == "/oneboot/v1/report" && request.method() == Method::POST {
            return self.report(request, peer).await;
        }
        if !reading {
            return Err(refused(StatusCode::METHOD_NOT_ALLOWED, "method"));
        }
        if path == "/healthz" {
            return Ok((empty(StatusCode::OK), "healthy".to_owned()));
        }
        // Exactly one plain segment: `/config/a/../worker` and `/config/%77orker` are nobody's pool.
        match path.strip_prefix("/config/") {
            Some(pool) if plain(pool) => self.config(&request, pool).await,
            _ => Err(refused(StatusCode::NOT_FOUND, "no such path")),
        }
    }

    async fn config(
        &self,
        request: &Request<Incoming>,
        pool: &str,
    ) -> Result<(Response<Body>, String), Refused> {
        let admitted = self.admit(presented(request.headers(), request.uri().query()), Some(pool)).await?;
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let version =
            negotiate(accept).ok_or_else(|| refused(StatusCode::BAD_REQUEST, "unsupported spec"))?;
        let mco = "/apis/machineconfiguration.openshift.io/v1";
        let pool_object = match self.client.get(&format!("{mco}/machineconfigpools/{pool}")).await {
            Err(Error::Status { code: 404, .. }) => {
                return Err(refused(StatusCode::NOT_FOUND, "unknown pool"));
            }
            other => other?,
        };
        let name = chosen(&pool_object).ok_or_else(|| {
            refused(StatusCode::INTERNAL_SERVER_ERROR, "nothing is rendered for the pool yet")
        })?;
        let full = self.client.get(&format!("{mco}/machineconfigs/{name}")).await?;
        let pre_name = full["metadata"]["annotations"][PRE_NAME_ANNOTATION].as_str();
        let pre_name = pre_name.ok_or_else(|| {
            refused(StatusCode::INTERNAL_SERVER_ERROR, format!("{name} names no pre-approved part"))
        })?;
        let pre = self.client.get(&format!("{mco}/machineconfigs/{pre_name}")).await?;
        let controller =
            self.client.get(&format!("{mco}/controllerconfigs/machine-config-controller")).await?;
        let decoded = |key: &str| {
            STANDARD.decode(controller["spec"][key].as_str()?).ok().and_then(|b| String::from_utf8(b).ok())
        };
        let (kubelet_ca, cloud_ca) = (decoded("kubeAPIServerServingCAData"), decoded("cloudProviderCAData"));
        let kubeconfig = self.kubeconfig().await?;
        let parts = Parts {
            pre: &pre,
            full: &full,
            kubeconfig: &kubeconfig,
            kubelet_ca: kubelet_ca.as_deref(),
            cloud_ca: cloud_ca.as_deref(),
        };
        let config = build(&parts, version).map_err(|error| {
            let status = if error == super::BuildError::SpecTwo {
                StatusCode::BAD_REQUEST
            } else {
                StatusCode::INTERNAL_SERVER_ERROR
            };
            refused(status, error.to_string())
        })?;
        let body = config.to_string();
        let note = format!("{name} as {version}, {} bytes, {admitted}", body.len());
        let mut response = respond(StatusCode::OK, "application/json", body);
        if request.method() == Method::HEAD {
            let length = hyper::body::Body::size_hint(response.body()).exact().unwrap_or_default();
            response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
            *response.body_mut() = http::full("");
        } else {
            self.note_served(pool, name).await?;
        }
        Ok((response, note))
    }

    /// The token gate (design 5 "Token"). A cluster without the Secret is an upgraded one: the gate is off.
    async fn admit(&self, shown: Presented, pool: Option<&str>) -> Result<String, Refused> {
        if !self.gate {
            return Ok("gate off".to_owned());
        }
        let secret = match self.client.get(&tokens::path()).await {
            Err(Error::Status { code: 404, .. }) => return Ok("no tokens in this cluster".to_owned()),
            other => other?,
        };
        let (status, why) = match tokens::judge(&tokens::records(&secret), &shown, pool, self.clock.now()) {
            Verdict::Admitted { id } => return Ok(format!("token {id}")),
            Verdict::WrongPool => (StatusCode::FORBIDDEN, "a token for another pool"),
            Verdict::Missing => (StatusCode::UNAUTHORIZED, "no token"),
            Verdict::Malformed => (StatusCode::UNAUTHORIZED, "not one token"),
            Verdict::Unknown => (StatusCode::UNAUTHORIZED, "an unknown token"),
            Verdict::Expired => (StatusCode::UNAUTHORIZED, "an expired token"),
        };
        let challenge = match (status, &shown) {
            (StatusCode::UNAUTHORIZED, Presented::Nothing) => Some("Bearer realm=\"machine-config-server\""),
            (StatusCode::UNAUTHORIZED, _) => {
                Some("Bearer realm=\"machine-config-server\", error=\"invalid_token\"")
            }
            _ => None,
        };
        Err(Refused { status, why: why.to_owned(), challenge })
    }

    /// The kubelet's bootstrap kubeconfig (facts/mco.md 1.4).
    async fn kubeconfig(&self) -> Result<String, Refused> {
        let secret = self
            .client
            .get(&format!("/api/v1/namespaces/{MCO_NAMESPACE}/secrets/{BOOTSTRAP_TOKEN_SECRET}"))
            .await?;
        let infrastructure = self.client.get("/apis/config.openshift.io/v1/infrastructures/cluster").await?;
        let text = |key: &str| {
            STANDARD.decode(secret["data"][key].as_str()?).ok().and_then(|b| String::from_utf8(b).ok())
        };
        let damaged = || {
            refused(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the bootstrap token Secret or the Infrastructure is damaged",
            )
        };
        let config = Kubeconfig {
            server: infrastructure["status"]["apiServerInternalURI"].as_str().ok_or_else(damaged)?.to_owned(),
            ca: text("ca.crt").ok_or_else(damaged)?,
            credential: Credential::Token(text("token").ok_or_else(damaged)?),
        };
        Ok(config.to_yaml("kubelet"))
    }

    /// A node that was sent this config may ask the API for it during the next day (design 5 "Approver").
    async fn note_served(&self, pool: &str, name: &str) -> Result<(), Error> {
        let now = OffsetDateTime::now_utc();
        let recent = |at: &OffsetDateTime| now - *at < Duration::hours(1);
        if self.noted.lock().is_ok_and(|noted| noted.get(name).is_some_and(recent)) {
            return Ok(());
        }
        let collection = format!("/api/v1/namespaces/{MCO_NAMESPACE}/configmaps");
        let data = json!({name: format!("{pool} {}", stamp::rfc3339(now))});
        match self.client.merge(&format!("{collection}/{MCS_SERVED}"), &json!({"data": data})).await {
            Err(Error::Status { code: 404, .. }) => {
                let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MCS_SERVED}, "data": data});
                self.client.post(&collection, &object).await?;
            }
            other => drop(other?),
        }
        if let Ok(mut noted) = self.noted.lock() {
            noted.insert(name.to_owned(), now);
        }
        Ok(())
    }

    async fn report(
        &self,
        request: Request<Incoming>,
        peer: &Peer,
    ) -> Result<(Response<Body>, String), Refused> {
        let admitted = self.admit(presented(request.headers(), request.uri().query()), None).await?;
        let body = http::read(request.into_body(), REPORT_LIMIT).await;
        let body = body.ok_or_else(|| {
            refused(StatusCode::PAYLOAD_TOO_LARGE, "the report is too large or did not arrive")
        })?;
        let report: Value = serde_json::from_slice(&body)
            .map_err(|_| refused(StatusCode::BAD_REQUEST, "the report is not JSON"))?;
        reports::keep(&self.client, &report, &peer.address.ip().to_string()).await?;
        Ok((empty(StatusCode::NO_CONTENT), format!("report, {admitted}")))
    }
}

/// A name that a pool can have (RFC 1123 label, with dots).
fn plain(pool: &str) -> bool {
    let one = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    !pool.is_empty() && pool.len() <= 253 && pool.chars().all(one) && !pool.starts_with(['.', '-'])
}

/// The real server's choice (facts/mco.md 1.3): spec's once a node runs it, status's before.
fn chosen(pool: &Value) -> Option<&str> {
    let updated = pool["status"]["updatedMachineCount"].as_i64().unwrap_or_default() > 0;
    let of = if updated { "spec" } else { "status" };
    pool[of]["configuration"]["name"].as_str().filter(|name| !name.is_empty())
}
