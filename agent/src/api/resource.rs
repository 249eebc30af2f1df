//! Owns: the API's kinds that the agent uses, their paths, and who grants access to them.
//! Given a name it gives the path to ask for.
//! Never: lists a kind that no code here asks for.

use std::fmt;

/// One kind, cluster-scoped: nothing that the agent needs lives in a namespace.
#[derive(Debug, PartialEq, Eq)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version in the path.
    pub version: &'static str,
    /// The plural in the path.
    pub plural: &'static str,
    /// What to apply when a node may not read it.
    pub granted_by: &'static str,
}

/// Nodes: their own, by the node authorizer.
pub static NODES: Resource = Resource {
    group: "",
    version: "v1",
    plural: "nodes",
    granted_by: "the node authorizer grants a node its own Node: is this certificate another node's?",
};

/// Certificate signing requests, with the bootstrap identity.
pub static CERTIFICATE_REQUESTS: Resource = Resource {
    group: "certificates.k8s.io",
    version: "v1",
    plural: "certificatesigningrequests",
    granted_by: "the ClusterRole system:node-bootstrapper grants it to the bootstrap identity",
};

/// The manifests beside this crate (`agent/manifests/`).
const OURS: &str =
    "agent/manifests/nodes.yaml grants it to all nodes, agent/manifests/pool.yaml to those of one pool";

/// Rendered configurations.
pub static MACHINE_CONFIGS: Resource = Resource {
    group: "machineconfiguration.openshift.io",
    version: "v1",
    plural: "machineconfigs",
    granted_by: OURS,
};

/// Pools.
pub static MACHINE_CONFIG_POOLS: Resource = Resource {
    group: "machineconfiguration.openshift.io",
    version: "v1",
    plural: "machineconfigpools",
    granted_by: OURS,
};

/// The cluster's node disruption policy lives in the one named `cluster`.
pub static MACHINE_CONFIGURATIONS: Resource = Resource {
    group: "operator.openshift.io",
    version: "v1",
    plural: "machineconfigurations",
    granted_by: OURS,
};

impl Resource {
    /// The path of one object, or of the collection.
    pub fn path(&self, name: Option<&str>) -> String {
        let root = if self.group.is_empty() { "/api".to_owned() } else { format!("/apis/{}", self.group) };
        let collection = format!("{root}/{}/{}", self.version, self.plural);
        name.map_or(collection.clone(), |name| format!("{collection}/{name}"))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

/// Whether a name can stand in a path as it is: what Kubernetes allows (RFC 1123 subdomain), and nothing that climbs.
pub fn is_name(name: &str) -> bool {
    // 253: the limit of a subdomain.
    (1..=253).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'.')
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.ends_with(|c: char| c.is_ascii_alphanumeric())
        && !name.contains("..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_those_of_the_kubernetes_api() {
        assert_eq!(NODES.path(Some("node-a")), "/api/v1/nodes/node-a");
        assert_eq!(NODES.path(None), "/api/v1/nodes");
        assert_eq!(
            MACHINE_CONFIGS.path(Some("rendered-worker-1")),
            "/apis/machineconfiguration.openshift.io/v1/machineconfigs/rendered-worker-1"
        );
    }

    #[test]
    fn the_manifests_grant_what_is_asked_for() {
        for manifest in
            [include_str!("../../manifests/nodes.yaml"), include_str!("../../manifests/pool.yaml")]
        {
            let rules = manifest.split("---").next().unwrap();
            for (kind, verbs) in [
                (&MACHINE_CONFIGS, "[get]"),
                (&MACHINE_CONFIG_POOLS, "[get, list, watch]"),
                (&MACHINE_CONFIGURATIONS, "[get]"),
            ] {
                let wanted = format!("apiGroups: [{}]\n  resources: [{}]\n", kind.group, kind.plural);
                let rest = rules.split(&wanted).nth(1).unwrap_or_else(|| panic!("no rule for {kind}"));
                let granted = rest.split("verbs: ").nth(1).unwrap();
                assert!(granted.starts_with(verbs), "{kind}: {granted}");
            }
        }
    }

    #[test]
    fn a_name_cannot_change_the_path_it_stands_in() {
        for name in ["node-a", "a", "rendered-worker-0123456789abcdef", "ip-10-0-1-2.ec2.internal"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "..", "a/b", "a?b", "a%2fb", "-a", "a.", "A", "a..b", "a b", &"a".repeat(254)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
