//! Owns: a machine's serial console: its log file, and its lines as they come.
//! Given QEMU's standard output, gives waiting for a line, until a point in time.
//! Never: writes to the console, or changes what is logged.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use anyhow::Context as _;

/// A console.
#[derive(Debug)]
pub struct Console {
    lines: Receiver<String>,
    log: PathBuf,
}

impl Console {
    /// Starts reading, into `log`.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn read_from(stream: impl Read + Send + 'static, log: &Path) -> anyhow::Result<Self> {
        let mut file = File::create(log).with_context(|| format!("creating {}", log.display()))?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            // Firmware prints what is not UTF-8, and that must not end the reading: QEMU would stand still with a full pipe.
            while matches!(stream.read_until(b'\n', &mut line), Ok(count) if count > 0) {
                let _ = file.write_all(&line); // a full disk shows in the test that looks for the line
                let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        });
        Ok(Self { lines, log: log.to_owned() })
    }

    /// Waits for the first line that `wanted` gives a value for.
    ///
    /// # Errors
    /// When the machine ends or `deadline` passes before, with the console's last lines.
    pub fn wait_for<T>(
        &self,
        deadline: Instant,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> anyhow::Result<T> {
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                }
                Err(RecvTimeoutError::Disconnected) => {
                    anyhow::bail!("the machine ended first\n{}", self.tail())
                }
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("the machine took too long\n{}", self.tail()),
            }
        }
    }

    /// Waits until there is nothing more to come: QEMU has ended.
    ///
    /// # Errors
    /// When `deadline` passes before, with the console's last lines.
    pub fn wait_for_end(&self, deadline: Instant) -> anyhow::Result<()> {
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => anyhow::bail!("the machine took too long\n{}", self.tail()),
            }
        }
    }

    /// Everything so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn text(&self) -> anyhow::Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("reading {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).replace('\r', ""))
    }

    /// What a person would look at first, and where the rest is.
    fn tail(&self) -> String {
        let text = self.text().unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        // 30: a failed unit and what led to it.
        format!("{}\n(all of it: {})", lines[lines.len().saturating_sub(30)..].join("\n"), self.log.display())
    }
}
