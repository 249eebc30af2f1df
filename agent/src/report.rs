//! Owns: reading the report that firstboot left (design 3.7).
//! Given its JSON it gives the pool, the address that answered, and the phases of the first boot.
//! Never: writes it, or trusts it with more than where to look.

use std::net::IpAddr;

use serde::Deserialize;

use crate::{
    paths,
    root::{self, Root},
};

/// What the agent takes from the report; all of it may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Report {
    /// The boot in which it was written, where firstboot could read it.
    pub boot_id: Option<String>,
    /// The pool whose configuration was fetched.
    pub pool: Option<String>,
    /// Who answered.
    pub mcs_host: Option<Host>,
    /// What firstboot did, in order.
    pub phases: Vec<Phase>,
    /// How it ended.
    pub outcome: Option<String>,
}

/// A host that answered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Its name.
    pub name: String,
    /// Where it was.
    pub address: Option<String>,
}

/// A part of the first boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Phase {
    /// Which.
    pub name: String,
    /// Microseconds since the kernel started.
    pub start_us: u64,
    /// The same, at its end.
    pub end_us: u64,
}

impl Report {
    /// The report, from where it is kept or from where it was written. An unreadable one is as good as none.
    pub fn read(root: &Root) -> Result<Option<Self>, root::Error> {
        for path in [paths::FIRSTBOOT_REPORT, paths::FIRSTBOOT_REPORT_RUN] {
            let Some(json) = root.read(path)? else { continue };
            if let Ok(report) = serde_json::from_slice(&json) {
                return Ok(Some(report));
            }
            tracing::warn!("{path} is not a report of firstboot and is not used");
        }
        Ok(None)
    }

    /// Where the cluster answered: with or without a port.
    pub fn address(&self) -> Option<IpAddr> {
        let address = self.mcs_host.as_ref()?.address.as_deref()?;
        address.parse().ok().or_else(|| address.parse().ok().map(|socket: std::net::SocketAddr| socket.ip()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Option<String> {
        let json = serde_json::json!({"format": 1, "mcs_host": {"name": "api-int", "address": text}});
        serde_json::from_value::<Report>(json).unwrap().address().map(|ip| ip.to_string())
    }

    #[test]
    fn the_address_may_come_with_a_port() {
        assert_eq!(address("192.0.2.7").as_deref(), Some("192.0.2.7"));
        assert_eq!(address("192.0.2.7:22623").as_deref(), Some("192.0.2.7"));
        assert_eq!(address("[2001:db8::1]:22623").as_deref(), Some("2001:db8::1"));
        assert_eq!(address("api-int"), None);
    }

    #[test]
    fn what_firstboot_writes_is_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let written = |report: &oneboot_firstboot::report::Report| {
            report.write(&dir.path().join(paths::FIRSTBOOT_REPORT.trim_start_matches('/'))).unwrap();
            Report::read(&root).unwrap().unwrap()
        };
        // A boot in which nothing was found out: every key there, every value null.
        assert_eq!(written(&oneboot_firstboot::report::Report::new(None)).pool, None);

        let mut report = oneboot_firstboot::report::Report::new(Some("boot-a".into()));
        report.pool = Some("worker".into());
        report.mcs_host = Some(oneboot_firstboot::report::McsHost {
            name: "api-int".into(),
            address: Some("192.0.2.7".into()),
        });
        report.phase("fetch", 4_000_000, 4_012_000);
        let read = written(&report);
        assert_eq!((read.boot_id.as_deref(), read.pool.as_deref()), (Some("boot-a"), Some("worker")));
        assert_eq!(read.address().map(|ip| ip.to_string()).as_deref(), Some("192.0.2.7"));
        assert_eq!(read.phases, [Phase { name: "fetch".into(), start_us: 4_000_000, end_us: 4_012_000 }]);
    }

    #[test]
    fn the_kept_report_comes_first_and_a_broken_one_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(Report::read(&root).unwrap(), None);
        let write = |path: &str, text: &str| {
            let path = dir.path().join(path.trim_start_matches('/'));
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write(paths::FIRSTBOOT_REPORT_RUN, r#"{"format": 1, "pool": "run"}"#);
        assert_eq!(Report::read(&root).unwrap().unwrap().pool.as_deref(), Some("run"));
        write(paths::FIRSTBOOT_REPORT, "{");
        assert_eq!(Report::read(&root).unwrap().unwrap().pool.as_deref(), Some("run"));
        write(paths::FIRSTBOOT_REPORT, r#"{"format": 1, "pool": "kept"}"#);
        assert_eq!(Report::read(&root).unwrap().unwrap().pool.as_deref(), Some("kept"));
    }
}
