//! Owns: the two clocks, the machine's (which may be years wrong) and the kernel's (which only counts up).
//! Gives times as plain seconds and microseconds, and dates for people in UTC.
//! Never: decides anything by itself; what a wrong clock means for a certificate is `trust`'s to say.

use nix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// What the machine's clock says, in seconds since 1970; 0 if it stands before that.
pub fn wall_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Microseconds since the kernel started (`CLOCK_MONOTONIC`), the same count that `systemd-analyze` uses.
pub fn boot_microseconds() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .ok()
        .and_then(|now| {
            let seconds = u64::try_from(now.tv_sec()).ok()?;
            Some(seconds * 1_000_000 + u64::try_from(now.tv_nsec()).ok()? / 1000)
        })
        .unwrap_or(0) // every Linux has this clock
}

/// `2026-11-21 04:05:06 UTC` for seconds since 1970.
pub fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date, counted in 400-year eras from 0000-03-01 (Howard Hinnant, "chrono-compatible
    // low-level date algorithms"): a calendar crate for one line of a message would not pay.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02} UTC", rest / 3600, rest / 60 % 60, rest % 60)
}

/// Seconds since 1970 for a civil date and time in UTC; the inverse of [`utc`]. Years before 1970 are 0.
pub fn seconds(year: u64, month: u64, day: u64, hour: u64, minute: u64, second: u64) -> u64 {
    let year = if month <= 2 { year.saturating_sub(1) } else { year };
    let (era, year_of_era) = (year / 400, year % 400);
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day.saturating_sub(1);
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).saturating_sub(719_468);
    days * 86_400 + hour * 3600 + minute * 60 + second
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_that_calendars_get_wrong() {
        for (at, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_199, "2024-02-29 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (253_402_300_799, "9999-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(at), text);
        }
    }

    #[test]
    fn seconds_and_dates_are_inverse() {
        for at in (0..40_000_000_000_u64).step_by(86_399 * 37) {
            let text = utc(at);
            let part = |range: std::ops::Range<usize>| text[range].parse().unwrap();
            assert_eq!(
                seconds(part(0..4), part(5..7), part(8..10), part(11..13), part(14..16), part(17..19)),
                at
            );
        }
    }

    #[test]
    fn the_kernels_clock_counts_up() {
        let first = boot_microseconds();
        assert!(first > 0);
        assert!(boot_microseconds() >= first);
    }
}
