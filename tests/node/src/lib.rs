//! What stands in for the rest of a node when there is no machine: a kubelet, and the journey of a node from its first fetch to Settled.
//!
//! `kubelet` is a program of its own (`oneboot-kubelet`). `process`, `cluster`, `node` and `input` start and feed the real programs
//! as separate processes and are what both the demo and the end-to-end tests are written in. `demo` is the front door.

pub mod clock;
pub mod cluster;
pub mod demo;
pub mod fixture;
pub mod input;
pub mod kubelet;
pub mod node;
pub mod process;
pub mod tree;
