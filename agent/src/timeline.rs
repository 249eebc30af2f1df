//! Owns: what happened when, from the kernel's start to settled, for a person to read.
//! Given firstboot's report and the agent's record it gives lines of text.
//! Never: reads a clock or a file.

use std::fmt::Write;

use crate::{
    record::Record,
    report::Report,
    state::{Name, State},
};

/// The timeline as text, one block per boot, oldest first.
pub fn text(report: Option<&Report>, record: Option<&Record>) -> String {
    let mut out = String::new();
    for boot in boots(report, record) {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "boot {boot}");
        let mut before = 0;
        for moment in moments(report, record, boot) {
            let since = moment.at_us.saturating_sub(before);
            before = moment.at_us;
            let lasted = moment.lasted_us.map_or_else(String::new, |us| format!(" (took {})", seconds(us)));
            let note = moment.note.map_or_else(String::new, |note| format!("  {note}"));
            let _ = writeln!(
                out,
                "{:>12}  {:>11}  {}{lasted}{note}",
                seconds(moment.at_us),
                format!("+{}", seconds(since)),
                moment.what
            );
        }
    }
    if let Some(record) = record {
        let _ = writeln!(out, "{}", summary(record));
    }
    out
}

/// One line of the timeline.
struct Moment<'a> {
    at_us: u64,
    lasted_us: Option<u64>,
    what: String,
    note: Option<&'a str>,
}

/// The boots in which something happened, in that order.
fn boots<'a>(report: Option<&'a Report>, record: Option<&'a Record>) -> Vec<&'a str> {
    let reported = report.and_then(|report| report.boot_id.as_deref());
    let recorded = record.iter().flat_map(|record| record.history.iter().map(|entry| entry.boot_id.as_str()));
    let mut boots = Vec::new();
    for boot in reported.into_iter().chain(recorded) {
        if !boots.contains(&boot) {
            boots.push(boot);
        }
    }
    boots
}

fn moments<'a>(report: Option<&'a Report>, record: Option<&'a Record>, boot: &str) -> Vec<Moment<'a>> {
    let mut moments = Vec::new();
    for phase in report
        .iter()
        .filter(|report| report.boot_id.as_deref() == Some(boot))
        .flat_map(|report| &report.phases)
    {
        moments.push(Moment {
            at_us: phase.start_us,
            lasted_us: Some(phase.end_us.saturating_sub(phase.start_us)),
            what: format!("firstboot {}", phase.name),
            note: None,
        });
    }
    for entry in record.iter().flat_map(|record| &record.history).filter(|entry| entry.boot_id == boot) {
        moments.push(Moment {
            at_us: entry.at_us,
            lasted_us: None,
            what: entry.state.to_string(),
            note: entry.note.as_deref(),
        });
    }
    moments.sort_by_key(|moment| moment.at_us);
    moments
}

/// The last line: where it ended, how long after approval, and at the cost of how many reboots.
fn summary(record: &Record) -> String {
    let last = |name: Name| record.history.iter().rev().find(|entry| entry.state == name);
    let took = match (last(Name::Approved), last(Name::Settled)) {
        (Some(approved), Some(settled)) if approved.boot_id == settled.boot_id => {
            format!(" {} after approval", seconds(settled.at_us.saturating_sub(approved.at_us)))
        }
        _ => String::new(),
    };
    let reboots = match record.reboots_taken {
        1 => "1 reboot".to_owned(),
        n => format!("{n} reboots"),
    };
    let state = match &record.state {
        State::Settled => format!("Settled{took}"),
        state => state.name().to_string(),
    };
    format!("{state}, {reboots}")
}

/// Microseconds as seconds with three places.
fn seconds(us: u64) -> String {
    format!("{}.{:03} s", us / 1_000_000, us / 1000 % 1000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Phase;

    fn record() -> Record {
        let mut record = Record::new("boot-a".into(), String::new());
        record.enter(State::Waiting, 12_000_000, String::new(), None);
        record.enter(State::Approved, 15_250_000, String::new(), Some("node-a".into()));
        record.enter(State::Settled, 15_400_000, String::new(), None);
        record
    }

    #[test]
    fn one_line_per_event_in_order_with_its_distance_to_the_one_before() {
        let report = Report {
            boot_id: Some("boot-a".into()),
            phases: vec![Phase { name: "fetch".into(), start_us: 4_000_000, end_us: 4_012_000 }],
            ..Report::default()
        };
        assert_eq!(
            text(Some(&report), Some(&record())),
            "boot boot-a\n\
             \x20    4.000 s     +4.000 s  firstboot fetch (took 0.012 s)\n\
             \x20   12.000 s     +8.000 s  Waiting\n\
             \x20   15.250 s     +3.250 s  Approved  node-a\n\
             \x20   15.400 s     +0.150 s  Settled\n\
             Settled 0.150 s after approval, 0 reboots\n"
        );
    }

    #[test]
    fn every_boot_has_its_own_clock() {
        let mut record = record();
        record.boot_id = "boot-b".into();
        record.enter(State::Waiting, 9_000_000, String::new(), None);
        record.reboots_taken = 1;
        let text = text(None, Some(&record));
        let (first, second) = text.split_once("boot boot-b\n").unwrap();
        assert!(first.starts_with("boot boot-a\n") && first.contains("Settled"), "{text}");
        assert_eq!(second, "     9.000 s     +9.000 s  Waiting\nWaiting, 1 reboot\n");
    }

    #[test]
    fn nothing_known_is_nothing_said() {
        assert_eq!(text(None, None), "");
    }
}
