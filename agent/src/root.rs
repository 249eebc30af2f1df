//! Owns: access to one tree, `/` or any other, through a directory handle.
//! Given absolute paths as the node will see them; gives bytes, metadata and changed names. Every call resolves inside the tree.
//! Never follows the last component, and never leaves the tree through a link or `..` (`openat2`, `RESOLVE_IN_ROOT`).

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    dir::Dir,
    errno::Errno,
    fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat},
    sys::stat::{FileStat, Mode, SFlag, fchmod, fstatat, mkdirat},
    unistd::{Gid, Uid, UnlinkatFlags, fchown, fchownat, fsync, linkat, symlinkat, syncfs, unlinkat},
};

/// An operation on a path of the tree that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {path}")]
pub struct Error {
    /// What was tried, as a verb.
    pub op: &'static str,
    /// The path inside the tree.
    pub path: String,
    /// What the system said.
    pub source: io::Error,
}

impl Error {
    /// Whether the system's answer was `errno`.
    pub fn is(&self, errno: Errno) -> bool {
        self.source.raw_os_error() == Some(errno as i32)
    }
}

/// Where SELinux keeps labels.
/// How a name ends that is written and not there yet.
pub(crate) const TEMPORARY: &str = ".oneboot-new";
const LABEL: &str = "security.selinux";
/// Longest label: a page, the kernel's own limit for writing one through /proc.
const LABEL_MAX: usize = 4096;

type Result<T> = std::result::Result<T, Error>;

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Dir,
    /// A symbolic link.
    Symlink,
    /// Device, socket or pipe: never ours.
    Other,
}

/// Metadata of a name, the last component not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// Its kind.
    pub kind: Kind,
    /// Permission bits, the special three included.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Device and inode: identity within the machine.
    pub id: (u64, u64),
    /// Number of names of the inode.
    pub links: u64,
}

impl From<FileStat> for Stat {
    fn from(s: FileStat) -> Self {
        let kind = match SFlag::from_bits_truncate(s.st_mode & SFlag::S_IFMT.bits()) {
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFDIR => Kind::Dir,
            SFlag::S_IFLNK => Kind::Symlink,
            _ => Kind::Other,
        };
        Stat {
            kind,
            mode: s.st_mode & 0o7777,
            uid: s.st_uid,
            gid: s.st_gid,
            size: u64::try_from(s.st_size).unwrap_or(0),
            id: (s.st_dev, s.st_ino),
            links: s.st_nlink,
        }
    }
}

/// A tree over the handle of its top directory.
#[derive(Debug)]
pub struct Root {
    dir: OwnedFd,
    path: PathBuf,
    running: bool,
}

impl Root {
    /// Opens the tree at `path`, which must be a directory.
    pub fn open(path: &Path) -> Result<Root> {
        let fail = |source| Error { op: "open root", path: path.display().to_string(), source };
        let path = path.canonicalize().map_err(fail)?;
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let dir = nix::fcntl::open(&path, flags, Mode::empty()).map_err(|e| fail(e.into()))?;
        let running = path == Path::new("/");
        Ok(Root { dir, path, running })
    }

    /// The same tree, taken for the running system's: with a stand-in for systemd, what a test acts on.
    #[must_use]
    pub fn as_running(self) -> Root {
        Root { running: true, ..self }
    }

    /// Whether this is the running system's own tree, the only one for which D-Bus may be asked.
    pub fn is_system(&self) -> bool {
        self.running
    }

    /// Where the tree is, for messages and for tools that take a root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Content of a regular file; `None` where there is no such name. A symbolic link is an error, not followed.
    pub fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let Some(mut file) = self.open_file(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|source| fail("read", path, source))?;
        Ok(Some(bytes))
    }

    /// Like [`Root::read`], but a symbolic link at the end is followed inside the tree (unit files, `os-release`).
    pub fn read_following(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let how = how(OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC);
        let file = match openat2(&self.dir, relative(path), how) {
            Ok(fd) => File::from(fd),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(None),
            Err(e) => return Err(fail("open", path, e.into())),
        };
        let meta = file.metadata().map_err(|e| fail("stat", path, e))?;
        if !meta.is_file() {
            return Ok(None); // a mask (/dev/null) or a directory: nothing to read
        }
        let mut bytes = Vec::new();
        { file }.read_to_end(&mut bytes).map_err(|source| fail("read", path, source))?;
        Ok(Some(bytes))
    }

    /// A regular file opened for reading; `None` where there is no such name.
    pub fn open_file(&self, path: &str) -> Result<Option<File>> {
        let how = how(OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC);
        match openat2(&self.dir, relative(path), how) {
            Ok(fd) => {
                let file = File::from(fd);
                if file.metadata().map_err(|e| fail("stat", path, e))?.is_file() {
                    Ok(Some(file))
                } else {
                    Err(fail("read", path, io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")))
                }
            }
            Err(Errno::ENOENT | Errno::ENOTDIR) => Ok(None),
            Err(e) => Err(fail("open", path, e.into())),
        }
    }

    /// Metadata of a name; `None` where there is none (also where a parent is missing or is not a directory).
    pub fn lstat(&self, path: &str) -> Result<Option<Stat>> {
        let (dir, name) = match self.parent(path) {
            Ok(found) => found,
            Err(e) if e.is(Errno::ENOENT) || e.is(Errno::ENOTDIR) => return Ok(None),
            Err(e) => return Err(e),
        };
        match fstatat(&dir, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat.into())),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(fail("stat", path, e.into())),
        }
    }

    /// Target of a symbolic link, as written in it.
    pub fn readlink(&self, path: &str) -> Result<String> {
        let (dir, name) = self.parent(path)?;
        let target = readlinkat(&dir, name).map_err(|e| fail("read link", path, e.into()))?;
        Ok(target.to_string_lossy().into_owned())
    }

    /// Names in a directory, sorted; none where there is no such directory.
    pub fn list(&self, path: &str) -> Result<Vec<String>> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = match openat2(&self.dir, relative(path), how(flags)) {
            Ok(fd) => fd,
            Err(Errno::ENOENT | Errno::ENOTDIR) => return Ok(Vec::new()),
            Err(e) => return Err(fail("open", path, e.into())),
        };
        let mut dir = Dir::from_fd(fd).map_err(|e| fail("list", path, e.into()))?;
        let mut names = Vec::new();
        for entry in dir.iter() {
            let entry = entry.map_err(|e| fail("list", path, e.into()))?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Where a name really is, once the links among its parents are followed. Parents that do not exist yet stay as written.
    pub fn resolve(&self, path: &str) -> Result<String> {
        let mut missing = Vec::new();
        let mut at = path.trim_end_matches('/');
        loop {
            let (parent, name) = split(at);
            missing.push(name);
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
            match openat2(&self.dir, relative(parent), how(flags)) {
                Ok(fd) => {
                    let mut real = self.location(&fd, path)?;
                    for name in missing.iter().rev() {
                        real.push('/');
                        real.push_str(name);
                    }
                    return Ok(real);
                }
                Err(Errno::ENOENT | Errno::ENOTDIR) if parent != "/" => at = parent,
                Err(e) => return Err(fail("resolve", path, e.into())),
            }
        }
    }

    /// Writes a file so that its name never stands for half of it: temporary name, `fsync`, rename. The parent must exist.
    pub fn write_atomic(&self, path: &str, bytes: &[u8], mode: u32) -> Result<()> {
        let temp = temporary(path);
        self.remove(&temp)?;
        let file = self.create(&temp, mode)?;
        let written = (&file).write_all(bytes).and_then(|()| fsync(&file).map_err(io::Error::from));
        let done = written.map_err(|e| fail("write", path, e)).and_then(|()| self.rename(&temp, path));
        if done.is_err() {
            // The error that matters is the first one; a leftover under the temporary name is overwritten next time.
            let _ = self.remove(&temp);
        }
        done
    }

    /// Creates a file that must not exist yet, with exactly this mode.
    pub fn create(&self, path: &str, mode: u32) -> Result<File> {
        let (dir, name) = self.parent(path)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // Created closed and opened up afterwards: nobody reads a secret in the moment between.
        let fd = openat(&dir, name, flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| fail("create", path, e.into()))?;
        if mode & 0o7777 != 0o600 {
            fchmod(&fd, Mode::from_bits_truncate(mode)).map_err(|e| fail("set mode of", path, e.into()))?;
        }
        Ok(File::from(fd))
    }

    /// Renames within the tree, replacing what is there.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (to_dir, to_name) = self.parent(to)?;
        renameat(&from_dir, from_name, &to_dir, to_name).map_err(|e| fail("rename onto", to, e.into()))
    }

    /// Removes a file or link. A name that is not there is no error; the result says whether there was one.
    pub fn remove(&self, path: &str) -> Result<bool> {
        self.unlink(path, UnlinkatFlags::NoRemoveDir)
    }

    /// Removes an empty directory. A name that is not there is no error; the result says whether there was one.
    pub fn remove_dir(&self, path: &str) -> Result<bool> {
        self.unlink(path, UnlinkatFlags::RemoveDir)
    }

    /// Makes one directory with exactly this mode; its parent must exist.
    pub fn mkdir(&self, path: &str, mode: u32) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        mkdirat(&dir, name, Mode::from_bits_truncate(0o700))
            .map_err(|e| fail("make directory", path, e.into()))?;
        self.set_dir_mode(path, mode)
    }

    /// Makes a directory and its parents, those that are missing, with this mode.
    pub fn mkdir_all(&self, path: &str, mode: u32) -> Result<()> {
        if path == "/" || self.list_exists(path)? {
            return Ok(());
        }
        self.mkdir_all(split(path).0, mode)?;
        match self.mkdir(path, mode) {
            // Somebody else has made it since (systemd-tmpfiles and the kubelet make the same ones): theirs is as good.
            Err(e) if e.is(Errno::EEXIST) && self.list_exists(path)? => Ok(()),
            other => other,
        }
    }

    /// Sets the mode of a directory.
    pub fn set_dir_mode(&self, path: &str, mode: u32) -> Result<()> {
        let fd = self.open_dir_nofollow(path)?;
        fchmod(&fd, Mode::from_bits_truncate(mode)).map_err(|e| fail("set mode of", path, e.into()))
    }

    /// Sets owner and group of a name, not following it.
    pub fn chown(&self, path: &str, uid: u32, gid: u32) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
        fchownat(&dir, name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW)
            .map_err(|e| fail("set owner of", path, e.into()))
    }

    /// Sets owner and group of an open file.
    pub fn fchown(&self, file: &File, path: &str, uid: u32, gid: u32) -> Result<()> {
        fchown(file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
            .map_err(|e| fail("set owner of", path, e.into()))
    }

    /// Sets the mode of an open file.
    pub fn fchmod(&self, file: &File, path: &str, mode: u32) -> Result<()> {
        fchmod(file, Mode::from_bits_truncate(mode)).map_err(|e| fail("set mode of", path, e.into()))
    }

    /// SELinux label of a name, not following it; `None` where there is none, and where the filesystem has no labels.
    pub fn label(&self, path: &str) -> Result<Option<String>> {
        let at = self.beside(path)?;
        let mut buffer = [0; LABEL_MAX];
        match rustix::fs::lgetxattr(&at.1, LABEL, &mut buffer) {
            Ok(length) => {
                let text = String::from_utf8_lossy(&buffer[..length]);
                Ok(Some(text.trim_end_matches('\0').to_owned()))
            }
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::NOTSUP) => Ok(None),
            Err(e) => Err(fail("read label of", path, e.into())),
        }
    }

    /// Sets the SELinux label of a name, not following it. Where the filesystem has no labels there is nothing to set.
    pub fn set_label(&self, path: &str, label: &str) -> Result<()> {
        let at = self.beside(path)?;
        let value = [label.as_bytes(), b"\0"].concat(); // the kernel's own are terminated
        match rustix::fs::lsetxattr(&at.1, LABEL, &value, rustix::fs::XattrFlags::empty()) {
            Ok(()) | Err(rustix::io::Errno::NOTSUP) => Ok(()),
            Err(e) => Err(fail("set label of", path, e.into())),
        }
    }

    /// A name by way of its open parent, for calls that take no handle (symbolic links cannot be opened for attributes).
    fn beside(&self, path: &str) -> Result<(OwnedFd, PathBuf)> {
        use std::os::fd::AsRawFd;
        let (dir, name) = self.parent(path)?;
        let at = PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()));
        Ok((dir, at))
    }

    /// Makes a symbolic link at a name that must be free.
    pub fn symlink(&self, target: &str, path: &str) -> Result<()> {
        let (dir, name) = self.parent(path)?;
        symlinkat(target, &dir, name).map_err(|e| fail("make link", path, e.into()))
    }

    /// Gives an existing file or link a second name, which must be free.
    pub fn hardlink(&self, from: &str, path: &str) -> Result<()> {
        let (from_dir, from_name) = self.parent(from)?;
        let (dir, name) = self.parent(path)?;
        linkat(&from_dir, from_name, &dir, name, AtFlags::empty()).map_err(|e| fail("link", path, e.into()))
    }

    /// One sync barrier for the whole filesystem that a directory is on.
    pub fn syncfs(&self, path: &str) -> Result<()> {
        let fd = self.open_dir(path)?;
        syncfs(&fd).map_err(|e| fail("sync", path, e.into()))
    }

    /// Opens a file to hold a lock on; made if it is missing.
    pub fn open_lock(&self, path: &str) -> Result<File> {
        let (dir, name) = self.parent(path)?;
        let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let fd = openat(&dir, name, flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| fail("open", path, e.into()))?;
        Ok(File::from(fd))
    }

    fn unlink(&self, path: &str, flag: UnlinkatFlags) -> Result<bool> {
        let (dir, name) = match self.parent(path) {
            Ok(found) => found,
            Err(e) if e.is(Errno::ENOENT) || e.is(Errno::ENOTDIR) => return Ok(false),
            Err(e) => return Err(e),
        };
        match unlinkat(&dir, name, flag) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(e) => Err(fail("remove", path, e.into())),
        }
    }

    fn list_exists(&self, path: &str) -> Result<bool> {
        match self.open_dir(path) {
            Ok(_) => Ok(true),
            Err(e) if e.is(Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A handle on a directory, for a watch.
    pub(crate) fn open_dir(&self, path: &str) -> Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        openat2(&self.dir, relative(path), how(flags)).map_err(|e| fail("open directory", path, e.into()))
    }

    fn open_dir_nofollow(&self, path: &str) -> Result<OwnedFd> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        openat2(&self.dir, relative(path), how(flags)).map_err(|e| fail("open directory", path, e.into()))
    }

    /// The directory that holds a name, and the name.
    fn parent<'p>(&self, path: &'p str) -> Result<(OwnedFd, &'p str)> {
        let (parent, name) = split(path);
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let fd = openat2(&self.dir, relative(parent), how(flags))
            .map_err(|e| fail("open directory", parent, e.into()))?;
        Ok((fd, name))
    }

    /// Where an open directory is inside the tree, without a trailing slash; the top is the empty string.
    fn location(&self, fd: &OwnedFd, path: &str) -> Result<String> {
        use std::os::fd::AsRawFd;
        let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
        let real = std::fs::read_link(link).map_err(|e| fail("resolve", path, e))?;
        let inside = real.strip_prefix(&self.path).unwrap_or(Path::new(""));
        let text = inside.to_string_lossy();
        Ok(if text.is_empty() { String::new() } else { format!("/{text}") })
    }
}

/// Where a file is written before it takes its name.
pub(crate) fn temporary(path: &str) -> String {
    format!("{path}{TEMPORARY}")
}

fn fail(op: &'static str, path: &str, source: io::Error) -> Error {
    Error { op, path: path.to_owned(), source }
}

fn how(flags: OFlag) -> OpenHow {
    // Magic links (/proc/N/root) would lead out of the tree although RESOLVE_IN_ROOT is set.
    OpenHow::new().flags(flags).resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS)
}

/// `openat2` wants something non-empty; the top is `.`.
fn relative(path: &str) -> &OsStr {
    let path = path.trim_start_matches('/');
    OsStr::from_bytes(if path.is_empty() { b"." } else { path.as_bytes() })
}

/// Parent and last component of an absolute path.
pub fn split(path: &str) -> (&str, &str) {
    match path.trim_end_matches('/').rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((parent, name)) => (parent, name),
        None => ("/", path),
    }
}

/// Whether a name ends in this extension, case and all, as systemd and TOML folders take it.
pub fn has_extension(name: &str, extension: &str) -> bool {
    name.rsplit_once('.').is_some_and(|(stem, found)| !stem.is_empty() && found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_somebody_else_makes_at_the_same_moment_is_as_good() {
        /// Without the care for it, a few dozen rounds are enough on any machine.
        const ROUNDS: usize = 500;

        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let both = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    both.wait();
                    std::fs::create_dir_all(dir.path().join(format!("{round}/a/b"))).unwrap();
                }
            });
            let made: Vec<_> = (0..ROUNDS)
                .map(|round| {
                    both.wait();
                    root.mkdir_all(&format!("/{round}/a/b"), 0o755)
                })
                .collect();
            for made in made {
                made.unwrap();
            }
        });
        root.create("/file", 0o600).unwrap();
        assert!(root.mkdir_all("/file", 0o755).unwrap_err().is(Errno::ENOTDIR), "a file in its place is not");
    }
}
