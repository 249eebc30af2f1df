//! Owns: the process: arguments and environment in, exit code out.
//! Given what the service manager set, gives it to [`oneboot_firstboot::cmd::run`].
//! Never: lets a panic print more than its place, since a message might hold what must not be shown.

use oneboot_firstboot::cmd::{Environment, run};
use oneboot_firstboot::{cli, exit::Exit, guard};
use std::process::ExitCode;

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        eprintln!("oneboot-firstboot: a bug at {place}; please report it");
        std::process::exit(Exit::Internal.code().into());
    }));
    guard::no_core_dumps();
    let environment = Environment { credentials: std::env::var_os("CREDENTIALS_DIRECTORY").map(Into::into) };
    match cli::parse(std::env::args_os().skip(1)) {
        Ok(command) => run(&command, &environment).into(),
        Err(error) => {
            eprintln!("oneboot-firstboot: {error}");
            Exit::Usage.into()
        }
    }
}
