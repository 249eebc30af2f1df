//! Owns: `/var/lib/oneboot/state.json`, what the agent remembers across restarts and reboots, and the `settled` marker.
//! Given what happened it gives a file that a restart resumes from; a newer format is left alone.
//! Never: holds a configuration's content, or a credential.

use serde::{Deserialize, Serialize};

use crate::{
    paths,
    plan::{Disruption, Phase},
    reboot::{Boot, Due},
    root::{self, Root},
    state::{Name, State},
};

/// The format of `state.json`. Older ones stay readable; a newer one is an error, never overwritten.
pub const FORMAT: u32 = 1;
/// Some hundred bytes each: the history of a node that is blocked and changed daily still fits a year.
const HISTORY_LIMIT: usize = 400;

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree cannot be read or written.
    #[error(transparent)]
    Io(#[from] root::Error),
    /// Not what this program writes.
    #[error("{path} is damaged; remove it to begin anew", path = paths::STATE)]
    Damaged(#[source] serde_json::Error),
    /// Written by a newer agent, before the OS was rolled back.
    #[error("{path} has format {found}, this agent reads up to {FORMAT}; it is left alone", path = paths::STATE)]
    Newer {
        /// The file's format.
        found: u32,
    },
}

/// Everything that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// [`FORMAT`].
    pub format: u32,
    /// Where the node is.
    #[serde(flatten)]
    pub state: State,
    /// Since when, RFC 3339.
    pub since: String,
    /// The boot in which the record was last written.
    pub boot_id: String,
    /// The node's name, from its certificate.
    pub node: Option<String>,
    /// The configuration that is wanted.
    pub desired: Option<String>,
    /// The configuration that the tree has.
    pub applied: Option<String>,
    /// By which rules a change is judged; decided once, at the first look at the Node.
    pub phase: Option<RecordedPhase>,
    /// Reboots that this agent has taken.
    pub reboots_taken: u32,
    /// Files, links and folders that the last apply changed.
    #[serde(default)]
    pub files_written: u64,
    /// What the last apply still needs before all of it is in effect; on a tree that is not running, nobody takes it.
    #[serde(default)]
    pub reboot_needed: Option<Disruption>,
    /// The reboot that the desired configuration needs or has had; there until another one is desired.
    #[serde(default)]
    pub reboot: Option<Due>,
    /// What was done about a certificate in the kubelet's place, in the boot that it names.
    #[serde(default)]
    pub enrolling: Option<Enrolling>,
    /// The certificate may be one that this agent has asked for.
    #[serde(default)]
    pub enrolled: bool,
    /// Userspaces of this boot before the one in which the record was last written, where systemd counts them.
    #[serde(default)]
    pub soft_reboots: Option<u32>,
    /// What the last decision about the desired configuration was based on: only a change of it is news.
    #[serde(default)]
    pub basis: Basis,
    /// What happened when, oldest first.
    #[serde(default)]
    pub history: Vec<Entry>,
}

/// How long and how often a certificate was asked for in the kubelet's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enrolling {
    /// In which boot: another one begins anew.
    pub boot_id: String,
    /// When that began, microseconds since the kernel of that boot started (`CLOCK_BOOTTIME`).
    pub since_us: u64,
    /// Requests that were filed, or about to be.
    pub requests: u32,
    /// It has come to nothing, and the kubelet asks for itself.
    pub over: bool,
}

/// What the cluster said about the desired configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Basis {
    /// The Node's annotation.
    pub annotation: Option<String>,
    /// The pool's configuration.
    pub pool: Option<String>,
}

/// [`Phase`], in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecordedPhase {
    /// [`Phase::FirstBoot`].
    FirstBoot,
    /// [`Phase::Joined`].
    Joined,
}

impl From<RecordedPhase> for Phase {
    fn from(phase: RecordedPhase) -> Self {
        match phase {
            RecordedPhase::FirstBoot => Self::FirstBoot,
            RecordedPhase::Joined => Self::Joined,
        }
    }
}

/// A state that was entered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Which.
    pub state: Name,
    /// Microseconds since the kernel of that boot started (`CLOCK_BOOTTIME`).
    pub at_us: u64,
    /// The wall clock then, RFC 3339; it may have been wrong.
    pub at: String,
    /// In which boot.
    pub boot_id: String,
    /// What there is to say about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl Record {
    /// The record of a node on which no agent has run.
    pub fn new(boot_id: String, since: String) -> Self {
        Self {
            format: FORMAT,
            state: State::Waiting,
            since,
            boot_id,
            node: None,
            desired: None,
            applied: None,
            phase: None,
            reboots_taken: 0,
            files_written: 0,
            reboot_needed: None,
            reboot: None,
            enrolling: None,
            enrolled: false,
            soft_reboots: None,
            basis: Basis::default(),
            history: Vec::new(),
        }
    }

    /// What ran when it was last written.
    pub fn boot(&self) -> Boot {
        Boot { id: self.boot_id.clone(), soft_reboots: self.soft_reboots }
    }

    /// Reads the record; `None` when there is none.
    pub fn read(root: &Root) -> Result<Option<Self>, Error> {
        #[derive(Deserialize)]
        struct Format {
            format: u32,
        }

        let Some(bytes) = root.read(paths::STATE)? else { return Ok(None) };
        let Format { format: found } = serde_json::from_slice(&bytes).map_err(Error::Damaged)?;
        if found > FORMAT {
            return Err(Error::Newer { found });
        }
        serde_json::from_slice(&bytes).map(Some).map_err(Error::Damaged)
    }

    /// Writes it, durably, in a directory that only root can look into.
    pub fn write(&self, root: &Root) -> Result<(), Error> {
        root.mkdir_all(paths::STATE_DIR, 0o755)?;
        root.set_dir_mode(paths::STATE_DIR, 0o700)?;
        let json = serde_json::to_vec_pretty(self).expect("strings and numbers are always JSON");
        Ok(root.write_atomic(paths::STATE, &json, 0o600)?)
    }

    /// Enters a state.
    pub fn enter(&mut self, state: State, at_us: u64, at: String, note: Option<String>) {
        self.history.push(Entry {
            state: state.name(),
            at_us,
            at: at.clone(),
            boot_id: self.boot_id.clone(),
            note: note.or_else(|| state.reason().map(ToOwned::to_owned)),
        });
        let surplus = self.history.len().saturating_sub(HISTORY_LIMIT);
        self.history.drain(..surplus);
        if state.name() != self.state.name() {
            self.since = at;
        }
        self.state = state;
    }
}

/// Whether this node has settled once.
pub fn is_settled(root: &Root) -> Result<bool, Error> {
    Ok(root.lstat(paths::SETTLED)?.is_some())
}

/// Whether this node has settled at this configuration and has been handed over: the marker is the last thing written.
pub fn is_settled_at(root: &Root, config: &str) -> Result<bool, Error> {
    Ok(root.read(paths::SETTLED)?.is_some_and(|marker| marker == format!("{config}\n").as_bytes()))
}

/// From now on a change here is a member's change.
pub fn mark_settled(root: &Root, config: &str) -> Result<(), Error> {
    Ok(root.write_atomic(paths::SETTLED, format!("{config}\n").as_bytes(), 0o600)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::state::Until;

    fn root() -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    fn mode(dir: &tempfile::TempDir, path: &str) -> u32 {
        std::fs::metadata(dir.path().join(path.trim_start_matches('/'))).unwrap().permissions().mode()
            & 0o7777
    }

    #[test]
    fn what_is_written_is_what_is_read_and_only_root_can() {
        let (dir, root) = root();
        assert_eq!(Record::read(&root).unwrap(), None);
        let mut record = Record::new("boot-a".into(), "2026-01-01T00:00:00Z".into());
        let blocked = State::Blocked { until: Until::Changed, reason: "path climbs out".into() };
        record.enter(blocked, 7_000_000, "2026-01-01T00:00:07Z".into(), None);
        record.write(&root).unwrap();
        assert_eq!(Record::read(&root).unwrap(), Some(record.clone()));
        assert_eq!(record.since, "2026-01-01T00:00:07Z");
        assert_eq!(record.history[0].note.as_deref(), Some("path climbs out"));
        assert_eq!((mode(&dir, paths::STATE_DIR), mode(&dir, paths::STATE)), (0o700, 0o600));
    }

    #[test]
    fn a_newer_format_is_refused_and_left_alone() {
        let (_dir, root) = root();
        root.mkdir_all(paths::STATE_DIR, 0o700).unwrap();
        let newer = br#"{"format": 2, "state": "Dancing"}"#;
        root.write_atomic(paths::STATE, newer, 0o600).unwrap();
        assert!(matches!(Record::read(&root), Err(Error::Newer { found: 2 })));
        assert_eq!(root.read(paths::STATE).unwrap().unwrap(), newer);
    }

    #[test]
    fn damage_is_named() {
        let (_dir, root) = root();
        root.mkdir_all(paths::STATE_DIR, 0o700).unwrap();
        root.write_atomic(paths::STATE, b"{\"format\": 1, \"sta", 0o600).unwrap();
        let error = Record::read(&root).unwrap_err();
        assert!(matches!(error, Error::Damaged(_)));
        assert_eq!(error.to_string(), "/var/lib/oneboot/state.json is damaged; remove it to begin anew");
    }

    #[test]
    fn history_is_bounded_and_keeps_the_newest() {
        let mut record = Record::new("b".into(), String::new());
        for at in 0..=u64::try_from(HISTORY_LIMIT).unwrap() {
            record.enter(State::Waiting, at, String::new(), None);
        }
        assert_eq!(record.history.len(), HISTORY_LIMIT);
        assert_eq!(record.history[0].at_us, 1);
    }

    #[test]
    fn the_marker_is_what_makes_a_node_settled() {
        let (_dir, root) = root();
        assert!(!is_settled(&root).unwrap());
        root.mkdir_all(paths::STATE_DIR, 0o700).unwrap();
        mark_settled(&root, "rendered-worker-1").unwrap();
        assert!(is_settled(&root).unwrap());
        assert!(is_settled_at(&root, "rendered-worker-1").unwrap());
        assert!(!is_settled_at(&root, "rendered-worker-2").unwrap(), "that was another time");
    }
}
