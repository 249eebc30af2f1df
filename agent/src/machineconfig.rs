//! Owns: what a MachineConfig document is to us.
//! Given bytes (JSON or YAML, a MachineConfig or a bare Ignition config); gives a [`MachineConfig`].
//! Never looks into `spec.config`: that is `ignition`'s.

use serde::Deserialize;
use serde_json::Value;

/// Why a document is not a MachineConfig.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither JSON nor YAML.
    #[error("not JSON or YAML: {0}")]
    Syntax(String),
    /// A YAML or JSON document of another kind.
    #[error(
        "found a {found}, expected a MachineConfig or an Ignition config (an object with `ignition.version`)"
    )]
    Kind {
        /// The kind it says it is.
        found: String,
    },
    /// A field of `spec` has the wrong type.
    #[error("MachineConfig {name}: {message}")]
    Spec {
        /// `metadata.name`.
        name: String,
        /// What does not fit, without the value.
        message: String,
    },
}

/// A MachineConfig, or a bare Ignition config in the shape of one.
#[derive(Clone, PartialEq)]
pub struct MachineConfig {
    /// `metadata.name`; empty for a bare Ignition config.
    pub name: String,
    /// What it asks for.
    pub spec: Spec,
    /// The document as it came, for `currentconfig`.
    pub raw: Value,
    /// It was an Ignition config without a MachineConfig around it: Ignition's defaults hold, not the MCO's.
    pub bare: bool,
}

// `spec.config` holds secrets: nothing prints it by accident.
impl std::fmt::Debug for MachineConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MachineConfig").field("name", &self.name).finish_non_exhaustive()
    }
}

/// `spec` of a MachineConfig (facts: the CRD; every field may be missing).
#[derive(Clone, PartialEq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// The OS image; empty when none is asked for.
    #[serde(rename = "osImageURL", deserialize_with = "null_default")]
    pub os_image_url: String,
    /// Where extensions come from.
    #[serde(deserialize_with = "null_default")]
    pub base_os_extensions_container_image: String,
    /// Kernel arguments, in order; an entry may hold several.
    #[serde(deserialize_with = "null_default")]
    pub kernel_arguments: Vec<String>,
    /// `default`, `realtime`, `64k-pages`, or empty for `default`.
    #[serde(deserialize_with = "null_default")]
    pub kernel_type: String,
    /// OS extensions.
    #[serde(deserialize_with = "null_default")]
    pub extensions: Vec<String>,
    /// FIPS mode.
    #[serde(deserialize_with = "null_default")]
    pub fips: bool,
    /// The Ignition config; null when there is none.
    pub config: Value,
}

/// Go's JSON takes null for any zero value.
fn null_default<'de, D, T>(d: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

impl MachineConfig {
    /// Reads a document.
    pub fn parse(bytes: &[u8]) -> Result<MachineConfig, Error> {
        let raw = document(bytes)?;
        if raw.get("ignition").is_some() {
            let spec = Spec { config: raw.clone(), ..Spec::default() };
            return Ok(MachineConfig { name: String::new(), spec, raw, bare: true });
        }
        let kind = raw.get("kind").and_then(Value::as_str);
        // A MachineConfig that went through a typed client has no kind (facts/mco.md 1.4): `spec` tells it.
        if kind.is_some_and(|k| k != "MachineConfig") || !raw.get("spec").is_some_and(Value::is_object) {
            let found = kind.map_or_else(|| describe(&raw), |k| format!("{k:?} object"));
            return Err(Error::Kind { found });
        }
        let name = raw.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let spec = Spec::deserialize(&raw["spec"])
            .map_err(|e| Error::Spec { name: name.clone(), message: without_values(&e) })?;
        Ok(MachineConfig { name, spec, raw, bare: false })
    }
}

fn document(bytes: &[u8]) -> Result<Value, Error> {
    // JSON is a part of YAML, but its own parser is faster and its errors are better.
    match serde_json::from_slice(bytes) {
        Ok(value) => Ok(value),
        Err(json) if bytes.trim_ascii_start().starts_with(b"{") => {
            Err(Error::Syntax(format!("line {} column {}", json.line(), json.column())))
        }
        Err(_) => {
            let mut value = serde_norway::from_slice(bytes).map_err(|e| {
                Error::Syntax(e.location().map_or_else(
                    || "unreadable".to_owned(),
                    |at| format!("line {} column {}", at.line(), at.column()),
                ))
            })?;
            octal_modes(&mut value);
            Ok(value)
        }
    }
}

/// `mode: 0644` is octal to everyone who writes it, and to the YAML 1.1 that Kubernetes' tools read; YAML 1.2 has it as text.
fn octal_modes(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let digits = value.as_str().and_then(|text| text.strip_prefix('0'));
                match digits.map(|digits| i64::from_str_radix(digits, 8)) {
                    Some(Ok(mode)) if key == "mode" => *value = mode.into(),
                    _ => octal_modes(value),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(octal_modes),
        _ => {}
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "empty document",
        Value::Object(_) => "object without `kind`",
        Value::Array(_) => "list",
        _ => "single value",
    }
    .to_owned()
}

/// serde names the offending value, which may be a secret; what was expected is enough.
fn without_values(e: &serde_json::Error) -> String {
    let text = e.to_string();
    text.rsplit_once("expected ").map_or("a field has the wrong type".to_owned(), |(_, want)| {
        format!("a field has the wrong type, expected {want}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_json_yaml_and_bare_ignition() {
        let json = br#"{"kind":"MachineConfig","metadata":{"name":"m"},"spec":{"fips":null,"kernelArguments":["a","b c"],"config":{"ignition":{"version":"3.5.0"}}}}"#;
        let yaml = b"kind: MachineConfig\nmetadata: {name: m}\nspec:\n  kernelArguments: [a, b c]\n  config:\n    ignition: {version: 3.5.0}\n";
        let (json, yaml) = (MachineConfig::parse(json).unwrap(), MachineConfig::parse(yaml).unwrap());
        assert_eq!(json.spec.kernel_arguments, ["a", "b c"]);
        assert!(!json.bare);
        assert_eq!((&json.name, &json.spec.config), (&yaml.name, &yaml.spec.config));
        let bare = MachineConfig::parse(br#"{"ignition":{"version":"3.4.0"}}"#).unwrap();
        assert!(bare.bare);
        assert_eq!(bare.spec.config["ignition"]["version"], "3.4.0");
    }

    #[test]
    fn a_mode_as_people_write_it_in_yaml_is_octal() {
        for mode in ["0644", "0o644", "420"] {
            let yaml = format!(
                "kind: MachineConfig\nmetadata: {{name: m}}\nspec:\n  config:\n    storage:\n      files:\n      - mode: {mode}\n        path: /0644\n"
            );
            let file = &MachineConfig::parse(yaml.as_bytes()).unwrap().spec.config["storage"]["files"][0];
            assert_eq!(
                (file["mode"].as_i64(), file["path"].as_str()),
                (Some(0o644), Some("/0644")),
                "{mode}"
            );
        }
    }

    #[test]
    fn says_what_it_found_instead() {
        let message = |b: &[u8]| MachineConfig::parse(b).unwrap_err().to_string();
        assert!(message(br#"{"kind":"Node","spec":{}}"#).contains("found a \"Node\" object"));
        assert!(message(b"[]").contains("found a list"));
        assert!(message(b"").contains("empty document"));
        assert!(message(b"{\"kind\": ").starts_with("not JSON or YAML: line 1"));
    }

    #[test]
    fn a_wrong_type_never_shows_the_value() {
        let e = MachineConfig::parse(br#"{"metadata":{"name":"m"},"spec":{"fips":"hunter2"}}"#).unwrap_err();
        assert!(matches!(e, Error::Spec { .. }));
        assert!(!e.to_string().contains("hunter2"), "{e}");
        assert!(e.to_string().contains("expected a boolean"), "{e}");
    }
}
