//! Owns: `tests/node/fixtures`, worker configurations of the project's own making, kept as trees that people can read and edit.
//! Given: the directory of such trees; gives: the `MachineConfig` objects an API would hold, and what of them is post-approved.
//! Never: looks outside the given directory, merges or renders; that is the control plane's work.
//!
//! One folder is one `MachineConfig` and gives it its name:
//!
//! ```text
//! 99-worker-chrony/meta.yaml                 labels, spec version, and whatever is not the default
//!                  files/etc/chrony.conf     the bytes of /etc/chrony.conf
//!                  units/x.service           the text of a unit
//!                  units/y.service.d/a.conf  the text of a drop-in, with or without units/y.service
//! ```

mod leak;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use leak::{Text, post_only_texts};

/// Marks what the operator made; objects without it are customers', hence post-approved by default (facts/mco.md 6.4).
pub const OPERATOR_MADE: &str = "machineconfiguration.openshift.io/generated-by-controller-version";

/// What Ignition writes when nothing is said, and what nearly every file of a node has.
const DEFAULT_MODE: u32 = 0o644;

/// RFC 3986's unreserved characters stay as they are, as in the operator's own `data:` URLs.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Why a tree could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder of the tree is missing or unreadable.
    #[error("cannot read {}", .0.display())]
    Read(PathBuf, #[source] io::Error),
    /// `meta.yaml` is not YAML, or has a key that nobody knows.
    #[error("{} does not describe a MachineConfig", .0.display())]
    Meta(PathBuf, #[source] serde_norway::Error),
    /// `meta.yaml`, the first, says something about a path that has no file: a typing error that would otherwise go unnoticed.
    #[error("{} describes {}, which is not in files/ beside it", .0.display(), .1)]
    Stray(PathBuf, String),
    /// A name or a unit's text is not UTF-8, which JSON cannot carry.
    #[error("{} is not UTF-8", .0.display())]
    NotText(PathBuf),
}

/// How a file's bytes are written into its `data:` URL.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    /// `data:,` and percent-encoding: what the operator makes.
    #[default]
    Percent,
    /// `data:text/plain;charset=utf-8;base64,`: what most people's tools make.
    Base64,
    /// Compressed, then base64: what Butane makes of anything large.
    Gzip,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileMeta {
    mode: Option<u32>,
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct UnitMeta {
    enabled: Option<bool>,
    mask: Option<bool>,
}

/// `meta.yaml`. Users, directories, links and `spec` are passed on as they stand.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Meta {
    labels: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    /// The Ignition spec version.
    ignition: String,
    /// What `overwrite` each file gets; without it the key is left out.
    overwrite: Option<bool>,
    #[serde(default)]
    files: BTreeMap<String, FileMeta>,
    #[serde(default)]
    units: BTreeMap<String, UnitMeta>,
    #[serde(default)]
    directories: Vec<Value>,
    #[serde(default)]
    links: Vec<Value>,
    #[serde(default)]
    users: Vec<User>,
    /// The fields beside `spec.config`: `osImageURL`, `kernelArguments` and the like.
    #[serde(default)]
    spec: Map<String, Value>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct User {
    name: String,
    ssh_authorized_keys: Vec<String>,
}

#[derive(Default)]
struct Unit {
    contents: Option<String>,
    dropins: BTreeMap<String, String>,
}

/// One folder, read.
struct Tree {
    name: String,
    meta: Meta,
    files: BTreeMap<String, Vec<u8>>,
    units: BTreeMap<String, Unit>,
}

/// Where the default worker configuration lies in this checkout.
pub fn worker_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/worker")
}

/// The `MachineConfig` objects under `dir`, sorted by name, the order in which the operator merges them.
pub fn machine_configs(dir: &Path) -> Result<Vec<Value>, Error> {
    Ok(read_all(dir)?.iter().map(Tree::to_json).collect())
}

fn read_all(dir: &Path) -> Result<Vec<Tree>, Error> {
    names(dir)?.iter().map(|name| Tree::read(dir, name)).collect()
}

impl Tree {
    fn read(parent: &Path, name: &str) -> Result<Self, Error> {
        let dir = parent.join(name);
        let path = dir.join("meta.yaml");
        let meta: Meta =
            serde_norway::from_slice(&bytes(&path)?).map_err(|source| Error::Meta(path.clone(), source))?;

        let files = walk(&dir.join("files"))?;
        if let Some(stray) = meta.files.keys().find(|file| !files.contains_key(*file)) {
            return Err(Error::Stray(path, stray.clone()));
        }

        // A unit may be in meta.yaml only: enabled or masked, with its text elsewhere.
        let mut units: BTreeMap<String, Unit> =
            meta.units.keys().map(|unit| (unit.clone(), Unit::default())).collect();
        for (path, bytes) in walk(&dir.join("units"))? {
            let path = path.trim_start_matches('/');
            let text = String::from_utf8(bytes).map_err(|_| Error::NotText(dir.join("units").join(path)))?;
            match path.split_once(".d/") {
                Some((unit, dropin)) => {
                    units.entry(unit.into()).or_default().dropins.insert(dropin.into(), text);
                }
                None => units.entry(path.into()).or_default().contents = Some(text),
            }
        }
        Ok(Self { name: name.into(), meta, files, units })
    }

    fn to_json(&self) -> Value {
        let meta = &self.meta;
        let files: Vec<Value> = self.files.iter().map(|(path, bytes)| self.file(path, bytes)).collect();
        let units: Vec<Value> = self.units.iter().map(|(name, unit)| self.unit(name, unit)).collect();
        let mut spec = meta.spec.clone();
        let config = json!({
            "ignition": {"version": meta.ignition},
            "passwd": {"users": meta.users},
            "storage": {"directories": meta.directories, "files": files, "links": meta.links},
            "systemd": {"units": units},
        });
        spec.insert("config".into(), said(config));
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineConfig",
            "metadata": said(json!({"name": self.name, "labels": meta.labels, "annotations": meta.annotations})),
            "spec": spec,
        })
    }

    fn file(&self, path: &str, bytes: &[u8]) -> Value {
        let mode = self.meta.files.get(path).and_then(|meta| meta.mode).unwrap_or(DEFAULT_MODE);
        let (head, payload) = self.payload(path, bytes);
        let compression = matches!(self.encoding(path), Encoding::Gzip).then_some("gzip");
        json!({
            "path": path,
            "mode": mode,
            "overwrite": self.meta.overwrite,
            "contents": {"source": format!("{head}{payload}"), "compression": compression},
        })
    }

    fn unit(&self, name: &str, unit: &Unit) -> Value {
        let meta = self.meta.units.get(name);
        let dropin = |(name, contents)| json!({"name": name, "contents": contents});
        json!({
            "name": name,
            "enabled": meta.and_then(|meta| meta.enabled),
            "mask": meta.and_then(|meta| meta.mask),
            "contents": unit.contents,
            "dropins": unit.dropins.iter().map(dropin).collect::<Vec<_>>(),
        })
    }

    fn encoding(&self, path: &str) -> Encoding {
        self.meta.files.get(path).map(|meta| meta.encoding).unwrap_or_default()
    }

    /// The two parts of the `data:` URL.
    fn payload(&self, path: &str, bytes: &[u8]) -> (&'static str, String) {
        match self.encoding(path) {
            Encoding::Percent => ("data:,", percent(bytes)),
            Encoding::Base64 => ("data:text/plain;charset=utf-8;base64,", BASE64_STANDARD.encode(bytes)),
            Encoding::Gzip => ("data:;base64,", BASE64_STANDARD.encode(gzip(bytes))),
        }
    }
}

/// Ignition leaves out what is not said; so are nulls and what is empty, at every depth.
fn said(value: Value) -> Value {
    let unsaid = [Value::Null, json!([]), json!({})];
    match value {
        Value::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, said(value)))
            .filter(|(_, value)| !unsaid.contains(value))
            .collect(),
        Value::Array(list) => list.into_iter().map(said).collect(),
        other => other,
    }
}

fn percent(bytes: &[u8]) -> String {
    percent_encode(bytes, ESCAPED).to_string()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a Vec takes every write")
}

fn bytes(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Read(path.into(), source))
}

/// The names in a folder, sorted; no order is promised by the system.
fn names(dir: &Path) -> Result<Vec<String>, Error> {
    let read = |source| Error::Read(dir.into(), source);
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).map_err(read)? {
        let entry = entry.map_err(read)?;
        names.push(entry.file_name().into_string().map_err(|_| Error::NotText(entry.path()))?);
    }
    names.sort();
    Ok(names)
}

/// Every file below `dir`, by its path from there with a slash in front; a `dir` that does not exist has none.
fn walk(dir: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut files = BTreeMap::new();
    let mut folders = if dir.exists() { vec![String::new()] } else { Vec::new() };
    while let Some(folder) = folders.pop() {
        for name in names(&dir.join(folder.trim_start_matches('/')))? {
            let path = format!("{folder}/{name}");
            let real = dir.join(&path[1..]);
            if real.is_dir() {
                folders.push(path);
            } else {
                files.insert(path, bytes(&real)?);
            }
        }
    }
    Ok(files)
}
