//! Owns: everything a node needs before it is trusted: pointer, token, trust, fetch, hand-off, report.
//! Gives the binary `oneboot-firstboot`, and to the agent the parts that both need: `trust`, `transport`, `secret`,
//! `backoff`, `atomic`, `dataurl`, `duration`, `exit`, `clock` and `log`. Never: touches D-Bus or an async runtime.

pub mod atomic;
pub mod authorities;
pub mod backoff;
pub mod cli;
pub mod clock;
pub mod cmd;
pub mod cmdline;
pub mod config;
pub mod content;
pub mod dataurl;
pub mod document;
pub mod duration;
pub mod engage;
pub mod exit;
pub mod failure;
pub mod fetch;
pub mod guard;
pub mod handoff;
pub mod log;
pub mod nested;
pub mod outcome;
pub mod paths;
pub mod patience;
pub mod pointer;
pub mod proof;
pub mod record;
pub mod report;
pub mod resolve;
pub mod retry_after;
pub mod secret;
pub mod spliced;
pub mod system_dir;
pub mod transport;
pub mod trust;
pub mod url;
