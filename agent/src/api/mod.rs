//! Owns: the agent's side of the Kubernetes API.
//! Given an identity it gives typed objects, watches that survive everything, and failures told apart.
//! Never: decides what the node should be.

pub mod client;
pub mod error;
pub mod resource;
pub mod session;
pub mod types;
pub mod watch;
