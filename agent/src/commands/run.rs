//! Owns: the verb `run`.
//! Given its arguments; gives an exit code.
//! Never more than a shell around the library.

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use anyhow::Context;
use oneboot_firstboot::log;

use super::{Failure, Outcome, config::failure, input, options};
use crate::{
    apply,
    bus::SystemBus,
    cli::USAGE,
    clock::System,
    config, exit, paths,
    reboot::Boot,
    record::Error as RecordError,
    run::{self, Ending, Error, Given},
    units::{self, NoUnits, Units},
};

/// Runs the verb.
pub fn run(args: &[OsString]) -> Outcome {
    let options = options::parse(args, &[])?;
    if options.help {
        print!("{USAGE}");
        return Ok(exit::OK);
    }
    let root = options.open_root()?;
    log::init("oneboot-agent", root.path());
    // Asked for first: without a bus nothing is begun (exit 75).
    let bus = if root.is_system() {
        Some(SystemBus::connect().map_err(|error| Failure::new(exit::LATER, error))?)
    } else {
        None
    };
    let (settings, unknown) = config::read(&root).map_err(failure)?;
    for key in &unknown {
        tracing::warn!("{key}");
    }
    let cheapest_reboot = input::unknown_path(&root)?;
    let boot_id = std::fs::read_to_string(paths::BOOT_ID)
        .with_context(|| format!("cannot read {}", paths::BOOT_ID))
        .map_err(|error| Failure::new(exit::IO, error))?;
    let mut out = std::io::stdout();
    let ending = run::run(Given {
        root: Arc::new(root),
        settings,
        clock: Arc::new(System),
        units: bus.as_ref().map_or(&NoUnits, |bus| bus as &dyn Units),
        cheapest_reboot,
        out: &mut out,
        boot: Boot {
            id: boot_id.trim().to_owned(),
            soft_reboots: bus.as_ref().and_then(SystemBus::soft_reboots),
        },
        systemctl: PathBuf::from("systemctl"),
    });
    match ending {
        Ok(Ending::Settled | Ending::Rebooting(_)) => Ok(exit::OK),
        Err(error) => Err(Failure::new(code(&error), error)),
    }
}

/// Which class an end without an end is.
fn code(error: &Error) -> u8 {
    match error {
        Error::Apply(
            apply::Error::Locked { .. }
            | apply::Error::Interfered { .. }
            | apply::Error::Units(units::Error::NoBus(_)),
        ) => exit::LATER,
        Error::Apply(apply::Error::Units(_)) => exit::UNAVAILABLE,
        Error::Apply(apply::Error::RollbackIncomplete { .. }) => exit::ROLLBACK_INCOMPLETE,
        Error::Record(RecordError::Damaged(_) | RecordError::Newer { .. })
        | Error::Apply(apply::Error::Newer { .. }) => exit::DATA,
        Error::Tree(_)
        | Error::Wait(_)
        | Error::Record(RecordError::Io(_))
        | Error::System { .. }
        | Error::Apply(_) => exit::IO,
        Error::Illegal(_) => exit::INTERNAL,
    }
}
