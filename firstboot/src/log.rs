//! Owns: where a line goes: the journal with its fields when there is one, and one place where a person reads it.
//! Given the program's name and root, installs both; events carry `MESSAGE_ID` where a document lists it.
//! Never: prints a secret, since no secret has a formatter; never fails, since a node without a journal must boot.

use crate::paths::Paths;
use std::fs::File;
use std::io::{Write as _, stderr};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Sends events of level `info` and above to the journal, and as a line to standard error.
///
/// The journal is the machine's own, so it is used only when `root` is the machine's own too. Where standard error is the
/// journal, which then has the event already, the line goes to the console in an initramfs, and nowhere in a real root.
pub fn init(identifier: &'static str, root: &Path) {
    let journal = (root == Path::new("/")).then(tracing_journald::layer).and_then(Result::ok);
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let lines = if journal.is_some() && is_stream(&stream, &stderr()) {
        Lines::console(identifier, &Paths::new(root))
    } else {
        Some(Lines::Stderr)
    };
    let journal =
        journal.map(|layer| layer.with_field_prefix(None).with_syslog_identifier(identifier.to_owned()));
    let subscriber = tracing_subscriber::registry().with(journal).with(lines);
    // A second call, as from a test, keeps the first one's.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// Whether this is the stream that systemd has connected to the journal: `JOURNAL_STREAM` (systemd.exec(5)) has its device and inode.
fn is_stream(stream: &str, file: &impl AsFd) -> bool {
    let file = file.as_fd().try_clone_to_owned().map(File::from);
    file.and_then(|file| file.metadata()).is_ok_and(|meta| stream == format!("{}:{}", meta.dev(), meta.ino()))
}

/// One line per event: `warning: message`.
enum Lines {
    Stderr,
    /// With the program's name, since others write there too.
    Console(&'static str, File),
}

impl Lines {
    /// The console of an initramfs, if there is one: nobody has another way to see what a boot waits for.
    fn console(identifier: &'static str, paths: &Paths) -> Option<Self> {
        if !paths.initrd_release().exists() {
            return None;
        }
        // A console that takes nothing (flow control) must not stop a boot, nor become the terminal that controls it.
        let flags = nix::fcntl::OFlag::O_NONBLOCK | nix::fcntl::OFlag::O_NOCTTY;
        let console = File::options().write(true).custom_flags(flags.bits()).open(paths.console());
        console.ok().map(|console| Self::Console(identifier, console))
    }
}

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let prefix = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            _ => return,
        };
        let mut message = Message(String::new());
        event.record(&mut message);
        let line = format!("{prefix}{}\n", message.0);
        // Nobody can be told that they are gone.
        let _ = match self {
            Self::Stderr => stderr().write_all(line.as_bytes()),
            Self::Console(identifier, console) => {
                (&*console).write_all(format!("{identifier}: {line}").as_bytes())
            }
        };
    }
}

/// The message of an event. Its other fields are for the journal; whatever a person needs is in the message.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_journals_stream_is_known_by_device_and_inode() {
        let dir = tempfile::tempdir().unwrap();
        let file = File::create(dir.path().join("stream")).unwrap();
        let meta = file.metadata().unwrap();
        assert!(is_stream(&format!("{}:{}", meta.dev(), meta.ino()), &file));
        for other in [String::new(), format!("{}:{}", meta.dev(), meta.ino() + 1)] {
            assert!(
                !is_stream(&other, &file),
                "{other:?}: inherited from a service that has redirected the stream"
            );
        }
    }

    #[test]
    fn lines_go_to_the_console_of_an_initramfs_and_of_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let paths = Paths::new(root.path());
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("dev/console"), "").unwrap();
        assert!(Lines::console("test", &paths).is_none(), "a real root");
        std::fs::write(root.path().join("etc/initrd-release"), "").unwrap();
        let lines = Lines::console("test", &paths).unwrap();
        let subscriber = tracing_subscriber::registry().with(lines);
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(ONEBOOT_ATTEMPT = 1, "waiting for {}", "x")
        });
        let written = std::fs::read_to_string(root.path().join("dev/console")).unwrap();
        assert_eq!(written, "test: warning: waiting for x\n");
        std::fs::remove_file(root.path().join("dev/console")).unwrap();
        assert!(Lines::console("test", &paths).is_none(), "no console, no lines, no failure");
    }
}
