//! Owns: one connection to the API: get, list, watch, patch, create.
//! Given an identity it gives typed answers, or a failure with what was asked.
//! Never: tries again (`session` does), follows a redirect, or trusts a CA that the kubeconfig does not name.

use std::{
    fmt::Write,
    io::{BufReader, Read},
    net::{IpAddr, SocketAddr, ToSocketAddrs},
    time::Duration,
};

use oneboot_firstboot::{
    transport::{self, tls_error},
    trust::{self, Refusal, TrustError, client_config},
};
use serde::de::DeserializeOwned;
use ureq::{
    Body,
    http::{HeaderValue, Request, Response, Uri, header},
};

use super::{
    error::{ApiError, Ask, Failure},
    resource::Resource,
    types::{List, Object},
    watch::Query,
};
use crate::identity::{Credential, Identity};

/// A rendered MachineConfig is at most 1.5 MiB (facts/mco.md 6.1); a list of requests in a busy cluster a few more.
const BODY_LIMIT: u64 = 16 << 20;
/// An API server that has not answered for so long has lost the request.
const ANSWER: Duration = Duration::from_secs(30);
/// A path that does not even connect in this time goes nowhere.
const CONNECT: Duration = Duration::from_secs(10);
/// How much later than asked for the end of a watch may arrive before its connection counts as dead.
const END_LATE: Duration = ANSWER;
/// A watch with nothing to say is ended by the server after its own maximum, one hour (`--min-request-timeout`, doubled
/// at random); silence beyond that is a connection that died without a word.
const WATCH_SILENCE: Duration = Duration::from_secs(65 * 60);

/// How a patch is merged into the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patch {
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, which is how MCD writes Node annotations.
    Strategic,
}

/// An identity that no connection can be made with.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// Its CAs or its key.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// A token with a line break in it is none.
    #[error("the token in the kubeconfig is not printable ASCII")]
    Token,
    /// The server's URL.
    #[error("the server in the kubeconfig is not a URL")]
    Server,
}

/// A client of one server with one identity.
#[derive(Debug)]
pub struct Client {
    http: transport::Client,
    server: String,
    authorization: Option<HeaderValue>,
}

impl Client {
    /// Connects to nothing yet. `fallback` is where the server is dialled when its name does not resolve.
    pub fn new(identity: &Identity, fallback: Option<IpAddr>) -> Result<Self, Unusable> {
        let (own, authorization) = match &identity.credential {
            Credential::Token(token) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
                    .map_err(|_| Unusable::Token)?;
                value.set_sensitive(true);
                (None, Some(value))
            }
            Credential::Certificate(pem) => (Some(trust::Identity::from_pem(pem.expose(), pem)?), None),
        };
        let uri: Uri = identity.server.parse().map_err(|_| Unusable::Server)?;
        let options = transport::Options {
            dial: dial(&uri, fallback),
            connect_timeout: CONNECT,
            stall_timeout: Some(ANSWER),
            total_timeout: None, // a watch has none
        };
        // 0: a node that has a certificate has had its clock set, or has none that is any better.
        let http = transport::Client::new(client_config(&identity.ca, 0, own)?, &options);
        Ok(Self { http, server: identity.server.clone(), authorization })
    }

    /// One object.
    pub fn get<T: DeserializeOwned>(&self, resource: &'static Resource, name: &str) -> Result<T, ApiError> {
        let ask = Ask { verb: "get", resource, name: Some(name.to_owned()) };
        let body = self.get_bytes(resource, name)?;
        parse(&body).map_err(|failure| ApiError { ask, failure })
    }

    /// One object as it came.
    pub fn get_bytes(&self, resource: &'static Resource, name: &str) -> Result<Vec<u8>, ApiError> {
        let ask = Ask { verb: "get", resource, name: Some(name.to_owned()) };
        self.send(&ask, "GET", &resource.path(Some(name)), None)
            .and_then(|answer| whole(answer, &ask))
            .map_err(|failure| ApiError { ask, failure })
    }

    /// All objects of a query, and the version of the collection.
    pub fn list<T: Object>(&self, query: &Query) -> Result<List<T>, ApiError> {
        let ask = query.ask("list");
        let path = format!("{}?fieldSelector={}", query.resource.path(None), encoded(&query.field_selector));
        self.send(&ask, "GET", &path, None)
            .and_then(|answer| whole(answer, &ask))
            .and_then(|body| parse(&body))
            .map_err(|failure| ApiError { ask, failure })
    }

    /// The lines of a watch from a version on.
    pub fn watch(&self, query: &Query, version: &str) -> Result<BufReader<impl Read + use<>>, ApiError> {
        let ask = query.ask("watch");
        let mut path = format!(
            "{}?watch=true&fieldSelector={}&resourceVersion={}",
            query.resource.path(None),
            encoded(&query.field_selector),
            encoded(version),
        );
        if let Some(seconds) = query.timeout_seconds {
            path = format!("{path}&timeoutSeconds={seconds}");
        }
        let silence =
            query.timeout_seconds.map_or(WATCH_SILENCE, |s| Duration::from_secs(s.into()) + END_LATE);
        match self.send(&ask, "GET", &path, Some(silence)) {
            Ok(answer) => Ok(BufReader::new(answer.into_body().into_with_config().limit(u64::MAX).reader())),
            Err(failure) => Err(ApiError { ask, failure }),
        }
    }

    /// Changes one object.
    pub fn patch(
        &self,
        resource: &'static Resource,
        name: &str,
        how: Patch,
        change: &serde_json::Value,
    ) -> Result<(), ApiError> {
        let ask = Ask { verb: "patch", resource, name: Some(name.to_owned()) };
        let content_type = match how {
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
        };
        self.put("PATCH", &resource.path(Some(name)), content_type, change, &ask)
            .map(drop)
            .map_err(|failure| ApiError { ask, failure })
    }

    /// Makes one object, and gives what the server has made of it.
    pub fn create<T: DeserializeOwned>(
        &self,
        resource: &'static Resource,
        object: &serde_json::Value,
    ) -> Result<T, ApiError> {
        let ask = Ask { verb: "create", resource, name: None };
        self.put("POST", &resource.path(None), "application/json", object, &ask)
            .and_then(|body| parse(&body))
            .map_err(|failure| ApiError { ask, failure })
    }

    fn put(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &serde_json::Value,
        ask: &Ask,
    ) -> Result<Vec<u8>, Failure> {
        let request =
            self.request(method, path).header(header::CONTENT_TYPE, content_type).body(body.to_string());
        request
            .map_err(|error| Failure::Malformed(error.to_string()))
            .and_then(|request| self.http.agent().run(request).map_err(|error| unreachable(&error)))
            .and_then(|answer| successful(answer, ask))
            .and_then(|answer| whole(answer, ask))
    }

    fn request(&self, method: &str, path: &str) -> ureq::http::request::Builder {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.server))
            .header(header::USER_AGENT, concat!("oneboot-agent/", env!("CARGO_PKG_VERSION")))
            .header(header::ACCEPT, "application/json")
            .header(header::ACCEPT_ENCODING, "identity");
        if let Some(value) = &self.authorization {
            request = request.header(header::AUTHORIZATION, value);
        }
        request
    }

    fn send(
        &self,
        ask: &Ask,
        method: &str,
        path: &str,
        silence: Option<Duration>,
    ) -> Result<Response<Body>, Failure> {
        let request =
            self.request(method, path).body(()).map_err(|error| Failure::Malformed(error.to_string()))?;
        let agent = self.http.agent();
        let request =
            agent.configure_request(request).timeout_per_read(Some(silence.unwrap_or(ANSWER))).build();
        let answer = self.http.agent().run(request).map_err(|error| unreachable(&error))?;
        successful(answer, ask)
    }
}

/// The answer, if its status is a success.
fn successful(mut answer: Response<Body>, ask: &Ask) -> Result<Response<Body>, Failure> {
    /// A Status object is some hundred bytes; of anything longer the beginning is not parsed anyway.
    const STATUS_LIMIT: u64 = 64 << 10;

    let status = answer.status().as_u16();
    if (200..300).contains(&status) {
        return Ok(answer);
    }
    let retry_after =
        answer.headers().get(header::RETRY_AFTER).and_then(|v| v.to_str().ok()).map(ToOwned::to_owned);
    // The words are a comfort only: an error while reading them is not worth another error.
    let body = answer.body_mut().with_config().limit(STATUS_LIMIT).read_to_vec().unwrap_or_default();
    Err(Failure::from_status(status, ask, retry_after.as_deref(), &body))
}

fn whole(mut answer: Response<Body>, _ask: &Ask) -> Result<Vec<u8>, Failure> {
    answer.body_mut().with_config().limit(BODY_LIMIT).read_to_vec().map_err(|error| match error {
        ureq::Error::BodyExceedsLimit(limit) => Failure::TooLong { limit },
        error => unreachable(&error),
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    // The parser's message can quote what it found; where it found it is enough.
    serde_json::from_slice(body)
        .map_err(|error| Failure::Malformed(format!("line {} column {}", error.line(), error.column())))
}

/// Tells a server that is not the cluster's from one that is not there.
fn unreachable(error: &ureq::Error) -> Failure {
    match tls_error(error).map(|tls| (tls, Refusal::of(tls))) {
        Some((_, Some(refusal))) => Failure::Untrusted(refusal.to_string()),
        Some((tls @ rustls::Error::InvalidCertificate(_), None)) => Failure::Untrusted(tls.to_string()),
        _ => Failure::Unreachable(error.to_string()),
    }
}

/// Where to dial, when the server's name says nothing to anybody yet (on-premises `api-int` before its DNS runs).
fn dial(uri: &Uri, fallback: Option<IpAddr>) -> Option<SocketAddr> {
    let port = uri.port_u16().unwrap_or(443); // https
    let host = uri.host()?.trim_start_matches('[').trim_end_matches(']');
    let fallback = fallback?;
    let known = (host, port).to_socket_addrs().is_ok_and(|mut addresses| addresses.next().is_some());
    (!known).then(|| SocketAddr::new(fallback, port))
}

/// Percent-encoding of a query value: everything but what never has a meaning in a query.
fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}"); // writing to a String cannot fail
        }
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_nobody_knows_is_dialled_where_firstboot_found_the_cluster() {
        let address: IpAddr = "192.0.2.7".parse().unwrap();
        let dialled =
            |server: &str, fallback| dial(&server.parse().unwrap(), fallback).map(|a| a.to_string());
        // A label of more than 63 characters is no name at all: no server has to be asked for that.
        let nobody = format!("https://{}.test:6443", "a".repeat(64));
        assert_eq!(dialled(&nobody, Some(address)).as_deref(), Some("192.0.2.7:6443"));
        assert_eq!(dialled(&nobody, None), None);
        assert_eq!(dialled("https://127.0.0.1:6443", Some(address)), None);
        assert_eq!(dialled("https://[::1]:6443", Some(address)), None);
    }

    #[test]
    fn a_query_value_cannot_add_a_parameter() {
        assert_eq!(encoded("metadata.name=a&watch=true"), "metadata.name%3Da%26watch%3Dtrue");
        assert_eq!(encoded("kubernetes.io/kube"), "kubernetes.io%2Fkube");
    }
}
