//! What the VM tests share: the image that `build` makes, a machine that boots it, a look into the machine, and a search for secrets.
//!
//! `machine` is QEMU's command line and the limits of a boot; `console` and `probe` are the two ways to see what goes on in it; `search`
//! looks for bytes on a whole disk; `expected` is what Ignition must have laid down; `scene` is the control plane of a scenario. The tests themselves are in `tests/`.

pub mod console;
pub mod expected;
pub mod image;
pub mod initramfs;
pub mod machine;
pub mod probe;
pub mod scene;
pub mod search;
