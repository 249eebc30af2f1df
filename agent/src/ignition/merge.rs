//! Owns: `ignition.config.merge` and `replace`, and what merging two configs means (facts/ignition.md 2.3, 4.4).
//! Given a document with `data:` references (firstboot's hand-off); gives one document of the newest spec without references.
//! Never fetches: a reference that is not a `data:` URL is refused.

use serde_json::{Map, Value};

use super::{Error, parse, resource};

/// Deep enough for any real chain (a pointer, a pool, a node), shallow enough for the stack; firstboot's own limit.
const MAX_DEPTH: usize = 8;

/// Resolves all references, depth first, in Ignition's order.
pub(super) fn resolve(document: &Value, warnings: &mut Vec<String>) -> Result<Value, Error> {
    resolve_at(document, warnings, 0)
}

fn resolve_at(document: &Value, warnings: &mut Vec<String>, depth: usize) -> Result<Value, Error> {
    if depth > MAX_DEPTH {
        return Err(Error::Depth(MAX_DEPTH));
    }
    let mut config = parse::up_convert(document, warnings)?;
    let references = config["ignition"].as_object_mut().and_then(|i| i.remove("config"));
    let Some(references) = references else { return Ok(config) };
    // `replace` discards everything in the document that names it, its merge list included.
    if references.pointer("/replace/source").is_some_and(|s| !s.is_null()) {
        return child(&references["replace"], "ignition.config.replace", warnings, depth);
    }
    let Some(children) = references["merge"].as_array() else { return Ok(config) };
    for (i, reference) in children.iter().enumerate() {
        let rendered = child(reference, &format!("ignition.config.merge[{i}]"), warnings, depth)?;
        config = merge(config, rendered);
    }
    Ok(config)
}

fn child(reference: &Value, entry: &str, warnings: &mut Vec<String>, depth: usize) -> Result<Value, Error> {
    let bytes = resource::decode_value(reference, entry)?;
    let invalid = |message: &str| Error::Content { entry: entry.to_owned(), message: message.to_owned() };
    // Ignition takes an empty child for an empty whole (facts/ignition.md 1.6): never a config to us.
    if bytes.is_empty() {
        return Err(invalid("the referenced config is empty"));
    }
    let document =
        serde_json::from_slice(&bytes).map_err(|_| invalid("the referenced config is not JSON"))?;
    resolve_at(&document, warnings, depth + 1)
}

/// Merges two documents of the same spec; what the child sets wins.
pub(super) fn merge(parent: Value, child: Value) -> Value {
    let (Value::Object(mut parent), Value::Object(mut child)) = (parent, child) else { return Value::Null };
    one_kind_per_path(&mut parent, &child);
    kernel_arguments(&mut parent, &mut child);
    Value::Object(objects(parent, child))
}

fn objects(mut parent: Map<String, Value>, child: Map<String, Value>) -> Map<String, Value> {
    for (key, theirs) in child {
        let ours = parent.remove(&key);
        let merged = values(&key, ours.unwrap_or(Value::Null), theirs);
        parent.insert(key, merged);
    }
    parent
}

fn values(key: &str, parent: Value, child: Value) -> Value {
    match (parent, child) {
        (parent, Value::Null) => parent,
        (Value::Object(p), Value::Object(c)) => Value::Object(objects(p, c)),
        (Value::Array(p), Value::Array(c)) => Value::Array(lists(key, p, c)),
        (_, child) => child,
    }
}

/// How the entries of a list are told apart.
fn identity(list: &str, entry: &Value) -> Option<String> {
    let field = match list {
        "files" | "directories" | "links" => "path",
        "disks" | "filesystems" => "device",
        "merge" | "certificateAuthorities" => "source",
        "tang" => "url",
        "partitions" => {
            return match entry["number"].as_i64().unwrap_or(0) {
                0 => Some(format!("label:{}", entry["label"].as_str().unwrap_or_default())),
                n => Some(format!("number:{n}")),
            };
        }
        // These grow; an entry has no name (facts/ignition.md 4.4).
        "append" | "options" | "mountOptions" => return None,
        _ if entry.is_string() => return entry.as_str().map(str::to_owned),
        _ => "name",
    };
    entry[field].as_str().map(str::to_owned)
}

/// The parent's order first, with merged entries in place, then what only the child has.
fn lists(key: &str, mut parent: Vec<Value>, child: Vec<Value>) -> Vec<Value> {
    for theirs in child {
        let name = identity(key, &theirs);
        let same =
            name.is_some().then(|| parent.iter().position(|ours| identity(key, ours) == name)).flatten();
        match same {
            // A header without value removes the parent's.
            Some(at) if key == "httpHeaders" && theirs["value"].is_null() => {
                parent.remove(at);
            }
            Some(at) => parent[at] = values(key, parent[at].take(), theirs),
            None => parent.push(theirs),
        }
    }
    parent
}

/// Files, directories and links share one namespace: a child's entry removes the parent's of another kind.
fn one_kind_per_path(parent: &mut Map<String, Value>, child: &Map<String, Value>) {
    const KINDS: [&str; 3] = ["files", "directories", "links"];
    let Some(child) = child.get("storage") else { return };
    let Some(parent) = parent.get_mut("storage") else { return };
    for kind in KINDS {
        let Some(entries) = child[kind].as_array() else { continue };
        let taken: std::collections::HashSet<&str> =
            entries.iter().filter_map(|e| e["path"].as_str()).collect();
        for other in KINDS.iter().filter(|other| **other != kind) {
            if let Some(list) = parent.get_mut(*other).and_then(Value::as_array_mut) {
                list.retain(|e| !e["path"].as_str().is_some_and(|p| taken.contains(p)));
            }
        }
    }
}

/// `shouldExist` and `shouldNotExist` share one namespace too.
fn kernel_arguments(parent: &mut Map<String, Value>, child: &mut Map<String, Value>) {
    let Some(child) = child.get("kernelArguments") else { return };
    let Some(parent) = parent.get_mut("kernelArguments") else { return };
    for (list, other) in [("shouldExist", "shouldNotExist"), ("shouldNotExist", "shouldExist")] {
        let Some(theirs) = child[list].as_array() else { continue };
        if let Some(ours) = parent.get_mut(other).and_then(Value::as_array_mut) {
            ours.retain(|argument| !theirs.contains(argument));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_child_wins_field_by_field_and_order_is_the_parents() {
        let parent = json!({"storage": {"files": [
            {"path": "/a", "mode": 420, "contents": {"source": "data:,old"}},
            {"path": "/b", "append": [{"source": "data:,1"}]}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2"]}]}});
        let child = json!({"storage": {"files": [
            {"path": "/c"},
            {"path": "/b", "append": [{"source": "data:,1"}]},
            {"path": "/a", "mode": null, "contents": {"source": "data:,new"}}]},
            "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k2", "k3"]}]}});
        assert_eq!(
            merge(parent, child),
            json!({"storage": {"files": [
                {"path": "/a", "mode": 420, "contents": {"source": "data:,new"}},
                {"path": "/b", "append": [{"source": "data:,1"}, {"source": "data:,1"}]},
                {"path": "/c"}]},
                "passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["k1", "k2", "k3"]}]}})
        );
    }

    #[test]
    fn a_child_of_another_kind_takes_the_path() {
        let parent =
            json!({"storage": {"files": [{"path": "/a"}, {"path": "/b"}], "links": [{"path": "/l"}]}});
        let child = json!({"storage": {"directories": [{"path": "/a"}], "files": [{"path": "/l"}]}});
        assert_eq!(
            merge(parent, child),
            json!({"storage": {"files": [{"path": "/b"}, {"path": "/l"}], "links": [], "directories": [{"path": "/a"}]}})
        );
    }

    #[test]
    fn a_kernel_argument_is_wanted_or_not_wanted() {
        let parent = json!({"kernelArguments": {"shouldExist": ["a", "b"]}});
        let child = json!({"kernelArguments": {"shouldNotExist": ["a"]}});
        assert_eq!(
            merge(parent, child),
            json!({"kernelArguments": {"shouldExist": ["b"], "shouldNotExist": ["a"]}})
        );
    }

    fn data(document: &Value) -> String {
        use base64::Engine;
        let bytes = serde_json::to_vec(document).unwrap();
        format!("data:;base64,{}", base64::engine::general_purpose::STANDARD.encode(bytes))
    }

    #[test]
    fn references_are_resolved_depth_first() {
        let leaf =
            json!({"ignition": {"version": "3.0.0"}, "storage": {"files": [{"path": "/a", "mode": 384}]}});
        let middle = json!({"ignition": {"version": "3.2.0", "config": {"merge": [{"source": data(&leaf)}]}},
            "storage": {"files": [{"path": "/a", "mode": 420}, {"path": "/b"}]}});
        let top = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": data(&middle)}]}},
            "storage": {"files": [{"path": "/b", "mode": 256}]}});
        let merged = resolve(&top, &mut Vec::new()).unwrap();
        let modes: Vec<_> = merged["storage"]["files"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| (f["path"].as_str().unwrap(), f["mode"].as_i64()))
            .collect();
        assert_eq!(modes, [("/b", Some(256)), ("/a", Some(384))]);
        let replaced = json!({"ignition": {"version": "3.5.0", "config": {"replace": {"source": data(&leaf)},
            "merge": [{"source": data(&middle)}]}}, "storage": {"files": [{"path": "/z"}]}});
        let merged = resolve(&replaced, &mut Vec::new()).unwrap();
        assert_eq!(merged["storage"]["files"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn remote_empty_and_endless_references_are_refused() {
        let with = |source: &str| {
            let top = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": source}]}}});
            resolve(&top, &mut Vec::new()).unwrap_err().to_string()
        };
        assert!(with("https://mcs/config/worker").contains("only data: URLs"));
        assert!(with("data:,").contains("is empty"));
        let mut top = json!({"ignition": {"version": "3.5.0"}});
        for _ in 0..=MAX_DEPTH {
            top = json!({"ignition": {"version": "3.5.0", "config": {"merge": [{"source": data(&top)}]}}});
        }
        assert!(matches!(resolve(&top, &mut Vec::new()), Err(Error::Depth(_))));
    }
}
