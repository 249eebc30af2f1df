//! Owns: the verb `run`.
//! Given its arguments; gives an exit code.
//! Never more than a shell around the library.

use std::{ffi::OsString, sync::Arc};

use anyhow::Context;
use oneboot_firstboot::log;

use super::{Failure, Outcome, config::failure, input, options};
use crate::{
    apply,
    cli::USAGE,
    clock::System,
    config, exit, paths,
    record::Error as RecordError,
    run::{self, Ending, Error, Given},
    units::NoUnits,
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
    if root.is_system() {
        // Acting on a running system without its service manager would leave services on their old configuration.
        let error = anyhow::anyhow!("this version cannot ask systemd yet: use --root DIR with another tree");
        return Err(Failure::new(exit::UNAVAILABLE, error));
    }
    let (settings, unknown) = config::read(&root).map_err(failure)?;
    for key in &unknown {
        tracing::warn!("{key}");
    }
    let unknown_path = input::unknown_path(&root)?;
    let boot_id = std::fs::read_to_string(paths::BOOT_ID)
        .with_context(|| format!("cannot read {}", paths::BOOT_ID))
        .map_err(|error| Failure::new(exit::IO, error))?;
    let mut out = std::io::stdout();
    let ending = run::run(Given {
        root: Arc::new(root),
        settings,
        clock: Arc::new(System),
        units: &NoUnits,
        unknown_path,
        out: &mut out,
        boot_id: boot_id.trim().to_owned(),
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
            apply::Error::Locked { .. } | apply::Error::Interfered { .. } | apply::Error::Units(_),
        ) => exit::LATER,
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
