//! What stands in for the rest of a node: its configuration, the kubelet's part, the demo.
pub mod fixture;
