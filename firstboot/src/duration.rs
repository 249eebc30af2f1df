//! Owns: how a duration is written on a command line and in a fragment: `200ms`, `8s`, `15m`, `1h`.
//! Given text, gives a `Duration` or says what it should have looked like; and back.
//! Never: accepts a number without its unit, since nobody can tell seconds from minutes.

use std::time::Duration;

/// The text is not a number with one of the units.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a duration: expected a number and a unit, as in 200ms, 8s, 15m or 1h")]
pub struct BadDuration(String);

/// Parses a whole number directly followed by `ms`, `s`, `m` or `h`.
pub fn parse(text: &str) -> Result<Duration, BadDuration> {
    let bad = || BadDuration(text.to_owned());
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let millis = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 60 * 60 * 1000,
        _ => return Err(bad()),
    };
    number.checked_mul(millis).map(Duration::from_millis).ok_or_else(bad)
}

/// For people: the largest unit that loses nothing worth knowing.
pub fn show(duration: Duration) -> String {
    let secs = duration.as_secs();
    match secs {
        0 => format!("{}ms", duration.as_millis()),
        1..60 => format!("{}.{}s", secs, duration.subsec_millis() / 100),
        60..3600 => format!("{}m{:02}s", secs / 60, secs % 60),
        _ => format!("{}h{:02}m", secs / 3600, secs % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_understood() {
        for (text, millis) in [("200ms", 200), ("8s", 8_000), ("15m", 900_000), ("1h", 3_600_000), ("0s", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused_with_the_text_it_found() {
        for text in [
            "",
            "8",
            "s",
            "-1s",
            "1.5s",
            "8 s",
            "8S",
            "1h30m",
            "99999999999999999999s",
            "18446744073709551615h",
        ] {
            assert_eq!(parse(text), Err(BadDuration(text.to_owned())), "{text}");
        }
    }

    #[test]
    fn shown_in_the_unit_a_person_would_use() {
        for (millis, text) in [(200, "200ms"), (8_300, "8.3s"), (61_000, "1m01s"), (3_660_000, "1h01m")] {
            assert_eq!(show(Duration::from_millis(millis)), text);
        }
    }
}
