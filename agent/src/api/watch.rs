//! Owns: list and watch: every change of some objects, through lost connections and forgotten versions.
//! Given a query it gives updates, in order; after a 410 the list again.
//! Never: polls. Between two updates there is one blocked read.

use std::{io::BufRead, ops::ControlFlow};

use serde::Deserialize;

use super::{
    error::{ApiError, Ask, Failure, Retry},
    resource::Resource,
    session::{Session, Trouble},
    types::{List, Metadata, Object},
};

/// A watch that lasted this long was a good one: the next starts without a pause, and the schedule from its beginning.
const GOOD_WATCH_MICROSECONDS: u64 = 30_000_000;
/// No single object that the agent watches comes near this.
const LINE_LIMIT: u64 = 8 << 20;

/// Which objects.
#[derive(Clone, Debug)]
pub struct Query {
    /// Of which kind.
    pub resource: &'static Resource,
    /// `field=value`: roles by resource name apply to a watch only with `metadata.name=` (facts/trust.md 3.3).
    pub field_selector: String,
    /// The one object's name, for messages.
    pub name: Option<String>,
    /// After how many seconds the server is to end the watch; its own choice otherwise.
    pub timeout_seconds: Option<u32>,
}

impl Query {
    /// One object.
    pub fn by_name(resource: &'static Resource, name: &str) -> Self {
        Self {
            resource,
            field_selector: format!("metadata.name={name}"),
            name: Some(name.to_owned()),
            timeout_seconds: None,
        }
    }

    /// All objects with a field's value.
    pub fn by_field(resource: &'static Resource, field: &str, value: &str) -> Self {
        Self { resource, field_selector: format!("{field}={value}"), name: None, timeout_seconds: None }
    }

    /// With an end.
    #[must_use]
    pub fn ending_after(self, seconds: u32) -> Self {
        Self { timeout_seconds: Some(seconds), ..self }
    }

    /// What it takes to ask this.
    pub fn ask(&self, verb: &'static str) -> Ask {
        Ask { verb, resource: self.resource, name: self.name.clone() }
    }
}

/// What is seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update<T> {
    /// Everything there is, at the start and after a gap.
    Listed(Vec<T>),
    /// One that is new or different.
    Changed(T),
    /// One that is gone.
    Deleted(T),
    /// The server has ended the watch, as servers do; it goes on from there unless told otherwise.
    Ended,
}

/// One line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// ADDED or MODIFIED.
    Changed(T),
    /// DELETED.
    Deleted(T),
    /// BOOKMARK: nothing but a newer version.
    Bookmark(String),
}

/// Reads one line of a watch.
pub fn event<T: Object>(line: &[u8]) -> Result<Event<T>, Failure> {
    #[derive(Deserialize)]
    struct Line {
        #[serde(rename = "type")]
        kind: String,
        object: serde_json::Value,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        code: u16,
    }
    #[derive(Deserialize)]
    struct Bookmark {
        metadata: Metadata,
    }

    let malformed = |_| Failure::Malformed("a line of the watch".to_owned());
    let Line { kind, object } = serde_json::from_slice(line).map_err(malformed)?;
    match kind.as_str() {
        "ADDED" | "MODIFIED" => serde_json::from_value(object).map(Event::Changed).map_err(malformed),
        "DELETED" => serde_json::from_value(object).map(Event::Deleted).map_err(malformed),
        "BOOKMARK" => serde_json::from_value(object)
            .map(|b: Bookmark| Event::Bookmark(b.metadata.resource_version))
            .map_err(malformed),
        "ERROR" => Err(match serde_json::from_value::<Status>(object).unwrap_or_default().code {
            410 => Failure::Gone,
            429 => Failure::Throttled { retry_after: None },
            status @ 500.. => Failure::Unavailable { status, retry_after: None },
            status => Failure::Unexpected { status, message: String::new() },
        }),
        _ => Err(Failure::Malformed("a line of the watch of an unknown type".to_owned())),
    }
}

/// Lists and watches until `seen` or `troubled` has had enough.
pub fn follow<T: Object, R>(
    session: &mut Session,
    query: &Query,
    mut seen: impl FnMut(Update<T>) -> ControlFlow<R>,
    mut troubled: impl FnMut(&Trouble) -> ControlFlow<R>,
) -> R {
    loop {
        let end = relist(session, query, &mut seen, &mut troubled);
        if let ControlFlow::Break(result) = end {
            return result;
        }
    }
}

/// One list and the watches that continue it, until its version is too old.
fn relist<T: Object, R>(
    session: &mut Session,
    query: &Query,
    seen: &mut impl FnMut(Update<T>) -> ControlFlow<R>,
    troubled: &mut impl FnMut(&Trouble) -> ControlFlow<R>,
) -> ControlFlow<R> {
    let list: List<T> = session.insist(|client| client.list(query), &mut *troubled)?;
    let mut version = list.metadata.resource_version;
    seen(Update::Listed(list.items))?;

    let mut failures = 0;
    loop {
        let started = session.clock().boot_microseconds();
        let outcome = match session.attempt(|client| client.watch(query, &version)) {
            Ok(lines) => drain(lines, query, &mut version, seen)?,
            Err(trouble) => Err(trouble),
        };
        if session.clock().boot_microseconds() - started >= GOOD_WATCH_MICROSECONDS {
            failures = 0;
        }
        let trouble = match outcome {
            Ok(()) => {
                seen(Update::Ended)?;
                if failures == 0 {
                    failures = 1; // a server that ends every watch at once must not make us spin
                    continue;
                }
                // Nothing is wrong, so nobody is told; the pause is that of a lost connection.
                lost(query, "the watch ended at once")
            }
            Err(Trouble::Api(error)) if error.failure.retry() == Retry::Relist => {
                return ControlFlow::Continue(());
            }
            Err(trouble) => {
                troubled(&trouble)?;
                trouble
            }
        };
        failures += 1;
        session.pause(&trouble, failures);
    }
}

fn lost(query: &Query, why: &str) -> Trouble {
    ApiError { ask: query.ask("watch"), failure: Failure::Unreachable(why.to_owned()) }.into()
}

/// Hands on every line until the stream ends. The inner result says how it ended.
fn drain<T: Object, R>(
    mut lines: impl BufRead,
    query: &Query,
    version: &mut String,
    seen: &mut impl FnMut(Update<T>) -> ControlFlow<R>,
) -> ControlFlow<R, Result<(), Trouble>> {
    let mut line = Vec::new();
    loop {
        line.clear();
        let failure = match std::io::Read::take(&mut lines, LINE_LIMIT).read_until(b'\n', &mut line) {
            Ok(0) => return ControlFlow::Continue(Ok(())),
            Ok(_) if line.last() != Some(&b'\n') => {
                Failure::Unreachable("the watch broke off in a line".to_owned())
            }
            Ok(_) => match event::<T>(&line) {
                Ok(Event::Changed(object)) => {
                    version.clone_from(&object.metadata().resource_version);
                    seen(Update::Changed(object))?;
                    continue;
                }
                Ok(Event::Deleted(object)) => {
                    version.clone_from(&object.metadata().resource_version);
                    seen(Update::Deleted(object))?;
                    continue;
                }
                Ok(Event::Bookmark(newer)) => {
                    *version = newer;
                    continue;
                }
                Err(failure) => failure,
            },
            Err(error) => Failure::Unreachable(error.kind().to_string()),
        };
        return ControlFlow::Continue(Err(ApiError { ask: query.ask("watch"), failure }.into()));
    }
}
