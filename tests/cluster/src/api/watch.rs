//! Watches: events since a version, then as they happen, as a stream of JSON lines.

use hyper::body::{Bytes, Frame};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc;

use super::request::Target;
use super::status::Refusal;
use super::store::{Change, Store};
use crate::http::{Body, respond};
use http_body_util::BodyExt as _;

/// How often a watch that asked for bookmarks gets one: as a real API server.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// How long a watch lasts if it does not say: a real one ends it after 30 to 60 minutes.
const LONGEST: Duration = Duration::from_secs(45 * 60);

/// Ends with why a running watch is to fail; usually it does not end.
pub(crate) type Interrupted = Pin<Box<dyn Future<Output = Refusal> + Send>>;

/// A watch that hears one ERROR event and nothing else.
pub(crate) fn ended(refusal: &Refusal) -> Response<Body> {
    let line = event("ERROR", &refusal.to_value());
    respond(StatusCode::OK, "application/json", line)
}

/// A resumed watch that asks for what is forgotten is refused at once, with 410.
pub(crate) fn start(
    store: &Arc<Store>,
    target: &Target,
    mut interrupted: Interrupted,
) -> Result<Body, Refusal> {
    let (resource, namespace) = (super::handlers::bucket(target.resource), target.namespace.clone());
    let asked = target.query.get("resourceVersion").map(String::as_str).unwrap_or_default();
    let (mut version, first) = match asked {
        // "Any version": what is there now, as ADDED, then what comes.
        "" | "0" => {
            let (version, objects) = store.list(&resource, &namespace);
            let added = objects
                .iter()
                .filter(|object| target.filter.matches(object))
                .map(|object| event("ADDED", object));
            (version, added.collect::<Vec<_>>())
        }
        text => {
            let version = text
                .parse()
                .map_err(|_| Refusal::bad_request(format!("invalid resource version {text:?}")))?;
            store.since(version).map_err(|oldest| Refusal::gone(version, oldest))?;
            (version, Vec::new())
        }
    };
    let on = |key: &str| target.query.get(key).is_some_and(|value| value == "true" || value == "1");
    let bookmarks = on("allowWatchBookmarks");
    let seconds = target.query.get("timeoutSeconds").and_then(|text| text.parse().ok());
    let lifetime = seconds.map_or(LONGEST, Duration::from_secs);
    let (store, target) = (Arc::clone(store), target.clone());
    let (sender, receiver) = mpsc::channel::<Bytes>(64); // a slow reader holds its own watch back, nobody else's
    tokio::spawn(async move {
        let mut latest = store.latest();
        let end = tokio::time::sleep(lifetime);
        tokio::pin!(end);
        for line in first {
            if sender.send(line).await.is_err() {
                return;
            }
        }
        let mut next_bookmark = tokio::time::Instant::now() + BOOKMARKS;
        loop {
            latest.borrow_and_update();
            let (now, changes) = match store.since(version) {
                Ok(found) => found,
                Err(oldest) => {
                    sender.send(event("ERROR", &Refusal::gone(version, oldest).to_value())).await.ok();
                    return;
                }
            };
            version = now;
            for change in &changes {
                if let Some(line) = select(&target, &resource, &namespace, change)
                    && sender.send(line).await.is_err()
                {
                    return;
                }
            }
            tokio::select! {
                woken = latest.changed() => if woken.is_err() { return },
                () = sender.closed() => return,
                refusal = &mut interrupted => {
                    sender.send(event("ERROR", &refusal.to_value())).await.ok();
                    return;
                }
                () = &mut end => {
                    if bookmarks {
                        sender.send(bookmark(&target, version)).await.ok();
                    }
                    return;
                }
                () = tokio::time::sleep_until(next_bookmark), if bookmarks => {
                    next_bookmark += BOOKMARKS;
                    if sender.send(bookmark(&target, version)).await.is_err() {
                        return;
                    }
                }
            }
        }
    });
    Ok(Lines { receiver }.boxed_unsync())
}

/// The event that a change is to this watch: an object that starts or stops to match is ADDED or DELETED.
fn select(target: &Target, resource: &str, namespace: &str, change: &Change) -> Option<Bytes> {
    if change.key.resource != resource || !namespace.is_empty() && change.key.namespace != namespace {
        return None;
    }
    let matching =
        |object: &Option<Arc<Value>>| object.clone().filter(|object| target.filter.matches(object));
    match (matching(&change.before), matching(&change.after)) {
        (None, Some(after)) => Some(event("ADDED", &after)),
        (Some(_), Some(after)) => Some(event("MODIFIED", &after)),
        (Some(before), None) => {
            let mut last = Value::clone(&before);
            last["metadata"]["resourceVersion"] = change.version.to_string().into();
            Some(event("DELETED", &last))
        }
        (None, None) => None,
    }
}

fn event(kind: &str, object: &Value) -> Bytes {
    let mut line = json!({"type": kind, "object": object}).to_string();
    line.push('\n');
    line.into()
}

fn bookmark(target: &Target, version: u64) -> Bytes {
    let resource = target.resource;
    event(
        "BOOKMARK",
        &json!({"kind": resource.kind, "apiVersion": resource.api_version(),
            "metadata": {"resourceVersion": version.to_string(), "creationTimestamp": null}}),
    )
}

/// The stream as a body.
struct Lines {
    receiver: mpsc::Receiver<Bytes>,
}

impl hyper::body::Body for Lines {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.receiver.poll_recv(context).map(|line| line.map(|line| Ok(Frame::data(line))))
    }
}
