//! Owns certificates: CAs, serving certificates, what a CSR says, and signing it.
//! Given names, keys and dates; gives PEM.
//! Never a clock of its own where a caller can pass one, never a key in a message.

mod authority;
mod objects;
mod request;
mod rotation;

pub use authority::{Authority, CertError, Pair, YEAR};
pub use objects::{Rotation, RotationError, rotate, settle};
pub use request::{Request, RequestError, Subject, certificate_subject};
pub use rotation::{Holding, Step, first_ca};
