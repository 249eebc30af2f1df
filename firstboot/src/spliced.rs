//! Owns: a document some of whose parts become others on its way out.
//! Given its text and what comes in the place of which part, writes the result; a config goes into its `data:` URL in pieces.
//! Never: changes a byte outside those parts, or holds text and result at once.

use crate::dataurl;
use crate::trust::hex;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha512};
use std::io::{self, Write};
use std::ops::Range;

/// What was handed over, for the report and whoever compares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Digested {
    /// SHA-512 in lower-case hex.
    pub sha512: String,
    /// How many bytes.
    pub size: u64,
}

impl Digested {
    /// Of these bytes. The longest single computation of a fetch: done once for a config, never again for what it is put into.
    pub fn of(bytes: &[u8]) -> Self {
        Self { sha512: hex(&Sha512::digest(bytes)), size: bytes.len() as u64 }
    }

    /// As Ignition writes it in `verification.hash`.
    pub fn hash(&self) -> String {
        format!("sha512-{}", self.sha512)
    }
}

/// What comes in the place of a part.
enum Part {
    /// Other JSON.
    Text(&'static str),
    /// A reference whose content is here: the JSON before and after the `data:` URL in it.
    Config { content: Vec<u8>, digested: Digested, after: String },
}

/// The JSON before that URL.
const BEFORE: &[u8] = br#"{"source":""#;

/// Text and its parts, in the order in which they stand there.
pub struct Spliced {
    text: Vec<u8>,
    parts: Vec<(Range<usize>, Part)>,
}

impl Spliced {
    /// These very bytes, so far.
    pub fn new(text: Vec<u8>) -> Self {
        Self { text, parts: Vec::new() }
    }

    /// Whether it still is.
    pub fn is_verbatim(&self) -> bool {
        self.parts.is_empty()
    }

    /// Puts an empty list in the place of one.
    pub fn empty(&mut self, list: Range<usize>) {
        self.put(list, Part::Text("[]"));
    }

    /// Puts the content in the place of the reference to it; whatever else the reference has, it keeps.
    pub fn embed(&mut self, reference: Range<usize>, content: Vec<u8>) -> serde_json::Result<()> {
        let mut entry: Map<String, Value> = serde_json::from_slice(&self.text[reference.clone()])?;
        entry.remove("source");
        entry.remove("httpHeaders"); // what carried credentials; a data: URL must not have any
        entry.remove("compression"); // the content is decompressed by now
        let digested = Digested::of(&content);
        entry.insert("verification".to_owned(), json!({ "hash": digested.hash() }));
        let others = Value::Object(entry).to_string();
        let after = format!("\",{}", &others[1..]); // the source stands where this one's brace was
        self.put(reference, Part::Config { content, digested, after });
        Ok(())
    }

    /// Whether the text that stays as it was holds this.
    pub fn keeps(&self, needle: &str) -> bool {
        let ends = self.parts.iter().map(|(span, _)| span.clone());
        let mut at = 0;
        for span in ends.chain(std::iter::once(self.text.len()..self.text.len())) {
            if String::from_utf8_lossy(&self.text[at..span.start]).contains(needle) {
                return true;
            }
            at = span.end;
        }
        false
    }

    fn put(&mut self, span: Range<usize>, part: Part) {
        let at = self.parts.partition_point(|(other, _)| other.start < span.start);
        self.parts.insert(at, (span, part));
    }

    /// Writes it out once.
    pub fn write_to(&self, mut writer: impl Write) -> io::Result<()> {
        let mut at = 0;
        for (span, part) in &self.parts {
            writer.write_all(&self.text[at..span.start])?;
            match part {
                Part::Text(text) => writer.write_all(text.as_bytes())?,
                Part::Config { content, after, .. } => {
                    writer.write_all(BEFORE)?;
                    dataurl::write(content, &mut writer)?;
                    writer.write_all(after.as_bytes())?;
                }
            }
            at = span.end;
        }
        writer.write_all(&self.text[at..])
    }

    /// The result in memory, as content of another document.
    pub fn into_bytes(self) -> Vec<u8> {
        if self.is_verbatim() {
            return self.text;
        }
        let mut bytes = Vec::new();
        self.write_to(&mut bytes).expect("memory takes every write");
        bytes
    }

    /// The first config that was put in, or else the whole.
    pub fn digested(self) -> Digested {
        let first = self.parts.iter().find_map(|(_, part)| match part {
            Part::Config { digested, .. } => Some(digested.clone()),
            Part::Text(_) => None,
        });
        first.unwrap_or_else(|| Digested::of(&self.into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"{ "replace" : {"source":"https://h/?token=t","httpHeaders":[{"name":"A","value":"b"}],"compression":"gzip",
        "verification":{"hash":"sha256-00"},"unknown":1} , "merge":[{"source":"data:,x"}] , "x" : 1.50 }"#;

    fn span(part: &str) -> Range<usize> {
        let start = TEXT.find(part).unwrap();
        start..start + part.len()
    }

    #[test]
    fn only_the_parts_change_in_whatever_order_they_are_given() {
        let mut spliced = Spliced::new(TEXT.into());
        spliced.empty(span(r#"[{"source":"data:,x"}]"#));
        let end = TEXT.find(" , \"merge\"").unwrap();
        spliced.embed(span("{\"source\":\"https").start..end, b"{}".to_vec()).unwrap();
        let digested = Digested::of(b"{}");
        let wanted = format!(
            r#"{{ "replace" : {{"source":"data:;base64,e30=","unknown":1,"verification":{{"hash":"{}"}}}} , "merge":[] , "x" : 1.50 }}"#,
            digested.hash()
        );
        let mut written = Vec::new();
        spliced.write_to(&mut written).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), wanted);
        assert_eq!(spliced.digested(), digested);
    }

    #[test]
    fn without_a_config_the_digest_is_that_of_the_whole() {
        assert_eq!(Spliced::new(TEXT.into()).digested(), Digested::of(TEXT.as_bytes()));
        let mut spliced = Spliced::new(b"{\"merge\":[1]}".to_vec());
        spliced.empty(9..12);
        assert_eq!(spliced.digested(), Digested::of(b"{\"merge\":[]}"));
    }
}
