//! Owns: NodeDisruptionPolicy, to the letter (facts/mco.md 5).
//! Given `MachineConfiguration/cluster` or its `clusterPolicies`; gives the actions for a changed path, unit or key.
//! Never invents: what no policy matches is a reboot.

use serde::Deserialize;

/// `.status.nodeDisruptionPolicyStatus.clusterPolicies`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Policy {}

impl Policy {
    /// Reads a MachineConfiguration object, or the `clusterPolicies` in it.
    pub fn parse(_bytes: &[u8]) -> Result<Policy, String> {
        Ok(Policy {})
    }
}
