//! The verbs of the command line, one file each: thin shells around the library.

pub mod apply;
pub mod config;
mod input;
mod options;
pub mod plan;
pub mod recover;
pub mod revert;
pub mod run;
pub mod status;
pub mod timeline;
pub mod verify;

/// How a verb ends: an exit code, or an error with one.
pub type Outcome = Result<u8, Failure>;

/// An error and the exit code it stands for.
#[derive(Debug)]
pub struct Failure {
    /// One of [`crate::exit`].
    pub code: u8,
    /// What is printed, with its sources.
    pub error: anyhow::Error,
}

impl Failure {
    /// An error with its exit code.
    pub fn new(code: u8, error: impl Into<anyhow::Error>) -> Failure {
        Failure { code, error: error.into() }
    }
}
