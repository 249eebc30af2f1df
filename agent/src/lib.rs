//! The node's side of a cluster join after approval: plan, apply, verify, settle.
//!
//! Every part works offline on any tree; only `run` talks to a cluster. README.md has the commands and the contracts.

pub mod apply;
pub mod bus;
pub mod cli;
pub mod commands;
pub mod enablement;
pub mod exit;
pub mod ignition;
pub mod machineconfig;
pub mod observe;
pub mod paths;
pub mod plan;
pub mod root;
pub mod tree;
pub mod unitfile;
pub mod units;
pub mod verify;
