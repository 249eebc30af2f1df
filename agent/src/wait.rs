//! Owns: the approval signal, a valid certificate under `/var/lib/kubelet/pki/kubelet-client-current.pem`.
//! Given a tree, some part of which may not exist yet, it gives the certificate as soon as it is there.
//! Never: polls, ticks, or takes a kubeconfig for approval (the kubelet writes that first: facts/trust.md 2.1).

use std::os::fd::{AsFd, AsRawFd};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
};

use crate::{
    clock::Clock,
    identity::{self, Pair, PairError},
    paths,
    root::{self, Root},
};

/// Why waiting is impossible.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The tree cannot be read.
    #[error(transparent)]
    Tree(#[from] root::Error),
    /// The kernel gives no inotify or no timer.
    #[error("cannot watch {path}")]
    Watch {
        /// What was to be watched.
        path: String,
        /// What the kernel said.
        source: Errno,
    },
}

/// Blocks until the node's certificate is there and valid. `unusable` hears why a file that is there is of no use.
pub fn certificate(
    root: &Root,
    clock: &dyn Clock,
    mut unusable: impl FnMut(&PairError),
) -> Result<Pair, Error> {
    let inotify =
        Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK).map_err(watching("the kubelet"))?;
    loop {
        // Watch first, look second: what happens in between is still an event.
        let watch = arm(root, &inotify)?;
        let not_yet = match identity::node_pair(root, clock.wall_seconds()) {
            Ok(Some(pair)) => return Ok(pair),
            Err(identity::Error::Pair { why, .. }) => {
                unusable(&why);
                match why {
                    PairError::NotYet { from_seconds, .. } => Some(from_seconds),
                    _ => None,
                }
            }
            Err(identity::Error::Io(error)) => return Err(error.into()),
            Ok(None) | Err(_) => None,
        };
        block(&inotify, &watch, not_yet)?;
    }
}

/// The deepest directory on the way to the certificate that exists, and the name that is awaited in it.
struct Watch {
    directory: WatchDescriptor,
    name: &'static str,
}

/// Watches the way to the certificate as far as it exists.
///
/// Above the deepest directory only its disappearance matters, so that nothing else wakes anybody.
fn arm(root: &Root, inotify: &Inotify) -> Result<Watch, Error> {
    let gone = AddWatchFlags::IN_DELETE_SELF | AddWatchFlags::IN_MOVE_SELF | AddWatchFlags::IN_ONLYDIR;
    // CLOSE_WRITE: the kubelet renames a link, but a copy restored by hand is as good.
    let appears = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;

    'again: loop {
        let mut deepest = None;
        for (directory, name) in steps(paths::KUBELET_CLIENT) {
            match watch(root, inotify, directory, gone)? {
                Some(_) => deepest = Some((directory, name)),
                None => break,
            }
        }
        let (directory, name) = deepest.unwrap_or(("/", ""));
        // It may have gone since: then there is another deepest one.
        let Some(descriptor) = watch(root, inotify, directory, gone | appears)? else { continue 'again };
        // And the next one may have come since.
        let child = if directory == "/" { format!("/{name}") } else { format!("{directory}/{name}") };
        if child != paths::KUBELET_CLIENT && root.open_dir(&child).is_ok() {
            continue 'again;
        }
        return Ok(Watch { directory: descriptor, name });
    }
}

/// Every directory on the way to `path`, topmost first, with the name below it that leads on.
fn steps(path: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    path.match_indices('/').map(move |(at, _)| {
        let name = &path[at + 1..];
        (if at == 0 { "/" } else { &path[..at] }, name.split('/').next().unwrap_or(name))
    })
}

/// Watches a directory of the tree through its handle, so that no link leads the watch out of the tree.
fn watch(
    root: &Root,
    inotify: &Inotify,
    directory: &str,
    mask: AddWatchFlags,
) -> Result<Option<WatchDescriptor>, Error> {
    let handle = match root.open_dir(directory) {
        Ok(handle) => handle,
        Err(error) if error.is(Errno::ENOENT) || error.is(Errno::ENOTDIR) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    match inotify.add_watch(path.as_str(), mask) {
        Ok(descriptor) => Ok(Some(descriptor)),
        Err(Errno::ENOENT) => Ok(None),
        Err(source) => Err(Error::Watch { path: directory.to_owned(), source }),
    }
}

/// Sleeps until something happens that can matter. `not_yet`: also when the clock gets there, or is set.
fn block(inotify: &Inotify, watch: &Watch, not_yet: Option<u64>) -> Result<(), Error> {
    let timer = not_yet.map(timer).transpose().map_err(watching("the clock"))?;
    loop {
        let mut fds = vec![PollFd::new(inotify.as_fd(), PollFlags::POLLIN)];
        fds.extend(timer.iter().map(|timer| PollFd::new(timer.as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) => {}
            Err(Errno::EINTR) => continue,
            Err(source) => return Err(watching("the kubelet")(source)),
        }
        if fds.get(1).and_then(PollFd::any).unwrap_or(false) {
            return Ok(()); // expired, or cancelled because the clock was set: look again either way
        }
        match inotify.read_events() {
            Ok(events) => {
                let matters = events.iter().any(|event| {
                    event.wd != watch.directory
                        || event
                            .name
                            .as_deref()
                            .is_none_or(|name| name.as_encoded_bytes() == watch.name.as_bytes())
                });
                if matters {
                    return Ok(());
                }
            }
            Err(Errno::EINTR | Errno::EAGAIN) => {}
            Err(source) => return Err(watching("the kubelet")(source)),
        }
    }
}

/// A timer on the wall clock for a moment since 1970 that also ends when the clock is set (a node's first NTP answer).
fn timer(at: u64) -> Result<TimerFd, Errno> {
    let timer = TimerFd::new(ClockId::CLOCK_REALTIME, TimerFlags::TFD_CLOEXEC)?;
    let at = TimeSpec::new(i64::try_from(at).unwrap_or(i64::MAX), 0);
    let flags = TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET;
    timer.set(Expiration::OneShot(at), flags)?;
    Ok(timer)
}

fn watching(path: &str) -> impl FnOnce(Errno) -> Error {
    move |source| Error::Watch { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_the_certificate_is_walked_from_the_top() {
        let way: Vec<_> = steps(paths::KUBELET_CLIENT).collect();
        assert_eq!(
            way,
            [
                ("/", "var"),
                ("/var", "lib"),
                ("/var/lib", "kubelet"),
                ("/var/lib/kubelet", "pki"),
                ("/var/lib/kubelet/pki", "kubelet-client-current.pem"),
            ]
        );
    }
}
