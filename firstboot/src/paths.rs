//! Owns: every path outside the command line's own options.
//! Given the root, gives paths below it.
//! Never: touches a file.

use std::path::PathBuf;

/// Paths below one root, `/` on a machine and a scratch directory in a test.
#[derive(Debug, Clone)]
pub struct Paths {
    root: PathBuf,
}

impl Paths {
    /// Below this root.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path as the machine itself would write it, below the root.
    pub fn below(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The kernel's arguments; every user can read them.
    pub fn kernel_arguments(&self) -> PathBuf {
        self.below("proc/cmdline")
    }

    /// The boot's own id.
    pub fn boot_id(&self) -> PathBuf {
        self.below("proc/sys/kernel/random/boot_id")
    }

    /// Where Ignition finds its config, in its own order; images put it into the last one up to Ignition 2.26.
    pub fn user_configs(&self) -> [PathBuf; 3] {
        ["run/ignition/user.ign", "etc/ignition/user.ign", "usr/lib/ignition/user.ign"]
            .map(|path| self.below(path))
    }

    /// Where QEMU's `-fw_cfg name=opt/com.coreos/config` shows up.
    pub fn firmware_config(&self) -> PathBuf {
        self.below("sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw")
    }

    /// Where `OpenStack`'s config drive shows up, by the two spellings of its label.
    pub fn config_drives(&self) -> [PathBuf; 2] {
        ["dev/disk/by-label/config-2", "dev/disk/by-label/CONFIG-2"].map(|path| self.below(path))
    }

    /// Where Azure's provisioning DVD shows up.
    pub fn first_optical_drive(&self) -> PathBuf {
        self.below("dev/sr0")
    }

    /// Where such a drive is mounted while it is read.
    pub fn drive(&self) -> PathBuf {
        self.below("run/oneboot/drive")
    }

    /// The hand-over to Ignition from 2.27 on.
    pub fn handoff(&self) -> PathBuf {
        self.below("run/ignition/user.ign")
    }

    /// The directory of the hand-over to an older one.
    pub fn own_handoff(&self) -> PathBuf {
        self.below("run/oneboot/ignition")
    }

    /// The environment of Ignition's units; its generator writes it.
    pub fn ignition_env(&self) -> PathBuf {
        self.below("run/ignition.env")
    }

    /// The newest spec of this image's Ignition, recorded when the initramfs was built.
    pub fn recorded_spec(&self) -> PathBuf {
        self.below("usr/lib/oneboot/ignition-spec")
    }

    /// Where this image's Ignition looks for `user.ign`, recorded at the same time.
    pub fn recorded_directory(&self) -> PathBuf {
        self.below("usr/lib/oneboot/ignition-dir")
    }

    /// The report.
    pub fn report(&self) -> PathBuf {
        self.below("run/oneboot/firstboot.json")
    }

    /// What an initramfs has, and a real root has not.
    pub fn initrd_release(&self) -> PathBuf {
        self.below("etc/initrd-release")
    }

    /// Whatever `console=` names.
    pub fn console(&self) -> PathBuf {
        self.below("dev/console")
    }

    /// Configuration fragments, lowest precedence first.
    pub fn fragments(&self) -> [PathBuf; 3] {
        ["usr/lib/oneboot/firstboot.d", "run/oneboot/firstboot.d", "etc/oneboot/firstboot.d"]
            .map(|path| self.below(path))
    }

    /// Files whose time of modification is that of the image's build, systemd's own convention first.
    pub fn build_stamps(&self) -> [PathBuf; 3] {
        ["usr/lib/clock-epoch", "etc/initrd-release", "usr/lib/os-release"].map(|path| self.below(path))
    }
}
