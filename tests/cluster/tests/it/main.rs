//! The control plane from outside: real sockets, real TLS, scratch directories.

#![allow(clippy::unwrap_used, reason = "tests: a panic is the failure, with its line")]

mod accept;
mod api;
mod approver;
mod certs;
mod commands;
mod faults;
mod gate;
mod harness;
mod kubectl;
mod lifecycle;
mod nodes;
mod program;
mod renderer;
mod watches;
