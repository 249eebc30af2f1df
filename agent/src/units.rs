//! Owns: what is asked of the running system's service manager, and nothing more.
//! Given unit names; gives job results.
//! Never called for a tree that is not the running system's: [`NoUnits`] stands there.

use std::collections::BTreeSet;

/// Why a request to the service manager failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no bus to ask on (exit 75).
    #[error("cannot reach systemd on the system bus")]
    NoBus(#[source] zbus::Error),
    /// The manager refused the request.
    #[error("systemd refused to {verb} {unit}: {message}")]
    Refused {
        /// What was asked.
        verb: &'static str,
        /// For which unit.
        unit: String,
        /// Its answer.
        message: String,
    },
    /// The job ran and did not end with `done`.
    #[error("{verb} of {unit} ended with {result:?}")]
    Job {
        /// What was asked.
        verb: &'static str,
        /// For which unit.
        unit: String,
        /// `failed`, `timeout`, `dependency`, ...
        result: String,
    },
}

/// A job on a unit, waited for until it is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Job {
    /// Start it.
    Start,
    /// Stop it.
    Stop,
    /// Stop it if it runs, start it in any case.
    Restart,
    /// Restart it if it runs.
    TryRestart,
    /// Have it read its configuration again; restart it if it cannot.
    Reload,
}

impl Job {
    /// As a verb in messages.
    pub fn verb(self) -> &'static str {
        match self {
            Job::Start => "start",
            Job::Stop => "stop",
            Job::Restart => "restart",
            Job::TryRestart => "try-restart",
            Job::Reload => "reload",
        }
    }
}

/// How a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Active.
    Up,
    /// On its way there, or waiting to be started again.
    Coming,
    /// Neither.
    Down,
}

/// The service manager, as far as an apply needs it.
pub trait Units {
    /// Has the manager read its units again.
    fn daemon_reload(&self) -> Result<(), Error>;
    /// Runs a job and waits until it is over.
    fn job(&self, job: Job, unit: &str) -> Result<(), Error>;
    /// Whether a unit is active, reloading or on its way there.
    fn is_active(&self, unit: &str) -> Result<bool, Error>;
    /// Does by hand what a unit that has failed would have done, where there is such a way; whether it did.
    fn stand_in(&self, _unit: &str) -> bool {
        false
    }
    /// How a unit is, more precisely.
    fn condition(&self, unit: &str) -> Result<Condition, Error> {
        Ok(if self.is_active(unit)? { Condition::Up } else { Condition::Down })
    }
    /// All units that are in one of systemd's states (`active`, `failed`, ...).
    fn all_in(&self, _state: &'static str) -> Result<BTreeSet<String>, Error> {
        Ok(BTreeSet::new())
    }
}

/// For a tree that is not the running system's: there is nobody to ask, and nothing is done.
#[derive(Debug, Default)]
pub struct NoUnits;

impl Units for NoUnits {
    fn daemon_reload(&self) -> Result<(), Error> {
        Ok(())
    }
    fn job(&self, _job: Job, _unit: &str) -> Result<(), Error> {
        Ok(())
    }
    fn is_active(&self, _unit: &str) -> Result<bool, Error> {
        Ok(false)
    }
}
