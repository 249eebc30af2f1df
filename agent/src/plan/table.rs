//! Owns: a plan as people read it.
//! Given a plan; gives text: path, change, effect, and below each line why.
//! Never shows content: digests only.

use std::fmt::Write;

use super::{Plan, PlannedStep, Subject};

/// What journals, consoles and side-by-side terminals show of a line. Only a path may be longer: it is there to be copied.
const WIDTH: usize = 110;
/// Widest that the column of paths gets; what is longer goes over its edge rather than being cut.
const PATH_WIDEST: usize = 64;
/// Of what belongs to the line above.
const INDENT: &str = "    ";

/// The table, with a closing line.
pub fn render(plan: &Plan) -> String {
    if plan.is_empty() {
        return "nothing to do: the tree is what the config asks for\n".to_owned();
    }
    // Actions are shown with the changes that cause them.
    let steps: Vec<&PlannedStep> = plan.steps.iter().filter(|s| !is_action(s) && !is_record(s)).collect();
    let rows: Vec<[String; 3]> = steps.iter().map(|s| [subject(s), change(s), s.effect.clone()]).collect();
    let heads = ["PATH", "CHANGE", "EFFECT, AND WHY"].map(str::to_owned);
    let width = |i: usize, widest: usize| {
        let lengths = rows.iter().chain([&heads]).map(|row| row[i].chars().count());
        lengths.filter(|w| *w <= widest).max().unwrap_or(0)
    };
    let (path, change) = (width(0, PATH_WIDEST), width(1, WIDTH / 4));
    let mut text = String::new();
    line(&mut text, &heads, path, change);
    for (step, row) in steps.iter().zip(&rows) {
        line(&mut text, row, path, change);
        wrap(&mut text, &step.reason);
    }
    let plural = if rows.len() == 1 { "change" } else { "changes" };
    let _ = write!(text, "{} {plural}", rows.len()); // writing to a String cannot fail, here and below
    let records = plan.steps.iter().filter(|s| is_record(s)).count();
    if records > 0 {
        let _ = write!(text, " ({records} folders, backups and records beside them)");
    }
    let _ = writeln!(text, ", disruption: {}", plan.disruption);
    text
}

/// One row; what does not fit beside the path goes below it.
fn line(text: &mut String, [subject, change, effect]: &[String; 3], path_width: usize, change_width: usize) {
    let row = format!("{subject:<path_width$}  {change:<change_width$}  {effect}");
    if row.chars().count() <= WIDTH {
        let _ = writeln!(text, "{row}");
        return;
    }
    let short = format!("{subject:<path_width$}  {change}");
    if short.chars().count() <= WIDTH {
        let _ = writeln!(text, "{short}");
    } else {
        let _ = writeln!(text, "{subject}");
        wrap(text, change);
    }
    wrap(text, effect);
}

/// Words on as many indented lines as they need.
fn wrap(text: &mut String, words: &str) {
    let mut at = 0;
    for word in words.split_whitespace() {
        let length = word.chars().count();
        if at > 0 && at + 1 + length <= WIDTH {
            let _ = write!(text, " {word}");
            at += 1 + length;
        } else {
            let _ = write!(text, "{}{INDENT}{word}", if at > 0 { "\n" } else { "" });
            at = INDENT.len() + length;
        }
    }
    if at > 0 {
        text.push('\n');
    }
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

/// What happens to it; digests are for `--json`, differences for `--diff`.
fn change(step: &PlannedStep) -> String {
    if step.kind == "os" {
        return format!("{:?} -> {:?}", step.from, step.to);
    }
    let mode = |side: &str| side.rsplit_once(' ').map(|(_, mode)| mode.to_owned()).unwrap_or_default();
    let content = |side: &str| side.split_once(' ').map(|(digest, _)| digest.to_owned());
    match (step.from.as_str(), step.to.as_str()) {
        (_, "absent") => step.kind.to_owned(),
        ("absent", to) if to.starts_with("link to ") => format!("{}, new", step.kind),
        ("absent", to) => format!("{}, new {}", step.kind, mode(to)),
        (from, to) if content(from) == content(to) && mode(from) == mode(to) => {
            format!("{} owner", step.kind)
        }
        (from, to) if content(from) == content(to) => format!("{} {} -> {}", step.kind, mode(from), mode(to)),
        _ => step.kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Disruption, Phase};

    fn step(path: &str, from: &str, to: &str, effect: &str, reason: &str) -> PlannedStep {
        PlannedStep {
            kind: "write",
            subject: Subject::Path(path.to_owned()),
            reason: reason.to_owned(),
            from: from.to_owned(),
            to: to.to_owned(),
            disruption: Disruption::Restart,
            effect: effect.to_owned(),
        }
    }

    fn rendered(steps: Vec<PlannedStep>) -> String {
        render(&Plan { format: 1, phase: Phase::FirstBoot, disruption: Disruption::Restart, steps })
    }

    #[test]
    fn a_table_is_read_at_a_glance() {
        let digest = format!("sha256:{}", "0".repeat(64));
        let (old, open) = (format!("{digest} 0600"), format!("{digest} 0644"));
        let table = rendered(vec![
            step("/etc/a", "absent", &open, "restart a.service", "a reads it at start"),
            step("/etc/bb", &old, &open, "none", "nobody reads it"),
        ]);
        assert_eq!(
            table,
            "PATH     CHANGE              EFFECT, AND WHY\n\
             /etc/a   write, new 0644     restart a.service\n    a reads it at start\n\
             /etc/bb  write 0600 -> 0644  none\n    nobody reads it\n\
             2 changes, disruption: restart\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_a_journal_shows_but_for_a_path() {
        let long = format!("/etc/{}", "x".repeat(200));
        let many = vec!["try-restart some-service.service,"; 20].join(" ");
        let table = rendered(vec![
            step("/etc/a", "absent", "link to /x", &many, &many),
            step(&long, "absent", "link to /x", &many, &many),
            PlannedStep { kind: "os", ..step("kernel-arguments", &many, "", "reboot", "") },
        ]);
        for line in table.lines() {
            assert!(
                line.chars().count() <= WIDTH || line == long,
                "{} columns: {line}",
                line.chars().count()
            );
        }
        assert_eq!(table.matches("some-service").count(), 100, "nothing is cut: {table}");
    }
}
