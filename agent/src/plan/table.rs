//! Owns: a plan as people read it.
//! Given a plan; gives text: path, change, why, effect.
//! Never shows content: digests only.

use std::fmt::Write;

use super::{Plan, PlannedStep, Subject};

/// Widest that a column but the last may get; what is longer goes over its edge rather than being cut.
const WIDEST: usize = 72;

/// The table, with a closing line.
pub fn render(plan: &Plan) -> String {
    if plan.is_empty() {
        return "nothing to do: the tree is what the config asks for\n".to_owned();
    }
    // Actions are shown with the changes that cause them.
    let rows: Vec<[String; 4]> = plan
        .steps
        .iter()
        .filter(|s| !is_action(s) && !is_record(s))
        .map(|s| [subject(s), change(s), s.reason.clone(), s.effect.clone()])
        .collect();
    let heads = ["PATH", "CHANGE", "WHY", "EFFECT"].map(str::to_owned);
    let width = |i: usize| {
        rows.iter()
            .chain([&heads])
            .map(|row| row[i].chars().count())
            .filter(|w| *w <= WIDEST)
            .max()
            .unwrap_or(0)
    };
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for row in [&heads].into_iter().chain(&rows) {
        let [path, change, why, effect] = row;
        let _ =
            writeln!(text, "{path:<0$}  {change:<1$}  {why:<2$}  {effect}", widths[0], widths[1], widths[2]);
    }
    let count = rows.len();
    let plural = if count == 1 { "change" } else { "changes" };
    let _ = write!(text, "{count} {plural}");
    let records = plan.steps.iter().filter(|s| is_record(s)).count();
    if records > 0 {
        let _ = write!(text, " ({records} folders, backups and records beside them)");
    }
    let _ = writeln!(text, ", disruption: {}", plan.disruption);
    text
}

/// Parents, backups and records: what comes with a change and disturbs nobody. JSON has them all.
fn is_record(step: &PlannedStep) -> bool {
    matches!(step.kind, "parent" | "backup" | "record")
}

fn is_action(step: &PlannedStep) -> bool {
    matches!(step.kind, "daemon-reload" | "start" | "stop" | "restart" | "try-restart" | "reload")
}

fn subject(step: &PlannedStep) -> String {
    match &step.subject {
        Subject::Path(path) => path.clone(),
        Subject::Unit(unit) => unit.clone(),
    }
}

fn change(step: &PlannedStep) -> String {
    if step.kind == "os" {
        return format!("{:?} -> {:?}", step.from, step.to);
    }
    let short = |side: &str| match side.split_once(' ') {
        Some((digest, rest)) if digest.starts_with("sha256:") => {
            format!("{} {rest}", digest.get("sha256:".len()..15).unwrap_or(digest))
        }
        _ => side.to_owned(),
    };
    match (step.from.as_str(), step.to.as_str()) {
        ("absent", to) => format!("{}: new, {}", step.kind, short(to)),
        (_, "absent") => step.kind.to_owned(),
        (from, to) => format!("{}: {} -> {}", step.kind, short(from), short(to)),
    }
}
