//! Owns: where a line goes: the journal with its fields when there is one, and standard error always.
//! Given the program's name and root, installs both; events carry `MESSAGE_ID` where a document lists it.
//! Never: prints a secret, since no secret has a formatter; never fails, since a node without a journal must boot.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

/// Sends events of level `info` and above to the journal and to standard error.
///
/// The journal is the machine's own, so it is used only when `root` is the machine's own too.
pub fn init(identifier: &str, root: &Path) {
    let journal = (root == Path::new("/")).then(tracing_journald::layer).and_then(Result::ok);
    let journal =
        journal.map(|layer| layer.with_field_prefix(None).with_syslog_identifier(identifier.to_owned()));
    let subscriber = tracing_subscriber::registry().with(journal).with(Console);
    // A second call, as from a test, keeps the first one's.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// One line per event on standard error: `warning: message (key=value ...)`.
struct Console;

impl<S: Subscriber> Layer<S> for Console {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let prefix = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            Level::INFO => "",
            _ => return,
        };
        let mut line = Line(prefix.to_owned());
        event.record(&mut line);
        line.0.push('\n');
        // Nobody can be told that standard error is gone.
        let _ = std::io::stderr().write_all(line.0.as_bytes());
    }
}

/// The message of an event. Its other fields are for the journal; whatever a person needs is in the message.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}"); // writing to a String cannot fail
        }
    }
}
