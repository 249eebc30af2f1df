//! Owns: how a platform's metadata service is asked: plain HTTP on the link itself, again and again until it answers.
//! Given one platform's way of asking, gives the user data, or says that there is none, or that nobody answers.
//! Never: follows a redirect, uses a proxy, or repeats what the service has sent.

use crate::backoff;
use crate::duration::show;
use crate::outcome::{Limits, Outcome};
use std::time::{Duration, Instant};
use ureq::http::{Request, Response};
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::TcpConnector;
use ureq::{Agent, Body};

/// The same link-local address on every platform here.
const BASE: &str = "http://169.254.169.254";
/// For one request: the service is one hop away. Ignition allows its answer as long.
const REQUEST: Duration = Duration::from_secs(10);
/// More than any platform's limit on user data (GCP: 256 KiB).
const SIZE_LIMIT: u64 = 1 << 20;

/// The service, and how long to go on asking.
pub struct Metadata {
    base: String,
    until: Option<Instant>,
    agent: Agent,
}

/// Nothing is known about a pointer: the service refuses, or does not answer in time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the metadata service of platform {platform}: {why}")]
pub struct MetadataError {
    /// As in `ignition.platform.id`.
    pub platform: &'static str,
    /// What it said, or that it did not.
    pub why: String,
}

/// A request without user data in its answer.
pub(super) enum Miss {
    /// The service or the network is not ready yet.
    Again(String),
    /// It will not say anything else.
    Final(String),
}

impl Metadata {
    /// At the platform's own address; asked until then, or for ever.
    pub fn new(until: Option<Instant>) -> Self {
        Self::at(BASE, until)
    }

    /// Elsewhere, as in a test.
    pub fn at(base: &str, until: Option<Instant>) -> Self {
        let config = Agent::config_builder()
            .http_status_as_error(false) // a status is an answer
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            .timeout_global(Some(REQUEST))
            .build();
        let agent = Agent::with_parts(config, TcpConnector::default(), DefaultResolver::default());
        Self { base: base.to_owned(), until, agent }
    }

    /// Asks until there is an answer: user data, or that there is none.
    pub(super) fn patiently<T>(
        &self,
        platform: &'static str,
        ask: impl Fn(&Self) -> Result<T, Miss>,
    ) -> Result<T, MetadataError> {
        let began = Instant::now();
        for failures in 1.. {
            let why = match ask(self) {
                Ok(answer) => return Ok(answer),
                Err(Miss::Final(why)) => return Err(MetadataError { platform, why }),
                Err(Miss::Again(why)) => why,
            };
            let pause = Limits::default().fast.pause(failures, backoff::unit());
            if self.until.is_some_and(|until| Instant::now() + pause >= until) {
                return Err(MetadataError { platform, why: format!("{why}, for {}", show(began.elapsed())) });
            }
            tracing::warn!(
                MESSAGE_ID = Outcome::NoMetadata.message_id(),
                ONEBOOT_OUTCOME = Outcome::NoMetadata.name(),
                ONEBOOT_ATTEMPT = failures,
                "waiting for the metadata service of platform {platform} since {}: {why}; next try in {}",
                show(began.elapsed()),
                show(pause)
            );
            std::thread::sleep(pause);
        }
        Err(MetadataError { platform, why: "no answer".to_owned() }) // after 2^32 tries
    }

    /// One request without a body: the status, and what was sent with a 200.
    pub(super) fn ask(
        &self,
        method: &'static str,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<(u16, Vec<u8>), Miss> {
        let again = |error: ureq::Error| Miss::Again(format!("{method} {path}: {error}"));
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request =
            request.body(()).map_err(|_| Miss::Final("an answer that no header can carry".to_owned()))?;
        let response: Response<Body> = self.agent.run(request).map_err(again)?;
        match response.status().as_u16() {
            // Ready soon, by its own account.
            status @ (408 | 429 | 500..=599) => Err(Miss::Again(format!("{method} {path}: status {status}"))),
            200 => {
                let body = response.into_body().into_with_config().limit(SIZE_LIMIT).read_to_vec();
                Ok((200, body.map_err(again)?))
            }
            status => Ok((status, Vec::new())),
        }
    }

    /// User data behind one `GET`: 404 and an empty answer mean that there is none.
    pub(super) fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Option<Vec<u8>>, Miss> {
        match self.ask("GET", path, headers)? {
            (200, body) => Ok(Some(body).filter(|body| !body.is_empty())),
            (404, _) => Ok(None),
            (status, _) => Err(Miss::Final(format!("GET {path}: status {status}"))),
        }
    }
}
