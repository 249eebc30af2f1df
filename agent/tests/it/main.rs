//! The offline half from the outside: trees in, trees out.

#![allow(clippy::unwrap_used)] // helpers of tests, which clippy.toml does not count as tests
#![allow(clippy::needless_pass_by_value)] // `ignition(json!(...))` reads better than a reference to a temporary

mod accounts;
mod cases;
mod command;
mod crash;
mod enablement;
mod hostile;
mod labels;
mod laws;
mod support;
