//! Owns: an eavesdropper's view of the MCS: every byte it sends, and all that is encoded in them.
//! Given an address and a token, gives bodies; given a body, gives its text with each `data:` URL in it opened, again and again.
//! Never: uses a reader of our own: what hides in an encoding must be found by somebody else's.

use std::io::Read as _;
use std::sync::Arc;

use anyhow::Context as _;
use base64::Engine as _;
use serde_json::Value;

/// One answer of the MCS.
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// `GET url` with these headers. The certificate is not looked at: an eavesdropper does not care.
///
/// # Errors
/// When there is no answer.
pub fn get(url: &str, headers: &[(&str, &str)]) -> anyhow::Result<Answer> {
    let tls = ureq::tls::TlsConfig::builder()
        .disable_verification(true)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let agent: ureq::Agent =
        ureq::Agent::config_builder().tls_config(tls).http_status_as_error(false).build().into();
    let mut request = agent.get(url);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let mut response = request.call().with_context(|| format!("GET {url}"))?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(64 << 20).read_to_vec().context("reading the body")?;
    Ok(Answer { status, body })
}

/// All text that is in `body`: itself, every string of its JSON, and the content of every `data:` URL among them, however deep.
pub fn all_text(body: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![body.to_vec()];
    while let Some(bytes) = todo.pop() {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Ok(value) = serde_json::from_slice::<Value>(&bytes) {
            strings(&value, &mut |string| {
                if let Some(content) = open_data_url(string) {
                    todo.push(content);
                }
            });
        }
        found.push(text);
    }
    found
}

fn strings(value: &Value, each: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => each(text),
        Value::Array(list) => list.iter().for_each(|item| strings(item, each)),
        Value::Object(map) => map.values().for_each(|item| strings(item, each)),
        _ => {}
    }
}

/// The content of a `data:` URL, inflated when it is gzip.
fn open_data_url(url: &str) -> Option<Vec<u8>> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let raw: Vec<u8> = percent_encoding::percent_decode_str(data).collect();
    let bytes = if head.ends_with(";base64") {
        base64::engine::general_purpose::STANDARD.decode(raw).ok()?
    } else {
        raw
    };
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Some(bytes);
    }
    let mut inflated = Vec::new();
    flate2::read::GzDecoder::new(bytes.as_slice()).read_to_end(&mut inflated).ok()?;
    Some(inflated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn what_is_wrapped_twice_and_packed_is_found() {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"the secret").expect("memory");
        let packed = base64::engine::general_purpose::STANDARD.encode(gzip.finish().expect("memory"));
        let inner = format!("{{\"source\":\"data:;base64,{packed}\"}}");
        let escaped: String =
            percent_encoding::utf8_percent_encode(&inner, percent_encoding::NON_ALPHANUMERIC).collect();
        let outer = format!("{{\"a\":[{{\"b\":\"data:application/json,{escaped}\"}}]}}");
        assert!(all_text(outer.as_bytes()).iter().any(|text| text == "the secret"));
    }
}
