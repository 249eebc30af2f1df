//! Owns: the two forms of `Retry-After`: seconds, and a date.
//! Given the header (and the server's own `Date`), gives a pause.
//! Never: measures a server's date against a clock that may be years wrong when the server sent its own.

use crate::clock;
use std::time::Duration;

/// A pause of so many seconds, or until a date; nothing for what is neither.
pub fn parse(value: &str, server_date: Option<&str>, wall_seconds: u64) -> Option<Duration> {
    let value = value.trim();
    if let Ok(seconds) = value.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let now = server_date.and_then(date).unwrap_or(wall_seconds);
    Some(Duration::from_secs(date(value)?.saturating_sub(now)))
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the form that RFC 9110 requires senders to use.
fn date(text: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let mut words = text.split_once(", ")?.1.split([' ', ':']);
    let mut number = || words.next()?.parse::<u64>().ok();
    let day = number()?;
    let month = words.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let mut number = || words.next()?.parse::<u64>().ok();
    let (year, hour, minute, second) = (number()?, number()?, number()?, number()?);
    (words.next() == Some("GMT") && year >= 1970)
        .then(|| clock::seconds(year, month, day, hour, minute, second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_and_neither() {
        let date = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(parse(" 120 ", None, 0), Some(Duration::from_secs(120)));
        assert_eq!(parse(date, Some("Sun, 06 Nov 1994 08:49:07 GMT"), 0), Some(Duration::from_secs(30)));
        assert_eq!(parse(date, None, 784_111_776), Some(Duration::from_secs(1)));
        assert_eq!(parse(date, None, 4_000_000_000), Some(Duration::ZERO), "the past is now");
        for neither in ["", "-1", "soon", "Sun, 06 Foo 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 CET"] {
            assert_eq!(parse(neither, None, 0), None, "{neither}");
        }
    }
}
