//! Owns: one exchange with a server: the requests to the letter, redirects, limits, and what the answer amounts to.
//! Given a URL and headers, gives the body, or what was seen instead in the words of the outcome table.
//! Never: retries, waits, or puts a header, query or body into a message.

use crate::document::Spec;
use crate::outcome::{Limits, Outcome};
use crate::secret::Secret;
use crate::transport::{Client, tls_error};
use crate::trust::{Cause, Refusal};
use crate::url::Url;
use crate::{clock, retry_after};
use std::io::Read;
use std::time::Duration;
use ureq::http::{HeaderName, HeaderValue, Response, StatusCode};
use ureq::{Body, Error, RequestBuilder, Timeout};

/// `User-Agent`; the Machine Config Server logs it.
pub const USER_AGENT: &str = concat!("oneboot-firstboot/", env!("CARGO_PKG_VERSION"));

/// What was seen instead of a body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Seen {
    /// The row of the table.
    pub outcome: Outcome,
    /// What exactly, in a line.
    pub detail: String,
    /// `Retry-After`, as a pause.
    pub retry_after: Option<Duration>,
}

impl Seen {
    /// Without a `Retry-After`.
    pub fn new(outcome: Outcome, detail: impl Into<String>) -> Self {
        Self { outcome, detail: detail.into(), retry_after: None }
    }
}

/// Names and values, beyond those that every request has.
pub type Headers = [(String, Secret<String>)];

/// One `GET`, with redirects followed to the same origin, each hop within `budget`.
pub fn get(
    client: &Client,
    url: &Url,
    spec: Spec,
    headers: &Headers,
    budget: Duration,
    limits: &Limits,
) -> Result<Vec<u8>, Seen> {
    let mut url = url.clone();
    for _ in 0..=limits.redirects {
        let response = request(client, &url, spec, headers, budget)?;
        if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED {
            return body(response, limits);
        }
        url = follow(&url, &response)?;
        // What is left unread would cost a new connection, and with it two more round trips.
        let _ = response.into_body().into_with_config().limit(64 << 10).read_to_vec();
    }
    Err(Seen::new(
        Outcome::RedirectRefused,
        format!("more than {} redirects, the last to {url}", limits.redirects),
    ))
}

fn request(
    client: &Client,
    url: &Url,
    spec: Spec,
    headers: &Headers,
    budget: Duration,
) -> Result<Response<Body>, Seen> {
    let request = client
        .agent()
        .get(url.request().expose())
        .header("Accept", format!("application/vnd.coreos.ignition+json;version={spec}, */*;q=0.1"))
        .header("Accept-Encoding", "identity");
    with(request, headers, budget)?.call().map_err(|error| failure(&error, "before an answer"))
}

/// One `POST` of JSON, whose answer's status is all that counts; a redirect is one more status.
pub fn post(
    client: &Client,
    url: &Url,
    headers: &Headers,
    json: &[u8],
    budget: Duration,
) -> Result<u16, Seen> {
    let request = client.agent().post(url.request().expose()).header("Content-Type", "application/json");
    let sent = with(request, headers, budget)?.send(json);
    sent.map(|response| response.status().as_u16()).map_err(|error| failure(&error, "before an answer"))
}

/// What every request has, whatever its method.
fn with<B>(
    mut request: RequestBuilder<B>,
    headers: &Headers,
    budget: Duration,
) -> Result<RequestBuilder<B>, Seen> {
    request = request.header("User-Agent", USER_AGENT);
    for (name, value) in headers {
        let header = HeaderName::try_from(name.as_str()).ok().zip(HeaderValue::try_from(value.expose()).ok());
        let Some((name, mut value)) = header else {
            return Err(Seen::new(
                Outcome::BadPointer,
                format!("the header {name:?} of the reference cannot be sent"),
            ));
        };
        value.set_sensitive(true);
        request = request.header(name, value);
    }
    Ok(request.config().timeout_global(Some(budget)).build())
}

fn follow(from: &Url, response: &Response<Body>) -> Result<Url, Seen> {
    let location = response.headers().get("location").and_then(|value| value.to_str().ok());
    let Some(location) = location else {
        return Err(Seen::new(
            Outcome::UnexpectedStatus,
            format!("status {} without a Location", response.status()),
        ));
    };
    let refused = |to: String| {
        Seen::new(Outcome::RedirectRefused, format!("a redirect from {} to {to}", from.origin()))
    };
    let to = from.join(location).map_err(|error| refused(error.to_string()))?;
    if to.origin() != from.origin() {
        return Err(refused(to.origin().to_string()));
    }
    Ok(to)
}

/// The body of a final answer, if it is one of success.
fn body(response: Response<Body>, limits: &Limits) -> Result<Vec<u8>, Seen> {
    let status = response.status();
    let outcome = match status.as_u16() {
        200 => None,
        204 => Some(Outcome::EmptyConfig),
        400 => Some(Outcome::SpecRefused),
        401 | 403 | 511 => Some(Outcome::NotPermitted),
        404 => Some(Outcome::PoolUnknown),
        408 | 429 | 500..=599 => Some(Outcome::ServerError),
        _ => Some(Outcome::UnexpectedStatus),
    };
    if let Some(outcome) = outcome {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after =
            header("retry-after").and_then(|v| retry_after::parse(v, header("date"), clock::wall_seconds()));
        return Err(Seen { outcome, detail: format!("status {}", status.as_u16()), retry_after });
    }
    let mut bytes = Vec::new();
    let read =
        response.into_body().into_with_config().limit(limits.body + 1).reader().read_to_end(&mut bytes);
    if bytes.len() as u64 > limits.body {
        return Err(Seen::new(Outcome::TooLarge, format!("a body of more than {} bytes", limits.body)));
    }
    read.map_err(|error| failure(&Error::from(error), &format!("after {} bytes of the body", bytes.len())))?;
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Err(Seen::new(Outcome::EmptyConfig, "status 200 with an empty body"));
    }
    Ok(bytes)
}

/// What a failed exchange amounts to; `stage` says how far it came.
fn failure(error: &Error, stage: &str) -> Seen {
    if let Some(tls) = tls_error(error) {
        let outcome = match Refusal::of(tls).map(|refusal| refusal.cause) {
            Some(Cause::Untrusted) => Outcome::CertificateUntrusted,
            Some(Cause::Expired) => Outcome::CertificateExpired,
            Some(Cause::NotYetValid) => Outcome::CertificateNotYetValid,
            Some(Cause::WrongName) => Outcome::CertificateWrongName,
            None => Outcome::TlsFailed,
        };
        let detail = Refusal::of(tls).map_or_else(|| format!("TLS: {tls}"), ToString::to_string);
        return Seen::new(outcome, detail);
    }
    let outcome = match error {
        Error::Timeout(_) => Outcome::Stalled,
        Error::Io(io) => match io.kind() {
            std::io::ErrorKind::UnexpectedEof => Outcome::Truncated,
            std::io::ErrorKind::TimedOut => Outcome::Stalled,
            _ => Outcome::Unreachable,
        },
        Error::HostNotFound | Error::ConnectionFailed => Outcome::Unreachable,
        _ => Outcome::ServerError, // bad HTTP in one of many ways
    };
    let detail = match error {
        Error::Timeout(Timeout::Global) => format!("the exchange took too long, {stage}"),
        Error::Timeout(_) => format!("no byte for too long, {stage}"),
        Error::Io(io) => format!("{io}, {stage}"),
        other => format!("{other}, {stage}"),
    };
    Seen::new(outcome, detail)
}
