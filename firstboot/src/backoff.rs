//! Owns: how long to wait between two tries: doubling up to a cap, drawn at random so that nodes spread out.
//! Given the number of failures so far and a random number, gives a pause; pure but for `unit`.
//! Never: sleeps. Whoever waits also has a deadline and a console to keep informed.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// A schedule of pauses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// No pause is shorter.
    pub floor: Duration,
    /// The longest pause after the first failure.
    pub first: Duration,
    /// No pause is longer.
    pub cap: Duration,
}

impl Backoff {
    /// The longest pause after `failures` failures (the first is 1): `first`, doubled each time, up to `cap`.
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31); // 2^31 times anything useful is beyond any cap
        self.first.saturating_mul(1 << doublings).min(self.cap)
    }

    /// Full jitter: anywhere between the floor and the ceiling, by `unit` in `0.0..1.0`.
    pub fn pause(&self, failures: u32, unit: f64) -> Duration {
        let ceiling = self.ceiling(failures).max(self.floor);
        self.floor + ceiling.saturating_sub(self.floor).mul_f64(unit.clamp(0.0, 1.0))
    }
}

/// A random number in `0.0..1.0`, good enough to spread nodes that power on together.
pub fn unit() -> f64 {
    // RandomState is seeded by the kernel and differs at every call; jitter needs no more than that.
    let bits = RandomState::new().build_hasher().finish() >> 11; // the 53 bits an f64 holds exactly
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    let unit = bits as f64 / (1u64 << 53) as f64;
    unit
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Backoff =
        Backoff { floor: Duration::ZERO, first: Duration::from_millis(200), cap: Duration::from_secs(30) };

    #[test]
    fn doubles_from_the_first_pause_to_the_cap() {
        let millis: Vec<u128> = (1..=10).map(|n| FAST.ceiling(n).as_millis()).collect();
        assert_eq!(millis, [200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(FAST.ceiling(u32::MAX), FAST.cap);
    }

    #[test]
    fn jitter_covers_all_between_floor_and_ceiling() {
        let slow = Backoff {
            floor: Duration::from_secs(5),
            first: Duration::from_secs(5),
            cap: Duration::from_secs(60),
        };
        assert_eq!(slow.pause(1, 0.9), Duration::from_secs(5), "floor and ceiling are the same at first");
        assert_eq!(slow.pause(2, 0.0), Duration::from_secs(5));
        assert_eq!(slow.pause(2, 0.5), Duration::from_millis(7500));
        assert_eq!(slow.pause(9, 1.0), Duration::from_secs(60));
        assert_eq!(FAST.pause(1, 0.0), Duration::ZERO);
    }

    #[test]
    fn two_nodes_draw_differently() {
        let draws: std::collections::BTreeSet<u64> = (0..64).map(|_| unit().to_bits()).collect();
        assert!(draws.len() > 60, "{} different draws of 64", draws.len());
        assert!(draws.iter().all(|bits| (0.0..1.0).contains(&f64::from_bits(*bits))));
    }
}
