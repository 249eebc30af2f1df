//! A config in an older 3.x: the same text where nothing newer is used, a refusal where something would be lost.
//! Which keys a spec has is `ignition-config`'s knowledge; what else changed between two specs is here. Pure.

use ignition_config::{Config, Warning};
use serde_json::{Value, json};
use std::collections::BTreeSet;

use super::{BuildError, Version};

/// Values that an older spec takes for an error, or for something else: the first minor version that has them.
const NEWER_VALUES: &[(u64, &str)] = &[
    (1, "a sha256 verification hash"),
    (2, "a gs:// source"),
    (3, "the filesystem format none"),
    (4, "an arn: source"),
    (4, "special mode bits"),
];

/// Sets the version, if the config can be said in it. Keys that the older spec lacks are dropped where they say
/// nothing (empty, or their default), as the real server's typed conversion drops them.
pub(super) fn convert(mut config: Value, version: Version) -> Result<Value, BuildError> {
    if version.major != 3 {
        return Err(BuildError::SpecTwo);
    }
    let lost = |what: String| BuildError::Inexpressible { asked: version.to_string(), what };
    for (since, what) in NEWER_VALUES.iter().copied() {
        if version.minor < since && uses(&config, what) {
            return Err(lost(what.to_owned()));
        }
    }
    // What no spec knows was ignored before, and will be.
    config["ignition"]["version"] = Version::NEWEST.to_string().into();
    let known = unused(&config).ok_or_else(|| lost("this config at all".to_owned()))?;
    config["ignition"]["version"] = version.to_string().into();
    let lacking = unused(&config).ok_or_else(|| lost("a value that it cannot do without".to_owned()))?;
    for path in lacking.difference(&known) {
        let (parent, key) = path.rsplit_once('.').unwrap_or_default();
        let pointer = parent.replace('.', "/");
        let Some(Value::Object(map)) = config.pointer_mut(&pointer) else { continue };
        if map.get(key).is_some_and(|value| says_something(key, value)) {
            return Err(lost(path.trim_start_matches('.').to_owned()));
        }
        map.remove(key);
    }
    Ok(config)
}

/// Keys that the config's own version does not have, as `.storage.luks`; none if it cannot be read.
fn unused(config: &Value) -> Option<BTreeSet<String>> {
    let (_, warnings) = Config::parse_slice(config.to_string().as_bytes()).ok()?;
    let keys = warnings.into_iter().filter_map(|warning| match warning {
        Warning::UnusedKey(path) => Some(path.trim_start_matches('$').to_owned()),
        _ => None,
    });
    Some(keys.collect())
}

/// Whether leaving this out changes what happens: `false` does not, but for `shouldExist`, whose default is true.
fn says_something(key: &str, value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(value) => *value != (key == "shouldExist"),
        Value::Array(list) => !list.is_empty(),
        Value::Object(map) => map.iter().any(|(key, value)| says_something(key, value)),
        Value::String(text) => !text.is_empty(),
        Value::Number(_) => true,
    }
}

fn uses(config: &Value, what: &str) -> bool {
    let storage = |kind: &str| config["storage"][kind].as_array().cloned().unwrap_or_default();
    let texts = |key: &str, start: &str| {
        anywhere(config, key, &|value| value.as_str().is_some_and(|t| t.starts_with(start)))
    };
    match what {
        "a sha256 verification hash" => texts("hash", "sha256-"),
        "a gs:// source" => texts("source", "gs://"),
        "an arn: source" => texts("source", "arn:"),
        "the filesystem format none" => storage("filesystems").iter().any(|fs| fs["format"] == "none"),
        _ => storage("files")
            .iter()
            .chain(&storage("directories"))
            .any(|entry| entry["mode"].as_i64().is_some_and(|mode| mode & 0o7000 != 0)),
    }
}

fn anywhere(value: &Value, key: &str, wanted: &dyn Fn(&Value) -> bool) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(k, v)| k == key && wanted(v) || anywhere(v, key, wanted)),
        Value::Array(list) => list.iter().any(|item| anywhere(item, key, wanted)),
        _ => false,
    }
}

/// Kernel arguments came with 3.3: for an older reader they move to where MCD's first boot sets them, as the real
/// server does (facts/mco.md 1.3). What is moved; `shouldNotExist` has no such place and stays, to be refused.
pub(super) fn move_kernel_arguments(config: &mut Value, version: Version) -> Vec<Value> {
    if version.major != 3 || version.minor >= 3 {
        return Vec::new();
    }
    match config["kernelArguments"]["shouldExist"].take() {
        Value::Array(arguments) => arguments,
        _ => Vec::new(),
    }
}

/// The MachineConfig's `kernelArguments` with those.
pub(super) fn with_kernel_arguments(spec: &mut Value, moved: Vec<Value>) {
    if !moved.is_empty() {
        let mut all = spec["kernelArguments"].as_array().cloned().unwrap_or_default();
        all.extend(moved);
        spec["kernelArguments"] = json!(all);
    }
}
