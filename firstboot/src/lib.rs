//! Owns: everything a node needs before it is trusted: pointer, token, trust, fetch, hand-off, report.
//! Gives the binary `oneboot-firstboot`, and to the agent the parts that both need: `trust`, `transport`, `secret`,
//! `backoff`, `atomic`, `duration`, `exit`, `clock` and `log`. Never: touches D-Bus or starts an async runtime.

pub mod atomic;
pub mod backoff;
pub mod clock;
pub mod duration;
pub mod exit;
pub mod log;
pub mod secret;
pub mod transport;
pub mod trust;
