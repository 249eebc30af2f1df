//! The online half against real parts: directories with inotify, TLS servers, the binary itself.

mod api;
mod csr;
mod idle;
mod node;
mod run;
mod support;
mod wait;
