//! Owns: the decision which rendered MachineConfig this node should have (design 4.3).
//! Given what the seed, the Node and the pool say, it gives one name and the rule that chose it.
//! Never: does I/O, or takes a node's own word (labels, annotations other than MCD's) for its pool.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;

/// The prefix of the Machine Config Daemon's Node annotations (facts/mco.md 3.1).
const ANNOTATION_PREFIX: &str = "machineconfiguration.openshift.io/";
/// The annotation, and the key in the seed, that names what a node should run.
pub const DESIRED_CONFIG: &str = "machineconfiguration.openshift.io/desiredConfig";
/// The annotation, and the key in the seed, that names what a node runs.
pub const CURRENT_CONFIG: &str = "machineconfiguration.openshift.io/currentConfig";
/// What MCD says about a node; `Done` is its word for settled.
pub const STATE: &str = "machineconfiguration.openshift.io/state";
/// MCD's explanation of [`STATE`].
pub const REASON: &str = "machineconfiguration.openshift.io/reason";
/// Present on layered nodes: the image decides there, not the configuration's name.
pub const DESIRED_IMAGE: &str = "machineconfiguration.openshift.io/desiredImage";

/// `/etc/machine-config-daemon/node-annotations.json`: what the MCS told this node, and what MCD will copy onto the Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seed {
    /// The rendered configuration that MCD will take as current and desired.
    pub config: String,
    /// All of it, as read: the file is written again with nothing lost.
    pub annotations: BTreeMap<String, String>,
}

/// Why a seed is of no use.
#[derive(Debug, thiserror::Error)]
pub enum SeedError {
    /// Not a flat JSON object of strings.
    #[error("the seed is not a JSON object of strings")]
    NotAnnotations(#[source] serde_json::Error),
    /// No configuration is named.
    #[error("the seed has no {DESIRED_CONFIG}")]
    NoDesired,
    /// MCD would find the node in the middle of an update that nobody has started.
    #[error("the seed names {current} as current and {desired} as desired; MCD expects one name in both")]
    Disagrees {
        /// What it names as current.
        current: String,
        /// What it names as desired.
        desired: String,
    },
}

impl Seed {
    /// Reads the file's bytes.
    pub fn parse(bytes: &[u8]) -> Result<Self, SeedError> {
        let annotations: BTreeMap<String, String> =
            serde_json::from_slice(bytes).map_err(SeedError::NotAnnotations)?;
        let config =
            annotations.get(DESIRED_CONFIG).filter(|c| !c.is_empty()).ok_or(SeedError::NoDesired)?.clone();
        match annotations.get(CURRENT_CONFIG) {
            Some(current) if *current != config => {
                Err(SeedError::Disagrees { current: current.clone(), desired: config })
            }
            _ => Ok(Self { config, annotations }),
        }
    }

    /// The same seed for another configuration: every key that held the old name holds the new one.
    #[must_use]
    pub fn renamed(&self, config: &str) -> Self {
        let annotations = self
            .annotations
            .iter()
            .map(|(key, value)| {
                let names_a_config = key.starts_with(ANNOTATION_PREFIX) && *value == self.config;
                (key.clone(), if names_a_config { config.to_owned() } else { value.clone() })
            })
            .collect();
        Self { config: config.to_owned(), annotations }
    }

    /// The pool in `rendered-<pool>-<hash>`.
    pub fn pool(&self) -> Option<&str> {
        pool_of(&self.config)
    }
}

/// The pool in a rendered configuration's name, which the render controller builds as `rendered-<pool>-<md5>`.
pub fn pool_of(rendered: &str) -> Option<&str> {
    let (pool, hash) = rendered.strip_prefix("rendered-")?.rsplit_once('-')?;
    // 32 hex digits: without this, `rendered-my-pool` would be taken for the pool `my`.
    let is_hash = hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit());
    (is_hash && !pool.is_empty()).then_some(pool)
}

/// The parts of a `MachineConfigPool` that decide.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Pool {
    /// What the pool is going to.
    pub spec: PoolSpec,
    /// Where it is.
    pub status: PoolStatus,
}

/// `spec` of a `MachineConfigPool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PoolSpec {
    /// The newest rendered configuration.
    pub configuration: Reference,
}

/// `status` of a `MachineConfigPool`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PoolStatus {
    /// The configuration that every node of the pool had last.
    pub configuration: Reference,
    /// How many nodes already run `spec.configuration`.
    pub updated_machine_count: u64,
}

/// A reference to a rendered configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Reference {
    /// Its name; empty until the render controller has been there.
    pub name: String,
}

impl Pool {
    /// The configuration a new node gets: the rule of the MCS (facts/mco.md 1.3), so that both always agree.
    pub fn config(&self) -> Option<&str> {
        let chosen = if self.status.updated_machine_count > 0 {
            &self.spec.configuration.name
        } else {
            &self.status.configuration.name
        };
        (!chosen.is_empty()).then_some(chosen)
    }
}

/// Everything the decision depends on, as far as it is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// The seed, while MCD has not taken it.
    pub seed: Option<&'a Seed>,
    /// The annotations of the Node, once the kubelet has registered it.
    pub annotations: Option<&'a BTreeMap<String, String>>,
    /// The node's pool.
    pub pool: Option<&'a Pool>,
}

/// What the node should have, and who says so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// The name of the rendered configuration.
    pub config: String,
    /// The rule that chose it.
    pub rule: Rule,
}

/// The rules of design 4.3, in the order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The seed exists: MCD will copy it over whatever the controller wrote.
    Seed,
    /// The controller has spoken.
    Annotation,
    /// Some nodes of the pool already run its newest configuration.
    PoolSpec,
    /// None does: what the pool had last.
    PoolStatus,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seed => "the seed",
            Self::Annotation => "the Node's annotation",
            Self::PoolSpec => "the pool's spec",
            Self::PoolStatus => "the pool's status",
        })
    }
}

/// The decision. `None`: nobody has said anything yet.
pub fn decide(known: Known<'_>) -> Option<Desired> {
    if let Some(seed) = known.seed {
        return Some(Desired { config: seed.config.clone(), rule: Rule::Seed });
    }
    if let Some(config) = known.annotations.and_then(|a| a.get(DESIRED_CONFIG)).filter(|c| !c.is_empty()) {
        return Some(Desired { config: config.clone(), rule: Rule::Annotation });
    }
    let pool = known.pool?;
    let rule = if pool.status.updated_machine_count > 0 { Rule::PoolSpec } else { Rule::PoolStatus };
    Some(Desired { config: pool.config()?.to_owned(), rule })
}

/// Which pool the node belongs to: the one it was served at first boot, else the administrator's word, else the seed's.
pub fn pool<'a>(
    reported: Option<&'a str>,
    configured: Option<&'a str>,
    seed: Option<&'a Seed>,
) -> Option<&'a str> {
    reported.or(configured).or_else(|| seed.and_then(Seed::pool)).filter(|p| !p.is_empty())
}

/// The pool has moved on while the node was booting: the name that the seed is to get first, if any.
///
/// When the OS part differs too, `None`: the seed's own is settled, and the pool rolls the node as it does any other.
pub fn reseed<'a>(seed: &Seed, pool: &'a Pool, same_os: bool) -> Option<&'a str> {
    pool.config().filter(|config| same_os && *config != seed.config)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "rendered-worker-00000000000000000000000000000001";
    const NEW: &str = "rendered-worker-00000000000000000000000000000002";
    const OTHER: &str = "rendered-worker-00000000000000000000000000000003";

    fn seed(config: &str) -> Seed {
        let json = format!(
            r#"{{"{CURRENT_CONFIG}":"{config}","{DESIRED_CONFIG}":"{config}",
                "machineconfiguration.openshift.io/firstPivotConfig":"{config}","{STATE}":"Done"}}"#
        );
        Seed::parse(json.as_bytes()).expect("a seed as the MCS writes it")
    }

    fn pool_with(updated: u64) -> Pool {
        serde_json::from_value(serde_json::json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfigPool",
            "metadata": {"name": "worker"},
            "spec": {"paused": false, "configuration": {"name": NEW, "source": []}},
            "status": {"updatedMachineCount": updated, "configuration": {"name": OLD}},
        }))
        .expect("a pool as the API sends it")
    }

    fn annotations(config: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(DESIRED_CONFIG.to_owned(), config.to_owned())])
    }

    fn chosen(known: Known<'_>) -> (String, Rule) {
        let desired = decide(known).expect("there is something to choose");
        (desired.config, desired.rule)
    }

    #[test]
    fn the_seed_wins_over_annotation_and_pool() {
        let (seed, annotations, pool) = (seed(OTHER), annotations(NEW), pool_with(1));
        let known = Known { seed: Some(&seed), annotations: Some(&annotations), pool: Some(&pool) };
        assert_eq!(chosen(known), (OTHER.to_owned(), Rule::Seed));
    }

    #[test]
    fn without_a_seed_the_annotation_wins_over_the_pool() {
        let (annotations, pool) = (annotations(OTHER), pool_with(1));
        let known = Known { seed: None, annotations: Some(&annotations), pool: Some(&pool) };
        assert_eq!(chosen(known), (OTHER.to_owned(), Rule::Annotation));
    }

    #[test]
    fn an_empty_annotation_says_nothing() {
        let (annotations, pool) = (annotations(""), pool_with(1));
        let known = Known { seed: None, annotations: Some(&annotations), pool: Some(&pool) };
        assert_eq!(chosen(known), (NEW.to_owned(), Rule::PoolSpec));
    }

    #[test]
    fn a_pool_gives_its_spec_only_when_a_node_already_runs_it() {
        for (updated, config, rule) in [(1, NEW, Rule::PoolSpec), (0, OLD, Rule::PoolStatus)] {
            let pool = pool_with(updated);
            assert_eq!(chosen(Known { pool: Some(&pool), ..Known::default() }), (config.to_owned(), rule));
        }
    }

    #[test]
    fn nobody_has_spoken_is_not_a_choice() {
        assert_eq!(decide(Known::default()), None);
        let fresh = Pool::default();
        assert_eq!(decide(Known { pool: Some(&fresh), ..Known::default() }), None);
    }

    #[test]
    fn the_pool_is_the_reported_one_then_the_configured_one_then_the_seeds() {
        let seed = seed(OLD);
        assert_eq!(pool(Some("infra"), Some("gpu"), Some(&seed)), Some("infra"));
        assert_eq!(pool(None, Some("gpu"), Some(&seed)), Some("gpu"));
        assert_eq!(pool(None, None, Some(&seed)), Some("worker"));
        assert_eq!(pool(None, None, None), None);
    }

    #[test]
    fn a_pools_name_may_have_dashes_but_a_hash_must_follow() {
        let hash = "0123456789abcdef0123456789abcdef";
        for (name, expected) in [
            (format!("rendered-worker-{hash}"), Some("worker")),
            (format!("rendered-big-metal-{hash}"), Some("big-metal")),
            ("rendered-big-metal".to_owned(), None),
            (format!("rendered--{hash}"), None),
            (format!("worker-{hash}"), None),
            (format!("rendered-worker-{}", &hash[1..]), None),
        ] {
            assert_eq!(pool_of(&name), expected, "{name}");
        }
    }

    #[test]
    fn a_seed_follows_its_pool_only_while_the_os_part_is_the_same() {
        let moved = pool_with(1);
        assert_eq!(reseed(&seed(OLD), &moved, true), Some(NEW));
        assert_eq!(reseed(&seed(OLD), &moved, false), None);
        assert_eq!(reseed(&seed(NEW), &moved, true), None);
    }

    #[test]
    fn a_renamed_seed_names_the_new_config_everywhere_and_keeps_the_rest() {
        let renamed = seed(OLD).renamed(NEW);
        assert_eq!(renamed.config, NEW);
        assert_eq!(renamed.annotations.values().filter(|v| *v == NEW).count(), 3);
        assert_eq!(renamed.annotations.get(STATE).map(String::as_str), Some("Done"));
        assert!(!renamed.annotations.values().any(|v| v == OLD));
    }

    #[test]
    fn a_useless_seed_says_what_is_wrong_with_it() {
        assert!(matches!(Seed::parse(b"[]"), Err(SeedError::NotAnnotations(_))));
        assert!(matches!(Seed::parse(b"{}"), Err(SeedError::NoDesired)));
        let disagreeing = format!(r#"{{"{CURRENT_CONFIG}":"{OLD}","{DESIRED_CONFIG}":"{NEW}"}}"#);
        assert!(matches!(
            Seed::parse(disagreeing.as_bytes()),
            Err(SeedError::Disagrees { current, desired }) if current == OLD && desired == NEW
        ));
    }
}
