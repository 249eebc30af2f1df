//! Owns: files that one scenario adds to the initramfs.
//! Given the built initramfs and files, gives one with them: the kernel unpacks archives that follow each other, the later one wins.
//! Never: rebuilds it; dracut has no part in a scenario.

use std::fs::{self, File};
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// Writes `built` and the files after it to `out`. Paths are those of the initramfs, without the leading slash.
///
/// # Errors
/// When a file cannot be written, or `cpio` fails.
pub fn with_files(
    built: &Path,
    files: &[(String, Vec<u8>)],
    scratch: &Path,
    out: &Path,
) -> anyhow::Result<()> {
    fs::copy(built, out).with_context(|| format!("copying {}", built.display()))?;
    if files.is_empty() {
        return Ok(());
    }
    let tree = scratch.join("initramfs-files");
    for (path, bytes) in files {
        let path = tree.join(path);
        let folder = path.parent().context("a file is in a folder")?;
        fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
        fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    let names = Command::new("find")
        .args([".", "-mindepth", "1"])
        .current_dir(&tree)
        .output()
        .context("starting find")?;
    let list = scratch.join("initramfs-names");
    fs::write(&list, names.stdout).context("writing the list of names")?;
    let mut archive =
        File::options().append(true).open(out).with_context(|| format!("opening {}", out.display()))?;
    archive.seek(SeekFrom::End(0)).context("finding the end of the initramfs")?;
    // newc is the format the kernel reads; in an initramfs everything is root's.
    let status = Command::new("cpio")
        .args(["--create", "--format=newc", "--owner=0:0", "--quiet"])
        .current_dir(&tree)
        .stdin(Stdio::from(File::open(&list).context("opening the list of names")?))
        .stdout(archive)
        .status()
        .context("starting cpio (Debian package cpio)")?;
    anyhow::ensure!(status.success(), "cpio: {status}");
    Ok(())
}
