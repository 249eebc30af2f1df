//! Owns: the one type that may hold a token, a key or a header value.
//! Given a value, gives it back only where `expose` is written out; wiped from memory on drop.
//! Never: implements `Debug`, `Display` or `Serialize`, so no formatter, log field or report can show it.

use zeroize::{Zeroize, Zeroizing};

/// A value that cannot be shown.
///
/// There is no formatter, so this does not compile:
/// ```compile_fail
/// let token = oneboot_firstboot::secret::Secret::new(String::from("t0ken"));
/// println!("{token:?}");
/// ```
#[derive(Clone)]
pub struct Secret<T: Zeroize>(Zeroizing<T>);

impl<T: Zeroize> Secret<T> {
    /// Takes the value over.
    pub fn new(value: T) -> Self {
        Self(Zeroizing::new(value))
    }

    /// The value itself. Every call is a place to look at in a review.
    pub fn expose(&self) -> &T {
        &self.0
    }
}
