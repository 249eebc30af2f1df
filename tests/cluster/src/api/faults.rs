//! Failures on demand: an administrator says which requests are to fail how often, for tests of who makes them. In
//! memory only: a restart forgets them.

use serde::Deserialize;
use std::sync::{Arc, Mutex};
use tokio::sync::watch;

use super::status::Refusal;

/// Where they are asked for.
pub const PATH: &str = "/oneboot/v1/faults";

/// How a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Answer {
    /// Too many requests, with `Retry-After`.
    #[serde(rename = "429")]
    TooMany,
    /// Gone, as the answer to the request.
    #[serde(rename = "410")]
    Gone,
    /// Gone, as an ERROR event: what a watch hears that runs already, or that begins.
    #[serde(rename = "410-event")]
    GoneEvent,
}

/// One fault.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fault {
    answer: Answer,
    /// What the path starts with.
    path: String,
    /// What the user's name starts with; everybody's without.
    #[serde(default)]
    user: String,
    /// `get`, `watch`, ...; any without.
    verb: Option<String>,
    /// How many requests.
    #[serde(default = "once")]
    times: u32,
    /// Seconds, for 429.
    #[serde(default = "once")]
    retry_after: u32,
}

fn once() -> u32 {
    1
}

impl Fault {
    fn hits(&self, user: &str, verb: &str, path: &str) -> bool {
        self.times > 0
            && path.starts_with(&self.path)
            && user.starts_with(&self.user)
            && self.verb.as_deref().is_none_or(|wanted| wanted == verb)
            && (self.answer != Answer::GoneEvent || verb == "watch")
    }

    fn refusal(&self) -> Refusal {
        match self.answer {
            Answer::TooMany => Refusal::too_many(self.retry_after),
            Answer::Gone | Answer::GoneEvent => Refusal::gone(0, 1),
        }
    }
}

/// What is still to fail.
pub(crate) struct Faults {
    list: Mutex<Vec<Fault>>,
    added: watch::Sender<()>,
}

impl Faults {
    pub(crate) fn new() -> Self {
        Self { list: Mutex::default(), added: watch::Sender::new(()) }
    }

    /// Adds the fault that a body describes.
    pub(crate) fn add(&self, body: &[u8]) -> Result<(), Refusal> {
        let fault = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad_request(format!("not a fault: {error}")))?;
        self.list.lock().expect("nobody panics with the list").push(fault);
        self.added.send_replace(());
        Ok(())
    }

    /// How a request that begins is to fail, if it is; one time less remains.
    pub(crate) fn take(&self, user: &str, verb: &str, path: &str) -> Option<(Answer, Refusal)> {
        self.take_if(|fault| fault.hits(user, verb, path))
    }

    fn take_if(&self, hits: impl Fn(&Fault) -> bool) -> Option<(Answer, Refusal)> {
        let mut list = self.list.lock().expect("nobody panics with the list");
        let at = list.iter().position(hits)?;
        list[at].times -= 1;
        let fault = list[at].clone();
        list.retain(|fault| fault.times > 0);
        Some((fault.answer, fault.refusal()))
    }

    /// Waits until a watch that runs is to fail.
    pub(crate) async fn strike(self: Arc<Self>, user: String, path: String) -> Refusal {
        let mut added = self.added.subscribe();
        loop {
            added.borrow_and_update();
            let event =
                |fault: &Fault| fault.answer == Answer::GoneEvent && fault.hits(&user, "watch", &path);
            if let Some((_, refusal)) = self.take_if(event) {
                return refusal;
            }
            if added.changed().await.is_err() {
                std::future::pending::<()>().await; // the server is gone, and the watch with it
            }
        }
    }
}
