//! The online half against real parts: directories with inotify, TLS servers, the binary itself.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod api;
mod csr;
mod enroll;
mod idle;
mod live;
mod node;
mod process;
mod restart;
mod run;
mod service;
mod support;
mod wait;
