//! Owns: what the demo prints while it works, on standard error.
//! Given who and what, gives one line with the seconds since the start.
//! Never: a secret, or a line of a program that could hold one: only the demo's own sentences, and the agent's.

use std::time::Instant;

/// The start of the run.
#[derive(Debug)]
pub(super) struct Progress {
    start: Instant,
}

impl Progress {
    /// Counts from now.
    pub(super) fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// One line.
    pub(super) fn say(&self, who: &str, what: &str) {
        eprintln!("{:7.2} s  {who:<10} {what}", self.start.elapsed().as_secs_f64());
    }
}
