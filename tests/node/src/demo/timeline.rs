//! Owns: the timeline that the demo ends with.
//! Given what each program left behind (firstboot's report, the kubelet's lines, the agent's history), all on the machine's own
//! clock, gives one list, as text with a bar for what took time, and as JSON.
//! Never: a time of its own making: what a program did not stamp is not in it, but for the demo's own steps.

use serde_json::{Value, json};

/// How wide the picture is, in characters.
const WIDTH: u64 = 36;

/// Something that happened, or took a while.
#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Microseconds of `CLOCK_BOOTTIME`.
    pub(super) at_us: u64,
    until_us: Option<u64>,
    who: &'static str,
    what: String,
}

impl Event {
    /// A moment.
    pub(super) fn new(at_us: u64, who: &'static str, what: &str) -> Self {
        Self { at_us, until_us: None, who, what: what.to_owned() }
    }

    /// The same, lasting until then.
    pub(super) fn until(mut self, until_us: u64) -> Self {
        self.until_us = Some(until_us);
        self
    }
}

/// The phases of firstboot's report.
pub(super) fn add_firstboot(events: &mut Vec<Event>, report: &Value) {
    for phase in report["phases"].as_array().into_iter().flatten() {
        if let (Some(name), Some(start)) = (phase["name"].as_str(), phase["start_us"].as_u64()) {
            let event = Event::new(start, "firstboot", name);
            events.push(match phase["end_us"].as_u64() {
                Some(end) => event.until(end),
                None => event,
            });
        }
    }
}

/// The kubelet stand-in's lines.
pub(super) fn add_kubelet(events: &mut Vec<Event>, log: &str) {
    for line in log.lines() {
        let Ok(line) = serde_json::from_str::<Value>(line) else { continue };
        if let (Some(at), Some(event)) = (line["at_us"].as_u64(), line["event"].as_str()) {
            let detail = line["detail"].as_str().unwrap_or_default();
            events.push(Event::new(at, "kubelet", &format!("{event}: {detail}")));
        }
    }
}

/// The agent's history.
pub(super) fn add_agent(events: &mut Vec<Event>, state: &Value) {
    for entry in state["history"].as_array().into_iter().flatten() {
        if let (Some(at), Some(name)) = (entry["at_us"].as_u64(), entry["state"].as_str()) {
            events.push(Event::new(at, "agent", name));
        }
    }
}

/// For people: when, how long, who, what, and where in the run it lies.
pub(super) fn text(node: &str, events: &[Event]) -> String {
    use std::fmt::Write as _;

    let Some((start, span)) = span(events) else { return format!("{node}: nothing happened") };
    let mut text = format!("{node}: {:.3} s from power-on to Ready\n", seconds(span));
    for event in events {
        let end = event.until_us.unwrap_or(event.at_us);
        let (from, to) = (column(event.at_us - start, span), column(end - start, span));
        let mut bar = " ".repeat(from);
        bar.push_str(&if event.until_us.is_some() { "=".repeat((to - from).max(1)) } else { "*".to_owned() });
        let took = event
            .until_us
            .map_or_else(String::new, |end| format!("{:.1} ms", seconds(end - event.at_us) * 1000.0));
        let _ = writeln!(
            text,
            "{:8.3} s {took:>10}  {:<9} |{bar:<width$}| {}",
            seconds(event.at_us - start),
            event.who,
            event.what,
            width = usize::try_from(WIDTH).unwrap_or(0) + 1,
        );
    }
    text
}

/// For programs: milliseconds since power-on.
pub(super) fn json(events: &[Event]) -> Value {
    let start = span(events).map_or(0, |(start, _)| start);
    let list = events.iter().map(|event| {
        let mut entry = json!({
            "at_ms": seconds(event.at_us - start) * 1000.0,
            "who": event.who,
            "what": event.what,
        });
        if let Some(end) = event.until_us {
            entry["took_ms"] = json!(seconds(end - event.at_us) * 1000.0);
        }
        entry
    });
    Value::Array(list.collect())
}

/// Start and length of the whole, in microseconds.
fn span(events: &[Event]) -> Option<(u64, u64)> {
    let start = events.iter().map(|event| event.at_us).min()?;
    let end = events.iter().map(|event| event.until_us.unwrap_or(event.at_us)).max()?;
    Some((start, (end - start).max(1)))
}

fn column(offset: u64, span: u64) -> usize {
    usize::try_from(offset * WIDTH / span).unwrap_or(0)
}

#[expect(clippy::cast_precision_loss, reason = "microseconds of one boot fit an f64 exactly")]
fn seconds(micros: u64) -> f64 {
    micros as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_fall_into_one_order_on_one_clock() {
        let mut events = vec![Event::new(1_000_000, "node", "powers on")];
        add_agent(&mut events, &json!({"history": [{"state": "Waiting", "at_us": 1_500_000}]}));
        add_kubelet(&mut events, "noise\n{\"at_us\":1400000,\"event\":\"csr-filed\",\"detail\":\"csr-1\"}\n");
        add_firstboot(
            &mut events,
            &json!({"phases": [{"name": "fetch", "start_us": 1_100_000, "end_us": 1_200_000}]}),
        );
        events.sort_by_key(|event| event.at_us);
        let order: Vec<&str> = events.iter().map(|event| event.what.as_str()).collect();
        assert_eq!(order, ["powers on", "fetch", "csr-filed: csr-1", "Waiting"]);
        assert_eq!(
            json(&events)[1],
            json!({"at_ms": 100.0, "took_ms": 100.0, "who": "firstboot", "what": "fetch"})
        );
        let text = text("node", &events);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(
            text.contains("   0.100 s   100.0 ms  firstboot |       =======                       | fetch"),
            "{text}"
        );
    }
}
