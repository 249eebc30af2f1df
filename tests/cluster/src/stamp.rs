//! Owns the few things an API server makes up: timestamps, uids, random suffixes, random tokens.
//! Given nothing, gives text.
//! Never predictable: everything random comes from the kernel.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt::Write as _;
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

/// Now, RFC 3339, UTC, whole seconds: as Kubernetes writes `metav1.Time`.
pub fn now() -> String {
    rfc3339(OffsetDateTime::now_utc())
}

/// RFC 3339, UTC, whole seconds.
pub fn rfc3339(at: OffsetDateTime) -> String {
    let whole = at.to_offset(time::UtcOffset::UTC).replace_nanosecond(0).expect("0 is a nanosecond");
    whole.format(&Rfc3339).expect("RFC 3339 holds every year that certificates do")
}

/// The instant an RFC 3339 text names.
pub fn parse(text: &str) -> Option<OffsetDateTime> {
    OffsetDateTime::parse(text, &Rfc3339).ok()
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the kernel has randomness; without it nothing here is safe");
    bytes
}

/// A version 4 UUID.
pub fn uid() -> String {
    let mut b: [u8; 16] = random();
    b[6] = (b[6] & 0x0f) | 0x40;
    b[8] = (b[8] & 0x3f) | 0x80;
    let hex = hex(&b);
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Five characters, as `generateName` appends: Kubernetes' own alphabet, without vowels, so that no words appear.
pub fn suffix() -> String {
    const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    random::<5>().iter().map(|b| char::from(ALPHABET[usize::from(*b) % ALPHABET.len()])).collect()
}

/// 32 random bytes, base64: a provisioning or API token (design 5 "Token").
pub fn token() -> String {
    STANDARD.encode(random::<32>())
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        write!(out, "{b:02x}").expect("writing to a String does not fail");
        out
    })
}

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: impl AsRef<[u8]>) -> String {
    use sha2::Digest as _;
    hex(&sha2::Sha256::digest(bytes))
}
