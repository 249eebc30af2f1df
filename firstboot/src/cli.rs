//! Owns: the command line.
//! Given arguments, gives a `Command`, or what is wrong with them in a line.
//! Never: reads the environment or a file.

use crate::duration;
use lexopt::prelude::{Long, Short, Value};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// `--help`
pub const USAGE: &str = "\
oneboot-firstboot: fetch this machine's first config with a token, trusting the pointer's CA and nothing else

usage: oneboot-firstboot fetch [options]
       oneboot-firstboot report [options]
       oneboot-firstboot check FILE [--ca FILE]

options:
  --pointer FILE       the pointer config (default: kernel arguments, user.ign, fw_cfg, the platform)
  --url URL            fetch the pointer, or the config itself, from here
  --ca FILE            trust these CAs (PEM) instead of the pointer's
  --token-file FILE    the token, unless the credential oneboot.token is there
  --spec VERSION       ask for this Ignition spec first (default: the image's, else 3.5.0)
  --out FILE           the resolved config (default: where the image's Ignition looks)
  --report FILE        the report (default: /run/oneboot/firstboot.json)
  --deadline DURATION  stop waiting after this long: 8s, 15m, 1h (default: never)
  --root DIR           every default path is below DIR (default: /)
  --config DIR         read fragments from DIR instead of the three firstboot.d
  --help, --version
";

/// Options of `fetch`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// `--pointer`
    pub pointer: Option<PathBuf>,
    /// `--url`
    pub url: Option<String>,
    /// `--ca`
    pub ca: Option<PathBuf>,
    /// `--token-file`
    pub token_file: Option<PathBuf>,
    /// `--spec`
    pub spec: Option<String>,
    /// `--out`
    pub out: Option<PathBuf>,
    /// `--report`
    pub report: Option<PathBuf>,
    /// `--deadline`
    pub deadline: Option<Duration>,
    /// `--root`
    pub root: PathBuf,
    /// `--config`
    pub config: Option<PathBuf>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            pointer: None,
            url: None,
            ca: None,
            token_file: None,
            spec: None,
            out: None,
            report: None,
            deadline: None,
            root: PathBuf::from("/"),
            config: None,
        }
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Fetch, resolve, hand over.
    Fetch(Options),
    /// Offer the report to the server.
    Report(Options),
    /// Say whether a pointer is usable.
    Check {
        /// The pointer.
        file: PathBuf,
        /// `--ca`
        ca: Option<PathBuf>,
    },
    /// Print and be done.
    Print(String),
}

/// Reads the arguments after the program's own name.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Command, String> {
    read(lexopt::Parser::from_args(arguments)).map_err(|error| error.to_string())
}

fn read(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut words: Vec<OsString> = Vec::new();
    let mut options = Options::default();
    while let Some(argument) = parser.next()? {
        match argument {
            Long("help") | Short('h') => return Ok(Command::Print(USAGE.to_owned())),
            Long("version") | Short('V') => {
                return Ok(Command::Print(format!("oneboot-firstboot {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Long("pointer") => options.pointer = Some(parser.value()?.into()),
            Long("url") => options.url = Some(text(parser.value()?)?),
            Long("ca") => options.ca = Some(parser.value()?.into()),
            Long("token-file") => options.token_file = Some(parser.value()?.into()),
            Long("spec") => options.spec = Some(text(parser.value()?)?),
            Long("out") => options.out = Some(parser.value()?.into()),
            Long("report") => options.report = Some(parser.value()?.into()),
            Long("deadline") => {
                let parsed = duration::parse(&text(parser.value()?)?);
                options.deadline = Some(parsed.map_err(|error| format!("--deadline: {error}"))?);
            }
            Long("root") => options.root = parser.value()?.into(),
            Long("config") => options.config = Some(parser.value()?.into()),
            Value(word) => words.push(word),
            other => return Err(other.unexpected()),
        }
    }
    let names: Vec<_> = words.iter().map(|word| word.to_str()).collect();
    match names.as_slice() {
        [Some("fetch")] => Ok(Command::Fetch(options)),
        [Some("report")] => Ok(Command::Report(options)),
        [Some("check"), _] => Ok(Command::Check { file: words.swap_remove(1).into(), ca: options.ca }),
        [Some("check")] => Err("check wants the pointer's file: oneboot-firstboot check FILE".into()),
        [] => Err("a command is missing: fetch, report or check; try --help".into()),
        _ => Err("expected one command, fetch, report or check FILE; try --help".into()),
    }
}

/// A URL or a number is text; nothing of it is repeated where it is not, as it might be a secret.
fn text(value: OsString) -> Result<String, lexopt::Error> {
    value.into_string().map_err(|_| "an option's value is not UTF-8".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, String> {
        super::parse(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn every_option_arrives() {
        let line = "fetch --pointer p --url u --ca c --token-file t --spec 3.4.0 --out o --report r --deadline 8s \
                    --root /r --config f";
        let Ok(Command::Fetch(options)) = parse(line) else { panic!("not understood") };
        assert_eq!(options.deadline, Some(Duration::from_secs(8)));
        assert_eq!(
            [options.pointer, options.ca, options.token_file, options.out, options.report, options.config]
                .map(|path| path.unwrap().into_os_string().into_string().unwrap()),
            ["p", "c", "t", "o", "r", "f"]
        );
        assert_eq!((options.url.as_deref(), options.spec.as_deref()), (Some("u"), Some("3.4.0")));
        assert_eq!(options.root, PathBuf::from("/r"));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (line, words) in [
            ("", "a command is missing"),
            ("fetch now", "expected one command"),
            ("check", "wants the pointer's file"),
            ("fetch --deadline 8", "is not a duration"),
            ("fetch --tokenfile x", "--tokenfile"),
            ("fetch --out", "--out"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(words), "{line}: {error}");
        }
    }

    #[test]
    fn every_option_is_in_the_usage() {
        for option in
            ["pointer", "url", "ca", "token-file", "spec", "out", "report", "deadline", "root", "config"]
        {
            assert!(USAGE.contains(&format!("--{option} ")), "{option}");
        }
    }
}
