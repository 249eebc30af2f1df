//! Owns: `/run/oneboot/firstboot.json`, what the agent and a person later know of this boot.
//! Given the facts as they come up, gives the JSON, 0600, with keys that stay as documented in the README.
//! Never: holds a token, a header, a query or a body.

use crate::atomic;
use crate::failure::Failure;
use crate::handoff;
use crate::outcome::Outcome;
use crate::spliced::Digested;
use serde::Serialize;
use std::path::Path;

/// The format number; a reader that does not know it leaves the file alone.
pub const FORMAT: u32 = 1;

/// Where the Machine Config Server takes reports.
pub const PATH: &str = "/oneboot/v1/report";

/// More than any report has; a server need not take more.
pub const SIZE_LIMIT: u64 = 64 << 10;

/// The longest `message`: a server's words are in it, and the report must stay within its limit.
const MESSAGE_LIMIT: usize = 4096;

/// The journal's `MESSAGE_ID` for what came of offering the report.
pub const MESSAGE_ID_OFFERED: &str = "b8d1c3a1f7a34a0e9a64f2f1c7de0100";

/// A stretch of time, in microseconds since kernel start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Phase {
    /// `pointer`, `wait`, `connect`, `tls`, `fetch` or `handoff`.
    pub name: &'static str,
    /// Its beginning.
    pub start_us: u64,
    /// Its end.
    pub end_us: u64,
}

/// Who answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct McsHost {
    /// As in the URL.
    pub name: String,
    /// The IP address that answered; absent before any did.
    pub address: Option<String>,
}

/// The report. Every key is always there; what is not known is `null`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// [`FORMAT`]
    pub format: u32,
    /// Of this program.
    pub version: &'static str,
    /// The kernel's, to tell this boot from another.
    pub boot_id: Option<String>,
    /// In order of time.
    pub phases: Vec<Phase>,
    /// Exchanges begun.
    pub attempts: u32,
    /// The row of the outcome table.
    pub outcome: &'static str,
    /// The name of its exit code.
    pub class: &'static str,
    /// The exit code.
    pub exit: u8,
    /// What was found, where it failed.
    pub message: Option<String>,
    /// Which source the pointer came from.
    pub pointer_source: Option<&'static str>,
    /// The server of the first reference.
    pub mcs_host: Option<McsHost>,
    /// Its URL without the query.
    pub url: Option<String>,
    /// `worker` of `/config/worker`.
    pub pool: Option<String>,
    /// SHA-256 of each CA that was trusted.
    pub ca_fingerprints: Vec<String>,
    /// `credential`, `token-file`, `pointer-header`, `pointer-url`.
    pub token_source: Option<&'static str>,
    /// The first config that was put into the hand-over, or else all of it.
    pub config: Option<Digested>,
    /// The spec that was asked for last.
    pub spec: Option<String>,
}

impl Report {
    /// Nothing known yet.
    pub fn new(boot_id: Option<String>) -> Self {
        Self {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION"),
            boot_id,
            phases: Vec::new(),
            attempts: 0,
            outcome: "",
            class: "",
            exit: 0,
            message: None,
            pointer_source: None,
            mcs_host: None,
            url: None,
            pool: None,
            ca_fingerprints: Vec::new(),
            token_source: None,
            config: None,
            spec: None,
        }
    }

    /// How it ended.
    pub fn ended(&mut self, outcome: Outcome, message: Option<&str>) {
        self.outcome = outcome.name();
        self.class = outcome.exit().name();
        self.exit = outcome.exit().code();
        self.message = message.map(|text| text.chars().take(MESSAGE_LIMIT).collect());
    }

    /// Adds a phase.
    pub fn phase(&mut self, name: &'static str, start_us: u64, end_us: u64) {
        self.phases.push(Phase { name, start_us, end_us });
    }

    /// Writes it, making its directory if need be.
    pub fn write(&self, path: &Path) -> Result<(), Failure> {
        handoff::make_parent(path)?;
        let mut text = serde_json::to_vec_pretty(self).expect("strings and numbers always make JSON");
        text.push(b'\n');
        atomic::write(path, 0o600, &text).map_err(|error| Failure::local(&error))
    }
}
