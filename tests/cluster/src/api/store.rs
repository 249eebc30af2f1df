//! Objects, their versions and their history, in memory and in one journal file.
//! A write is one line appended before anyone can see it, so a killed server comes back with what it has answered.

use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

/// Events that a watch can resume from; older versions are answered with 410, as after an etcd compaction.
const HISTORY: usize = 4096;

/// Which object: resource (`group/plural`), namespace, name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// A change that has happened. `after` is none for a deletion.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    pub(crate) before: Option<Arc<Value>>,
    pub(crate) after: Option<Arc<Value>>,
}

/// What a write decides to do with the object it was shown.
pub(crate) enum Decision {
    Put(Value),
    Delete,
}

struct Inner {
    objects: BTreeMap<Key, Arc<Value>>,
    history: VecDeque<Change>,
    version: u64,
    /// Changes up to here are no longer in `history`.
    compacted: u64,
    journal: File,
}

/// The store.
pub(crate) struct Store {
    inner: Mutex<Inner>,
    latest: watch::Sender<u64>,
}

impl Store {
    /// Reads the journal, rewrites it without what is superseded, and goes on from there.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let (objects, version) = replay(path)?;
        let compact: PathBuf = path.with_extension("compact");
        let mut journal = private(&compact)?;
        let mut lines = line(version, None, None);
        for (key, object) in &objects {
            lines.push_str(&line(version, Some(key), Some(object)));
        }
        journal.write_all(lines.as_bytes())?;
        std::fs::rename(&compact, path)?;
        let inner = Inner { objects, history: VecDeque::new(), version, compacted: version, journal };
        Ok(Self { inner: Mutex::new(inner), latest: watch::Sender::new(version) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no code panics while it holds the store")
    }

    /// Nothing has ever been written: defaults are wanted.
    pub(crate) fn is_new(&self) -> bool {
        self.lock().version == 0
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<Value>> {
        self.lock().objects.get(key).cloned()
    }

    /// All objects of a resource, in one namespace or (empty) in all, with the version they are of.
    pub(crate) fn list(&self, resource: &str, namespace: &str) -> (u64, Vec<Arc<Value>>) {
        let inner = self.lock();
        let from =
            Key { resource: resource.to_owned(), namespace: namespace.to_owned(), name: String::new() };
        let found = inner
            .objects
            .range((Bound::Included(from), Bound::Unbounded))
            .take_while(|(key, _)| {
                key.resource == resource && (namespace.is_empty() || key.namespace == namespace)
            })
            .map(|(_, object)| Arc::clone(object))
            .collect();
        (inner.version, found)
    }

    /// Read, decide, write, as one. The object's `resourceVersion` is set here. Returns what is stored afterwards, or
    /// what was deleted. An object that does not change keeps its version and makes no event.
    pub(crate) fn write<E: From<std::io::Error>>(
        &self,
        key: &Key,
        decide: impl FnOnce(Option<&Value>) -> Result<Decision, E>,
    ) -> Result<Arc<Value>, E> {
        let mut inner = self.lock();
        let before = inner.objects.get(key).cloned();
        let version = inner.version + 1;
        let (after, shown) = match decide(before.as_deref())? {
            Decision::Put(mut object) => {
                if let Some(before) = &before {
                    object["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"].clone();
                    if object == **before {
                        return Ok(Arc::clone(before));
                    }
                }
                object["metadata"]["resourceVersion"] = version.to_string().into();
                let object = Arc::new(object);
                (Some(Arc::clone(&object)), object)
            }
            Decision::Delete => {
                let mut last = before.as_deref().cloned().unwrap_or_default();
                last["metadata"]["resourceVersion"] = version.to_string().into();
                (None, Arc::new(last))
            }
        };
        inner.journal.write_all(line(version, Some(key), after.as_deref()).as_bytes())?;
        match &after {
            Some(object) => inner.objects.insert(key.clone(), Arc::clone(object)),
            None => inner.objects.remove(key),
        };
        inner.version = version;
        let gone = after.is_none().then(|| Arc::clone(&shown));
        inner.history.push_back(Change { version, key: key.clone(), before: gone.or(before), after });
        if inner.history.len() > HISTORY
            && let Some(oldest) = inner.history.pop_front()
        {
            inner.compacted = oldest.version;
        }
        self.latest.send_replace(version);
        Ok(shown)
    }

    /// The changes after a version; `Err` with the oldest one known if that is too long ago, or in the future.
    pub(crate) fn since(&self, version: u64) -> Result<(u64, Vec<Change>), u64> {
        let inner = self.lock();
        if version < inner.compacted || version > inner.version {
            return Err(inner.compacted);
        }
        Ok((inner.version, inner.history.iter().filter(|change| change.version > version).cloned().collect()))
    }

    /// The newest version, and a way to wait for a newer one.
    pub(crate) fn latest(&self) -> watch::Receiver<u64> {
        self.latest.subscribe()
    }
}

fn private(path: &Path) -> std::io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().write(true).create(true).truncate(true).mode(0o600).open(path)
}

fn line(version: u64, key: Option<&Key>, object: Option<&Value>) -> String {
    let key = key.map(|key| json!([key.resource, key.namespace, key.name]));
    let mut line = json!({"v": version, "k": key, "o": object}).to_string();
    line.push('\n');
    line
}

fn replay(path: &Path) -> std::io::Result<(BTreeMap<Key, Arc<Value>>, u64)> {
    let (mut objects, mut version) = (BTreeMap::new(), 0);
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((objects, version)),
        Err(error) => return Err(error),
    };
    for text in BufReader::new(file).lines() {
        // A killed server can leave half a last line: that write was never answered.
        let Ok(mut entry) = serde_json::from_str::<Value>(&text?) else { break };
        version = version.max(entry["v"].as_u64().unwrap_or_default());
        let object = entry["o"].take();
        if let [resource, namespace, name] = entry["k"].as_array().map(Vec::as_slice).unwrap_or_default() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let key = Key { resource: text(resource), namespace: text(namespace), name: text(name) };
            if object.is_null() {
                objects.remove(&key);
            } else {
                objects.insert(key, Arc::new(object));
            }
        }
    }
    Ok((objects, version))
}
