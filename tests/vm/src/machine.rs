//! Owns: one machine: its QEMU process, its copy of the disk, its scratch folder.
//! Given the image and what is particular about a boot, gives a machine that runs, its console and its probe.
//! Never: outlives its value, or its limit: dropping it ends QEMU, by its own pid.

use std::fs::{self, File};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tempfile::TempDir;

use crate::console::Console;
use crate::image::Image;
use crate::initramfs;
use crate::probe::Probe;

/// A boot on two idle cores takes 50 s; while five compilers run on them it has taken 180. After this it will not come any more.
const LIMIT: Duration = Duration::from_secs(300);

/// What QEMU answers on to a machine that dials the host: the host's loopback.
pub const HOST: &str = "10.0.2.2";

/// Kernel arguments of every boot.
const ARGUMENTS: &[&str] = &[
    "console=ttyS0",
    "root=LABEL=root",
    "rw",
    // A first boot on QEMU, for Ignition.
    "ignition.firstboot",
    "ignition.platform.id=qemu",
    // The first-boot wizard would ask for a time zone.
    "systemd.firstboot=no",
    // Nobody is there to type: the emergency shell is a power-off, a panic a reboot, which -no-reboot makes an end.
    "rd.shell=0",
    "rd.emergency=poweroff",
    "panic=-1",
    // Plain text, for people and for whoever looks for a line.
    "SYSTEMD_COLORS=0",
    // What costs seconds on an emulated processor and is not what is tested.
    "audit=0",
    "mitigations=off",
    "rcupdate.rcu_expedited=1",
    "lsm=landlock",
    "nokaslr",
    "net.core.bpf_jit_enable=0",
];

/// What is particular about one boot.
#[derive(Debug, Default, Clone)]
pub struct Boot {
    /// Kernel arguments, beside those of every boot.
    pub arguments: Vec<String>,
    /// `fw_cfg` files: name and content.
    pub fw_cfg: Vec<(String, Vec<u8>)>,
    /// SMBIOS type 11 strings.
    pub smbios: Vec<Vec<u8>>,
    /// Files of the initramfs, beside its own: path without the leading slash, and content.
    pub initramfs: Vec<(String, Vec<u8>)>,
    /// What the hardware clock says at power-on (`2016-11-21T00:00:00`); without, the truth.
    pub clock: Option<String>,
    /// How long the scenario itself lets the machine wait, on top of the limit of a boot.
    pub waits: Duration,
}

/// A machine that runs.
#[derive(Debug)]
pub struct Machine {
    /// What it prints.
    pub console: Console,
    qemu: Child,
    port: Receiver<UnixStream>,
    deadline: Instant,
    scratch: TempDir,
}

impl Machine {
    /// Switches a machine on. Its console is kept as `logs/<name>/console.log` beside the image.
    ///
    /// # Errors
    /// When QEMU does not start, with what it said.
    pub fn start(image: &Image, name: &str, boot: &Boot) -> anyhow::Result<Self> {
        let scratch = tempfile::tempdir_in(image.dir()).context("making a scratch folder")?;
        let logs = image.logs(name);
        fs::create_dir_all(&logs).with_context(|| format!("creating {}", logs.display()))?;
        let dir = scratch.path();
        initramfs::with_files(&image.initramfs(), &boot.initramfs, dir, &dir.join("initrd.img"))?;
        copy_sparse(&image.root(), &disk(dir))?;

        // QEMU dials in before the machine's first instruction, so that nothing the machine says is lost.
        let socket = dir.join("probe.socket");
        let listener = UnixListener::bind(&socket).context("listening for the machine's port")?;
        let (sender, port) = channel();
        thread::spawn(move || listener.accept().map(|(stream, _)| sender.send(stream)));

        let said = logs.join("qemu.log");
        let mut command = command(image, dir, boot)?;
        let stderr = File::create(&said).with_context(|| format!("creating {}", said.display()))?;
        let mut qemu = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .context("starting qemu-system-x86_64 (Debian package qemu-system-x86)")?;
        let stdout = qemu.stdout.take().context("standard output was asked for as a pipe")?;
        let console = Console::read_from(stdout, &logs.join("console.log"))?;
        let machine = Self { console, qemu, port, deadline: Instant::now() + LIMIT + boot.waits, scratch };
        machine.wait_for(|line| line.contains("Linux version").then_some(())).with_context(|| {
            format!("switching on {name}; QEMU said: {}", fs::read_to_string(&said).unwrap_or_default())
        })?;
        Ok(machine)
    }

    /// Waits for the first line of the console that `wanted` gives a value for.
    ///
    /// # Errors
    /// When the machine ends, or its limit passes, before.
    pub fn wait_for<T>(&self, wanted: impl FnMut(&str) -> Option<T>) -> anyhow::Result<T> {
        self.console.wait_for(self.deadline, wanted)
    }

    /// Waits until it has booted.
    ///
    /// # Errors
    /// When it ends, or its limit passes, before.
    pub fn booted(&self) -> anyhow::Result<Probe> {
        // Said by systemd when the probe's unit starts, the last of all: a boot that fails ends this wait at once.
        self.wait_for(|line| line.contains("Started oneboot-probe.service").then_some(()))?;
        let stream = self.port.recv().context("QEMU has not opened the machine's port")?;
        Probe::wait_until_ready(stream, self.deadline)
    }

    /// Waits until it has switched itself off.
    ///
    /// # Errors
    /// When its limit passes before.
    pub fn powered_off(&mut self) -> anyhow::Result<()> {
        self.console.wait_for_end(self.deadline)?;
        let status = self.qemu.wait().context("waiting for QEMU")?;
        anyhow::ensure!(status.success(), "QEMU: {status}");
        Ok(())
    }

    /// Its disk, as the machine has left it.
    pub fn disk(&self) -> PathBuf {
        disk(self.scratch.path())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.qemu.kill(); // it may have ended by itself
        let _ = self.qemu.wait();
    }
}

fn disk(scratch: &Path) -> PathBuf {
    scratch.join("disk.img")
}

/// Every option has its reason here; those of the processor are from experience with emulation (TCG).
fn command(image: &Image, dir: &Path, boot: &Boot) -> anyhow::Result<Command> {
    let mut command = Command::new("qemu-system-x86_64");
    // No KVM, even where it is offered: nested virtualisation may hang, and a test must mean the same everywhere.
    command.args(["-machine", "q35", "-accel", "tcg,thread=multi"]);
    // `max` panics in cmpxchg16b under multi-threaded emulation; without it this one never has.
    command.args(["-cpu", "qemu64,cx16=off", "-smp", "2", "-m", "1024"]);
    command.arg("-kernel").arg(image.kernel()).arg("-initrd").arg(dir.join("initrd.img"));
    let arguments: Vec<&str> =
        ARGUMENTS.iter().copied().chain(boot.arguments.iter().map(String::as_str)).collect();
    command.arg("-append").arg(arguments.join(" "));
    // unsafe: the disk is a copy that is thrown away.
    command.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=unsafe", disk(dir).display()));
    // No romfile: nothing boots from the network.
    command.args(["-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="]);
    command.args(["-device", "virtio-serial-pci", "-chardev"]);
    command.arg(format!("socket,id=probe,path={}", dir.join("probe.socket").display()));
    command.args(["-device", "virtserialport,chardev=probe,name=oneboot.test"]);
    // The console is QEMU's standard output. A reboot ends the machine: there is a test for each that is wanted.
    command.args(["-display", "none", "-serial", "stdio", "-monitor", "none", "-no-reboot"]);
    // As files, so that no secret is in the arguments of a process.
    for (index, (name, content)) in boot.fw_cfg.iter().enumerate() {
        let path = dir.join(format!("fw_cfg.{index}"));
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        command.arg("-fw_cfg").arg(format!("name={name},file={}", path.display()));
    }
    for (index, content) in boot.smbios.iter().enumerate() {
        let path = dir.join(format!("smbios.{index}"));
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
        command.arg("-smbios").arg(format!("type=11,path={}", path.display()));
    }
    if let Some(clock) = &boot.clock {
        command.arg("-rtc").arg(format!("base={clock}"));
    }
    Ok(command)
}

/// Copies an image without its holes, which are four fifths of it.
fn copy_sparse(from: &Path, to: &Path) -> anyhow::Result<()> {
    let status = Command::new("cp")
        .args(["--sparse=always", "--reflink=auto"])
        .arg(from)
        .arg(to)
        .status()
        .context("starting cp")?;
    anyhow::ensure!(status.success(), "cp {} {}: {status}", from.display(), to.display());
    Ok(())
}
