//! Owns: where the pointer config comes from: the table of sources, in order of precedence.
//! Given paths, options and kernel arguments, gives the first pointer that exists, and which source that was.
//! Never: fetches over the network itself, nor reads meaning into the bytes.

mod file;
mod firmware;
mod kernel;
mod user;

use crate::cmdline::Arguments;
use crate::paths::Paths;
use std::io;
use std::path::PathBuf;

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

/// A pointer is there but cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the pointer {path}")]
pub struct PointerError {
    /// The file.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
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

/// The first pointer that exists, and the name of its source.
pub fn find(context: &Context) -> Result<Option<(Pointer, &'static str)>, PointerError> {
    for source in SOURCES {
        if let Some(pointer) = source.load(context)? {
            return Ok(Some((pointer, source.name())));
        }
    }
    Ok(None)
}

/// A file that must be there.
fn required(path: PathBuf) -> Result<Option<Pointer>, PointerError> {
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(Pointer::Config { bytes, from: path })),
        Err(source) => Err(PointerError { path, source }),
    }
}

/// A file that may be there.
fn optional(path: PathBuf) -> Result<Option<Pointer>, PointerError> {
    match required(path) {
        Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found,
    }
}
