//! The shim around [`oneboot_firstboot`].
fn main() {}
