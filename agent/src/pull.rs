//! Owns: one look at the cluster: what is desired, the configuration itself, and the policy for changing to it.
//! Given a session with the node's identity it gives a [`Pulled`], or what stands in the way.
//! Never: waits or tries again (`run` does), or changes anything.

use crate::{
    api::{
        error::{ApiError, Failure},
        resource::{MACHINE_CONFIG_POOLS, MACHINE_CONFIGS, MACHINE_CONFIGURATIONS, NODES, is_name},
        session::{Session, Trouble},
        types::{Node, PoolObject},
    },
    desired::{self, Desired, Known, Pool, Rule, Seed},
    machineconfig::{MachineConfig, Spec},
    plan::Policy,
    record::Basis,
    root::{self, Root},
    settle,
};

/// The policy object's only allowed name.
const CLUSTER: &str = "cluster";

/// Everything that a plan needs from the cluster.
#[derive(Debug)]
pub struct Pulled {
    /// The name and the rule that chose it.
    pub desired: Desired,
    /// The configuration.
    pub config: MachineConfig,
    /// `MachineConfiguration/cluster`, where it exists and may be read.
    pub policy: Option<Policy>,
    /// The seed that has to be in place before the configuration is.
    pub reseed: Option<Seed>,
    /// What was said; another configuration is desired once this changes.
    pub basis: Basis,
    /// The Node, as far as the kubelet has got.
    pub node: Option<Node>,
}

/// What stands in the way.
#[derive(Debug, thiserror::Error)]
pub enum Hindrance {
    /// The API: it may be gone the next time.
    #[error(transparent)]
    Trouble(#[from] Trouble),
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] root::Error),
    /// Nobody has said what this node should have.
    #[error("nobody has said yet which configuration this node should have: {0}")]
    Undecided(&'static str),
    /// What is desired cannot be used; asking again gives the same.
    #[error("{reason}")]
    Unusable {
        /// What is desired, when that much is known.
        config: Option<String>,
        /// What was said about it.
        basis: Basis,
        /// Why it cannot be used.
        reason: String,
    },
}

/// Where the pool's name may come from, besides the seed.
#[derive(Clone, Debug, Default)]
pub struct PoolNames {
    /// firstboot's report.
    pub reported: Option<String>,
    /// The key `pool`.
    pub configured: Option<String>,
}

impl PoolNames {
    /// The pool's name.
    pub fn choose(&self, seed: Option<&Seed>) -> Option<String> {
        desired::pool(self.reported.as_deref(), self.configured.as_deref(), seed).map(ToOwned::to_owned)
    }
}

/// Looks once, for the node of that name.
pub fn once(session: &mut Session, root: &Root, name: &str, pools: &PoolNames) -> Result<Pulled, Hindrance> {
    let seed = match settle::seed(root)? {
        None => None,
        Some(Ok(seed)) => Some(seed),
        Some(Err(error)) => {
            let reason = format!("{}: {error}", crate::paths::NODE_ANNOTATIONS);
            return Err(Hindrance::Unusable { config: None, basis: Basis::default(), reason });
        }
    };
    let node: Option<Node> = optional(session.attempt(|client| client.get(&NODES, name)))?;
    let annotations = node.as_ref().map(|node| &node.metadata.annotations);
    let pool = match pools.choose(seed.as_ref()) {
        Some(pool) => read_pool(session, &pool, seed.is_some())?,
        None => None,
    };
    let basis = Basis {
        annotation: annotations.and_then(|a| a.get(desired::DESIRED_CONFIG)).cloned(),
        pool: pool.as_ref().and_then(Pool::config).map(ToOwned::to_owned),
    };

    let mut desired = desired::decide(Known { seed: seed.as_ref(), annotations, pool: pool.as_ref() })
        .ok_or(Hindrance::Undecided(
            "no seed, no annotation on the Node, and no configuration in its pool",
        ))?;
    let mut config = read_config(session, &desired.config, &basis)?;
    let mut reseed = None;
    if let (Some(seed), Some(pool)) = (&seed, &pool)
        && let Some(newer) = pool.config().filter(|newer| **newer != *seed.config)
    {
        let theirs = read_config(session, newer, &basis)?;
        if desired::reseed(seed, pool, same_os(&config.spec, &theirs.spec)).is_some() {
            reseed = Some(seed.renamed(newer));
            desired = Desired { config: newer.to_owned(), rule: Rule::Seed };
            config = theirs;
        }
    }
    let policy = read_policy(session)?;
    Ok(Pulled { desired, config, policy, reseed, basis, node })
}

/// A missing object is an answer too.
fn optional<T>(result: Result<T, Trouble>) -> Result<Option<T>, Trouble> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(Trouble::Api(ApiError { failure: Failure::NotFound, .. })) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// The pool. With a seed it is only needed to see whether the pool has moved on, so there it may be out of bounds.
fn read_pool(session: &mut Session, pool: &str, has_seed: bool) -> Result<Option<Pool>, Trouble> {
    match session.attempt(|client| client.get(&MACHINE_CONFIG_POOLS, pool)) {
        Ok(PoolObject { pool, .. }) => Ok(Some(pool)),
        Err(Trouble::Api(ApiError { failure: Failure::NotFound | Failure::Forbidden { .. }, .. }))
            if has_seed =>
        {
            Ok(None)
        }
        Err(trouble) => Err(trouble),
    }
}

fn read_config(session: &mut Session, name: &str, basis: &Basis) -> Result<MachineConfig, Hindrance> {
    let unusable = |reason: String| Hindrance::Unusable {
        config: Some(name.to_owned()),
        basis: basis.clone(),
        reason: format!("{name}: {reason}"),
    };
    if !is_name(name) {
        return Err(unusable("not the name of a MachineConfig".to_owned()));
    }
    let bytes = session.attempt(|client| client.get_bytes(&MACHINE_CONFIGS, name))?;
    let config = MachineConfig::parse(&bytes).map_err(|error| unusable(error.to_string()))?;
    if config.name != name {
        return Err(unusable(format!("the API sent {:?} instead", config.name)));
    }
    Ok(config)
}

/// The policy, where it exists. A cluster that keeps it from its nodes is one without it: the stricter rules hold.
fn read_policy(session: &mut Session) -> Result<Option<Policy>, Trouble> {
    match session.attempt(|client| client.get_bytes(&MACHINE_CONFIGURATIONS, CLUSTER)) {
        Ok(bytes) => Ok(Policy::parse(&bytes)
            .inspect_err(|why| tracing::warn!("the node disruption policy is not used: {why}"))
            .ok()),
        Err(Trouble::Api(error @ ApiError { failure: Failure::Forbidden { .. }, .. })) => {
            tracing::warn!("the node disruption policy is not used: {error}");
            Ok(None)
        }
        Err(Trouble::Api(ApiError { failure: Failure::NotFound, .. })) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// Whether two configurations want the same operating system: everything but files and units.
fn same_os(a: &Spec, b: &Spec) -> bool {
    let (mut a, mut b) = (a.clone(), b.clone());
    a.config = serde_json::Value::Null;
    b.config = serde_json::Value::Null;
    a == b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_units_do_not_make_another_os_but_everything_else_does() {
        let base = Spec { kernel_type: "default".into(), ..Spec::default() };
        let files = Spec { config: serde_json::json!({"storage": {}}), ..base.clone() };
        assert!(same_os(&base, &files));
        for other in [
            Spec { os_image_url: "quay.io/os@sha256:1".into(), ..base.clone() },
            Spec { kernel_arguments: vec!["nosmt".into()], ..base.clone() },
            Spec { kernel_type: "realtime".into(), ..base.clone() },
            Spec { extensions: vec!["usbguard".into()], ..base.clone() },
            Spec { fips: true, ..base.clone() },
            Spec { base_os_extensions_container_image: "x".into(), ..base.clone() },
        ] {
            assert!(!same_os(&base, &other));
        }
    }
}
