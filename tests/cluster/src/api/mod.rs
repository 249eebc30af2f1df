//! Owns the embedded Kubernetes-style API: storage, identity, permission, admission, watches, over TLS.
//! Given requests, gives objects and Status errors, as a real API server would for the kinds in `resources`.
//! Never calls another part and is never called by one except over HTTP.

mod admission;
mod authn;
mod authz;
mod defaults;
mod discovery;
mod faults;
mod handlers;
mod object;
mod patch;
mod request;
mod resources;
mod server;
mod signer;
mod status;
mod store;
mod watch;

pub use defaults::PARTS;
pub use faults::PATH as FAULTS;
pub use request::decode as percent_decode;
pub use resources::{RESOURCES, Resource};
pub use server::{Options, Running, start};
