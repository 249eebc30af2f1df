//! Owns: the port into a machine, and the protocol on it: a script in, its exit status and output back (`image/usr/lib/oneboot-test/probe`).
//! Given the host's end of the port, gives the output of scripts that run as root in the real root.
//! Never: carries a secret into the machine: what a search looks for would be there because of the search.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use anyhow::Context as _;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

/// The host's end.
#[derive(Debug)]
pub struct Probe {
    stream: BufReader<UnixStream>,
    deadline: Instant,
}

impl Probe {
    /// Waits until the machine has booted and says so.
    ///
    /// # Errors
    /// When it does not until `deadline`.
    pub fn wait_until_ready(stream: UnixStream, deadline: Instant) -> anyhow::Result<Self> {
        let mut probe = Self { stream: BufReader::new(stream), deadline };
        let line = probe.line().context("waiting for the probe of a booted machine")?;
        anyhow::ensure!(line == "ready", "the probe said {line:?} instead of ready");
        Ok(probe)
    }

    /// Runs a script, and gives its exit status and what it printed on both streams.
    ///
    /// # Errors
    /// When no answer comes in time.
    pub fn try_run(&mut self, script: &str) -> anyhow::Result<(i32, String)> {
        let request = format!("{}\n", BASE64_STANDARD.encode(script));
        self.stream.get_mut().write_all(request.as_bytes()).context("sending a script")?;
        let answer = self.line().with_context(|| format!("waiting for the end of: {script}"))?;
        let (status, output) = answer.split_once(' ').unwrap_or((&answer, ""));
        let output = BASE64_STANDARD.decode(output).context("decoding what a script printed")?;
        Ok((status.parse().context("a script's exit status")?, String::from_utf8_lossy(&output).into_owned()))
    }

    /// Runs a script that must succeed, and gives what it printed.
    ///
    /// # Errors
    /// When it fails, with what it printed.
    pub fn run(&mut self, script: &str) -> anyhow::Result<String> {
        let (status, output) = self.try_run(script)?;
        anyhow::ensure!(status == 0, "in the machine: {script}\nexit status {status}\n{output}");
        Ok(output)
    }

    /// Sends a script that ends the machine, for which there is no answer.
    ///
    /// # Errors
    /// When the port is closed.
    pub fn send(&mut self, script: &str) -> anyhow::Result<()> {
        let request = format!("{}\n", BASE64_STANDARD.encode(script));
        self.stream.get_mut().write_all(request.as_bytes()).context("sending a script")
    }

    fn line(&mut self) -> anyhow::Result<String> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        anyhow::ensure!(!left.is_zero(), "the machine took too long");
        self.stream.get_ref().set_read_timeout(Some(left)).context("limiting a wait")?;
        let mut line = String::new();
        let count = self.stream.read_line(&mut line).context("reading from the machine's port")?;
        anyhow::ensure!(count > 0, "the machine has closed its port");
        Ok(line.trim_end().to_owned())
    }
}
