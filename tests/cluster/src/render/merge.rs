//! Ignition's own merge (facts/mco.md 6.1), over JSON values of spec 3. Pure.
//! Parents' order stays, what is new comes after; lists are merged by what names an entry.

use serde_json::{Map, Value};

/// Lists that only grow: their entries have no name.
const APPENDED: &[&str] = &["append", "merge"];
/// Lists whose entries share one space of names: a path is a file, a directory or a link, and the last one says which.
const PATHS: &[&str] = &["files", "directories", "links"];
/// The same for kernel arguments.
const ARGUMENTS: &[&str] = &["shouldExist", "shouldNotExist"];

/// The child over the parent.
pub fn merge(parent: &Value, child: &Value) -> Value {
    let mut result = parent.clone();
    merge_into(&mut result, child);
    result
}

fn merge_into(parent: &mut Value, child: &Value) {
    match (parent, child) {
        (_, Value::Null) => {}
        (Value::Object(parent), Value::Object(child)) => merge_objects(parent, child),
        (parent, child) => *parent = child.clone(),
    }
}

fn merge_objects(parent: &mut Map<String, Value>, child: &Map<String, Value>) {
    take_over(parent, child, PATHS);
    take_over(parent, child, ARGUMENTS);
    for (key, value) in child {
        match value {
            Value::Null => {}
            Value::Array(entries) => {
                let list = parent.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                match list {
                    Value::Array(list) => merge_lists(list, entries, key),
                    other => *other = value.clone(),
                }
            }
            Value::Object(contents) if key == "contents" => {
                let slot = parent.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
                // A source comes with its own compression, or none: the parent's would not fit.
                if let (Value::Object(old), true) = (&mut *slot, contents.contains_key("source")) {
                    old.remove("compression");
                }
                merge_into(slot, value);
            }
            _ => merge_into(parent.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

/// Entries of the parent that the child has in another list of the group go.
fn take_over(parent: &mut Map<String, Value>, child: &Map<String, Value>, group: &[&str]) {
    for list in group {
        for entry in child.get(*list).and_then(Value::as_array).into_iter().flatten() {
            let Some(name) = name(entry) else { continue };
            for other in group.iter().filter(|other| *other != list) {
                if let Some(Value::Array(old)) = parent.get_mut(*other) {
                    old.retain(|entry| self::name(entry).as_ref() != Some(&name));
                }
            }
        }
    }
}

fn merge_lists(list: &mut Vec<Value>, entries: &[Value], key: &str) {
    if APPENDED.contains(&key) {
        list.extend_from_slice(entries);
        return;
    }
    for entry in entries {
        let named = name(entry);
        match list.iter_mut().find(|old| named.is_some() && name(old) == named) {
            Some(old) => merge_into(old, entry),
            None => list.push(entry.clone()),
        }
    }
}

/// What names an entry: a key or argument is its own name, the rest have a field for it.
fn name(entry: &Value) -> Option<String> {
    if let Value::String(text) = entry {
        return Some(text.clone());
    }
    if let Some(number) = entry["number"].as_i64().filter(|number| *number != 0) {
        return Some(format!("number {number}")); // a partition
    }
    let field =
        ["path", "name", "device", "url", "source", "label"].iter().find_map(|key| entry[*key].as_str());
    field.map(str::to_owned)
}
