//! Owns: what keeps this process's memory to itself.
//! Given nothing, gives a process that leaves no core dump, however it ends.
//! Never: fails: where the kernel refuses, nothing is worse than before.

use nix::sys::prctl;

/// No core dump, and no debugger of another user. As root only: for anybody else the kernel would also take `/proc/self/fd` away, and
/// what another user's process holds here is that user's own.
pub fn no_core_dumps() {
    if nix::unistd::geteuid().is_root() {
        // A limit of the size would not do: the kernel does not apply it to dumps that go through a pipe, as systemd-coredump's do.
        let _ = prctl::set_dumpable(false);
    }
}
