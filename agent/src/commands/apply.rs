//! Owns: the verb `apply`.
//! Given its options; lays the tree and acts, progress on standard error, a summary on standard output.
//! Never settles: only `run` does.

use super::{
    Outcome,
    input::{Inputs, failure},
};
use crate::{
    apply::{self, Error, Progress},
    bus::SystemBus,
    cli::Offline,
    exit,
    plan::table,
    units::{NoUnits, Units},
};

/// Runs the verb.
pub fn run(o: &Offline) -> Outcome {
    let inputs = Inputs::load(o)?;
    let mut progress = |p: Progress| match p {
        Progress::Note(note) => eprintln!("{note}"),
        Progress::Phase(phase) => eprintln!("{phase} ..."),
        Progress::Unit(verb, unit) => eprintln!("{verb} {unit} ..."),
    };
    let units: Box<dyn Units> = if inputs.root.is_system() {
        // Asked for first: without a bus nothing is changed (exit 75).
        Box::new(SystemBus::connect().map_err(|e| failure(Error::Units(e)))?)
    } else {
        Box::new(NoUnits)
    };
    let applied =
        apply::apply(&inputs.root, &inputs.request(), units.as_ref(), &mut progress).map_err(|e| {
            if let Error::TooDisruptive { plan, .. } = &e {
                eprint!("{}", table::render(plan));
                eprintln!("nothing was changed; to allow it: --max-disruption {}", plan.disruption);
            }
            failure(e)
        })?;
    print!("{}", table::render(&applied.plan));
    if let Some(reboot) = applied.reboot_needed {
        println!("laid down; a {reboot} finishes it");
    }
    Ok(exit::OK)
}
