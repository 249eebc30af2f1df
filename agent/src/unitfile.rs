//! Owns: the few things that are read out of unit files: `[Install]`, paths they use, and preset lines.
//! Given text; gives names.
//! Never judges a unit: systemd does, when it loads it.

use std::collections::BTreeSet;

/// A unit's `[Install]` section (systemd.unit(5)), drop-ins included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Install {
    /// `WantedBy=`
    pub wanted_by: Vec<String>,
    /// `RequiredBy=`
    pub required_by: Vec<String>,
    /// `UpheldBy=`
    pub upheld_by: Vec<String>,
    /// `Also=`
    pub also: Vec<String>,
    /// `Alias=`
    pub alias: Vec<String>,
    /// `DefaultInstance=`
    pub default_instance: Option<String>,
}

impl Install {
    /// Reads one text after the other: a unit file, then its drop-ins.
    pub fn parse<'t>(texts: impl IntoIterator<Item = &'t str>) -> Install {
        let mut install = Install::default();
        for text in texts {
            for (section, key, value) in assignments(text) {
                if section == "Install" {
                    install.set(&key, &value);
                }
            }
        }
        install
    }

    fn set(&mut self, key: &str, value: &str) {
        let list = match key {
            "WantedBy" => &mut self.wanted_by,
            "RequiredBy" => &mut self.required_by,
            "UpheldBy" => &mut self.upheld_by,
            "Also" => &mut self.also,
            "Alias" => &mut self.alias,
            "DefaultInstance" => {
                self.default_instance = Some(value.to_owned()).filter(|v| !v.is_empty());
                return;
            }
            _ => return,
        };
        // An empty assignment takes back what came before it.
        if value.is_empty() {
            list.clear();
        }
        list.extend(value.split_whitespace().map(|word| word.trim_matches(['"', '\'']).to_owned()));
    }

    /// Whether anything would be linked.
    pub fn is_empty(&self) -> bool {
        self.wanted_by.is_empty()
            && self.required_by.is_empty()
            && self.upheld_by.is_empty()
            && self.alias.is_empty()
    }
}

/// Section, key and value of every assignment; continued lines joined.
pub fn assignments(text: &str) -> Vec<(String, String, String)> {
    let mut out = Vec::new();
    let mut section = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut line = line.trim().to_owned();
        if line.starts_with(['#', ';']) || line.is_empty() {
            continue;
        }
        while line.ends_with('\\') {
            line.pop();
            match lines.next().map(str::trim) {
                // A comment in the middle of a continued line is skipped.
                Some(more) if more.starts_with(['#', ';']) => line.push('\\'),
                Some(more) => {
                    line.push(' ');
                    line.push_str(more);
                }
                None => break,
            }
        }
        if let Some(name) = line.strip_prefix('[').and_then(|l| l.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((key, value)) = line.split_once('=') {
            out.push((section.clone(), key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    out
}

/// Absolute paths that a unit runs, reads or waits for: a change to one of them is a change to the unit.
pub fn used_paths(text: &str) -> BTreeSet<String> {
    assignments(text)
        .into_iter()
        .filter(|(section, key, _)| section != "Install" && names_paths(key))
        .flat_map(|(_, _, value)| paths_in(&value))
        .collect()
}

/// Settings whose values name what the unit depends on. `RequiresMountsFor=` is not one: it orders, it does not read.
fn names_paths(key: &str) -> bool {
    let condition = key.starts_with("Condition") || key.starts_with("Assert");
    key.starts_with("Exec")
        || (condition && ["Path", "File", "Directory"].iter().any(|what| key.contains(what)))
        || matches!(
            key,
            "Environment"
                | "EnvironmentFile"
                | "LoadCredential"
                | "LoadCredentialEncrypted"
                | "BindPaths"
                | "BindReadOnlyPaths"
                | "ReadOnlyPaths"
                | "ReadWritePaths"
        )
}

/// What separates paths from what stands around them: words, `NAME=/path`, `--option=/path`, `from:to:options`, a shell's quoting.
const AROUND_PATHS: &[char] = &[':', '=', ',', ';', '"', '\'', '(', ')', '<', '>', '|', '&', '`'];

fn paths_in(value: &str) -> Vec<String> {
    let pieces = value.split(|c: char| c.is_whitespace() || AROUND_PATHS.contains(&c));
    pieces.filter_map(path_of).map(str::to_owned).collect()
}

/// The path in `/path`, `-/path`, `+!/path`, `-I/path`; nothing in `a/b`, `${A}/b`, or what is left of a URL.
fn path_of(piece: &str) -> Option<&str> {
    let (before, path) = piece.split_at(piece.find('/')?);
    let prefixes = before.chars().all(|c| "-+!@".contains(c));
    let short_option =
        before.strip_prefix('-').is_some_and(|o| o.len() == 1 && o.bytes().all(|b| b.is_ascii_alphabetic()));
    let path = path.trim_end_matches('/');
    ((prefixes || short_option) && !path.is_empty() && !path.starts_with("//")).then_some(path)
}

/// Prefix, instance and suffix of a unit's name: `a@b.service` is (`a`, `b`, `.service`); no `@`, no instance.
pub fn name_parts(name: &str) -> (&str, Option<&str>, &str) {
    let (stem, suffix) = name.rfind('.').map_or((name, ""), |dot| name.split_at(dot));
    match stem.split_once('@') {
        Some((prefix, instance)) => (prefix, Some(instance), suffix),
        None => (stem, None, suffix),
    }
}

/// Whether a name is a template: an `@` with nothing after it.
pub fn is_template(name: &str) -> bool {
    name_parts(name).1 == Some("")
}

/// The template that an instance is made from; the name itself for anything else.
pub fn template_of(name: &str) -> String {
    match name_parts(name) {
        (prefix, Some(_), suffix) => format!("{prefix}@{suffix}"),
        _ => name.to_owned(),
    }
}

/// A template with an instance put in.
pub fn with_instance(template: &str, instance: &str) -> String {
    match name_parts(template) {
        (prefix, Some(_), suffix) => format!("{prefix}@{instance}{suffix}"),
        _ => template.to_owned(),
    }
}

/// Replaces the specifiers that systemd takes in `[Install]`; `None` where one needs a running system.
pub fn expand(text: &str, unit: &str) -> Option<String> {
    let (prefix, instance, _) = name_parts(unit);
    let mut out = String::new();
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match chars.next()? {
            '%' => out.push('%'),
            'n' => out.push_str(unit),
            'N' => out.push_str(unit.rsplit_once('.').map_or(unit, |(stem, _)| stem)),
            'p' => out.push_str(prefix),
            'i' => out.push_str(instance.unwrap_or_default()),
            'j' => out.push_str(prefix.rsplit('-').next().unwrap_or(prefix)),
            _ => return None,
        }
    }
    Some(out)
}

/// What the preset files say about a unit (systemd.preset(5)): the first line that fits, else enable.
/// Files come in the order of their names, each with its text.
pub fn preset_enables<'t>(unit: &str, texts: impl IntoIterator<Item = &'t str>) -> bool {
    for line in texts.into_iter().flat_map(str::lines).map(str::trim) {
        let mut words = line.split_whitespace();
        let verdict = match words.next() {
            Some("enable") => true,
            Some("disable") => false,
            _ => continue,
        };
        let Some(pattern) = words.next() else { continue };
        let instances: Vec<&str> = words.collect();
        if glob(pattern, unit) {
            return verdict;
        }
        // `enable a@.service x y` is about a@x.service and a@y.service.
        if let (_, Some(instance), _) = name_parts(unit)
            && !instance.is_empty()
            && instances.contains(&instance)
            && glob(pattern, &template_of(unit))
        {
            return verdict;
        }
    }
    true
}

/// Shell patterns as far as preset files use them: `*`, `?` and literals.
fn glob(pattern: &str, text: &str) -> bool {
    let (p, t): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut pi, mut ti, mut star) = (0, 0, None);
    while ti < t.len() {
        if pi < p.len() && (p[pi] == '?' || p[pi] == t[ti]) && p[pi] != '*' {
            pi += 1;
            ti += 1;
        } else if pi < p.len() && p[pi] == '*' {
            star = Some((pi, ti));
            pi += 1;
        } else if let Some((sp, st)) = star {
            pi = sp + 1;
            ti = st + 1;
            star = Some((sp, st + 1));
        } else {
            return false;
        }
    }
    p[pi..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_is_read_with_continuations_resets_and_dropins() {
        let unit = "[Unit]\nWantedBy=no.target\n[Install]\n# c\nWantedBy=a.target \\\n# in between\n b.target\nAlias=x.service\n";
        let dropin = "[Install]\nAlias=\nAlias=y.service\nAlso=z.socket\nDefaultInstance=d\n";
        let install = Install::parse([unit, dropin]);
        assert_eq!(install.wanted_by, ["a.target", "b.target"]);
        assert_eq!(install.alias, ["y.service"]);
        assert_eq!(
            (install.also, install.default_instance),
            (vec!["z.socket".to_owned()], Some("d".to_owned()))
        );
    }

    #[test]
    fn paths_that_a_unit_uses() {
        for (line, expected) in [
            ("[Unit]\nConditionPathExists=!/etc/c", &["/etc/c"][..]),
            ("[Unit]\nAssertFileNotEmpty=|/etc/c", &["/etc/c"]),
            ("[Unit]\nConditionDirectoryNotEmpty=/etc/c.d/", &["/etc/c.d"]),
            ("[Unit]\nConditionKernelCommandLine=root=/dev/x\nRequiresMountsFor=/var/x", &[]),
            ("[Service]\nEnvironmentFile=-/etc/env", &["/etc/env"]),
            ("[Service]\nEnvironment=A=/etc/a \"B=/etc/b:/etc/c\" C=x/y", &["/etc/a", "/etc/b", "/etc/c"]),
            (
                "[Service]\nReadWritePaths=-/var/a +/var/b\nReadOnlyPaths=/etc/c",
                &["/etc/c", "/var/a", "/var/b"],
            ),
            ("[Service]\nBindPaths=/etc/from:/to:rbind", &["/etc/from", "/to"]),
            ("[Service]\nLoadCredential=name:/etc/key", &["/etc/key"]),
            (
                "[Service]\nExecStart=/bin/x --config=/etc/x -I/etc/i \\\n  /etc/y",
                &["/bin/x", "/etc/i", "/etc/x", "/etc/y"],
            ),
            ("[Service]\nExecStartPre=-+/bin/sh -c \"cat </etc/z; true\"", &["/bin/sh", "/etc/z"]),
            ("[Service]\nExecStart=x https://a/b docker://c/d ${HOME}/e text/plain", &[]),
            ("[Service]\nDescription=/etc/no\n[Install]\nAlias=/etc/no", &[]),
        ] {
            let used: Vec<_> = used_paths(line).into_iter().collect();
            assert_eq!(used, expected, "{line}");
        }
    }

    #[test]
    fn presets_take_the_first_line_that_fits() {
        let texts = ["# c\nenable a.service\ndisable a*\nenable t@.service x\n", "disable *\n"];
        let enabled = |unit| preset_enables(unit, texts);
        assert!(enabled("a.service"));
        assert!(!enabled("ab.service"));
        assert!(enabled("t@x.service"));
        assert!(!enabled("t@y.service"));
        assert!(!enabled("z.service"));
        assert!(preset_enables("z.service", []));
    }

    #[test]
    fn specifiers() {
        assert_eq!(expand("w@%i-%p.%%n", "a-b@c.service").as_deref(), Some("w@c-a-b.%n"));
        assert_eq!(expand("%N %n %j", "a-b.service").as_deref(), Some("a-b a-b.service b"));
        assert_eq!(expand("%H", "a.service"), None);
    }
}
