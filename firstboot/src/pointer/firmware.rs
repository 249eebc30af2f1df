//! Owns: the source that QEMU's firmware configuration is.
//! Given the root, gives `opt/com.coreos/config`, where Ignition looks on this platform too.
//! Never: loads a kernel module; the dracut module sees to `qemu_fw_cfg`.

use super::{Context, Pointer, PointerError, PointerSource, optional};

pub(super) struct FwCfg;

impl PointerSource for FwCfg {
    fn name(&self) -> &'static str {
        "fw_cfg"
    }

    fn load(&self, context: &Context) -> Result<Option<Pointer>, PointerError> {
        optional(context.paths.firmware_config())
    }
}
