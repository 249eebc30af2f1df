//! Owns: `/var/lib/kubelet/pki`.
//! Given a certificate and its key, gives the pem and the symlink in the order of the kubelet's file store
//! (`certificate_store.go:204-313`): file, sync, `-updated` link, removal of the old `-current`, rename onto `-current`.
//! Never: deletes an older pem; the kubelet keeps them all.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use time::macros::format_description;

/// A signed certificate and the key it was made for, both PEM.
pub(super) struct Credentials {
    pub(super) certificate: Vec<u8>,
    pub(super) key: String,
}

const PKI: &str = "var/lib/kubelet/pki";

/// Stores `credentials` and returns the path of `kubelet-client-current.pem` on the node.
pub(super) fn update(root: &Path, credentials: &Credentials) -> io::Result<PathBuf> {
    let pki = root.join(PKI);
    fs::create_dir_all(&pki)?;
    let stamp = time::OffsetDateTime::now_utc()
        .format(format_description!("[year]-[month]-[day]-[hour]-[minute]-[second]"))
        .map_err(io::Error::other)?;
    let name = format!("kubelet-client-{stamp}.pem");
    let mut file =
        fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(pki.join(&name))?;
    file.write_all(&credentials.certificate)?;
    file.write_all(credentials.key.as_bytes())?;
    file.sync_all()?;

    // The link's target is absolute on the node, so only a reader that resolves inside the root sees through it.
    let updated = pki.join("kubelet-client-updated.pem");
    let current = pki.join("kubelet-client-current.pem");
    remove_if_there(&updated)?;
    symlink(Path::new("/").join(PKI).join(&name), &updated)?;
    remove_if_there(&current)?; // the gap in which a reader finds nothing
    fs::rename(&updated, &current)?;
    Ok(Path::new("/").join(PKI).join("kubelet-client-current.pem"))
}

/// What an earlier start, or somebody in the kubelet's place, has left: with it the kubelet files nothing (facts/trust.md 2.1,
/// step 2; the expiry that is checked there is not: no certificate of a test lives that long).
pub(super) fn current(root: &Path) -> anyhow::Result<Option<Credentials>> {
    let Ok(target) = fs::read_link(root.join(PKI).join("kubelet-client-current.pem")) else {
        return Ok(None);
    };
    // Absolute on the node.
    let file = root.join(target.strip_prefix("/").unwrap_or(&target));
    let pem = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
    let (certificate, key) = pem
        .find("-----BEGIN PRIVATE KEY-----")
        .map(|at| pem.split_at(at))
        .with_context(|| format!("{} holds no key", file.display()))?;
    Ok(Some(Credentials { certificate: certificate.as_bytes().to_vec(), key: key.to_owned() }))
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_points_at_a_whole_pem_and_the_old_one_stays() {
        let root = tempfile::tempdir().expect("a scratch root");
        let credentials = |n: u8| Credentials { certificate: vec![n], key: format!("key {n}") };
        update(root.path(), &credentials(1)).expect("first");
        // A file of an earlier second, so that the rotation below has something to keep.
        let pki = root.path().join(PKI);
        fs::write(pki.join("kubelet-client-2000-01-01-00-00-00.pem"), "old").expect("an older pem");
        let current = update(root.path(), &credentials(2)).expect("rotation");
        let target =
            fs::read_link(root.path().join(current.strip_prefix("/").expect("absolute"))).expect("a link");
        let pem = fs::read(root.path().join(target.strip_prefix("/").expect("absolute target")))
            .expect("its target");
        assert_eq!(pem, [&[2][..], b"key 2"].concat());
        assert!(pki.join("kubelet-client-2000-01-01-00-00-00.pem").exists());
        assert!(!pki.join("kubelet-client-updated.pem").exists());
    }
}
