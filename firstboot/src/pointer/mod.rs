//! Owns: where the pointer config comes from: the table of sources, in order of precedence.
//! Given paths, options and kernel arguments, gives the first pointer that exists, and which source that was.
//! Never: asks anybody but the platform's own metadata service, nor reads meaning into the bytes.

mod aws;
mod azure;
mod drive;
mod file;
mod firmware;
mod gcp;
mod kernel;
mod metadata;
mod openstack;
mod user;

pub use metadata::{Metadata, MetadataError};

use crate::cmdline::Arguments;
use crate::paths::Paths;
use std::io;
use std::path::{Path, PathBuf};

/// What sources may look at.
pub struct Context<'a> {
    /// `--pointer`
    pub pointer: Option<PathBuf>,
    /// `--url`
    pub url: Option<String>,
    /// The kernel's arguments.
    pub arguments: &'a Arguments,
    /// Everything else.
    pub paths: &'a Paths,
    /// A hand-over of our own, which is no pointer.
    pub ours: Option<&'a Path>,
    /// The service of the platform that the kernel's arguments name.
    pub metadata: &'a Metadata,
}

/// A pointer, or where to fetch it.
pub enum Pointer {
    /// A config.
    Config {
        /// As found.
        bytes: Vec<u8>,
        /// For messages.
        from: PathBuf,
    },
    /// A URL that leads to one, or to the config itself.
    Url(String),
}

/// There may be a pointer, but it cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PointerError {
    /// It is there but cannot be read.
    #[error("cannot read the pointer {path}")]
    Read {
        /// The file or device.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Only the platform knows, and it does not say.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}

/// One place in which a pointer may be.
pub trait PointerSource {
    /// For messages and the report.
    fn name(&self) -> &'static str;
    /// The pointer, if this source has one.
    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError>;
}

/// Every source, first that has one wins. A new source is a file here and a row in this table.
const SOURCES: [&dyn PointerSource; 6] = [
    &file::PointerOption,
    &file::UrlOption,
    &kernel::UrlArgument,
    &kernel::PointerArgument,
    &user::UserConfig,
    &firmware::FwCfg,
];

/// Which source is the last, by `ignition.platform.id=`. A new platform is a file here and a row in this table.
const PLATFORMS: [&dyn PointerSource; 5] =
    [&aws::Aws, &azure::Azure, &azure::AzureStack, &gcp::Gcp, &openstack::OpenStack];

/// The first pointer that exists, and the name of its source.
pub fn find(context: &Context) -> Result<Option<(Pointer, &'static str)>, PointerError> {
    let platform = context.arguments.platform.as_deref();
    let platform = PLATFORMS.into_iter().find(|source| Some(source.name()) == platform);
    for source in SOURCES.into_iter().chain(platform) {
        if let Some(pointer) = source.load(context)? {
            return Ok(Some((pointer, source.name())));
        }
    }
    Ok(None)
}

/// User data that a platform has told us.
fn told(platform: &'static str, data: Option<Vec<u8>>) -> Option<Pointer> {
    Some(Pointer::Config { bytes: data?, from: PathBuf::from(format!("the user data of {platform}")) })
}

/// A file that must be there.
fn required(path: PathBuf) -> Result<Option<Pointer>, PointerError> {
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(Pointer::Config { bytes, from: path })),
        Err(source) => Err(PointerError::Read { path, source }),
    }
}

/// A file that may be there.
fn optional(path: PathBuf) -> Result<Option<Pointer>, PointerError> {
    match required(path) {
        Err(PointerError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found,
    }
}
