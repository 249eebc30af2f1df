//! Owns reading objects that people write: JSON or YAML, one or many documents, Lists unpacked.
//! Given bytes, gives JSON values.
//! Never a value in an error: documents hold secrets.

use serde::Deserialize as _;
use serde_json::Value;

/// All objects in a text.
pub fn parse(text: &str) -> Result<Vec<Value>, String> {
    let mut objects = Vec::new();
    for (at, document) in serde_norway::Deserializer::from_str(text).enumerate() {
        // The library's message may quote the text; its location does not.
        let mut value = Value::deserialize(document).map_err(|error| match error.location() {
            Some(place) => format!("document {}: not YAML or JSON at line {}", at + 1, place.line()),
            None => format!("document {}: not YAML or JSON", at + 1),
        })?;
        if value.is_null() {
            continue;
        }
        octal_modes(&mut value);
        let list =
            value["kind"].as_str().is_some_and(|kind| kind.ends_with("List")) && value["items"].is_array();
        if list && let Value::Array(items) = value["items"].take() {
            objects.extend(items);
        } else {
            objects.push(value);
        }
    }
    Ok(objects)
}

/// `mode: 0644` is octal to everyone who writes it and to Kubernetes' YAML 1.1 reader; YAML 1.2 has it as text.
fn octal_modes(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let octal = value
                    .as_str()
                    .and_then(|text| text.strip_prefix('0'))
                    .map(|digits| i64::from_str_radix(digits, 8));
                match octal {
                    Some(Ok(mode)) if key == "mode" || key == "defaultMode" => *value = mode.into(),
                    _ => octal_modes(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(octal_modes),
        _ => {}
    }
}
