//! Owns the machine config server: TLS only, the token gate, what is served and what is appended to it.
//! Given requests and the API's objects, gives Ignition configs.
//! Never serves anything of a post-approved MachineConfig, never logs a token.

mod accept;
mod build;
mod convert;
mod gate;
mod renew;
mod reports;
mod server;

pub use accept::{Version, negotiate};
pub use build::{BuildError, Parts, build};
pub use gate::presented;
pub use reports::{REPORT_LABEL, REPORT_LIMIT};
pub use server::{Options, Running, start};
