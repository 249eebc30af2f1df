//! Which spec a client can read, from its `Accept` (facts/mco.md 1.2). Pure.

use std::fmt;

/// An Ignition spec version, without its patch level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// 2 or 3.
    pub major: u64,
    /// Up to 5.
    pub minor: u64,
}

impl Version {
    /// The newest that is served: what rendered configs are written in.
    pub const NEWEST: Self = Self { major: 3, minor: 5 };
    /// What a client gets that does not say what it can read: a bare `curl`.
    pub const UNSAID: Self = Self { major: 2, minor: 2 };
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.0", self.major, self.minor)
    }
}

/// The version to serve, or `None` for 400: a version that nothing here can be turned into.
pub fn negotiate(accept: Option<&str>) -> Option<Version> {
    let mut entries: Vec<(f64, Option<(u64, u64)>)> =
        accept.unwrap_or_default().split(',').filter_map(|entry| parse_entry(entry.trim())).collect();
    entries.sort_by(|a, b| b.0.total_cmp(&a.0)); // stable: equal weights stay in the client's order
    match entries.into_iter().find_map(|(_, version)| version) {
        None => Some(Version::UNSAID),
        Some((2, minor)) if minor >= 2 => Some(Version::UNSAID),
        Some((3, minor)) => Some(Version { major: 3, minor: minor.min(Version::NEWEST.minor) }),
        Some(_) => None,
    }
}

/// Weight, and the version if the entry is for Ignition and says one.
fn parse_entry(entry: &str) -> Option<(f64, Option<(u64, u64)>)> {
    let mut parts = entry.split(';').map(str::trim);
    let (_, subtype) = parts.next()?.split_once('/')?;
    let (mut weight, mut version) = (1.0, None);
    for (key, value) in parts.filter_map(|part| part.split_once('=')) {
        match key {
            "q" => weight = value.parse().unwrap_or(1.0),
            "version" => version = semver(value),
            _ => {}
        }
    }
    Some((weight, version.filter(|_| subtype == "vnd.coreos.ignition+json")))
}

/// `3.5.0`, with an optional pre-release or build part; major and minor of it.
fn semver(text: &str) -> Option<(u64, u64)> {
    let core = text.split(['-', '+']).next()?;
    let numbers: Vec<u64> = core.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    match numbers.as_slice() {
        [major, minor, _] => Some((*major, *minor)),
        _ => None,
    }
}
