//! Owns: documents inside documents: the config that a `data:` reference holds.
//! Given a reference or a list of them, gives that config, or every reference that leads further, at whatever depth.
//! Never: judges what a `data:` URL holds: what is no config, or not what its hash says, is left for Ignition to refuse.

use crate::document::{Document, Reference, Resource, Slot};
use crate::outcome::Limits;
use crate::{content, dataurl};

/// The config in a `data:` reference, if there is one, and its bytes.
pub fn open(resource: &Resource, limits: &Limits) -> Option<(Document, Vec<u8>)> {
    let bytes = dataurl::decode(resource.source.expose()).ok()?;
    let content =
        content::unpack(bytes, resource.gzip, resource.hash.as_deref(), limits.decompressed).ok()?;
    Some((Document::parse(&content, None).ok()?, content))
}

/// Whether Ignition takes no notice of `merge`: once there is something to `replace` the document, nothing else counts.
pub fn superseded(references: &[Reference]) -> bool {
    references.iter().any(|reference| reference.slot == Slot::Replace)
}

/// Every reference out of this document, and out of the documents in its `data:` URLs, in Ignition's order.
pub fn references(document: &Document, limits: &Limits) -> Vec<Resource> {
    let mut found = Vec::new();
    collect(&document.references, limits, limits.depth, &mut found);
    found
}

fn collect(references: &[Reference], limits: &Limits, depth: usize, found: &mut Vec<Resource>) {
    let superseded = superseded(references);
    for Reference { slot, resource, .. } in references {
        if superseded && *slot != Slot::Replace {
            continue;
        }
        if !resource.source.expose().starts_with("data:") {
            found.push(resource.clone());
        } else if depth > 0
            && let Some((document, _)) = open(resource, limits)
        {
            collect(&document.references, limits, depth - 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(config: &str) -> String {
        format!(r#"{{"ignition":{{"version":"3.2.0","config":{config}}}}}"#)
    }

    fn embedding(inner: &str) -> String {
        format!(r#"{{"source":"{}"}}"#, dataurl::encode(inner.as_bytes()))
    }

    fn found(text: &str) -> Vec<String> {
        let document = Document::parse(text.as_bytes(), None).unwrap();
        references(&document, &Limits::default()).iter().map(|found| found.source.expose().clone()).collect()
    }

    #[test]
    fn every_depth_in_the_order_in_which_ignition_goes() {
        let deepest = document(r#"{"merge":[{"source":"https://2"}]}"#);
        let inner = document(&format!(r#"{{"merge":[{{"source":"https://1"}},{}]}}"#, embedding(&deepest)));
        let outer = document(&format!(
            r#"{{"merge":[{{"source":"data:,no config"}},{},{{"source":"https://3"}}]}}"#,
            embedding(&inner)
        ));
        assert_eq!(found(&outer), ["https://1", "https://2", "https://3"]);
    }

    #[test]
    fn what_replaces_a_document_is_all_that_counts() {
        let config = r#"{"merge":[{"source":"https://merged"}],"replace":{"source":"https://instead"}}"#;
        assert_eq!(found(&document(config)), ["https://instead"]);
    }

    #[test]
    fn content_that_is_not_what_its_hash_says_is_ignitions_to_refuse() {
        let inner = dataurl::encode(document(r#"{"merge":[{"source":"https://1"}]}"#).as_bytes());
        let entry = |hash: &str| {
            document(&format!(r#"{{"merge":[{{"source":"{inner}","verification":{{{hash}}}}}]}}"#))
        };
        assert_eq!(found(&entry("")), ["https://1"]);
        assert!(found(&entry(r#""hash":"sha256-00""#)).is_empty());
    }
}
