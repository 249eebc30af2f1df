//! Owns: the options of the verbs that the service owns.
//! Given their arguments; gives values, or what is wrong with them.
//! Never: knows a verb's meaning.

use std::{ffi::OsString, path::PathBuf};

use lexopt::prelude::{Long, Short, Value};

use super::Failure;
use crate::{cli::USAGE, exit, root::Root};

/// What may stand after `run`, `status`, `timeline` and `config`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// `--root`.
    pub(super) root: Option<PathBuf>,
    /// `--json`.
    pub(super) json: bool,
    /// `--svg`.
    pub(super) svg: Option<PathBuf>,
    /// `--help`.
    pub(super) help: bool,
    /// Words that are no options.
    pub(super) words: Vec<String>,
}

/// Parses what is `allowed` beside `--root` and `--help`: names of options, and `word` for one word.
pub(super) fn parse(args: &[OsString], allowed: &[&str]) -> Result<Options, Failure> {
    read(args, allowed).map_err(|error| Failure::new(exit::USAGE, anyhow::anyhow!("{error}\n\n{USAGE}")))
}

fn read(args: &[OsString], allowed: &[&str]) -> Result<Options, lexopt::Error> {
    let mut parser = lexopt::Parser::from_args(args);
    let mut options = Options::default();
    while let Some(arg) = parser.next()? {
        match arg {
            Long("help") | Short('h') => options.help = true,
            Long("root") => options.root = Some(parser.value()?.into()),
            Long("json") if allowed.contains(&"json") => options.json = true,
            Long("svg") if allowed.contains(&"svg") => options.svg = Some(parser.value()?.into()),
            Value(word) if allowed.contains(&"word") && options.words.is_empty() => {
                options.words.push(word.to_string_lossy().into_owned());
            }
            other => return Err(other.unexpected()),
        }
    }
    Ok(options)
}

impl Options {
    /// The tree to work on.
    pub(super) fn open_root(&self) -> Result<Root, Failure> {
        let path = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        Root::open(&path).map_err(|error| Failure::new(exit::IO, error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(args: &[&str], allowed: &[&str]) -> Result<Options, String> {
        let args: Vec<_> = args.iter().map(OsString::from).collect();
        parse(&args, allowed).map_err(|failure| {
            assert_eq!(failure.code, exit::USAGE);
            failure.error.to_string().lines().next().unwrap_or_default().to_owned()
        })
    }

    #[test]
    fn a_verb_takes_its_own_options_and_no_others() {
        let options = parsed(&["--json", "--root", "/x"], &["json"]).unwrap();
        assert_eq!((options.json, options.root), (true, Some("/x".into())));
        assert_eq!(parsed(&["--json"], &[]), Err("invalid option '--json'".to_owned()));
        assert_eq!(parsed(&["show"], &["word"]).unwrap().words, ["show"]);
        assert_eq!(parsed(&["show", "check"], &["word"]), Err("unexpected argument \"check\"".to_owned()));
        assert_eq!(parsed(&["--root"], &[]), Err("missing argument for option '--root'".to_owned()));
    }
}
