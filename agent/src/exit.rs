//! Owns: the exit codes, a contract (README, table "exit codes").
//! Given an error's class; gives a number.
//! Never prints.

/// All is well.
pub const OK: u8 = 0;
/// The command line is wrong (`EX_USAGE`).
pub const USAGE: u8 = 64;
/// Input is malformed or asks for what can never be done here (`EX_DATAERR`).
pub const DATA: u8 = 65;
/// A service is not there (`EX_UNAVAILABLE`).
pub const UNAVAILABLE: u8 = 69;
/// A defect of this program (`EX_SOFTWARE`).
pub const INTERNAL: u8 = 70;
/// Reading or writing failed (`EX_IOERR`).
pub const IO: u8 = 74;
/// Somebody else holds the lock, or the bus is not up yet: try later (`EX_TEMPFAIL`).
pub const LATER: u8 = 75;
/// A peer does not speak the protocol (`EX_PROTOCOL`).
pub const PROTOCOL: u8 = 76;
/// Not permitted (`EX_NOPERM`).
pub const NOT_PERMITTED: u8 = 77;
/// Configuration or trust is wrong (`EX_CONFIG`).
pub const CONFIG: u8 = 78;
/// Applied, failed, and rolled back: the old tree.
pub const ROLLED_BACK: u8 = 79;
/// A rollback could not finish: look at what it lists.
pub const ROLLBACK_INCOMPLETE: u8 = 80;
/// The plan needs more disruption than allowed; nothing was changed.
pub const TOO_DISRUPTIVE: u8 = 81;
/// The tree is not what the config asks for.
pub const VERIFY_FAILED: u8 = 82;
