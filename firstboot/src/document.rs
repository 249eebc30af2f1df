//! Owns: the little of an Ignition config that is read before Ignition reads it: version, references, CAs.
//! Given bytes, gives a `Document`, or says whether they are not JSON, not Ignition, or of another generation.
//! Never: keeps or builds the rest (a rendered config is half a megabyte), and never judges it: that is Ignition's.

use crate::outcome::Outcome;
use crate::secret::Secret;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::fmt;
use std::ops::Range;

/// A version of the Ignition spec, `3.<minor>.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spec(pub u8);

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}.0", self.0)
    }
}

impl std::str::FromStr for Spec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let minor = text.strip_prefix("3.").and_then(|rest| rest.strip_suffix(".0"));
        let minor = minor.filter(|minor| minor.len() < 3 && (*minor == "0" || !minor.starts_with('0')));
        minor
            .and_then(|minor| minor.parse().ok())
            .map(Self)
            .ok_or_else(|| format!("{text:?} is not an Ignition spec version: expected 3.<minor>.0"))
    }
}

impl Spec {
    /// The next older one, until there is none.
    pub fn step_down(self) -> Option<Self> {
        self.0.checked_sub(1).map(Self)
    }
}

/// Where in a document a reference stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slot {
    /// `ignition.config.merge[n]`
    Merge(usize),
    /// `ignition.config.replace`
    Replace,
}

impl fmt::Display for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Merge(at) => write!(f, "ignition.config.merge[{at}]"),
            Self::Replace => f.write_str("ignition.config.replace"),
        }
    }
}

/// Something to be read from elsewhere: another config, or a CA.
#[derive(Clone)]
pub struct Resource {
    /// The URL, which may carry a token.
    pub source: Secret<String>,
    /// Compressed with gzip, by the document's word.
    pub gzip: bool,
    /// `sha512-...` or `sha256-...` of the decompressed content.
    pub hash: Option<String>,
    /// Names as written, values secret.
    pub headers: Vec<(String, Secret<String>)>,
}

/// A reference to another config.
#[derive(Clone)]
pub struct Reference {
    /// Where it stands, for people.
    pub slot: Slot,
    /// Which bytes of the document it is.
    pub span: Range<usize>,
    /// What it refers to.
    pub resource: Resource,
}

/// What matters here.
pub struct Document {
    /// `ignition.version`
    pub spec: Spec,
    /// In the order in which Ignition goes: `replace` last.
    pub references: Vec<Reference>,
    /// Which bytes are the list `ignition.config.merge`.
    pub merge: Option<Range<usize>>,
    /// `ignition.security.tls.certificateAuthorities`
    pub authorities: Vec<Resource>,
}

/// Not a document of ours; no part of the text is repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadDocument {
    /// Broken JSON, or no JSON at all: often an HTML error page of a proxy.
    #[error("not JSON (line {line}, column {column}; {size} bytes)")]
    NotJson {
        /// From 1.
        line: usize,
        /// From 1.
        column: usize,
        /// Of the whole text.
        size: usize,
    },
    /// JSON, but not an Ignition config.
    #[error("JSON, but not an Ignition config: {0}")]
    NotIgnition(&'static str),
    /// An Ignition config of another generation.
    #[error("Ignition spec {found}, where {expected} is understood")]
    Spec {
        /// As the document has it, if that is a version at all.
        found: String,
        /// The versions that are.
        expected: String,
    },
}

impl BadDocument {
    /// The row of the outcome table.
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::NotJson { .. } => Outcome::NotJson,
            Self::NotIgnition(_) => Outcome::NotIgnition,
            Self::Spec { .. } => Outcome::UnsupportedSpec,
        }
    }
}

impl Document {
    /// Reads a document. `newest` is the newest spec that counts as supported.
    pub fn parse(bytes: &[u8], newest: Option<Spec>) -> Result<Self, BadDocument> {
        let raw: RawDocument = serde_json::from_slice(bytes).map_err(|error| {
            if error.is_data() {
                WRONG_TYPE
            } else {
                BadDocument::NotJson { line: error.line(), column: error.column(), size: bytes.len() }
            }
        })?;
        let ignition = raw.ignition.ok_or(BadDocument::NotIgnition("no ignition section"))?;
        let version = ignition.version.ok_or(BadDocument::NotIgnition("no ignition.version"))?;
        let spec = version.parse().ok().filter(|spec| newest.is_none_or(|newest| *spec <= newest));
        let spec = spec.ok_or_else(|| BadDocument::Spec {
            found: shown(&version),
            expected: newest.map_or("3.x.0".to_owned(), |newest| format!("3.0.0 to {newest}")),
        })?;
        let config = ignition.config.unwrap_or_default();
        let merge: Vec<&RawValue> = config.merge.map(part).transpose()?.unwrap_or_default();
        let merge = merge.into_iter().enumerate().map(|(at, raw)| (Slot::Merge(at), raw));
        let mut references = Vec::new();
        for (slot, raw) in merge.chain(config.replace.map(|raw| (Slot::Replace, raw))) {
            if let Some(resource) = part::<RawResource>(raw)?.into_resource() {
                references.push(Reference { slot, span: span(bytes, raw), resource });
            }
        }
        let tls = ignition.security.unwrap_or_default().tls.unwrap_or_default();
        let authorities = tls.certificate_authorities.unwrap_or_default();
        Ok(Self {
            spec,
            references,
            merge: config.merge.map(|raw| span(bytes, raw)),
            authorities: authorities.into_iter().filter_map(RawResource::into_resource).collect(),
        })
    }
}

/// A version as it may be shown: what does not look like one is the document's content, and that is never printed.
fn shown(version: &str) -> String {
    let plain = |c: char| c.is_ascii_digit() || c == '.';
    let (number, label) = version.split_once('-').unwrap_or((version, "experimental"));
    if version.len() <= 24 && number.chars().all(plain) && label == "experimental" {
        version.to_owned()
    } else {
        format!("that is no version ({} bytes)", version.len())
    }
}

const WRONG_TYPE: BadDocument = BadDocument::NotIgnition("a field of ignition.* has the wrong type");

/// A part that is known to be JSON.
fn part<'a, T: Deserialize<'a>>(raw: &'a RawValue) -> Result<T, BadDocument> {
    serde_json::from_slice(raw.get().as_bytes()).map_err(|_| WRONG_TYPE)
}

/// Where a part stands in the bytes that it was read from.
fn span(bytes: &[u8], part: &RawValue) -> Range<usize> {
    let start = part.get().as_ptr().addr() - bytes.as_ptr().addr();
    start..start + part.get().len()
}

// The shapes below hold only what is read; serde skips the rest without building it. Go's decoder takes null anywhere.

#[derive(Deserialize)]
struct RawDocument<'a> {
    #[serde(borrow)]
    ignition: Option<RawIgnition<'a>>,
}

#[derive(Deserialize)]
struct RawIgnition<'a> {
    version: Option<String>,
    #[serde(borrow)]
    config: Option<RawConfig<'a>>,
    security: Option<RawSecurity>,
}

#[derive(Deserialize, Default)]
struct RawConfig<'a> {
    #[serde(borrow)]
    merge: Option<&'a RawValue>,
    #[serde(borrow)]
    replace: Option<&'a RawValue>,
}

#[derive(Deserialize, Default)]
struct RawSecurity {
    tls: Option<RawTls>,
}

#[derive(Deserialize, Default)]
struct RawTls {
    #[serde(rename = "certificateAuthorities")]
    certificate_authorities: Option<Vec<RawResource>>,
}

#[derive(Deserialize)]
struct RawResource {
    source: Option<String>,
    compression: Option<String>,
    #[serde(rename = "httpHeaders")]
    http_headers: Option<Vec<RawHeader>>,
    verification: Option<RawVerification>,
}

#[derive(Deserialize)]
struct RawHeader {
    name: String,
    value: Option<String>,
}

#[derive(Deserialize)]
struct RawVerification {
    hash: Option<String>,
}

impl RawResource {
    /// Without a source it refers to nothing: the MCO's pointers write `"replace": {}`.
    fn into_resource(self) -> Option<Resource> {
        let source = self.source.filter(|source| !source.is_empty())?;
        let headers = self.http_headers.unwrap_or_default();
        Some(Resource {
            source: Secret::new(source),
            gzip: self.compression.as_deref() == Some("gzip"),
            hash: self.verification.and_then(|verification| verification.hash),
            headers: headers.into_iter().filter_map(|h| Some((h.name, Secret::new(h.value?)))).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> BadDocument {
        Document::parse(text.as_bytes(), Some(Spec(5))).err().unwrap_or_else(|| panic!("accepted: {text}"))
    }

    #[test]
    fn a_pointer_as_the_operator_writes_it() {
        let text = r#"{"ignition":{"config":{"merge":[{"source":"https://h/config/worker","httpHeaders":[
            {"name":"Authorization","value":"Bearer x"},{"name":"X","value":null}],"verification":{}}],"replace":{"verification":{}}},
            "proxy":{},"security":{"tls":{"certificateAuthorities":[{"source":"data:,x","compression":"gzip"}]}},
            "timeouts":{},"version":"3.2.0"},"passwd":{},"storage":{},"systemd":{}}"#;
        let document = Document::parse(text.as_bytes(), None).unwrap();
        assert_eq!(document.spec, Spec(2));
        let [reference] = document.references.as_slice() else { panic!("one reference") };
        assert_eq!(reference.slot, Slot::Merge(0));
        assert_eq!(reference.resource.headers.len(), 1);
        assert!(document.authorities[0].gzip && !reference.resource.gzip);
        let (merge, entry) = (&text[document.merge.unwrap()], &text[reference.span.clone()]);
        assert_eq!(merge, format!("[{entry}]"));
        assert!(entry.starts_with(r#"{"source":"https"#));
    }

    #[test]
    fn what_is_not_a_config_is_named() {
        assert!(matches!(refused("<html>"), BadDocument::NotJson { line: 1, column: 1, size: 6 }));
        assert!(matches!(refused("{} x"), BadDocument::NotJson { .. }));
        assert!(matches!(refused("[]"), BadDocument::NotIgnition(_)));
        assert!(matches!(refused("{}"), BadDocument::NotIgnition("no ignition section")));
        assert!(matches!(refused(r#"{"ignition":{}}"#), BadDocument::NotIgnition("no ignition.version")));
        for ignition in [r#""version":3"#, r#""config":{"merge":{}}"#, r#""config":{"replace":{"source":1}}"#]
        {
            let text = format!(r#"{{"ignition":{{{ignition},"version":"3.2.0"}}}}"#);
            assert_eq!(refused(&text), WRONG_TYPE, "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_versions_place_is_not_printed() {
        let named =
            |version: &str| refused(&format!(r#"{{"ignition":{{"version":{version:?}}}}}"#)).to_string();
        assert!(named("3.7.0-experimental").contains("3.7.0-experimental"));
        for secret in ["hunter2", "3.5.0-hunter2", "1234567890.1234567890.1234567890"] {
            assert!(!named(secret).contains(secret), "{}", named(secret));
        }
    }

    #[test]
    fn versions_are_exact_and_bounded() {
        for version in ["2.2.0", "3.6.0", "3.4.1", "3.4", "3.04.0", "3.5.0-experimental", "4.0.0", ""] {
            let text = format!(r#"{{"ignition":{{"version":{version:?}}}}}"#);
            assert!(matches!(refused(&text), BadDocument::Spec { .. }), "{version}");
        }
        assert_eq!(Spec(0).step_down(), None);
        assert_eq!(Spec(5).step_down(), Some(Spec(4)));
    }
}
