//! Owns knowing that something has changed: one watch per collection, one wake-up for all.
//! Given collections, gives a signal; who is woken reads what it needs.
//! Never polls: a watch that ends is opened again, after a pause only when the API is away.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::client::Client;

/// Between two tries to reach an API that is away.
const PAUSE: Duration = Duration::from_millis(500);

/// Wakes on every change in any of the collections, and once at the start. The watches end with the value.
pub struct Informer {
    wake: Arc<Notify>,
    _watches: JoinSet<()>,
}

impl Informer {
    /// Starts the watches.
    pub fn start(client: &Client, collections: &[&str]) -> Self {
        let wake = Arc::new(Notify::new());
        let mut watches = JoinSet::new();
        for path in collections {
            watches.spawn(follow(client.clone(), (*path).to_owned(), Arc::clone(&wake)));
        }
        Self { wake, _watches: watches }
    }

    /// Waits for the next change. Changes while nobody waits are one wake-up.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Wakes by itself after a while: a try that failed is to be repeated.
    pub fn again_in(&self, pause: Duration) {
        let wake = Arc::clone(&self.wake);
        tokio::spawn(async move {
            tokio::time::sleep(pause).await;
            wake.notify_one();
        });
    }
}

async fn follow(client: Client, path: String, wake: Arc<Notify>) {
    loop {
        match client.list_and_watch(&path).await {
            Ok((_, mut watch)) => {
                wake.notify_one();
                while let Some(event) = watch.next().await {
                    if event.kind == "ERROR" {
                        break; // 410: list again
                    }
                    wake.notify_one();
                }
            }
            Err(error) => {
                tracing::debug!(path, %error, "cannot watch");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}
