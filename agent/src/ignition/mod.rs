//! Ignition configs as a declaration of what should be there: parse, resolve `data:` references, validate, lower.
//!
//! [`read`] is the whole way from bytes to a [`Target`]; the files are its steps.

mod merge;
mod parse;
mod resource;
mod target;
mod validate;

pub use parse::NEWEST;
pub use resource::{MAX_CONTENT, MAX_TOTAL};
pub use target::{Directory, Dropin, File, Group, Id, Kargs, Link, Owner, Target, Unit, User, lower};
pub use validate::MAX_ENTRIES;

/// Why a config is refused. Nothing here shows content.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its spec is not one of 3.0.0 to [`NEWEST`].
    #[error(
        "Ignition spec {found} is not understood, expected 3.0.0 to {NEWEST}; upgrade oneboot-agent or ask for an older spec"
    )]
    Version {
        /// What `ignition.version` says.
        found: String,
    },
    /// The document does not have the shape of its spec.
    #[error("not an Ignition config of spec {version}: {message}")]
    Shape {
        /// What `ignition.version` says, or `?`.
        version: String,
        /// What does not fit, without the value.
        message: String,
    },
    /// An entry breaks a rule of the spec.
    #[error("{entry}: {message}")]
    Invalid {
        /// The path, unit or user it is about.
        entry: String,
        /// Which rule.
        message: String,
    },
    /// Content cannot be had, or is not what was promised.
    #[error("{entry}: {message}")]
    Content {
        /// The path it is for.
        entry: String,
        /// Why, without the content.
        message: String,
    },
    /// Something that only Ignition can do, before the root is in use.
    #[error(
        "{what} cannot be set up after the first boot; mark that MachineConfig as needed before the node is approved (spec.neededBeforeNodeApproved: true)"
    )]
    FirstBootOnly {
        /// `storage.disks`, `storage.luks`, ...
        what: &'static str,
    },
    /// References nest too deeply.
    #[error("config references are nested deeper than {0}")]
    Depth(usize),
}

/// Everything from the document to the target: parsed at its own spec, references resolved, merged, validated, contents decoded.
///
/// `overwrite_default` is what a file without `overwrite` means: the MCO renders such entries as `true`, Ignition takes `false`.
pub fn read(config: &serde_json::Value, overwrite_default: bool) -> Result<Target, Error> {
    if config.is_null() {
        return Ok(Target::default());
    }
    let mut warnings = Vec::new();
    let merged = merge::resolve(config, &mut warnings)?;
    let typed = parse::typed(&merged)?;
    validate::check(&typed)?;
    let mut target = lower(&typed, overwrite_default)?;
    target.warnings = warnings;
    Ok(target)
}
