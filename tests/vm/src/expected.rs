//! Owns: what a booted machine must look like after Ignition has laid a config down.
//! Given a rendered MachineConfig, gives its files and units, and what of them a machine does not have.
//! Never: looks at how firstboot got there: the config comes from the API, the tree was laid by Ignition.

use std::fmt::Write as _;

use anyhow::Context as _;
use oneboot_firstboot::{content, dataurl};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::probe::Probe;

/// Larger than any file of the worker configuration; inflating needs a bound.
const LARGEST: u64 = 4 << 20;

/// Ignition's mode for a file that has none.
const DEFAULT_MODE: u64 = 0o644;

/// Files with digest and mode as `sha256sum` and `stat` print them, and units that are enabled or masked.
#[derive(Debug)]
pub struct Expected {
    files: Vec<String>,
    paths: Vec<String>,
    units: Vec<(String, &'static str)>,
}

impl Expected {
    /// Of a rendered MachineConfig.
    ///
    /// # Errors
    /// When a file's content cannot be decoded.
    pub fn of(config: &Value) -> anyhow::Result<Self> {
        let config = &config["spec"]["config"];
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let mut expected = Self { files: Vec::new(), paths: Vec::new(), units: Vec::new() };
        for file in list(&config["storage"]["files"]) {
            let path = file["path"].as_str().context("a file has a path")?;
            let source = file["contents"]["source"].as_str().unwrap_or("data:,");
            let bytes = dataurl::decode(source).with_context(|| format!("the content of {path}"))?;
            let gzip = file["contents"]["compression"] == "gzip";
            let bytes = content::unpack(bytes, gzip, None, LARGEST)
                .map_err(|seen| anyhow::anyhow!("the content of {path}: {}", seen.detail))?;
            expected.file(path, file["mode"].as_u64().unwrap_or(DEFAULT_MODE), &bytes);
        }
        for unit in list(&config["systemd"]["units"]) {
            let name = unit["name"].as_str().context("a unit has a name")?;
            let path = format!("/etc/systemd/system/{name}");
            if unit["mask"] == true {
                expected.units.push((name.to_owned(), "masked"));
                continue;
            }
            if let Some(text) = unit["contents"].as_str().filter(|text| !text.is_empty()) {
                expected.file(&path, DEFAULT_MODE, text.as_bytes());
                if unit["enabled"] == true && text.contains("\n[Install]") {
                    expected.units.push((name.to_owned(), "enabled"));
                }
            }
            for dropin in list(&unit["dropins"]) {
                let (name, text) = (dropin["name"].as_str(), dropin["contents"].as_str());
                let (name, text) =
                    name.zip(text).with_context(|| format!("a drop-in of {path} has a name and contents"))?;
                expected.file(&format!("{path}.d/{name}"), DEFAULT_MODE, text.as_bytes());
            }
        }
        Ok(expected)
    }

    fn file(&mut self, path: &str, mode: u64, bytes: &[u8]) {
        let digest = Sha256::digest(bytes).iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}"); // writing to a String cannot fail
            hex
        });
        self.files.push(format!("{digest} {mode:o} {path}"));
        self.paths.push(path.to_owned());
    }

    /// How much there is to look at: a test that compares nothing must not pass.
    pub fn count(&self) -> usize {
        self.files.len() + self.units.len()
    }

    /// What the machine does not have, or has otherwise: the expected line beside the found one.
    ///
    /// # Errors
    /// When the machine does not answer.
    pub fn missing_on(&self, machine: &mut Probe) -> anyhow::Result<Vec<String>> {
        let mut script = "while read -r path; do\n\
            echo \"$(sha256sum <\"$path\" | cut -d ' ' -f 1) $(stat -c %a \"$path\") $path\"\n\
            done 2>/dev/null <<'END'\n"
            .to_owned();
        for path in &self.paths {
            let _ = writeln!(script, "{path}");
        }
        script.push_str("END\n");
        let found = machine.run(&script)?;
        let mut missing = differences(&self.files, &found.lines().map(str::to_owned).collect::<Vec<_>>());

        let names: Vec<&str> = self.units.iter().map(|(name, _)| name.as_str()).collect();
        let (_, states) = machine.try_run(&format!("systemctl is-enabled {}", names.join(" ")))?;
        let wanted: Vec<String> = self.units.iter().map(|(name, state)| format!("{state} {name}")).collect();
        let found: Vec<String> =
            states.lines().zip(&names).map(|(state, name)| format!("{state} {name}")).collect();
        missing.extend(differences(&wanted, &found));
        Ok(missing)
    }
}

fn differences(wanted: &[String], found: &[String]) -> Vec<String> {
    let mut found = found.iter();
    wanted
        .iter()
        .filter_map(|wanted| {
            let found = found.next().map_or("nothing", String::as_str);
            (wanted != found).then(|| format!("expected {wanted}, found {found}"))
        })
        .collect()
}
