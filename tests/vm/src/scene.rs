//! Owns: one scenario: its control plane, its pointer and token, and the boot they make.
//! Given nothing, gives a world whose MCS a machine can reach, and boots that carry pointer and token in each of the possible ways.
//! Never: changes the image.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::process::Command;
use std::thread;

use anyhow::Context as _;
use oneboot_e2e::defect;
use oneboot_e2e::world::World;
use oneboot_firstboot::authorities;
use oneboot_firstboot::document::Document;
use oneboot_firstboot::outcome::Limits;
use serde_json::Value;

use crate::expected::Expected;
use crate::image::Image;
use crate::machine::{Boot, HOST, Machine};
use crate::probe::Probe;
use crate::search;

/// The control plane's own name for itself; the first name is in its URLs, and its parts dial them.
const LOOPBACK: &str = "127.0.0.1";

/// What PID 1 imports again in the real root, for root only; the agent removes it once settled.
const SYSTEM_CREDENTIAL: &str = "run/credentials/@system/oneboot.token";

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
        Ok(Self {
            world: World::with_worker(&["--name", LOOPBACK, "--name", HOST])?,
            image: Image::built()?,
            name,
        })
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

    /// Where the pointer leads.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn source(&self) -> anyhow::Result<String> {
        let pointer = self.pointer()?;
        let source = pointer["ignition"]["config"]["merge"][0]["source"].as_str();
        Ok(source.context("the pointer has a source")?.to_owned())
    }

    /// What `oneboot-firstboot report` has left with the MCS, oldest first.
    ///
    /// # Errors
    /// When the control plane does not answer.
    pub fn reports(&self) -> anyhow::Result<Vec<Value>> {
        let text = self.world.cluster.admin.command(&["reports"])?;
        let report = |line| {
            let mut kept: Value = serde_json::from_str(line).context("reading a report")?;
            Ok(kept["report"].take())
        };
        text.lines().map(report).collect()
    }

    /// The pre-approved rendered config: what Ignition must have laid down.
    ///
    /// # Errors
    /// When the pool has none.
    pub fn pre_approved(&self) -> anyhow::Result<Expected> {
        let full = self.world.full_config()?;
        let name = full["metadata"]["annotations"]["oneboot.dev/pre-rendered"].as_str();
        Expected::of(
            &self
                .world
                .cluster
                .admin
                .get("machineconfig", name.context("the pool has a pre-approved config")?)?,
        )
    }

    /// Ends a booted machine, and gives every place where the token is: on its disk, deleted files included; in the file systems that are
    /// memory; in the journal, the kernel's log and the console; in the arguments and environments of its processes. What systemd itself
    /// keeps for root until the agent has settled is excepted by name.
    ///
    /// # Errors
    /// When the machine does not answer, or the search would not find what is known to be there.
    pub fn token_found(&self, machine: &mut Machine, probe: &mut Probe) -> anyhow::Result<Vec<String>> {
        // Everything is written to the disk in clear, and the disk is searched from outside: the machine never learns what for.
        probe.run(&format!(
            "mkdir -p /var/tmp/search && cd /var/tmp/search
             tar --create --file=memory.tar --exclude=./{SYSTEM_CREDENTIAL} --directory=/ ./run ./tmp ./dev/shm 2>tar.log
             journalctl --all --output=export >journal
             dmesg >kernel
             cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline >processes 2>/dev/null
             sync"
        ))?;
        probe.send("systemctl poweroff --force --force")?;
        machine.powered_off()?;
        // A search that finds nothing proves something only if it finds what is there: the report names the MCS.
        anyhow::ensure!(
            !search::in_file(&machine.disk(), &[self.source()?.into_bytes()])?.is_empty(),
            "the search does not find the report on the disk"
        );

        let forms = search::forms(&self.world.token()?);
        let mut found = search::in_file(&machine.disk(), &forms)?;
        let console = self.image.logs(self.name).join("console.log");
        found.extend(search::in_file(&console, &forms)?.into_iter().map(|place| format!("console, {place}")));
        Ok(found)
    }

    /// Whether a machine's disk is still as the image has it.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn disk_is_untouched(&self, machine: &Machine) -> anyhow::Result<bool> {
        let status = Command::new("cmp").arg("--silent").arg(self.image.root()).arg(machine.disk()).status();
        Ok(status.context("starting cmp")?.success())
    }
}

/// From when on the first of the pointer's CAs is valid, in seconds since 1970: nothing that it has signed is older.
///
/// # Errors
/// When the pointer has none.
pub fn oldest_ca(pointer: &Value) -> anyhow::Result<u64> {
    let document = Document::parse(pointer.to_string().as_bytes(), None).context("reading the pointer")?;
    let bundle =
        authorities::from_pointer(&document.authorities, &Limits::default()).context("reading its CAs")?;
    bundle.facts().iter().map(|ca| ca.not_before).min().context("the pointer has a CA")
}

/// A boot with this pointer as QEMU's `fw_cfg` gives it to Ignition.
pub fn pointer_in_firmware(pointer: &Value) -> Boot {
    Boot {
        fw_cfg: vec![("opt/com.coreos/config".to_owned(), pointer.to_string().into_bytes())],
        ..Boot::default()
    }
}

impl Boot {
    /// With the token as a system credential in `fw_cfg`.
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

/// Serves one document over plain http on the host's loopback to whoever asks, until the test ends. Gives the URL as a machine sees it.
///
/// # Errors
/// When there is no port.
pub fn serve_plainly(document: &Value) -> anyhow::Result<String> {
    let listener = TcpListener::bind((LOOPBACK, 0)).context("listening")?;
    let url = format!("http://{HOST}:{}/plain.ign", listener.local_addr().context("the port")?.port());
    let body = document.to_string();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // One read is the whole of a request without a body; a client that goes away early has its own test's failure.
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            );
        }
    });
    Ok(url)
}
