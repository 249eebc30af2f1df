//! Owns: the verb `plan`.
//! Given its options; prints what would change as a table, as JSON, or with differences of content.
//! Never changes anything.

use super::{
    Failure, Outcome,
    input::{Inputs, failure},
};
use crate::{
    apply,
    cli::Offline,
    exit,
    plan::table,
    root::Root,
    tree::{Cause, Change, Entry, Make},
};

/// Bits that make a file readable for others than its owner: without them its content is a secret.
const READABLE: u32 = 0o044;

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let inputs = Inputs::load(o)?;
    let prepared = apply::prepare_all(&inputs.root, &inputs.request()).map_err(failure)?;
    for note in &prepared.notes {
        eprintln!("{note}");
    }
    if o.json {
        let text =
            serde_json::to_string_pretty(&prepared.plan).map_err(|e| Failure::new(exit::INTERNAL, e))?;
        println!("{text}");
    } else {
        print!("{}", table::render(&prepared.plan));
    }
    if o.diff {
        for change in &prepared.changes {
            print!("{}", difference(&inputs.root, change).map_err(|e| Failure::new(exit::IO, e))?);
        }
    }
    Ok(exit::OK)
}

/// The difference of one file's content, where it is text and nobody's secret.
fn difference(root: &Root, change: &Change) -> Result<String, crate::root::Error> {
    let Make::File(content) = &change.make else { return Ok(String::new()) };
    let secret = |e: &Entry| matches!(e, Entry::File { mode, .. } if mode & READABLE == 0);
    let path = &change.path;
    // A group of its own reads shadow where there are no capabilities.
    let hashes = change.cause == Cause::Accounts;
    if hashes || secret(&change.from) || secret(&change.to) {
        return Ok(format!("--- {path}\n+++ {path}\n(not shown: not for everybody to read)\n"));
    }
    let old = match change.from {
        Entry::File { .. } => root.read(path)?.unwrap_or_default(),
        _ => Vec::new(),
    };
    let (Ok(old), Ok(new)) = (std::str::from_utf8(&old), std::str::from_utf8(content.bytes())) else {
        return Ok(format!("--- {path}\n+++ {path}\n(not shown: not text)\n"));
    };
    let from = if change.from.is_absent() { "/dev/null" } else { path };
    Ok(similar::TextDiff::from_lines(old, new).unified_diff().header(from, path).to_string())
}
