//! Owns: the way from a document at any spec to the newest one's schema.
//! Given JSON; gives the same config up-converted, and warnings for unused keys.
//! Never accepts a version that is not exactly one of the known ones.

use ignition_config::{Config, v3_6};
use serde::Deserialize;
use serde_json::Value;

use super::Error;

/// The newest spec understood.
pub const NEWEST: &str = "3.6.0";

/// Specs up to this minor ignore setuid, setgid and sticky bits (facts/ignition.md 4.1).
const LAST_WITHOUT_SPECIAL_BITS: u32 = 5;

/// Parses at the document's own version and converts to [`NEWEST`], as JSON, ready to be merged.
pub(super) fn up_convert(document: &Value, warnings: &mut Vec<String>) -> Result<Value, Error> {
    let version = document.pointer("/ignition/version").and_then(Value::as_str).unwrap_or("?").to_owned();
    let shape = |message: String| Error::Shape { version: version.clone(), message };
    if version == "?" {
        return Err(shape("`ignition.version` is missing".to_owned()));
    }
    let bytes = serde_json::to_vec(document).map_err(|_| shape("not representable as JSON".to_owned()))?;
    let (config, unused) = Config::parse_slice(&bytes).map_err(|e| match e {
        ignition_config::Error::Serialization(e) => shape(without_values(&e)),
        // Anything else is about the version.
        _ => Error::Version { found: version.clone() },
    })?;
    warnings.extend(unused.iter().map(ToString::to_string));
    let mut json = serde_json::to_value(&config).map_err(|e| shape(without_values(&e)))?;
    // How to fetch is not what to lay down, and these three changed their shape between specs.
    if let Some(ignition) = json["ignition"].as_object_mut() {
        for key in ["proxy", "timeouts", "security"] {
            ignition.remove(key);
        }
        ignition.insert("version".to_owned(), NEWEST.into());
    }
    if minor(&version) <= LAST_WITHOUT_SPECIAL_BITS {
        mask_special_bits(&mut json, warnings);
    }
    Ok(json)
}

/// The typed form of an up-converted document.
pub(super) fn typed(json: &Value) -> Result<v3_6::Config, Error> {
    v3_6::Config::deserialize(json)
        .map_err(|e| Error::Shape { version: NEWEST.to_owned(), message: without_values(&e) })
}

fn minor(version: &str) -> u32 {
    version.split('.').nth(1).and_then(|m| m.parse().ok()).unwrap_or(0)
}

fn mask_special_bits(json: &mut Value, warnings: &mut Vec<String>) {
    for list in ["files", "directories"] {
        let Some(entries) = json.pointer_mut(&format!("/storage/{list}")).and_then(Value::as_array_mut)
        else {
            continue;
        };
        for entry in entries {
            let Some(mode) = entry["mode"].as_i64() else { continue };
            if mode & 0o7000 != 0 && (0..=0o7777).contains(&mode) {
                let path = entry["path"].as_str().unwrap_or_default();
                warnings
                    .push(format!("{path}: setuid, setgid and sticky bits are ignored before spec 3.6.0"));
                entry["mode"] = (mode & 0o777).into();
            }
        }
    }
}

/// serde quotes the value that does not fit, which may be a secret; what was expected is enough.
fn without_values(e: &serde_json::Error) -> String {
    let text = e.to_string();
    if let Some(field) = text.strip_prefix("missing field ") {
        return format!("missing field {field}");
    }
    match text.rsplit_once("expected ") {
        Some((_, want)) => format!("a field has the wrong type, expected {want}"),
        None => format!("line {} column {}", e.line(), e.column()),
    }
}
