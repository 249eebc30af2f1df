//! Owns: the command line of `oneboot-agent`.
//! Given arguments; gives a parsed [`Command`], runs it, and turns its outcome into an exit code and one printed error chain.
//! Never does the work itself.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use lexopt::prelude::{Long, Short, Value};

use crate::{
    commands, exit,
    plan::{Disruption, Phase},
};

/// What is printed for `--help` and after a wrong command line.
pub const USAGE: &str = "\
usage: oneboot-agent COMMAND [OPTIONS]

  plan     --desired FILE [--current FILE] [--policy FILE] [--phase PHASE] [--json] [--diff]
           what would change, why, and what it would disturb; changes nothing
  apply    --desired FILE [--current FILE] [--policy FILE] [--phase PHASE] [--max-disruption LEVEL]
           change it: one receipt, old tree or new tree, never a mixture
  verify   --desired FILE       what MCD's on-disk validation would say
  revert                        undo the last apply
  recover                       finish or undo an interrupted apply
  run                           the service: wait for approval, pull, apply, settle
  status   [--json]             where the node is, and why
  timeline [--svg FILE]         what happened when
  config   show|check           every setting with the file it came from

options of all:
  --root DIR       the tree to work on (default /)
options of plan and apply:
  --phase PHASE    first-boot or joined (default: joined once the node has settled)
  --mcd MODE       auto, present or absent: whether the machine config daemon will check this tree (default auto)
  --unknown-path LEVEL, --max-disruption LEVEL
                   none, reload, restart, soft-reboot, kexec or reboot
FILE is a MachineConfig (JSON or YAML) or an Ignition config; - is standard input.
";

/// Options of the offline commands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Offline {
    /// `--desired`.
    pub desired: Option<PathBuf>,
    /// `--current`.
    pub current: Option<PathBuf>,
    /// `--policy`.
    pub policy: Option<PathBuf>,
    /// `--root`.
    pub root: Option<PathBuf>,
    /// `--phase`.
    pub phase: Option<Phase>,
    /// `--max-disruption`.
    pub max_disruption: Option<Disruption>,
    /// `--unknown-path`.
    pub unknown_path: Option<Disruption>,
    /// `--mcd`.
    pub mcd: Mcd,
    /// `--json`.
    pub json: bool,
    /// `--diff`.
    pub diff: bool,
}

/// Whether a machine config daemon will look at this tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Mcd {
    /// Look for its seed.
    #[default]
    Auto,
    /// It is there.
    Present,
    /// It is not.
    Absent,
}

/// A verb with its options.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// `plan`
    Plan(Offline),
    /// `apply`
    Apply(Offline),
    /// `verify`
    Verify(Offline),
    /// `revert`
    Revert(Offline),
    /// `recover`
    Recover(Offline),
    /// `run`, `status`, `timeline`, `config`: they parse the rest themselves.
    Online(Verb, Vec<OsString>),
    /// `--help`
    Help,
    /// `--version`
    Version,
}

/// The verbs that the service owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// The service.
    Run,
    /// Where it is.
    Status,
    /// What happened.
    Timeline,
    /// Its settings.
    Config,
}

/// Parses arguments, without the program's name.
pub fn parse<I>(args: I) -> Result<Command, lexopt::Error>
where
    I: IntoIterator,
    I::Item: Into<OsString>,
{
    let mut parser = lexopt::Parser::from_args(args);
    let verb = match parser.next()? {
        Some(Value(verb)) => verb.to_string_lossy().into_owned(),
        Some(Long("help") | Short('h')) => return Ok(Command::Help),
        Some(Long("version") | Short('V')) => return Ok(Command::Version),
        Some(other) => return Err(other.unexpected()),
        None => return Err("a command is missing".into()),
    };
    let online = match verb.as_str() {
        "run" => Some(Verb::Run),
        "status" => Some(Verb::Status),
        "timeline" => Some(Verb::Timeline),
        "config" => Some(Verb::Config),
        _ => None,
    };
    if let Some(verb) = online {
        return Ok(Command::Online(verb, parser.raw_args()?.collect()));
    }
    let command = match verb.as_str() {
        "plan" => Command::Plan,
        "apply" => Command::Apply,
        "verify" => Command::Verify,
        "revert" => Command::Revert,
        "recover" => Command::Recover,
        other => return Err(format!("unknown command {other:?}").into()),
    };
    let Some(options) = offline(&mut parser, &verb)? else { return Ok(Command::Help) };
    let needs_desired = matches!(verb.as_str(), "plan" | "apply" | "verify");
    if needs_desired && options.desired.is_none() {
        return Err(format!("{verb} needs --desired FILE").into());
    }
    Ok(command(options))
}

/// The options after an offline verb; `None` when help was asked for. An option that means nothing to the verb is an error.
fn offline(parser: &mut lexopt::Parser, verb: &str) -> Result<Option<Offline>, lexopt::Error> {
    let mut o = Offline::default();
    let desires = matches!(verb, "plan" | "apply" | "verify");
    let plans = matches!(verb, "plan" | "apply");
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => return Ok(None),
            Long("root") => o.root = Some(parser.value()?.into()),
            Long("desired") if desires => o.desired = Some(parser.value()?.into()),
            Long("mcd") if desires => o.mcd = mcd(parser)?,
            Long("current") if plans => o.current = Some(parser.value()?.into()),
            Long("policy") if plans => o.policy = Some(parser.value()?.into()),
            Long("phase") if plans => o.phase = Some(word(parser, "phase")?),
            Long("unknown-path") if plans => o.unknown_path = Some(word(parser, "unknown-path")?),
            Long("max-disruption") if plans => o.max_disruption = Some(word(parser, "max-disruption")?),
            Long("json") if verb == "plan" => o.json = true,
            Long("diff") if verb == "plan" => o.diff = true,
            other => return Err(other.unexpected()),
        }
    }
    Ok(Some(o))
}

fn word<T: std::str::FromStr<Err = String>>(
    p: &mut lexopt::Parser,
    option: &str,
) -> Result<T, lexopt::Error> {
    let value = p.value()?.to_string_lossy().into_owned();
    value.parse().map_err(|expected: String| {
        lexopt::Error::Custom(format!("--{option}: found {value:?}, expected {expected}").into())
    })
}

fn mcd(p: &mut lexopt::Parser) -> Result<Mcd, lexopt::Error> {
    match p.value()?.to_string_lossy().as_ref() {
        "auto" => Ok(Mcd::Auto),
        "present" => Ok(Mcd::Present),
        "absent" => Ok(Mcd::Absent),
        other => Err(format!("--mcd: found {other:?}, expected auto, present or absent").into()),
    }
}

/// Runs the process's own command line.
pub fn main() -> ExitCode {
    let command = match parse(std::env::args_os().skip(1)) {
        Ok(command) => command,
        Err(e) => {
            eprintln!("oneboot-agent: {e}\n\n{USAGE}");
            return exit::USAGE.into();
        }
    };
    let outcome = match command {
        Command::Plan(o) => commands::plan::run(&o),
        Command::Apply(o) => commands::apply::run(&o),
        Command::Verify(o) => commands::verify::run(&o),
        Command::Revert(o) => commands::revert::run(&o),
        Command::Recover(o) => commands::recover::run(&o),
        Command::Online(Verb::Run, args) => commands::run::run(&args),
        Command::Online(Verb::Status, args) => commands::status::run(&args),
        Command::Online(Verb::Timeline, args) => commands::timeline::run(&args),
        Command::Online(Verb::Config, args) => commands::config::run(&args),
        Command::Help => {
            print!("{USAGE}");
            Ok(exit::OK)
        }
        Command::Version => {
            println!("oneboot-agent {}", env!("CARGO_PKG_VERSION"));
            Ok(exit::OK)
        }
    };
    match outcome {
        Ok(code) => code.into(),
        Err(e) => {
            // The one place where an error chain is printed (style rule 12).
            eprintln!("oneboot-agent: {:#}", e.error);
            e.code.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_belong_to_their_verbs() {
        let parsed = parse(["plan", "--desired", "-", "--phase", "joined", "--json"]).unwrap();
        let Command::Plan(o) = parsed else { panic!("{parsed:?}") };
        assert_eq!((o.phase, o.json, o.desired), (Some(Phase::Joined), true, Some("-".into())));
        let error = |args: &[&str]| parse(args).unwrap_err().to_string();
        assert_eq!(error(&["verify", "--desired", "f", "--json"]), "invalid option '--json'");
        assert_eq!(error(&["apply"]), "apply needs --desired FILE");
        assert_eq!(error(&["plan", "--phase", "x"]), "--phase: found \"x\", expected first-boot or joined");
        assert_eq!(error(&["frobnicate"]), "unknown command \"frobnicate\"");
        assert_eq!(error(&[]), "a command is missing");
    }

    #[test]
    fn the_service_parses_its_own_options() {
        let parsed = parse(["status", "--json", "--root", "/x"]).unwrap();
        assert_eq!(
            parsed,
            Command::Online(Verb::Status, vec!["--json".into(), "--root".into(), "/x".into()])
        );
    }
}
