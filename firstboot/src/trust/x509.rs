//! Owns: the few facts of a certificate that a message or the choice of verification time needs.
//! Given DER, gives serial-free facts: who issued it to whom (common names), and from when to when it holds.
//! Never: decides trust. Signatures, names, usages and constraints are checked by webpki alone.

use crate::clock;

/// Dates in seconds since 1970, names as their common name or empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertFacts {
    /// Common name of whoever signed it.
    pub issuer: String,
    /// Common name of whom it is for.
    pub subject: String,
    /// First second in which it holds.
    pub not_before: u64,
    /// Last second in which it holds.
    pub not_after: u64,
}

const CONTEXT_0: u8 = 0xa0; // [0] EXPLICIT: the version of a certificate, absent in version 1
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const INTEGER: u8 = 0x02;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// 2.5.4.3, commonName.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Reads the facts out of a certificate in DER, or nothing if it is not one.
pub fn facts(der: &[u8]) -> Option<CertFacts> {
    let mut outer = Der(der);
    let mut certificate = Der(outer.take(SEQUENCE)?);
    let mut tbs = Der(certificate.take(SEQUENCE)?);
    if tbs.peek() == Some(CONTEXT_0) {
        tbs.take(CONTEXT_0)?;
    }
    tbs.take(INTEGER)?; // serial number
    tbs.take(SEQUENCE)?; // signature algorithm
    let issuer = common_name(tbs.take(SEQUENCE)?);
    let mut validity = Der(tbs.take(SEQUENCE)?);
    let (not_before, not_after) = (validity.time()?, validity.time()?);
    let subject = common_name(tbs.take(SEQUENCE)?);
    Some(CertFacts { issuer, subject, not_before, not_after })
}

/// The common name in a distinguished name; empty when it has none, as certificates for names in SANs often do.
fn common_name(name: &[u8]) -> String {
    let mut sets = Der(name);
    while let Some(set) = sets.take(SET) {
        let mut attribute = Der(set);
        let Some(pair) = attribute.take(SEQUENCE) else { continue };
        let mut pair = Der(pair);
        if pair.take(OID) == Some(COMMON_NAME) {
            return pair.any().map(|(_, text)| printable(text)).unwrap_or_default();
        }
    }
    String::new()
}

/// A name comes from the network and goes to a console: no control characters, and a bounded length.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(128).collect()
}

/// The unread rest of some DER.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The content of the next element, whatever it is, and its tag.
    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&length, rest) = rest.split_first()?;
        let (length, rest) = if length < 0x80 {
            (usize::from(length), rest)
        } else {
            // Long form: that many bytes of length follow. Four are more than any certificate needs.
            let bytes = usize::from(length & 0x7f);
            if bytes == 0 || bytes > 4 {
                return None;
            }
            let (length, rest) = rest.split_at_checked(bytes)?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// The content of the next element, which must have this tag.
    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        if self.peek() != Some(tag) {
            return None;
        }
        self.any().map(|(_, content)| content)
    }

    /// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ` (RFC 5280 4.1.2.5 allows no other form).
    fn time(&mut self) -> Option<u64> {
        let (tag, text) = self.any()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        if !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let number = |from: usize| text.get(from..from + 2)?.parse::<u64>().ok();
        let (year, rest) = match (tag, text.len()) {
            // RFC 5280: two-digit years from 50 are of the last century.
            (UTC_TIME, 12) => (number(0)? + if number(0)? >= 50 { 1900 } else { 2000 }, 2),
            (GENERALIZED_TIME, 14) => (number(0)? * 100 + number(2)?, 4),
            _ => return None,
        };
        let (month, day) = (number(rest)?, number(rest + 2)?);
        if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        Some(clock::seconds(year, month, day, number(rest + 4)?, number(rest + 6)?, number(rest + 8)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair, date_time_ymd};

    fn certificate(from: (i32, u8, u8), to: (i32, u8, u8), name: &str) -> Vec<u8> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.not_before = date_time_ymd(from.0, from.1, from.2);
        params.not_after = date_time_ymd(to.0, to.1, to.2);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn both_forms_of_time_and_the_names() {
        let facts = facts(&certificate((1975, 1, 2), (2075, 12, 31), "root-ca")).unwrap();
        assert_eq!(clock::utc(facts.not_before), "1975-01-02 00:00:00 UTC");
        assert_eq!(clock::utc(facts.not_after), "2075-12-31 00:00:00 UTC");
        assert_eq!((facts.issuer.as_str(), facts.subject.as_str()), ("root-ca", "root-ca"));
    }

    #[test]
    fn a_hostile_name_cannot_move_the_cursor() {
        let facts = facts(&certificate((2020, 1, 1), (2030, 1, 1), "a\u{1b}[2Jb\n")).unwrap();
        assert_eq!(facts.subject, "a[2Jb");
    }

    #[test]
    fn truncation_at_any_byte_is_refused_without_a_panic() {
        let der = certificate((2020, 1, 1), (2030, 1, 1), "x");
        for length in 0..der.len() {
            assert_eq!(facts(&der[..length]), None, "{length} of {} bytes", der.len());
        }
    }
}
