//! Owns: patience. One identity, read again before every attempt, and the schedule of attempts.
//! Given a call it gives its result, however long that takes, or stops when told to.
//! Never: caches a credential or a CA beyond the moment at which its file changes.

use std::{net::IpAddr, ops::ControlFlow, sync::Arc, time::Duration};

use oneboot_firstboot::backoff::{self, Backoff};

use super::{
    client::{self, Client},
    error::{ApiError, Failure, Retry},
};
use crate::{
    clock::Clock,
    identity::{self, Identity},
};

/// For what may be gone at any moment.
const SOON: Backoff =
    Backoff { floor: Duration::ZERO, first: Duration::from_millis(200), cap: Duration::from_secs(30) };
/// For what somebody has to mend: bindings lag by a second or two, people by hours.
const SLOWLY: Backoff = Backoff {
    floor: Duration::from_millis(200),
    first: Duration::from_millis(500),
    cap: Duration::from_secs(60),
};
/// For an onlooker whose answer changes nothing: one attempt in minutes, so that waiting stays free.
const ONLOOKER: Backoff = Backoff {
    floor: Duration::from_millis(500),
    first: Duration::from_secs(1),
    cap: Duration::from_secs(300),
};

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// There is nothing to present, or nobody to present it to.
    #[error(transparent)]
    Identity(#[from] identity::Error),
    /// Certificates or keys that no connection can be made with.
    #[error(transparent)]
    Trust(#[from] client::Unusable),
    /// The call failed.
    #[error(transparent)]
    Api(#[from] ApiError),
}

type Load = dyn Fn() -> Result<Identity, identity::Error> + Send;

/// An identity and its connection.
pub struct Session {
    load: Box<Load>,
    /// Where the server is when its name does not resolve (yet).
    fallback: Option<IpAddr>,
    clock: Arc<dyn Clock>,
    client: Option<([u8; 32], Client)>,
    onlooker: bool,
}

impl Session {
    /// A session for work that must succeed.
    pub fn new(
        load: impl Fn() -> Result<Identity, identity::Error> + Send + 'static,
        fallback: Option<IpAddr>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { load: Box::new(load), fallback, clock, client: None, onlooker: false }
    }

    /// The same for somebody who only wants to know.
    #[must_use]
    pub fn as_onlooker(self) -> Self {
        Self { onlooker: true, ..self }
    }

    /// One attempt, with the identity as it is now.
    pub fn attempt<T>(&mut self, call: impl FnOnce(&Client) -> Result<T, ApiError>) -> Result<T, Trouble> {
        let identity = (self.load)()?;
        let client = match self.client.take() {
            Some((fingerprint, client)) if fingerprint == identity.fingerprint => client,
            _ => Client::new(&identity, self.fallback)?,
        };
        let result = call(&client);
        // A server that is not there may have moved: its name is looked up again.
        if !matches!(result, Err(ApiError { failure: Failure::Unreachable(_), .. })) {
            self.client = Some((identity.fingerprint, client));
        }
        Ok(result?)
    }

    /// Attempts until one succeeds. `troubled` hears of every failure and can end it.
    pub fn insist<T, R>(
        &mut self,
        call: impl Fn(&Client) -> Result<T, ApiError>,
        mut troubled: impl FnMut(&Trouble) -> ControlFlow<R>,
    ) -> ControlFlow<R, T> {
        let mut failures = 0;
        loop {
            match self.attempt(&call) {
                Ok(value) => return ControlFlow::Continue(value),
                Err(trouble) => {
                    troubled(&trouble)?;
                    failures += 1;
                    self.pause(&trouble, failures);
                }
            }
        }
    }

    /// The pause after a failure: the server's wish, or the schedule that suits the trouble.
    pub fn pause(&self, trouble: &Trouble, failures: u32) {
        let retry = match trouble {
            Trouble::Api(error) => error.failure.retry(),
            Trouble::Identity(_) | Trouble::Trust(_) => Retry::Slowly,
        };
        let schedule = match retry {
            Retry::Soon(Some(wish)) => return self.clock.pause(wish),
            _ if self.onlooker => ONLOOKER,
            Retry::Slowly => SLOWLY,
            Retry::Soon(None) | Retry::Relist => SOON,
        };
        self.clock.pause(schedule.pause(failures, backoff::unit()));
    }

    /// A pause because somebody has to do something first.
    pub fn pause_slowly(&self, failures: u32) {
        self.clock.pause(SLOWLY.pause(failures, backoff::unit()));
    }

    /// The same clock, for whoever needs it while the session is at work.
    pub fn clock_handle(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// The clock that pauses are taken on.
    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }
}
