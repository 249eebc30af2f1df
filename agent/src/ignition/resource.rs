//! Owns: content that a config carries: `data:` URLs, gzip, verification hashes.
//! Given a resource and the entry it belongs to; gives bytes.
//! Never fetches, and never unpacks more than [`MAX_CONTENT`].

use std::io::Read;

use base64::Engine;
use ignition_config::v3_6::Resource;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256, Sha512};

use super::Error;

/// Most that one file may unpack to: firstboot's limit for a whole body; a MachineConfig is at most 1.5 MiB before that.
pub const MAX_CONTENT: usize = 64 << 20;
/// Most that all files of a config may unpack to: it is held in memory while it is compared.
pub const MAX_TOTAL: usize = 256 << 20;

/// Characters that Ignition's own parser rejects where they stand raw in a `data:` URL (facts/ignition.md 1.9).
const REJECTED: &[u8] = b"#\"{}|^[]`<>\\ ";

/// Content of a resource; nothing where no source is set.
pub(super) fn decode(resource: &Resource, entry: &str) -> Result<Option<Vec<u8>>, Error> {
    let Some(source) = &resource.source else { return Ok(None) };
    let fail = |message: String| Error::Content { entry: entry.to_owned(), message };
    // Ignition takes an empty source for empty content.
    let raw = if source.is_empty() { Vec::new() } else { data_url(source).map_err(fail)? };
    let bytes = match resource.compression.as_deref() {
        None | Some("") => raw,
        Some("gzip") => gunzip(&raw).map_err(fail)?,
        Some(other) => return Err(fail(format!("found compression {other:?}, expected gzip or none"))),
    };
    if let Some(hash) = resource.verification.as_ref().and_then(|v| v.hash.as_deref()) {
        check_hash(&bytes, hash).map_err(fail)?;
    }
    Ok(Some(bytes))
}

/// The same for a resource that is still JSON.
pub(super) fn decode_value(resource: &Value, entry: &str) -> Result<Vec<u8>, Error> {
    let fail = |message: &str| Error::Content { entry: entry.to_owned(), message: message.to_owned() };
    let typed =
        Resource::deserialize(resource).map_err(|_| fail("not a resource (an object with `source`)"))?;
    decode(&typed, entry)?.ok_or_else(|| fail("`source` is missing"))
}

fn data_url(source: &str) -> Result<Vec<u8>, String> {
    let Some(rest) = source.strip_prefix("data:") else {
        let scheme = source.split_once(':').map_or("no scheme", |(scheme, _)| scheme);
        return Err(format!(
            "found a source with {scheme:.10}, and only data: URLs can be laid down after the first boot"
        ));
    };
    let (media, body) = rest.split_once(',').ok_or("the data: URL has no comma")?;
    if media.rsplit(';').next() == Some("base64") {
        let text: Vec<u8> = body.bytes().filter(|b| *b != b'\n').collect();
        return base64::engine::general_purpose::STANDARD
            .decode(text)
            .map_err(|_| "the data: URL is not valid base64".to_owned());
    }
    percent_decode(body.as_bytes())
}

fn percent_decode(body: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::with_capacity(body.len());
    let mut rest = body;
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let digits = tail.get(..2).and_then(|d| std::str::from_utf8(d).ok());
                let byte = digits
                    .filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))
                    .and_then(|d| u8::from_str_radix(d, 16).ok())
                    .ok_or("the data: URL has a broken percent escape")?;
                out.push(byte);
                rest = &tail[2..];
            }
            b if b.is_ascii_control() || !b.is_ascii() || REJECTED.contains(b) => {
                return Err("the data: URL has a character that must be escaped".to_owned());
            }
            b => out.push(*b),
        }
    }
    Ok(out)
}

fn gunzip(raw: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let limit = MAX_CONTENT as u64 + 1; // one more than allowed tells "too much" from "just enough"
    flate2::read::MultiGzDecoder::new(raw)
        .take(limit)
        .read_to_end(&mut out)
        .map_err(|_| "the content is not valid gzip".to_owned())?;
    if out.len() > MAX_CONTENT {
        return Err(format!("the content unpacks to more than {} MiB", MAX_CONTENT >> 20));
    }
    Ok(out)
}

fn check_hash(bytes: &[u8], expected: &str) -> Result<(), String> {
    let found = match expected.split_once('-') {
        Some(("sha512", _)) => format!("sha512-{}", hex(&Sha512::digest(bytes))),
        Some(("sha256", _)) => format!("sha256-{}", hex(&Sha256::digest(bytes))),
        _ => return Err("the verification hash is neither sha512-<hex> nor sha256-<hex>".to_owned()),
    };
    if found.eq_ignore_ascii_case(expected) {
        Ok(())
    } else {
        Err(format!("the content does not match its verification hash: found {found}, expected {expected}"))
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, b| {
        let _ = write!(text, "{b:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn content(source: &str, compression: Option<&str>) -> Result<Option<Vec<u8>>, String> {
        let resource = Resource {
            source: Some(source.to_owned()),
            compression: compression.map(str::to_owned),
            ..Resource::default()
        };
        decode(&resource, "/f").map_err(|e| e.to_string())
    }

    #[test]
    fn data_urls_as_ignition_reads_them() {
        for (source, bytes) in [
            ("data:,", &b""[..]),
            ("", b""),
            ("data:,a%20b+c%0A", b"a b+c\n"),
            ("data:;base64,aGk=", b"hi"),
            ("data:text/plain;charset=utf-8;base64,aG\nk=", b"hi"),
            ("data:text/plain;charset=utf-8,%ff", b"\xff"),
        ] {
            assert_eq!(content(source, None).unwrap().unwrap(), bytes, "{source}");
        }
        for (source, message) in [
            ("data:;base64,aGk", "not valid base64"),
            ("data:,%4", "broken percent escape"),
            ("data:,%+4", "broken percent escape"),
            ("data:,a b", "must be escaped"),
            ("data:hello", "has no comma"),
            ("http://x/y", "found a source with http,"),
        ] {
            let e = content(source, None).unwrap_err();
            assert!(e.starts_with("/f: ") && e.contains(message), "{source}: {e}");
        }
    }

    fn gzip(bytes: &[u8]) -> String {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        let packed = encoder.finish().unwrap();
        format!("data:;base64,{}", base64::engine::general_purpose::STANDARD.encode(packed))
    }

    #[test]
    fn gzip_is_unpacked_within_its_bound() {
        assert_eq!(content(&gzip(b"hello"), Some("gzip")).unwrap().unwrap(), b"hello");
        assert!(content("data:,hello", Some("gzip")).unwrap_err().contains("not valid gzip"));
        let bomb = gzip(&vec![0; MAX_CONTENT + 1]);
        assert!(content(&bomb, Some("gzip")).unwrap_err().contains("more than 64 MiB"));
        assert!(content("data:,x", Some("xz")).unwrap_err().contains("\"xz\""));
    }

    #[test]
    fn a_hash_is_checked_over_what_was_unpacked() {
        let hash = format!("sha256-{}", hex(&Sha256::digest(b"hello")));
        let with = |hash: &str| {
            let json = serde_json::json!({"source": gzip(b"hello"), "compression": "gzip", "verification": {"hash": hash}});
            decode_value(&json, "/f").map_err(|e| e.to_string())
        };
        assert_eq!(with(&hash).unwrap(), b"hello");
        assert_eq!(with(&hash.to_uppercase().replace("SHA256", "sha256")).unwrap(), b"hello");
        let other = format!("sha256-{}", hex(&Sha256::digest(b"other")));
        assert!(with(&other).unwrap_err().contains("does not match"));
        assert!(with("md5-00").unwrap_err().contains("neither sha512"));
    }
}
