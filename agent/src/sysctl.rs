//! Owns: kernel parameters that a change of sysctl.d is about to set: what they were.
//! Given the texts of files; gives values to put back.
//! Never sets a new value: systemd-sysctl does.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::paths;

/// Values of kernel parameters at one moment of one boot: after the next boot they mean nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// The boot.
    boot: String,
    /// By path below `/proc/sys`.
    values: BTreeMap<String, String>,
}

/// The running kernel.
#[derive(Debug)]
pub struct Kernel {
    sys: PathBuf,
    boot: String,
}

impl Kernel {
    /// This machine's.
    pub fn running() -> Kernel {
        // Without a boot id nothing matches, and nothing is put back after a crash.
        let boot = fs::read_to_string(paths::BOOT_ID).unwrap_or_default().trim().to_owned();
        Kernel { sys: PathBuf::from(paths::PROC_SYS), boot }
    }

    #[cfg(test)]
    pub(crate) fn at(sys: &Path, boot: &str) -> Kernel {
        Kernel { sys: sys.to_owned(), boot: boot.to_owned() }
    }

    /// What the parameters are that these files set; those that the kernel does not have are left out.
    pub fn values<'t>(&self, texts: impl IntoIterator<Item = &'t str>) -> Values {
        let keys = texts.into_iter().flat_map(keys);
        let values = keys.filter_map(|key| {
            let value = fs::read_to_string(self.sys.join(&key)).ok()?;
            Some((key, value.trim_end().to_owned()))
        });
        Values { boot: self.boot.clone(), values: values.collect() }
    }

    /// Puts them back where they differ; gives those that could not be.
    pub fn restore(&self, old: &Values) -> Vec<String> {
        if old.boot != self.boot || self.boot.is_empty() {
            return Vec::new();
        }
        let mut left = Vec::new();
        for (key, value) in &old.values {
            let path = self.sys.join(key);
            let now = fs::read_to_string(&path).unwrap_or_default();
            if now.trim_end() != value
                && let Err(e) = fs::write(&path, value)
            {
                left.push(format!("cannot set {key} back to {value:?}: {e}"));
            }
        }
        left
    }
}

/// Whether systemd-sysctl reads a path (sysctl.d(5)).
pub fn is_read(path: &str) -> bool {
    path == "/etc/sysctl.conf" || paths::SYSCTL_DIRS.iter().any(|dir| Path::new(path).starts_with(dir))
}

/// Parameters that a file sets, as paths below `/proc/sys`. Patterns are left out: what they match is not known before.
fn keys(text: &str) -> Vec<String> {
    let lines = text.lines().map(str::trim).filter(|l| !l.starts_with(['#', ';']));
    let keys = lines.filter_map(|line| line.split_once('='));
    keys.filter_map(|(key, _)| {
        let key = key.trim().trim_start_matches('-').trim();
        // The first separator says which is which: `net.ipv4.conf.eth0/1.x` is interface eth0.1.
        let path = match key.find(['.', '/']) {
            Some(at) if key.as_bytes()[at] == b'.' => key
                .chars()
                .map(|c| {
                    if c == '.' {
                        '/'
                    } else if c == '/' {
                        '.'
                    } else {
                        c
                    }
                })
                .collect(),
            _ => key.to_owned(),
        };
        let outside = path.split('/').any(|part| part.is_empty() || part == "..");
        (!outside && !path.contains(['*', '?', '['])).then_some(path)
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_as_sysctl_d_writes_them() {
        let text = "# c\n;d\nvm.swappiness = 10\n-net.ipv4.conf.eth0/1.arp_ignore=1\nnet/core/somaxconn=5\nnet.*.x = 1\n-vm.y\n../../etc/passwd = x\n/a=b\n";
        assert_eq!(keys(text), ["vm/swappiness", "net/ipv4/conf/eth0.1/arp_ignore", "net/core/somaxconn"]);
        assert!(is_read("/etc/sysctl.d/90-x.conf") && is_read("/etc/sysctl.conf"));
        assert!(!is_read("/etc/sysctl.dir/x") && !is_read("/etc/x"));
    }

    #[test]
    fn what_was_changed_is_put_back_in_the_same_boot_only() {
        let sys = tempfile::tempdir().unwrap();
        let at = |name: &str| sys.path().join(name);
        fs::create_dir(at("vm")).unwrap();
        fs::write(at("vm/a"), "1\n").unwrap();
        let kernel = Kernel::at(sys.path(), "boot");
        let old = kernel.values(["vm.a = 2\nvm.missing = 3\n"]);
        fs::write(at("vm/a"), "2\n").unwrap();
        assert_eq!(Kernel::at(sys.path(), "another").restore(&old), Vec::<String>::new());
        assert_eq!(fs::read_to_string(at("vm/a")).unwrap(), "2\n", "values of an earlier boot mean nothing");
        assert_eq!(kernel.restore(&old), Vec::<String>::new());
        assert_eq!(fs::read_to_string(at("vm/a")).unwrap(), "1");
        assert!(!at("vm/missing").exists());
        fs::remove_dir_all(at("vm")).unwrap();
        assert_eq!(kernel.restore(&old).len(), 1, "and what cannot be is said");
    }
}
