//! The node's side of a cluster join after approval: plan, apply, verify, settle.
//!
//! Every part works offline on any tree; only `run` talks to a cluster. README.md has the commands and the contracts.

pub mod accounts;
pub mod api;
pub mod apply;
pub mod approval;
pub mod bus;
pub mod cli;
pub mod clock;
pub mod commands;
pub mod config;
pub mod csr;
pub mod desired;
pub mod enablement;
pub mod enroll;
pub mod exit;
pub mod health;
pub mod identity;
pub mod ignition;
pub mod labels;
pub mod machineconfig;
pub mod node;
pub mod nodename;
pub mod notify;
pub mod observe;
pub mod paths;
pub mod plan;
pub mod pull;
pub mod reboot;
pub mod record;
pub mod refusal;
pub mod report;
pub mod root;
pub mod run;
pub mod settle;
pub mod state;
pub mod status;
pub mod subject;
pub mod sysctl;
pub mod timeline;
pub mod tree;
pub mod unitfile;
pub mod units;
pub mod verify;
pub mod wait;
