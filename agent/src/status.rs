//! Owns: `/run/oneboot/agent.json` and what `oneboot-agent status` prints.
//! Given the record and what is being waited for, it gives one small object that everybody may read.
//! Never: says more than the record and a reason: no content, no credential.

use serde::{Deserialize, Serialize};

use crate::{
    paths,
    record::{self, Record},
    root::{self, Root},
    state::Name,
};

/// The format of `agent.json` and of `status --json`.
const FORMAT: u32 = 1;

/// Where the node is, and why (design 4).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// 1.
    pub format: u32,
    /// Which state.
    pub state: Name,
    /// Since when, RFC 3339.
    pub since: String,
    /// What is being waited for, or what went wrong.
    pub reason: Option<String>,
    /// The configuration that is wanted.
    pub desired: Option<String>,
    /// The configuration that the tree has.
    pub applied: Option<String>,
    /// The boot in which this was written.
    pub boot_id: String,
    /// Reboots that the agent has taken.
    pub reboots_taken: u32,
}

impl Status {
    /// From the record; `reason` is what is being waited for right now.
    pub fn new(record: &Record, reason: Option<&str>) -> Self {
        Self {
            format: FORMAT,
            state: record.state.name(),
            since: record.since.clone(),
            reason: record.state.reason().or(reason).map(ToOwned::to_owned),
            desired: record.desired.clone(),
            applied: record.applied.clone(),
            boot_id: record.boot_id.clone(),
            reboots_taken: record.reboots_taken,
        }
    }

    /// Puts it where people look.
    pub fn write(&self, root: &Root) -> Result<(), root::Error> {
        root.mkdir_all(paths::RUN_DIR, 0o755)?;
        let json = serde_json::to_vec(self).expect("strings and numbers are always JSON");
        root.write_atomic(paths::RUN_STATUS, &json, 0o644)
    }

    /// What the service last said; what it remembers, where it has not run in this boot; `None` where it never has.
    pub fn read(root: &Root) -> Result<Option<Self>, record::Error> {
        let said = root.read(paths::RUN_STATUS)?;
        if let Some(status) = said.and_then(|json| serde_json::from_slice(&json).ok()) {
            return Ok(Some(status));
        }
        Ok(Record::read(root)?.map(|record| Self::new(&record, None)))
    }

    /// For a person: a line or two.
    pub fn text(&self) -> String {
        let mut lines = vec![format!("{} since {}", self.state, self.since)];
        lines.extend(self.reason.iter().map(|reason| format!("  why:      {reason}")));
        lines.extend(self.desired.iter().map(|desired| format!("  desired:  {desired}")));
        lines.extend(self.applied.iter().map(|applied| format!("  applied:  {applied}")));
        lines.push(format!("  reboots:  {}", self.reboots_taken));
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::{State, Until};

    fn record() -> Record {
        let mut record = Record::new("boot-a".into(), "2026-01-01T00:00:00Z".into());
        record.desired = Some("rendered-worker-1".into());
        record
    }

    #[test]
    fn the_json_is_the_contract() {
        let json = serde_json::to_value(Status::new(&record(), Some("pending"))).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "format": 1, "state": "Waiting", "since": "2026-01-01T00:00:00Z", "reason": "pending",
                "desired": "rendered-worker-1", "applied": null, "boot_id": "boot-a", "reboots_taken": 0,
            })
        );
    }

    #[test]
    fn a_states_own_reason_wins_over_what_is_being_waited_for() {
        let mut record = record();
        record.state = State::Blocked { until: Until::Changed, reason: "climbs out".into() };
        assert_eq!(Status::new(&record, Some("pending")).reason.as_deref(), Some("climbs out"));
    }

    #[test]
    fn what_the_service_says_now_comes_before_what_it_remembers() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(Status::read(&root).unwrap(), None);
        record().write(&root).unwrap();
        assert_eq!(Status::read(&root).unwrap().unwrap().reason, None);
        Status::new(&record(), Some("pending")).write(&root).unwrap();
        assert_eq!(Status::read(&root).unwrap().unwrap().reason.as_deref(), Some("pending"));
    }
}
