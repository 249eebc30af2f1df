//! Owns: how a node proves that it may have a config, today by a bearer token, and where that token comes from.
//! Given credential directory, file or pointer, gives a header for one origin; reads its source again when told to.
//! Never: takes a token from the kernel's arguments, sends it to another origin, or shows it.

use crate::secret::Secret;
use std::io;
use std::path::{Path, PathBuf};

/// A proof of identity that goes with a request. The bearer token is the first; attestation may follow.
pub trait NodeProof {
    /// Where it came from, for the report.
    fn source(&self) -> &'static str;
    /// The value of the `Authorization` header.
    fn authorization(&self) -> Secret<String>;
    /// Reads the source again, as it may have been rotated meanwhile.
    fn renew(&mut self) -> Result<(), ProofError>;
}

/// There is a token, but it cannot be used. Its text is not repeated.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// Its file is there but cannot be read.
    #[error("cannot read the token from {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing but white space, or characters that no header can carry.
    #[error("the token from {0} is empty, or has characters that no header can carry")]
    Malformed(&'static str),
    /// It was there and is gone.
    #[error("the token from {0} is gone")]
    Gone(&'static str),
}

/// How to get the token once more.
pub type Reread = Box<dyn Fn() -> Option<Secret<String>>>;

enum Origin {
    File(PathBuf),
    Pointer(Reread),
}

/// `Authorization: Bearer <token>`.
pub struct BearerToken {
    token: Secret<String>,
    source: &'static str,
    origin: Origin,
}

impl BearerToken {
    /// The first of: the systemd credential `oneboot.token`, `--token-file`. A credential that is not there is no
    /// error (the unit starts with an empty directory then); a file that was named must be readable.
    pub fn find(credentials: Option<&Path>, file: Option<&Path>) -> Result<Option<Self>, ProofError> {
        let credential = credentials.map(|directory| directory.join("oneboot.token"));
        if let Some(path) = credential.filter(|path| path.exists()) {
            return Self::from_file("credential", path).map(Some);
        }
        file.map(|path| Self::from_file("token-file", path.to_owned())).transpose()
    }

    fn from_file(source: &'static str, path: PathBuf) -> Result<Self, ProofError> {
        let token = read(source, &path)?;
        Ok(Self { token, source, origin: Origin::File(path) })
    }

    /// From the pointer: its header (`pointer-header`) or its URL (`pointer-url`).
    pub fn from_pointer(
        source: &'static str,
        token: &Secret<String>,
        reread: Reread,
    ) -> Result<Self, ProofError> {
        Ok(Self { token: usable(source, token.expose())?, source, origin: Origin::Pointer(reread) })
    }
}

impl NodeProof for BearerToken {
    fn source(&self) -> &'static str {
        self.source
    }

    fn authorization(&self) -> Secret<String> {
        Secret::new(format!("Bearer {}", self.token.expose()))
    }

    fn renew(&mut self) -> Result<(), ProofError> {
        self.token = match &self.origin {
            Origin::File(path) => read(self.source, path)?,
            Origin::Pointer(reread) => {
                let token = reread().ok_or(ProofError::Gone(self.source))?;
                usable(self.source, token.expose())?
            }
        };
        Ok(())
    }
}

fn read(source: &'static str, path: &Path) -> Result<Secret<String>, ProofError> {
    let bytes =
        std::fs::read(path).map_err(|error| ProofError::Read { path: path.to_owned(), source: error })?;
    let bytes = Secret::new(bytes);
    usable(source, std::str::from_utf8(bytes.expose()).map_err(|_| ProofError::Malformed(source))?)
}

/// The trimmed text, if it is one word that a header can carry.
fn usable(source: &'static str, text: &str) -> Result<Secret<String>, ProofError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ProofError::Malformed(source));
    }
    Ok(Secret::new(text.to_owned()))
}

/// The token in an `Authorization: Bearer` header's value.
pub fn bearer(value: &Secret<String>) -> Option<Secret<String>> {
    let (scheme, token) = value.expose().trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| Secret::new(token.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &tempfile::TempDir, name: &str, text: &str) -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn the_credential_comes_before_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "file", "from-file\n");
        let found = BearerToken::find(Some(dir.path()), Some(&path)).unwrap().unwrap();
        assert_eq!(
            (found.source(), found.authorization().expose().as_str()),
            ("token-file", "Bearer from-file")
        );
        file(&dir, "oneboot.token", " from-credential\n");
        let found = BearerToken::find(Some(dir.path()), Some(&path)).unwrap().unwrap();
        assert_eq!(
            (found.source(), found.authorization().expose().as_str()),
            ("credential", "Bearer from-credential")
        );
        assert!(BearerToken::find(None, None).unwrap().is_none());
    }

    #[test]
    fn a_rotated_file_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = file(&dir, "t", "old");
        let mut proof = BearerToken::find(None, Some(&path)).unwrap().unwrap();
        file(&dir, "t", "new");
        proof.renew().unwrap();
        assert_eq!(proof.authorization().expose(), "Bearer new");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(proof.renew(), Err(ProofError::Read { .. })));
        assert_eq!(proof.authorization().expose(), "Bearer new", "a failed renewal keeps the old one");
    }

    #[test]
    fn what_no_header_can_carry_is_refused_without_showing_it() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["", " \n", "two words", "s3cret\u{e9}", "s3cret\r\nX: y"] {
            let path = file(&dir, "t", text);
            let error = BearerToken::find(None, Some(&path)).err().unwrap();
            assert!(matches!(error, ProofError::Malformed("token-file")), "{text:?}");
            assert!(!format!("{error} {error:?}").contains("s3cret"));
        }
        let missing = dir.path().join("missing");
        assert!(matches!(BearerToken::find(None, Some(&missing)), Err(ProofError::Read { .. })));
    }

    #[test]
    fn the_scheme_of_a_header_has_no_case() {
        let value = |text: &str| bearer(&Secret::new(text.to_owned())).map(|token| token.expose().clone());
        assert_eq!(value("bearer  t "), Some("t".into()));
        assert_eq!(value("Basic dTpw"), None);
        assert_eq!(value("t"), None);
    }
}
