//! Users, groups and password hashes of a config: the system's own tools at work on a private copy of the databases, whose
//! result is installed like any planned file.

mod copy;
mod database;
mod ensure;

pub use ensure::{Ensured, ensure};

/// Why accounts cannot be planned. No hash is ever in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree's databases cannot be read.
    #[error(transparent)]
    Root(#[from] crate::root::Error),
    /// The private copy cannot be made or read.
    #[error("cannot keep a private copy of the account databases")]
    Copy(#[source] std::io::Error),
    /// A tool is not installed.
    #[error("{tool} is not on this system: users and groups cannot be changed without it")]
    Missing {
        /// Its name.
        tool: &'static str,
    },
    /// A tool does not start.
    #[error("cannot run {tool}")]
    Start {
        /// Its name.
        tool: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A tool refused.
    #[error("{tool} ended with {status}: {said}")]
    Tool {
        /// Its name.
        tool: &'static str,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it said.
        said: String,
    },
}
