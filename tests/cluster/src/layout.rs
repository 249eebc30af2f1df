//! Owns the data directory: every path in it, and how files get there (atomically, 0600).
//! Given the directory, gives paths.
//! Never anything another part needs at run time: parts share objects, not files. Kubeconfigs are the exception.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// A data directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// The directory, made if it is not there, readable by its owner only.
    pub fn open(root: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        Ok(Self { root: root.to_path_buf() })
    }

    /// A directory that some `serve` has filled, or not yet.
    pub fn at(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// Kubeconfig of a part, or of the administrator (`admin`).
    pub fn kubeconfig(&self, who: &str) -> PathBuf {
        self.root.join(format!("{who}.kubeconfig"))
    }

    /// The API's objects.
    pub fn journal(&self) -> PathBuf {
        self.root.join("api-objects.jsonl")
    }

    /// The API's bearer tokens, as digests.
    pub fn api_tokens(&self) -> PathBuf {
        self.root.join("api-tokens.json")
    }

    /// Certificate of one of the API's own CAs (`serving-ca`, `client-ca`).
    pub fn certificate(&self, ca: &str) -> PathBuf {
        self.root.join(format!("api-{ca}.crt"))
    }

    /// Key of one of the API's own CAs.
    pub fn key(&self, ca: &str) -> PathBuf {
        self.root.join(format!("api-{ca}.key"))
    }

    /// Where a listener really listens: read again at the next start when port 0 is asked for.
    pub fn address(&self, listener: &str) -> PathBuf {
        self.root.join(format!("{listener}.address"))
    }

    /// The MCS CA bundle, for people; the truth is the `ConfigMap`.
    pub fn mcs_bundle(&self) -> PathBuf {
        self.root.join("mcs-ca.crt")
    }
}

/// Writes a file that only its owner can read: new file, then rename, so that a reader sees all of it or none.
pub fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let mut file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(bytes)?;
    std::fs::rename(&temporary, path)
}
