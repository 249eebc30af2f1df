//! Owns: `check FILE`: whether a pointer is usable, and why not.
//! Given the file, prints one line and gives 0, 65, 74 or 78.
//! Never: uses the network.

use super::given;
use crate::authorities;
use crate::clock;
use crate::document::Document;
use crate::engage;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::nested;
use crate::outcome::{Limits, Outcome};
use std::path::Path;

/// The verdict goes to standard output, a refusal to standard error.
pub(super) fn run(file: &Path, ca: Option<&Path>) -> Exit {
    match verdict(file, ca) {
        Ok(line) => {
            println!("{line}");
            Exit::Ok
        }
        Err(failure) => {
            eprintln!("{}: {}", file.display(), failure.found);
            if let Some(expected) = &failure.expected {
                eprintln!("expected: {expected}");
            }
            eprintln!("to do: {}", failure.outcome.advice());
            failure.outcome.exit()
        }
    }
}

fn verdict(file: &Path, ca: Option<&Path>) -> Result<String, Failure> {
    let bytes = given::read(file)?;
    let document = Document::parse(&bytes, None)
        .map_err(|error| Failure::new(Outcome::BadPointer, error.to_string()))?;
    let references = nested::references(&document, &Limits::default());
    let Some((reference, url)) =
        references.iter().find_map(|reference| Some((reference, engage::machine_config(reference)?)))
    else {
        return Ok(format!(
            "{}: none of our business: no reference is https with the path /config/<pool>",
            file.display()
        ));
    };
    let bundle = match ca {
        Some(path) => given::authority(path)?,
        None => authorities::from_pointer(&document.authorities, &Limits::default())?,
    };
    let facts = bundle.facts();
    let Some(newest) = facts.iter().map(|ca| ca.not_after).max() else {
        let found = "no ignition.security.tls.certificateAuthorities";
        return Err(
            Failure::new(Outcome::NoCa, found).expected("at least one CA: system roots are never consulted")
        );
    };
    let now = clock::wall_seconds();
    if newest < now {
        let found = format!(
            "every CA has expired, the last on {}; the clock says {}",
            clock::utc(newest),
            clock::utc(now)
        );
        return Err(Failure::new(Outcome::UnusableCa, found));
    }
    let token = match engage::carried(reference) {
        Some(_) => "a token",
        None => "no token (a credential may bring one)",
    };
    Ok(format!(
        "{}: usable: pool {:?} at {}, {} CA(s), {token}",
        file.display(),
        url.pool().unwrap_or_default(),
        url.origin(),
        facts.len()
    ))
}
