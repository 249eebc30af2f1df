//! Owns: node disruption policies, to the letter (facts/mco.md 5).
//! Given `MachineConfiguration/cluster` or its `clusterPolicies`; gives the actions for a changed path, unit or key.
//! Never invents: what no policy matches is a reboot.

use serde::Deserialize;
use serde_json::Value;

/// Why a policy document is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not JSON or YAML.
    #[error("not JSON or YAML")]
    Syntax,
    /// It has no policies, or not in their shape.
    #[error("no disruption policies: {0}")]
    Shape(String),
    /// The operator has not caught up with the object's last change.
    #[error(
        "the policies are for generation {observed}, the object is at {generation}: try again when the operator has caught up"
    )]
    Stale {
        /// `.metadata.generation`.
        generation: i64,
        /// `.status.observedGeneration`.
        observed: i64,
    },
}

/// `.status.nodeDisruptionPolicyStatus.clusterPolicies`: the defaults and the cluster's own, merged by the operator.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Policy {
    /// By path, a folder counting for all below it.
    pub files: Vec<FilePolicy>,
    /// By exact name.
    pub units: Vec<UnitPolicy>,
    /// For keys.
    pub sshkey: KeyPolicy,
}

/// Actions for a path.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct FilePolicy {
    /// File or folder.
    pub path: String,
    /// What to do.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// Actions for a unit.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct UnitPolicy {
    /// Its name.
    pub name: String,
    /// What to do.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// Actions for keys.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
pub struct KeyPolicy {
    /// What to do.
    #[serde(default)]
    pub actions: Vec<Action>,
}

/// One action, as the API writes it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Action {
    /// Which.
    #[serde(rename = "type")]
    pub kind: ActionKind,
    /// With `Restart`.
    pub restart: Option<Service>,
    /// With `Reload`.
    pub reload: Option<Service>,
}

/// The service of an action.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Service {
    /// Its unit.
    #[serde(rename = "serviceName")]
    pub name: String,
}

/// The API's actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum ActionKind {
    /// Reboot the node.
    Reboot,
    /// Drain it.
    Drain,
    /// Reload a service.
    Reload,
    /// Restart a service.
    Restart,
    /// Have systemd read its units again.
    DaemonReload,
    /// Nothing.
    None,
    /// crio is reloaded, and the node drained where the change may break running pods.
    Special,
}

/// The defaults that the operator merges a cluster's own policies into (facts/mco.md 5.2).
const DEFAULT: &str = include_str!("default-policy.json");

impl Policy {
    /// What holds where a cluster's policies are not known.
    pub fn default_table() -> Policy {
        serde_json::from_str(DEFAULT).expect("compiled in, and parsed by a test")
    }

    /// Reads a `MachineConfiguration` object, or the `clusterPolicies` in it.
    pub fn parse(bytes: &[u8]) -> Result<Policy, Error> {
        let document: Value = serde_json::from_slice(bytes)
            .or_else(|_| serde_norway::from_slice(bytes))
            .map_err(|_| Error::Syntax)?;
        let generation = document.pointer("/metadata/generation").and_then(Value::as_i64);
        let observed = document.pointer("/status/observedGeneration").and_then(Value::as_i64);
        if let (Some(generation), Some(observed)) = (generation, observed)
            && generation != observed
        {
            return Err(Error::Stale { generation, observed });
        }
        let policies = document
            .pointer("/status/nodeDisruptionPolicyStatus/clusterPolicies")
            .or_else(|| document.get("clusterPolicies"))
            .or_else(|| document.get("files").map(|_| &document))
            .ok_or_else(|| {
                Error::Shape("found no .status.nodeDisruptionPolicyStatus.clusterPolicies".to_owned())
            })?;
        Policy::deserialize(policies).map_err(|e| Error::Shape(e.to_string()))
    }

    /// The policy for a changed path: the longest that is the path or a folder above it; the first of equals.
    pub fn file(&self, path: &str) -> Option<&FilePolicy> {
        let mut best: Option<&FilePolicy> = None;
        for policy in self.files.iter().filter(|p| p.matches(path)) {
            if best.is_none_or(|b| policy.path.len() > b.path.len()) {
                best = Some(policy);
            }
        }
        best
    }

    /// The policy that names exactly this path.
    pub fn exact_file(&self, path: &str) -> Option<&FilePolicy> {
        self.files.iter().find(|p| p.path == path)
    }

    /// The policy for a unit.
    pub fn unit(&self, name: &str) -> Option<&UnitPolicy> {
        self.units.iter().find(|p| p.name == name)
    }
}

impl FilePolicy {
    fn matches(&self, path: &str) -> bool {
        // A policy for `/` matches nothing: its cleaned form with a slash is `//` (facts/mco.md 5.4).
        let folder = format!("{}/", self.path.trim_end_matches('/'));
        self.path == path || (self.path != "/" && path.starts_with(&folder))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICIES: &str = r#"{"metadata":{"generation":2},"status":{"observedGeneration":2,"nodeDisruptionPolicyStatus":{"clusterPolicies":{
        "files":[
          {"path":"/etc/a","actions":[{"type":"None"}]},
          {"path":"/etc/a/b","actions":[{"type":"Restart","restart":{"serviceName":"x.service"}}]},
          {"path":"/","actions":[{"type":"None"}]}],
        "units":[{"name":"u.service","actions":[{"type":"DaemonReload"}]}],
        "sshkey":{"actions":[{"type":"None"}]}}}}}"#;

    #[test]
    fn the_longest_component_prefix_wins() {
        let policy = Policy::parse(POLICIES.as_bytes()).unwrap();
        let path = |p| policy.file(p).map(|f| f.path.as_str());
        assert_eq!(path("/etc/a"), Some("/etc/a"));
        assert_eq!(path("/etc/a/x"), Some("/etc/a"));
        assert_eq!(path("/etc/a/b/c"), Some("/etc/a/b"));
        assert_eq!(path("/etc/ab"), None);
        assert_eq!(path("/x"), None, "a policy for / matches nothing");
        assert!(policy.unit("u.service").is_some() && policy.unit("u").is_none());
    }

    #[test]
    fn the_defaults_are_well_formed() {
        let policy = Policy::default_table();
        assert_eq!(policy.files.len(), 13);
        let nested = policy.file("/etc/containers/registries.d/x.yaml").unwrap();
        assert_eq!(nested.actions[0].reload.as_ref().unwrap().name, "crio.service");
    }

    #[test]
    fn a_policy_that_lags_behind_is_not_used() {
        let stale = POLICIES.replace("\"observedGeneration\":2", "\"observedGeneration\":1");
        assert!(matches!(Policy::parse(stale.as_bytes()), Err(Error::Stale { generation: 2, observed: 1 })));
        assert!(matches!(Policy::parse(b"{}"), Err(Error::Shape(_))));
        let unknown = POLICIES.replace("DaemonReload", "Dance");
        assert!(matches!(Policy::parse(unknown.as_bytes()), Err(Error::Shape(_))));
    }
}
