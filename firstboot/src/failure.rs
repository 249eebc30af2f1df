//! Owns: a final failure, and the at most ten lines in which a person at the console learns of it.
//! Given an outcome, what was found and what was expected, gives those lines.
//! Never: more than ten lines, since that is what an emergency shell shows of a failed unit.

use crate::fetch::Seen;
use crate::outcome::Outcome;

/// Why this boot cannot go on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found}")]
pub struct Failure {
    /// The row of the table.
    pub outcome: Outcome,
    /// What was found, and where.
    pub found: String,
    /// What should have been there instead.
    pub expected: Option<String>,
    /// How it went on: how often it was tried, for how long.
    pub effort: Option<String>,
}

impl Failure {
    /// Found this.
    pub fn new(outcome: Outcome, found: impl Into<String>) -> Self {
        Self { outcome, found: found.into(), expected: None, effort: None }
    }

    /// Expected that.
    #[must_use]
    pub fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    /// After so much trying.
    #[must_use]
    pub fn effort(mut self, effort: impl Into<String>) -> Self {
        self.effort = Some(effort.into());
        self
    }

    /// A local file, by an error whose source says why.
    pub fn local(error: &dyn std::error::Error) -> Self {
        let why = error.source().map(|source| format!(": {source}")).unwrap_or_default();
        Self::new(Outcome::LocalIo, format!("{error}{why}"))
    }

    /// The last lines of standard error.
    pub fn lines(&self) -> Vec<String> {
        let exit = self.outcome.exit();
        let mut lines = vec![
            "oneboot-firstboot: this machine's configuration could not be fetched".to_owned(),
            format!("  outcome:  {} ({})", self.outcome.name(), self.outcome.seen()),
            format!("  found:    {}", one_line(&self.found)),
        ];
        lines.extend(self.expected.as_ref().map(|expected| format!("  expected: {}", one_line(expected))));
        lines.extend(self.effort.as_ref().map(|effort| format!("  tried:    {}", one_line(effort))));
        lines.push(format!("  to do:    {}", self.outcome.advice()));
        lines.push(format!("  exit:     {} ({})", exit.code(), exit.name()));
        lines
    }
}

impl From<Seen> for Failure {
    fn from(seen: Seen) -> Self {
        Self::new(seen.outcome, seen.detail)
    }
}

/// A server's words must not scroll ours off the screen.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(600).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_more_than_ten_lines_whatever_was_found() {
        for outcome in Outcome::ALL {
            let failure = Failure::new(*outcome, "a\nb\r\u{1b}[2J").expected("c\nd").effort("e\nf");
            let lines = failure.lines();
            assert!(lines.len() <= 10, "{outcome:?}");
            assert!(lines.iter().all(|line| !line.chars().any(char::is_control)), "{lines:?}");
        }
    }
}
