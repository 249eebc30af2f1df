//! Owns: `target/vm`, what `tests/vm/build` has made.
//! Given nothing, gives the paths of kernel, initramfs and root image.
//! Never: builds them: that needs root and minutes, once for all tests.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The image that every machine boots.
#[derive(Debug, Clone)]
pub struct Image {
    dir: PathBuf,
}

impl Image {
    /// The image of the build that this test is of.
    ///
    /// # Errors
    /// When it is not there, with the command that makes it.
    pub fn built() -> anyhow::Result<Self> {
        let this = std::env::current_exe().context("finding the running program")?;
        // target/debug/deps/<test>
        let target = this.ancestors().nth(3).context("a test is three levels below the target folder")?;
        let dir = target.join("vm");
        anyhow::ensure!(
            dir.join("image.stamp").exists(),
            "there is no image in {}; make it (as root): tests/vm/build",
            dir.display()
        );
        Ok(Self { dir })
    }

    /// The kernel.
    pub fn kernel(&self) -> PathBuf {
        self.dir.join("vmlinuz")
    }

    /// The initramfs, with the dracut module in it.
    pub fn initramfs(&self) -> PathBuf {
        self.dir.join("initrd.img")
    }

    /// The root file system.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root.img")
    }

    /// Where consoles are kept for people to read, one folder for each machine.
    pub fn logs(&self, machine: &str) -> PathBuf {
        self.dir.join("logs").join(machine)
    }

    /// The folder itself, for scratch files: large, and on the same disk.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}
