//! Owns: where the agent's words go: the journal with its fields, a terminal as plain lines.
//! Given tracing events; gives lines.
//! Never: logs at a level at which other crates show what they send.

use std::fmt;

use tracing::{Event, Level, Subscriber, field::Visit, level_filters::LevelFilter};
use tracing_subscriber::{
    filter::Targets,
    fmt::{FmtContext, FormatEvent, FormatFields, format::Writer},
    layer::SubscriberExt,
    registry::LookupSpan,
    util::SubscriberInitExt,
};

/// Set by systemd for a service whose standard error is the journal.
const JOURNAL_STREAM: &str = "JOURNAL_STREAM";

/// Starts logging for the process: to the journal when that is where standard error goes, else as lines.
pub fn start() {
    // Only this crate's events: an HTTP library's would hold request lines.
    let ours = Targets::new().with_target(env!("CARGO_CRATE_NAME"), LevelFilter::INFO);
    let journal = std::env::var_os(JOURNAL_STREAM).and_then(|_| tracing_journald::layer().ok());
    // A second start (a test harness) keeps the first.
    let _ = match journal {
        Some(journal) => tracing_subscriber::registry()
            .with(journal.with_syslog_identifier("oneboot-agent".into()))
            .with(ours)
            .try_init(),
        None => {
            let lines = tracing_subscriber::fmt::layer().event_format(Line).with_writer(std::io::stderr);
            tracing_subscriber::registry().with(lines).with(ours).try_init()
        }
    };
}

/// `warning: ` where it is one, then the message, then the fields that the message does not contain.
struct Line;

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut parts = Parts::default();
        event.record(&mut parts);
        let level = match *event.metadata().level() {
            Level::ERROR => "error: ",
            Level::WARN => "warning: ",
            _ => "",
        };
        writeln!(out, "{level}{}{}", parts.message, parts.trouble)
    }
}

/// The message, and the one field that says why.
#[derive(Default)]
struct Parts {
    message: String,
    trouble: String,
}

impl Visit for Parts {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "trouble" => self.trouble = format!(": {value:?}"),
            _ => {}
        }
    }
}
