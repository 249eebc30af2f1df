//! Owns: nothing. Gives the clock that every part of a node's timeline is written in.
//! Given nothing, gives microseconds since the kernel started, suspend included.
//! Never: wall time.

use nix::time::{ClockId, clock_gettime};

/// Microseconds of `CLOCK_BOOTTIME`: the clock of firstboot's report and of the agent's history, one for all processes of a machine.
pub fn boottime_us() -> u64 {
    let now =
        clock_gettime(ClockId::CLOCK_BOOTTIME).expect("CLOCK_BOOTTIME exists on every Linux since 2.6.39");
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0) / 1_000
}
