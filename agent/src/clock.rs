//! Owns: time, as far as the agent needs it: the kernel's count, the wall's date, and a pause between two tries.
//! Gives numbers; the real clock is [`System`].
//! Never: is read by anything that plans or decides.

use std::{thread, time::Duration};

use nix::time::{ClockId, clock_gettime};

/// Time, so that a test need not wait for it.
pub trait Clock: Send + Sync {
    /// Microseconds since the kernel started, suspended time included (`CLOCK_BOOTTIME`).
    fn boot_microseconds(&self) -> u64;
    /// Seconds since 1970, as right as the machine's clock is.
    fn wall_seconds(&self) -> u64;
    /// Waits before another try.
    fn pause(&self, duration: Duration);
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Clock for System {
    fn boot_microseconds(&self) -> u64 {
        clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |now| {
            let (seconds, nanos) = (now.tv_sec().unsigned_abs(), now.tv_nsec().unsigned_abs());
            seconds * 1_000_000 + nanos / 1000
        })
    }

    fn wall_seconds(&self) -> u64 {
        oneboot_firstboot::clock::wall_seconds()
    }

    fn pause(&self, duration: Duration) {
        thread::sleep(duration);
    }
}

/// RFC 3339 for seconds since 1970, as the API and the JSON files write it.
pub fn rfc3339(seconds: u64) -> String {
    let text = oneboot_firstboot::clock::utc(seconds); // `2026-11-21 04:05:06 UTC`
    match (text.get(..10), text.get(11..19)) {
        (Some(date), Some(time)) => format!("{date}T{time}Z"),
        _ => text, // beyond the year 9999
    }
}
