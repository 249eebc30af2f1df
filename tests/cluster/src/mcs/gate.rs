//! What a request shows as a token: the header or, for clients that cannot set one, `?token=`. Pure.

use hyper::{HeaderMap, header};

use crate::tokens::Presented;

/// Longest text that is looked at: a token is 44 characters, an attested proof may be longer one day.
const LONGEST: usize = 4096;

/// One token in one place. Two (header and query, or either twice) are malformed: nobody means that.
pub fn presented(headers: &HeaderMap, query: Option<&str>) -> Presented {
    let mut shown = Vec::new();
    for value in headers.get_all(header::AUTHORIZATION) {
        let bearer = value.to_str().ok().and_then(|text| text.split_once(' '));
        shown.push(
            bearer
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
                .map(|(_, token)| token.trim().to_owned()),
        );
    }
    for pair in query.unwrap_or_default().split('&') {
        if let Some(value) = pair.strip_prefix("token=") {
            // Percent-decoding only: a `+` in a token that was not encoded is still a `+`.
            shown.push(Some(crate::api::percent_decode(value)));
        }
    }
    match shown.as_mut_slice() {
        [] => Presented::Nothing,
        [Some(token)] if plausible(token) => Presented::Token(std::mem::take(token)),
        _ => Presented::Malformed,
    }
}

/// The characters of RFC 6750's `b64token`.
fn plausible(token: &str) -> bool {
    let one = |c: char| c.is_ascii_alphanumeric() || "-._~+/=".contains(c);
    !token.is_empty() && token.len() <= LONGEST && token.chars().all(one)
}
