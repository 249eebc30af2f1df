//! Owns: `data:` URLs, as RFC 2397 and Ignition write them.
//! Given a URL, gives its bytes; given bytes, gives a URL that every Ignition 3.x decodes to them.
//! Never: puts content into an error.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use std::io::{self, Write};

/// How a URL of ours begins.
const PREFIX: &str = "data:;base64,";

/// What is encoded at a time: whole groups of three bytes, and few enough to stay in the processor's cache.
const PIECE: usize = 24 << 10;

/// Padding is required by Ignition's decoder; being lenient with what others wrote costs nothing.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Not a `data:` URL that can be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadDataUrl {
    /// It begins otherwise.
    #[error("not a data: URL")]
    Scheme,
    /// No comma between type and data.
    #[error("a data: URL without a comma")]
    Comma,
    /// The data is not base64 although the URL says so.
    #[error("a data: URL whose data is not base64")]
    Base64,
}

/// The bytes of a `data:` URL.
pub fn decode(url: &str) -> Result<Vec<u8>, BadDataUrl> {
    let rest = url.strip_prefix("data:").ok_or(BadDataUrl::Scheme)?;
    let (kind, data) = rest.split_once(',').ok_or(BadDataUrl::Comma)?;
    let bytes: Vec<u8> = percent_encoding::percent_decode_str(data).collect();
    if kind.rsplit(';').next() != Some("base64") {
        return Ok(bytes);
    }
    let dense: Vec<u8> = bytes.into_iter().filter(|byte| !byte.is_ascii_whitespace()).collect();
    LENIENT.decode(dense).map_err(|_| BadDataUrl::Base64)
}

/// A base64 `data:` URL: its size does not depend on what the bytes are.
pub fn encode(bytes: &[u8]) -> String {
    let mut url = Vec::with_capacity(PREFIX.len() + bytes.len().div_ceil(3) * 4);
    write(bytes, &mut url).expect("memory takes every write");
    String::from_utf8(url).expect("base64 is ASCII")
}

/// Writes such a URL.
pub fn write(bytes: &[u8], mut to: impl Write) -> io::Result<()> {
    to.write_all(PREFIX.as_bytes())?;
    let mut encoded = vec![0; PIECE / 3 * 4];
    for piece in bytes.chunks(PIECE) {
        let size = base64::engine::general_purpose::STANDARD.encode_slice(piece, &mut encoded);
        to.write_all(&encoded[..size.expect("four letters for three bytes, and the room for them")])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_that_pointers_use() {
        for (url, bytes) in [
            ("data:,hello%20world", "hello world"),
            ("data:,a+b", "a+b"),
            ("data:,", ""),
            ("data:text/plain;charset=utf-8;base64,aGVsbG8=", "hello"),
            ("data:;base64,aGVs\nbG8", "hello"),
            ("data:;base64,aGVsbG8%3D", "hello"),
        ] {
            assert_eq!(decode(url), Ok(bytes.as_bytes().to_vec()), "{url}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(decode("https://x/"), Err(BadDataUrl::Scheme));
        assert_eq!(decode("data:text/plain"), Err(BadDataUrl::Comma));
        assert_eq!(decode("data:;base64,?"), Err(BadDataUrl::Base64));
    }

    #[test]
    fn encoding_is_the_inverse_of_decoding() {
        for length in (0..260).chain([PIECE - 1, PIECE, PIECE + 1]) {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(length).collect();
            assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        }
    }
}
