//! Owns: what lies between bytes as sent and bytes as meant: gzip and verification hashes, for configs and CAs alike.
//! Given bytes and what a document says about them, gives the content.
//! Never: inflates beyond a limit, and never names a digest it expected without the one it found.

use crate::fetch::Seen;
use crate::outcome::Outcome;
use crate::trust::hex;
use sha2::{Digest, Sha256, Sha512};
use std::io::Read;

/// Inflates if the document says gzip, then compares the digest of the result if the document has one.
pub fn unpack(bytes: Vec<u8>, gzip: bool, hash: Option<&str>, limit: u64) -> Result<Vec<u8>, Seen> {
    let bytes = if gzip { inflate(&bytes, limit)? } else { bytes };
    let Some(wanted) = hash else { return Ok(bytes) };
    let found = match wanted.split_once('-') {
        Some(("sha512", _)) => format!("sha512-{}", hex(&Sha512::digest(&bytes))),
        Some(("sha256", _)) => format!("sha256-{}", hex(&Sha256::digest(&bytes))),
        _ => {
            return Err(Seen::new(
                Outcome::DigestMismatch,
                "a verification hash that is neither sha512- nor sha256-",
            ));
        }
    };
    if found.eq_ignore_ascii_case(wanted) {
        return Ok(bytes);
    }
    let detail = format!("{} bytes with the digest {found}, where {wanted} was expected", bytes.len());
    Err(Seen::new(Outcome::DigestMismatch, detail))
}

/// gzip, all members of it, up to `limit` bytes: a bomb costs no more memory than a config may.
fn inflate(bytes: &[u8], limit: u64) -> Result<Vec<u8>, Seen> {
    let mut content = Vec::new();
    let read = flate2::read::MultiGzDecoder::new(bytes).take(limit + 1).read_to_end(&mut content);
    if content.len() as u64 > limit {
        return Err(Seen::new(
            Outcome::TooLarge,
            format!("a body of more than {limit} bytes after decompression"),
        ));
    }
    match read {
        Ok(_) => Ok(content),
        Err(error) => {
            Err(Seen::new(Outcome::NotJson, format!("{} bytes that are not gzip: {error}", bytes.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn gzip(content: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(content).unwrap();
        encoder.finish().unwrap()
    }

    fn outcome(result: Result<Vec<u8>, Seen>) -> Outcome {
        result.unwrap_err().outcome
    }

    #[test]
    fn the_digest_is_over_the_decompressed_bytes() {
        let hash = format!("sha256-{}", hex(&Sha256::digest(b"content")).to_uppercase());
        assert_eq!(unpack(gzip(b"content"), true, Some(&hash), 100).unwrap(), b"content");
        let hash = format!("sha512-{}", hex(&Sha512::digest(b"content")));
        assert_eq!(unpack(b"content".to_vec(), false, Some(&hash), 100).unwrap(), b"content");
        assert_eq!(outcome(unpack(b"Content".to_vec(), false, Some(&hash), 100)), Outcome::DigestMismatch);
        assert_eq!(outcome(unpack(b"x".to_vec(), false, Some("md5-00"), 100)), Outcome::DigestMismatch);
    }

    #[test]
    fn a_bomb_stops_at_the_limit() {
        let bomb = gzip(&vec![0; 10_000_000]);
        assert!(bomb.len() < 100_000);
        assert_eq!(outcome(unpack(bomb.clone(), true, None, 9_999_999)), Outcome::TooLarge);
        assert_eq!(unpack(bomb, true, None, 10_000_000).unwrap().len(), 10_000_000);
    }

    #[test]
    fn what_is_not_gzip_is_said_to_be_so() {
        assert_eq!(outcome(unpack(b"{}".to_vec(), true, None, 100)), Outcome::NotJson);
        let mut cut = gzip(b"content");
        cut.truncate(cut.len() - 4);
        assert_eq!(outcome(unpack(cut, true, None, 100)), Outcome::NotJson);
    }
}
