//! Owns the time: the machine's, or one that a test sets.
//! Given nothing or a channel, gives instants, and a wait until one is reached.
//! Never a poll: who waits sleeps until the moment itself.

use std::time::Duration;
use time::OffsetDateTime;
use tokio::sync::watch;

/// Longest single sleep: clocks are set while programs sleep, and a day late is early for certificates.
const NAP: Duration = Duration::from_secs(24 * 3600);

/// A clock. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Clock(Option<watch::Receiver<OffsetDateTime>>);

impl Clock {
    /// A clock that shows what is sent.
    pub fn set_by(receiver: watch::Receiver<OffsetDateTime>) -> Self {
        Self(Some(receiver))
    }

    /// Now.
    pub fn now(&self) -> OffsetDateTime {
        self.0.as_ref().map_or_else(OffsetDateTime::now_utc, |set| *set.borrow())
    }

    /// Returns when the time has come, or a day has gone by: look again then.
    pub async fn reaches(&self, at: OffsetDateTime) {
        if let Some(set) = &self.0 {
            if set.clone().wait_for(|now| *now >= at).await.is_err() {
                std::future::pending::<()>().await; // nobody can set it any more
            }
        } else {
            let left = Duration::try_from(at - OffsetDateTime::now_utc()).unwrap_or_default();
            tokio::time::sleep(left.min(NAP)).await;
        }
    }
}
