//! Owns: what an API call can come to, and what that means for the next one.
//! Given a status, headers and the Status object of an answer, it gives one of a closed set of failures.
//! Never: holds a body, a header or a credential; what it prints is safe in any log.

use std::{fmt, time::Duration};

use serde::Deserialize;

use super::resource::Resource;

/// The longest excerpt of a server's own words: enough for a sentence, not for a page.
const MESSAGE_LIMIT: usize = 300;
/// The longest wait a server can ask for: beyond it a wrong header would park a node.
const RETRY_AFTER_LIMIT: Duration = Duration::from_secs(300);

/// What was asked of the API, as a role would have to name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// `get`, `list`, `watch`, `patch`.
    pub verb: &'static str,
    /// Of which kind.
    pub resource: &'static Resource,
    /// Which one; none for a whole collection.
    pub name: Option<String>,
}

impl fmt::Display for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        self.name.iter().try_for_each(|name| write!(f, "/{name}"))
    }
}

/// A call that did not give what was asked for.
#[derive(Debug, thiserror::Error)]
#[error("cannot {ask}: {failure}")]
pub struct ApiError {
    /// The call.
    pub ask: Ask,
    /// What became of it.
    #[source]
    pub failure: Failure,
}

/// What became of a call.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No connection, or it was lost: refused, reset, timed out, not resolved.
    #[error("the API cannot be reached: {0}")]
    Unreachable(String),
    /// The server's certificate is not signed by the CA in the kubeconfig, or is not valid now.
    #[error("the API's certificate is not trusted: {0}")]
    Untrusted(String),
    /// 401.
    #[error("the API does not accept this node's credentials (401)")]
    Unauthorized,
    /// 403.
    #[error("not allowed (403): {advice}")]
    Forbidden {
        /// The manifest that grants it.
        advice: &'static str,
    },
    /// 404.
    #[error("it does not exist (404)")]
    NotFound,
    /// 409.
    #[error("it has changed meanwhile (409)")]
    Conflict,
    /// 410, as a status or inside a watch.
    #[error("the watch is too old (410)")]
    Gone,
    /// 429.
    #[error("too many requests (429)")]
    Throttled {
        /// The server's wish.
        retry_after: Option<Duration>,
    },
    /// 5xx.
    #[error("the API has a problem ({status})")]
    Unavailable {
        /// The status.
        status: u16,
        /// The server's wish.
        retry_after: Option<Duration>,
    },
    /// Any other status.
    #[error("unexpected answer {status}{message}")]
    Unexpected {
        /// The status.
        status: u16,
        /// `: <the server's words>`, or empty.
        message: String,
    },
    /// Not what this kind of object looks like.
    #[error("the answer is not understood: {0}")]
    Malformed(String),
    /// More than any object can be.
    #[error("the answer is longer than {limit} bytes")]
    TooLong {
        /// The limit.
        limit: u64,
    },
}

/// What a failure means for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It may be gone at any moment: the ordinary schedule, or the server's wish.
    Soon(Option<Duration>),
    /// Somebody has to do something first: the slow end of the schedule.
    Slowly,
    /// The watch's start is lost: list again, at once.
    Relist,
}

impl Failure {
    /// From a status that is not a success. `retry_after` and `body` are the header's and the body's text.
    pub fn from_status(status: u16, ask: &Ask, retry_after: Option<&str>, body: &[u8]) -> Self {
        let retry_after = retry_after.and_then(parse_retry_after);
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden { advice: ask.resource.granted_by },
            404 => Self::NotFound,
            409 => Self::Conflict,
            410 => Self::Gone,
            429 => Self::Throttled { retry_after },
            500.. => Self::Unavailable { status, retry_after },
            _ => Self::Unexpected { status, message: message_of(body) },
        }
    }

    /// When to try again.
    pub fn retry(&self) -> Retry {
        match self {
            Self::Throttled { retry_after } | Self::Unavailable { retry_after, .. } => {
                Retry::Soon(*retry_after)
            }
            Self::Unreachable(_) | Self::Untrusted(_) | Self::Unauthorized | Self::Conflict => {
                Retry::Soon(None)
            }
            Self::Forbidden { .. }
            | Self::NotFound
            | Self::Unexpected { .. }
            | Self::Malformed(_)
            | Self::TooLong { .. } => Retry::Slowly,
            Self::Gone => Retry::Relist,
        }
    }
}

/// Whole seconds only: API servers send nothing else, and a date would need a clock that is right.
fn parse_retry_after(value: &str) -> Option<Duration> {
    value.trim().parse().ok().map(|s| Duration::from_secs(s).min(RETRY_AFTER_LIMIT))
}

/// The words of a `Status` object. Anything else (a proxy's page) is not quoted: it could hold anything.
fn message_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Status {
        kind: String,
        message: String,
    }

    match serde_json::from_slice::<Status>(body) {
        Ok(status) if status.kind == "Status" => {
            format!(": {}", status.message.chars().take(MESSAGE_LIMIT).collect::<String>())
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::resource::MACHINE_CONFIGS, *};

    fn ask() -> Ask {
        Ask { verb: "get", resource: &MACHINE_CONFIGS, name: Some("rendered-worker-1".into()) }
    }

    #[test]
    fn a_refusal_names_verb_resource_and_the_manifest_that_grants_it() {
        let error = ApiError { ask: ask(), failure: Failure::from_status(403, &ask(), None, b"") };
        assert_eq!(
            error.to_string(),
            "cannot get machineconfigs.machineconfiguration.openshift.io/rendered-worker-1: not allowed (403): \
             agent/manifests/nodes.yaml grants it to all nodes, agent/manifests/pool.yaml to those of one pool"
        );
    }

    #[test]
    fn a_servers_wish_is_honoured_up_to_five_minutes() {
        let wish = |header| Failure::from_status(429, &ask(), Some(header), b"").retry();
        assert_eq!(wish("7"), Retry::Soon(Some(Duration::from_secs(7))));
        assert_eq!(wish("86400"), Retry::Soon(Some(RETRY_AFTER_LIMIT)));
        assert_eq!(wish("Wed, 21 Oct 2015 07:28:00 GMT"), Retry::Soon(None));
        assert_eq!(
            Failure::from_status(503, &ask(), Some("2"), b"").retry(),
            Retry::Soon(Some(Duration::from_secs(2)))
        );
    }

    #[test]
    fn only_a_status_object_is_quoted_and_only_so_far() {
        let said = |body: &[u8]| Failure::from_status(422, &ask(), None, body).to_string();
        assert_eq!(
            said(br#"{"kind":"Status","message":"no such field"}"#),
            "unexpected answer 422: no such field"
        );
        assert_eq!(said(b"<html>token=abc</html>"), "unexpected answer 422");
        let long = format!(r#"{{"kind":"Status","message":"{}"}}"#, "x".repeat(5000));
        assert_eq!(said(long.as_bytes()).len(), "unexpected answer 422: ".len() + MESSAGE_LIMIT);
    }

    #[test]
    fn what_a_person_must_mend_is_asked_for_slowly() {
        for (status, expected) in [
            (401, Retry::Soon(None)),
            (403, Retry::Slowly),
            (404, Retry::Slowly),
            (409, Retry::Soon(None)),
            (410, Retry::Relist),
            (422, Retry::Slowly),
            (500, Retry::Soon(None)),
        ] {
            assert_eq!(Failure::from_status(status, &ask(), None, b"").retry(), expected, "{status}");
        }
    }
}
