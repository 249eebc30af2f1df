//! Owns: the sources that the command line names: `--pointer` and `--url`.
//! Given the options, gives the file's bytes or the URL.
//! Never: falls through to another source when the file that was named is missing.

use super::{Context, Pointer, PointerError, PointerSource, required};

pub(super) struct PointerOption;

impl PointerSource for PointerOption {
    fn name(&self) -> &'static str {
        "--pointer"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        context.pointer.clone().map_or(Ok(None), required)
    }
}

pub(super) struct UrlOption;

impl PointerSource for UrlOption {
    fn name(&self) -> &'static str {
        "--url"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        Ok(context.url.clone().map(Pointer::Url))
    }
}
