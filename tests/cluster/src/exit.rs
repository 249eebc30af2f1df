//! Owns the exit codes (`sysexits.h`) and which error gets which.
//! Given an error chain, gives a code; the chain is printed once, in `cli::main`.
//! Never printed: tokens, keys, bodies.

use std::fmt;

/// A command line that cannot be meant.
pub const USAGE: u8 = 64;
/// An object or a file that is not what it should be.
pub const DATA: u8 = 65;
/// The API or the MCS cannot be reached.
pub const UNAVAILABLE: u8 = 69;
/// Everything that has no better code.
pub const SOFTWARE: u8 = 70;
/// A file cannot be read or written.
pub const IO: u8 = 74;
/// It may work later: nobody has picked the work up yet.
pub const TEMPFAIL: u8 = 75;
/// The API refuses: 401, 403.
pub const NOPERM: u8 = 77;
/// Something has to be set up first.
pub const CONFIG: u8 = 78;

/// An error that knows its exit code, put into an `anyhow` chain.
#[derive(Debug)]
pub struct Failure {
    /// One of the constants above.
    pub code: u8,
    /// What happened, and what to type.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// An `anyhow` error with a code.
pub fn failure(code: u8, message: impl Into<String>) -> anyhow::Error {
    Failure { code, message: message.into() }.into()
}

/// The code of the first error in the chain that knows one.
pub fn code(error: &anyhow::Error) -> u8 {
    use crate::client::Error as Api;
    for cause in error.chain() {
        if let Some(failure) = cause.downcast_ref::<Failure>() {
            return failure.code;
        }
        if let Some(api) = cause.downcast_ref::<Api>() {
            return match api {
                Api::Status { code: 401 | 403, .. } => NOPERM,
                Api::Status { code: 400..=499, .. } | Api::NotJson { .. } => DATA,
                Api::Status { .. } | Api::Unreachable { .. } | Api::Broken { .. } => UNAVAILABLE,
                Api::Kubeconfig(_) => CONFIG,
            };
        }
        if cause.is::<std::io::Error>() {
            return IO;
        }
    }
    SOFTWARE
}
