//! Owns: the search for bytes that must not be there.
//! Given a file of any size, a disk too, and needles, gives where they are.
//! Never: trusts a file system: what was deleted is still on the disk, and is found.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// Read at once: large, since a disk is read from end to end.
const CHUNK: usize = 4 << 20;

/// The forms in which a token may lie around: as it is, without its padding, in base64 (as units and `data:` URLs have it), percent-encoded
/// (as URLs have it).
pub fn forms(token: &str) -> Vec<Vec<u8>> {
    let bare = token.trim_end_matches('=');
    // Base64 of what starts one or two bytes earlier has other letters; of each alignment the part that depends on the token alone.
    let aligned = (0..3).map(|skipped| {
        let whole = bare.len() - skipped - (bare.len() - skipped) % 3;
        BASE64_STANDARD.encode(&bare.as_bytes()[skipped..skipped + whole]).into_bytes()
    });
    let percent = bare.replace('+', "%2B").replace('/', "%2F").into_bytes();
    let mut forms: Vec<Vec<u8>> = [bare.as_bytes().to_vec(), percent].into_iter().chain(aligned).collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// Offsets of every needle in a file, with the bytes around it, for a person who has to find out what it is.
///
/// # Errors
/// When the file cannot be read.
pub fn in_file(path: &Path, needles: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    in_stream(file, needles).with_context(|| format!("reading {}", path.display()))
}

fn in_stream(mut stream: impl Read, needles: &[Vec<u8>]) -> anyhow::Result<Vec<String>> {
    let overlap = needles.iter().map(Vec::len).max().unwrap_or(1) - 1;
    let (mut buffer, mut base, mut found) = (Vec::new(), 0_u64, Vec::new());
    loop {
        let kept = buffer.len();
        let read = (&mut stream).take(CHUNK as u64).read_to_end(&mut buffer)?;
        if read == 0 {
            return Ok(found);
        }
        for needle in needles {
            for at in positions(&buffer, needle) {
                // What lies wholly in the part that was kept has been reported already.
                if at + needle.len() > kept {
                    found.push(format!("at byte {}: {}", base + at as u64, around(&buffer, at)));
                }
            }
        }
        let keep = buffer.len().min(overlap);
        base += (buffer.len() - keep) as u64;
        buffer.drain(..buffer.len() - keep);
    }
}

/// Where a needle starts. Most chunks of a disk are zeros, so the first byte is looked for first.
fn positions(haystack: &[u8], needle: &[u8]) -> Vec<usize> {
    let Some(&first) = needle.first() else { return Vec::new() };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(offset) = haystack[from..].iter().position(|&byte| byte == first) {
        let at = from + offset;
        if haystack[at..].starts_with(needle) {
            found.push(at);
        }
        from = at + 1;
    }
    found
}

/// What comes before a find, which says what it is in; never the find itself.
fn around(buffer: &[u8], at: usize) -> String {
    // 80: a key, a header, a file name.
    let before = String::from_utf8_lossy(&buffer[at.saturating_sub(80)..at]);
    before.chars().map(|c| if c.is_control() { '.' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_needle_is_found_once_wherever_the_chunks_end() {
        let needle = b"secret-of-the-test".to_vec();
        for start in [0, 7, CHUNK - needle.len(), CHUNK - 5, CHUNK - 1, CHUNK, 2 * CHUNK - 3] {
            let mut bytes = vec![0; 2 * CHUNK + 100];
            bytes[start..start + needle.len()].copy_from_slice(&needle);
            let found = in_stream(&bytes[..], std::slice::from_ref(&needle)).expect("read");
            assert_eq!(found.len(), 1, "{start}: {found:?}");
            assert!(found[0].starts_with(&format!("at byte {start}:")), "{found:?}");
        }
    }

    #[test]
    fn a_token_is_found_in_whatever_form_it_lies_around() {
        let token = "q+w/ertyuiopasdfghjklzxcvbnm0123456789ABCDE=";
        let forms = forms(token);
        for text in [
            format!("Authorization: Bearer {token}"),
            "https://mcs/config/worker?token=q%2Bw%2FertyuiopasdfghjklzxcvbnmM0123".replace("mM", "m")
                + "456789ABCDE%3D",
            BASE64_STANDARD.encode(token),
            BASE64_STANDARD.encode(format!("x{token}")),
            BASE64_STANDARD.encode(format!("xy{token}z")),
        ] {
            assert!(!in_stream(text.as_bytes(), &forms).expect("read").is_empty(), "{text}");
        }
        assert!(in_stream(&b"Authorization: Bearer other"[..], &forms).expect("read").is_empty());
    }
}
