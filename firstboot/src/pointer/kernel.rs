//! Owns: the sources that a kernel argument names: `oneboot.url=` and `oneboot.pointer=`.
//! Given the arguments, gives the URL, or the bytes of the file below the root.
//! Never: falls through to another source when the file that was named is missing.

use super::{Context, Pointer, PointerError, PointerSource, required};

pub(super) struct UrlArgument;

impl PointerSource for UrlArgument {
    fn name(&self) -> &'static str {
        "oneboot.url="
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        Ok(context.arguments.url.clone().map(Pointer::Url))
    }
}

pub(super) struct PointerArgument;

impl PointerSource for PointerArgument {
    fn name(&self) -> &'static str {
        "oneboot.pointer="
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        context.arguments.pointer.as_deref().map_or(Ok(None), |path| required(context.paths.below(path)))
    }
}
