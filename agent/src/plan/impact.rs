//! Owns: impact rules: what a changed path disturbs on a node that has never been Ready.
//! Given TOML (built in, `/usr/lib/oneboot/impact.d`, `/etc/oneboot/impact.d`); gives the rule for a path.
//! Never guesses: a path that no rule knows costs `unknown_path`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::Disruption;

/// The rules as shipped, compiled in so that the agent has them on any tree.
const BUILT_IN: (&str, &str) = ("10-base.toml", include_str!("../../impact.d/10-base.toml"));

/// A file of rules that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not TOML, or not in the shape of rules.
    #[error("impact rules {file}: {message}")]
    Syntax {
        /// Its name.
        file: String,
        /// What is wrong with it.
        message: String,
    },
    /// A rule that restarts or reloads without saying what.
    #[error("impact rules {file}: the rule for {path} needs a `unit` with its action")]
    NoUnit {
        /// Its name.
        file: String,
        /// The rule's path.
        path: String,
    },
}

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// File or folder.
    pub path: String,
    /// How far it reaches.
    #[serde(rename = "match")]
    pub reach: Reach,
    /// What a change costs.
    pub action: Disruption,
    /// What is reloaded or restarted.
    pub unit: Option<String>,
    /// Also when it does not run.
    #[serde(default)]
    pub always: bool,
    /// For people.
    pub why: String,
}

/// How far a rule reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// The path itself.
    Exact,
    /// The path and all below it.
    Prefix,
}

/// All rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impact(Vec<Rule>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    #[serde(default)]
    rule: Vec<Rule>,
}

impl Impact {
    /// The built-in rules with those of a tree on top: files by name, later folders replacing a file of the same name.
    pub fn load(files: impl IntoIterator<Item = (String, String)>) -> Result<Impact, Error> {
        let mut by_name = BTreeMap::from([(BUILT_IN.0.to_owned(), BUILT_IN.1.to_owned())]);
        by_name.extend(files);
        let mut rules = Vec::new();
        for (file, text) in by_name {
            let parsed: Rules = toml::from_str(&text)
                .map_err(|e| Error::Syntax { file: file.clone(), message: e.message().to_owned() })?;
            for rule in parsed.rule {
                let needs_unit = matches!(rule.action, Disruption::Reload | Disruption::Restart);
                if needs_unit && rule.unit.is_none() {
                    return Err(Error::NoUnit { file, path: rule.path });
                }
                rules.push(rule);
            }
        }
        Ok(Impact(rules))
    }

    /// The rule that names exactly this path; the last file's wins.
    pub fn exact(&self, path: &str) -> Option<&Rule> {
        self.0.iter().rev().find(|r| r.reach == Reach::Exact && r.path == path)
    }

    /// The longest folder rule above a path; the last file's wins among equals.
    pub fn prefix(&self, path: &str) -> Option<&Rule> {
        let covers = |r: &&Rule| {
            r.reach == Reach::Prefix
                && (path == r.path || path.strip_prefix(&r.path).is_some_and(|rest| rest.starts_with('/')))
        };
        self.0.iter().filter(covers).max_by_key(|r| r.path.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_wins_and_etc_comes_on_top() {
        let impact = Impact::load([]).unwrap();
        assert_eq!(impact.prefix("/etc/crio/policies/x").unwrap().action, Disruption::Reload);
        assert_eq!(impact.prefix("/etc/crio/crio.conf.d/x").unwrap().action, Disruption::Restart);
        assert!(impact.prefix("/etc/criox").is_none());
        let own = "[[rule]]\npath = '/etc/crio'\nmatch = 'prefix'\naction = 'none'\nwhy = 'mine'\n";
        let impact = Impact::load([("20-own.toml".to_owned(), own.to_owned())]).unwrap();
        assert_eq!(impact.prefix("/etc/crio/x").unwrap().why, "mine");
    }

    #[test]
    fn broken_rules_are_named() {
        let load =
            |text: &str| Impact::load([("x.toml".to_owned(), text.to_owned())]).unwrap_err().to_string();
        let rule = "[[rule]]\npath = '/a'\nmatch = 'exact'\naction = 'restart'\nwhy = 'w'\n";
        assert_eq!(load(rule), "impact rules x.toml: the rule for /a needs a `unit` with its action");
        assert!(load("rule = 3").starts_with("impact rules x.toml: "));
        assert!(load(&rule.replace("why", "wy")).contains("unknown field"));
    }
}
