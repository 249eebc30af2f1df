//! Owns: one scenario: its control plane, its pointer and token, and the boot they make.
//! Given nothing, gives a world whose MCS a machine can reach, and boots that carry pointer and token in each of the possible ways.
//! Never: changes the image.

use std::fs;
use std::path::PathBuf;

use anyhow::Context as _;
use oneboot_e2e::defect;
use oneboot_e2e::world::World;
use serde_json::Value;

use crate::image::Image;
use crate::machine::{Boot, HOST, Machine};

/// The control plane's own name for itself; the first name is in its URLs, and its parts dial them.
const LOOPBACK: &str = "127.0.0.1";

/// A scenario.
pub struct Scene {
    /// Its control plane.
    pub world: World,
    image: Image,
    name: &'static str,
}

impl Scene {
    /// With the project's own worker configuration, on a machine called `name` in the logs.
    ///
    /// # Errors
    /// When the image is not built, or the control plane does not start.
    pub fn with_worker(name: &'static str) -> anyhow::Result<Self> {
        Ok(Self { world: World::with_worker(&["--name", LOOPBACK, "--name", HOST])?, image: Image::built()?, name })
    }

    /// Switches the machine on.
    ///
    /// # Errors
    /// When QEMU does not start.
    pub fn start(&self, boot: &Boot) -> anyhow::Result<Machine> {
        Machine::start(&self.image, self.name, boot)
    }

    /// The pointer as a platform has it: with the token, and with the address at which a machine finds the host.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn pointer(&self) -> anyhow::Result<Value> {
        let mut pointer = self.world.pointer_json()?;
        let source = &mut pointer["ignition"]["config"]["merge"][0]["source"];
        *source = source.as_str().context("the pointer has a source")?.replacen(LOOPBACK, HOST, 1).into();
        // What the installer writes; the newest that the control plane writes would be too new for Debian's Ignition (3.3.0).
        pointer["ignition"]["version"] = "3.2.0".into();
        Ok(pointer)
    }

    /// The same without the token.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn bare_pointer(&self) -> anyhow::Result<Value> {
        let mut pointer = self.pointer()?;
        defect::no_token(&mut pointer);
        Ok(pointer)
    }

    /// What `oneboot-firstboot report` has left with the MCS, oldest first.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub fn reports(&self) -> anyhow::Result<Vec<Value>> {
        let text = self.world.cluster.admin.command(&["reports"])?;
        text.lines().map(|line| serde_json::from_str(line).context("reading a report")).collect()
    }

    /// Where this machine's console is kept.
    pub fn logs(&self) -> PathBuf {
        self.image.logs(self.name)
    }
}

/// A boot with this pointer as QEMU's fw_cfg gives it to Ignition.
pub fn pointer_in_firmware(pointer: &Value) -> Boot {
    Boot { fw_cfg: vec![("opt/com.coreos/config".to_owned(), pointer.to_string().into_bytes())], ..Boot::default() }
}

impl Boot {
    /// With the token as a system credential in fw_cfg.
    #[must_use]
    pub fn token_in_fw_cfg(mut self, token: &str) -> Self {
        self.fw_cfg.push(("opt/io.systemd.credentials/oneboot.token".to_owned(), token.as_bytes().to_vec()));
        self
    }

    /// With the token as a system credential in SMBIOS.
    #[must_use]
    pub fn token_in_smbios(mut self, token: &str) -> Self {
        self.smbios.push(format!("io.systemd.credential:oneboot.token={token}").into_bytes());
        self
    }

    /// With a fragment of firstboot's settings in the initramfs, as an administrator would put it into an image.
    #[must_use]
    pub fn setting(mut self, toml: &str) -> Self {
        self.initramfs.push(("etc/oneboot/firstboot.d/50-test.toml".to_owned(), toml.as_bytes().to_vec()));
        self
    }
}

/// The token of a file that a scenario wants to read from outside: none of these is ever in an argument.
///
/// # Errors
/// When the console's log cannot be read.
pub fn console_log(scene: &Scene) -> anyhow::Result<String> {
    fs::read_to_string(scene.logs().join("console.log")).context("reading the console")
}
