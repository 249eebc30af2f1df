//! `MergeMachineConfigs` (facts/mco.md 6.1): many MachineConfigs to one spec. Pure.

use serde_json::{Value, json};

use super::merge::merge as merge_ignition;
use crate::names::GENERATED_BY;

/// What the cluster says when no MachineConfig does.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Defaults {
    /// `ControllerConfig.spec.osImageURL`.
    pub os_image: String,
    /// `ControllerConfig.spec.baseOSExtensionsContainerImage`.
    pub extensions_image: String,
}

/// Why a pool cannot be rendered. Names objects and fields, never content.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// A spec that cannot be read here.
    #[error("MachineConfig {name}: Ignition spec {version:?} is not 3.0 to 3.5; write it in 3.5.0")]
    Spec {
        /// Which object.
        name: String,
        /// What it says, cut.
        version: String,
    },
    /// `spec.config` is not an Ignition config.
    #[error("MachineConfig {name}: spec.config is not an Ignition config")]
    NotIgnition {
        /// Which object.
        name: String,
    },
    /// A kernel type that nobody knows.
    #[error("MachineConfig {name}: kernelType must be default, realtime or 64k-pages")]
    KernelType {
        /// Which object.
        name: String,
    },
    /// Only Ignition can do it, and it would come after Ignition has run.
    #[error(
        "MachineConfig {name}: storage.{what} can only be applied by Ignition, before approval; annotate it: \
         oneboot.dev/needed-before-node-approved=\"true\" (or set spec.neededBeforeNodeApproved where the CRD has it)"
    )]
    OnlyIgnition {
        /// Which object.
        name: String,
        /// `disks`, `raid`, `filesystems`, `luks`.
        what: &'static str,
    },
}

/// The newest spec that rendered configs are written in.
const SPEC: &str = "3.5.0";

/// Merges MachineConfigs in the order given; the result is a MachineConfig's `spec`.
pub fn merge(configs: &[&Value], defaults: &Defaults) -> Result<Value, RenderError> {
    let mut ignition = json!({"ignition": {"version": SPEC}});
    let (mut arguments, mut extensions) = (Vec::new(), Vec::new());
    let (mut fips, mut kernel_type) = (false, "default");
    let (mut os_image, mut extensions_image) =
        (defaults.os_image.as_str(), defaults.extensions_image.as_str());
    for config in configs {
        let spec = &config["spec"];
        let name = config["metadata"]["name"].as_str().unwrap_or_default();
        if !spec["config"].is_null() {
            ignition = merge_ignition(&ignition, &normalised(name, &spec["config"])?);
        }
        arguments.extend(spec["kernelArguments"].as_array().into_iter().flatten().cloned());
        extensions.extend(spec["extensions"].as_array().into_iter().flatten().cloned());
        fips |= spec["fips"] == true;
        match spec["kernelType"].as_str().unwrap_or_default() {
            "" | "default" => {}
            known @ ("realtime" | "64k-pages") => kernel_type = known,
            _ => return Err(RenderError::KernelType { name: name.to_owned() }),
        }
        // What the operator generates repeats the cluster's images: only others can override them.
        if config["metadata"]["annotations"].get(GENERATED_BY).is_none() {
            for (key, slot) in
                [("osImageURL", &mut os_image), ("baseOSExtensionsContainerImage", &mut extensions_image)]
            {
                *slot = spec[key].as_str().filter(|url| !url.is_empty()).unwrap_or(slot);
            }
        }
    }
    ignition["ignition"]["version"] = SPEC.into();
    Ok(json!({
        "osImageURL": os_image, "baseOSExtensionsContainerImage": extensions_image, "config": ignition,
        "kernelArguments": arguments, "extensions": extensions, "fips": fips, "kernelType": kernel_type,
    }))
}

/// A config as the operator parses it: spec 3, files overwrite unless they say otherwise.
fn normalised(name: &str, config: &Value) -> Result<Value, RenderError> {
    let not_ignition = || RenderError::NotIgnition { name: name.to_owned() };
    let version = config["ignition"]["version"].as_str().ok_or_else(not_ignition)?;
    if !matches!(version, "3.0.0" | "3.1.0" | "3.2.0" | "3.3.0" | "3.4.0" | SPEC) {
        return Err(RenderError::Spec { name: name.to_owned(), version: version.chars().take(20).collect() });
    }
    let mut config = config.clone();
    if let Value::Array(files) = &mut config["storage"]["files"] {
        for file in files {
            if !file.is_object() {
                return Err(not_ignition());
            }
            if file["overwrite"].is_null() {
                file["overwrite"] = true.into();
            }
        }
    }
    drop_empty(&mut config);
    Ok(config)
}

/// Nulls and empty parts say nothing; the operator's own writer leaves them out.
fn drop_empty(config: &mut Value) {
    if let Value::Object(map) = config {
        for value in map.values_mut() {
            drop_empty(value);
        }
        map.retain(|_, value| match value {
            Value::Null => false,
            Value::Object(map) => !map.is_empty(),
            Value::Array(list) => !list.is_empty(),
            _ => true,
        });
    } else if let Value::Array(list) = config {
        list.iter_mut().for_each(drop_empty);
    }
}
