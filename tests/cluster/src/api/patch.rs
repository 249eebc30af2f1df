//! The three patch kinds. Pure.

use serde_json::Value;

use super::resources::Resource;
use super::status::Refusal;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Applies a patch body to a stored object.
pub(crate) fn apply(
    resource: &Resource,
    content_type: &str,
    stored: &Value,
    body: &[u8],
) -> Result<Value, Refusal> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind == STRATEGIC && resource.custom || ![JSON, MERGE, STRATEGIC].contains(&kind) {
        return Err(Refusal::media_type(if resource.custom {
            "application/json-patch+json, application/merge-patch+json"
        } else {
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json"
        }));
    }
    let mut result = stored.clone();
    if kind == JSON {
        let patch: json_patch::Patch =
            serde_json::from_slice(body).map_err(|_| Refusal::bad_request("the body is not a JSON patch"))?;
        json_patch::patch(&mut result, &patch).map_err(|error| Refusal {
            code: 422,
            reason: "Invalid",
            message: format!("the server rejected our request due to an error in our request: {error}"),
            retry_after: None,
        })?;
        return Ok(result);
    }
    let patch: Value =
        serde_json::from_slice(body).map_err(|_| Refusal::bad_request("the body is not JSON"))?;
    if !patch.is_object() {
        return Err(Refusal::bad_request("the patch is not an object"));
    }
    if kind == MERGE {
        json_patch::merge(&mut result, &patch);
    } else {
        strategic(&mut result, &patch);
    }
    Ok(result)
}

/// Merge keys of the lists that the kinds here have; every other list is replaced as a whole (taints too).
fn merge_key(list: &str) -> Option<&'static str> {
    match list {
        "conditions" | "addresses" => Some("type"),
        "ownerReferences" => Some("uid"),
        _ => None,
    }
}

fn strategic(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if patch.get("$patch").is_some_and(|directive| directive == "replace") || !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(map) = target else { return };
    for (key, value) in patch {
        if key.starts_with('$') {
            continue; // $patch is handled above, $setElementOrder and $retainKeys only order and narrow
        }
        match (value, merge_key(key)) {
            (Value::Null, _) => {
                map.remove(key);
            }
            (Value::Object(child), _)
                if child.get("$patch").is_some_and(|directive| directive == "delete") =>
            {
                map.remove(key);
            }
            (Value::Object(_), _) => strategic(map.entry(key.clone()).or_insert(Value::Null), value),
            (Value::Array(entries), Some(by)) => {
                let list = map.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
                merge_list(list, entries, by);
            }
            _ => {
                map.insert(key.clone(), value.clone());
            }
        }
    }
}

fn merge_list(list: &mut Value, entries: &[Value], by: &str) {
    let Value::Array(list) = list else {
        *list = Value::Array(entries.to_vec());
        return;
    };
    for entry in entries {
        let at = list.iter().position(|existing| existing[by] == entry[by]);
        match (entry["$patch"] == "delete", at) {
            (true, Some(at)) => {
                list.remove(at);
            }
            (true, None) => {}
            (false, Some(at)) => strategic(&mut list[at], entry),
            (false, None) => list.push(entry.clone()),
        }
    }
}
