//! Owns: the agreement between README.md's tables and the constants that they mirror.

#![allow(clippy::unwrap_used)] // a missing section is a failed test

use oneboot_firstboot::exit::TABLE;
use oneboot_firstboot::outcome::{Outcome, Policy};
use oneboot_firstboot::report::{MESSAGE_ID_OFFERED, PATH};

const README: &str = include_str!("../README.md");

#[test]
fn every_outcome_has_exactly_its_rows() {
    for outcome in Outcome::ALL {
        let then = match outcome.policy() {
            Policy::Done => "done",
            Policy::Forever => "retried for ever",
            Policy::Patient => "retried slowly until `give_up_after`",
            Policy::Three => "three tries",
            Policy::StepDown => "one spec older, at once",
            Policy::AtOnce => "at once",
        };
        let (name, seen, id) = (outcome.name(), outcome.seen(), outcome.message_id());
        let row = format!("| `{name}` | {seen} | {then} | {} | `{id}` |\n", outcome.exit().code());
        assert_eq!(README.matches(&row).count(), 1, "missing: {row}");
        let advice = format!("| `{name}` | {} |\n", outcome.advice());
        assert_eq!(
            README.matches(&advice).count(),
            usize::from(outcome.policy() != Policy::Done),
            "{advice}"
        );
    }
    let rows = README.lines().filter(|line| line.contains("| `b8d1c3a1f7a34a0e9a64f2f1c7de")).count();
    assert_eq!(rows, Outcome::ALL.len(), "a row without an outcome");
}

#[test]
fn every_outcome_has_a_symptom_and_every_symptom_names_only_outcomes() {
    let section = README.split_once("\n## Troubleshooting\n").unwrap().1.split_once("\n## ").unwrap().0;
    let rows = section.lines().filter(|line| line.starts_with("| ")).skip(1);
    let mut named: Vec<&str> = rows
        .flat_map(|row| row.split(" | ").nth(1).unwrap().split(", "))
        .map(|name| name.trim_matches('`'))
        .collect();
    named.retain(|name| !["none", "any"].contains(name));
    named.sort_unstable();
    let mut outcomes: Vec<&str> = Outcome::ALL.iter().map(|outcome| outcome.name()).collect();
    outcomes.sort_unstable();
    assert_eq!(named, outcomes, "each in exactly one row");
}

#[test]
fn every_exit_code_has_its_row() {
    for (exit, name, meaning) in TABLE {
        let row = format!("| {} | `{name}` | {meaning} |\n", exit.code());
        assert_eq!(README.matches(&row).count(), 1, "missing: {row}");
    }
}

#[test]
fn the_report_is_sent_where_and_noted_as_it_says() {
    for text in [format!("`POST {PATH}`"), format!("`MESSAGE_ID` `{MESSAGE_ID_OFFERED}`")] {
        assert_eq!(README.matches(&text).count(), 1, "{text}");
    }
}
