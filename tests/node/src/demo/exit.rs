//! Owns the demo's exit codes; `--help` shows them.

/// A step failed, or a node ended anywhere but in Settled.
pub(super) const FAILURE: u8 = 1;
/// A command line that cannot be meant (`sysexits.h`): nothing was started, nothing was changed.
pub(super) const USAGE: u8 = 64;
/// And the signal's number: somebody ended it.
pub(super) const BY_SIGNAL: u8 = 128;
