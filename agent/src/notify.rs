//! Owns: what the service manager is told: ready, a line of status, and signs of life while there is work.
//! Given what happens it sends `sd_notify` messages; without `NOTIFY_SOCKET` it is silent.
//! Never: ticks. Signs of life come from the work itself, so that work that hangs is noticed.

use std::time::Duration;

use sd_notify::NotifyState;

/// The line to the service manager.
#[derive(Clone, Debug)]
pub struct Notifier {
    /// The unit's `WatchdogSec=`, microseconds.
    watchdog: Option<u32>,
    /// Whoever is ordered after this unit may start.
    ready: bool,
}

impl Notifier {
    /// As the environment says; not ready yet.
    pub fn from_environment() -> Self {
        let microseconds = |limit: Duration| u32::try_from(limit.as_micros()).unwrap_or(u32::MAX);
        Self { ready: false, watchdog: sd_notify::watchdog_enabled().map(microseconds) }
    }

    /// Lets go, with the next line, of whoever is ordered after this unit.
    pub fn release(&mut self) {
        self.ready = true;
    }

    /// Whether they may start.
    pub fn is_released(&self) -> bool {
        self.ready
    }

    /// This is what the service does.
    pub fn say(&self, line: &str) {
        let ready = self.ready.then_some(NotifyState::Ready);
        let states: Vec<_> = std::iter::once(NotifyState::Status(line)).chain(ready).collect();
        Self::send(&states);
    }

    /// From now on a silence as long as the unit's `WatchdogSec=` means that it hangs.
    pub fn working(&self) {
        if let Some(limit) = self.watchdog {
            Self::send(&[NotifyState::WatchdogUsec(limit), NotifyState::Watchdog]);
        }
    }

    /// It does not hang.
    pub fn alive(&self) {
        if self.watchdog.is_some() {
            Self::send(&[NotifyState::Watchdog]);
        }
    }

    /// From now on silence is what is expected: zero stops systemd's clock until [`Self::working`].
    pub fn waiting(&self) {
        if self.watchdog.is_some() {
            Self::send(&[NotifyState::WatchdogUsec(0)]);
        }
    }

    fn send(states: &[NotifyState<'_>]) {
        // A lost message is a line that is not seen; the work does not depend on it.
        let _ = sd_notify::notify(states);
    }
}
