//! Owns the commands that work against a running API, one function each.
//! Given a client and arguments, gives output on standard output.
//! Never a secret on standard error or in an error.

mod apply;
mod certs;
mod nodes;
mod pointer;
mod show;
mod token;

pub use apply::{apply, rendered};
pub use certs::certs;
pub use nodes::{approve, deny, machine_add};
pub use pointer::pointer;
pub use show::{get, reports};
pub use token::{token_list, token_new, token_revoke};
