//! The reference control plane: what a node talks to, complete enough to develop, demonstrate and attack both
//! programs without a cluster. Each part is a module of its own and talks to the others only through the API's
//! objects, over HTTP and with its own credentials, also when all run in one process.

pub mod api;
pub mod approve;
pub mod certs;
pub mod cli;
pub mod client;
pub mod clock;
pub mod cmd;
pub mod documents;
pub mod exit;
pub mod http;
pub mod informer;
pub mod kubeconfig;
pub mod layout;
pub mod mcs;
pub mod names;
pub mod pointer;
pub mod render;
pub mod selector;
pub mod serve;
pub mod stamp;
pub mod tls;
pub mod tokens;
