//! Owns: the source that metal and live images have: the `user.ign` that Ignition itself would read.
//! Given the root, gives the first that exists, in Ignition's own order.
//! Never: looks further when one exists that cannot be read.

use super::{Context, Pointer, PointerError, PointerSource, optional};

pub(super) struct UserConfig;

impl PointerSource for UserConfig {
    fn name(&self) -> &'static str {
        "user.ign"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        for path in context.paths.user_configs() {
            if context.ours == Some(&path) {
                continue;
            }
            if let Some(pointer) = optional(path)? {
                return Ok(Some(pointer));
            }
        }
        Ok(None)
    }
}
