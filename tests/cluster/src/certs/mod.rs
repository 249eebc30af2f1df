//! Owns certificates: CAs, serving certificates, what a CSR says, and signing it.
//! Given names, keys and dates; gives PEM.
//! Never a clock of its own where a caller can pass one, never a key in a message.

mod authority;
mod ensure;
mod request;

pub use authority::{Authority, CertError, Pair, YEAR};
pub use ensure::ensure_mcs;
pub use request::{Request, RequestError, Subject, certificate_subject};
