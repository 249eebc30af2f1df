//! The online half against real parts: directories with inotify, TLS servers, the binary itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod api;
mod csr;
mod idle;
mod node;
mod run;
mod support;
mod wait;
