//! Owns selectors: label selectors as objects and as text, field selectors as text.
//! Given a selector and an object, gives whether it matches.
//! Never guesses: a selector that cannot be read matches nothing, and says so where it is text.

use serde_json::Value;

/// One requirement on a label.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

impl Requirement {
    fn matches(&self, labels: &Value) -> bool {
        match self {
            Self::In(key, values) => labels[key].as_str().is_some_and(|v| values.iter().any(|w| w == v)),
            Self::NotIn(key, values) => labels[key].as_str().is_none_or(|v| values.iter().all(|w| w != v)),
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Absent(key) => labels.get(key).is_none(),
        }
    }
}

/// Whether an object's labels satisfy a `metav1.LabelSelector`. An empty or unreadable selector matches nothing:
/// so it is for pools (facts/mco.md 6.2).
pub fn labels_match(selector: &Value, object: &Value) -> bool {
    requirements(selector)
        .is_some_and(|all| !all.is_empty() && all.iter().all(|r| r.matches(&object["metadata"]["labels"])))
}

fn requirements(selector: &Value) -> Option<Vec<Requirement>> {
    let mut all = Vec::new();
    for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
        all.push(Requirement::In(key.clone(), vec![value.as_str()?.to_owned()]));
    }
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str()?.to_owned();
        let listed = expression["values"].as_array().into_iter().flatten();
        let values = listed.map(|v| v.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
        all.push(match expression["operator"].as_str()? {
            "In" => Requirement::In(key, values),
            "NotIn" => Requirement::NotIn(key, values),
            "Exists" => Requirement::Exists(key),
            "DoesNotExist" => Requirement::Absent(key),
            _ => return None,
        });
    }
    Some(all)
}

/// What a list or watch is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    labels: Vec<Requirement>,
    fields: Vec<(String, String, bool)>,
}

impl Filter {
    /// From `labelSelector` and `fieldSelector` of a query.
    pub fn parse(labels: Option<&str>, fields: Option<&str>) -> Result<Self, String> {
        let mut filter = Self::default();
        for part in split_outside_parentheses(labels.unwrap_or_default()) {
            filter
                .labels
                .push(parse_label(part).ok_or_else(|| format!("unable to parse label selector {part:?}"))?);
        }
        for part in fields.unwrap_or_default().split(',').filter(|part| !part.is_empty()) {
            let (key, value, equal) = if let Some((key, value)) = part.split_once("!=") {
                (key, value, false)
            } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (key, value, true)
            } else {
                return Err(format!("invalid selector: {part:?}; can't understand it"));
            };
            if !FIELDS.contains(&key) {
                return Err(format!("field label not supported: {key}"));
            }
            filter.fields.push((key.to_owned(), value.to_owned(), equal));
        }
        Ok(filter)
    }

    /// The one value that a field must have, if the selector says so.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _, equal)| key == name && *equal).map(|(_, value, _)| value.as_str())
    }

    /// Whether an object passes.
    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.matches(&object["metadata"]["labels"]))
            && self.fields.iter().all(|(key, value, equal)| {
                let found = key.split('.').fold(object, |at, step| &at[step]);
                (found.as_str().unwrap_or_default() == value) == *equal
            })
    }
}

/// The fields that can be selected on: those that a kubelet, kubectl and the agent use.
const FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "spec.signerName",
    "spec.nodeName",
    "involvedObject.name",
    "involvedObject.kind",
    "involvedObject.uid",
    "involvedObject.namespace",
    "reason",
    "type",
    "status.phase",
];

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_u32, 0, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts.into_iter().map(str::trim).filter(|part| !part.is_empty()).collect()
}

fn parse_label(part: &str) -> Option<Requirement> {
    let owned = str::to_owned;
    if let Some((key, rest)) = part.split_once(' ') {
        let (operator, list) =
            rest.trim().split_once('(').map(|(o, l)| (o.trim(), l.trim_end_matches(')')))?;
        let values = list.split(',').map(|v| v.trim().to_owned()).collect();
        return match operator {
            "in" => Some(Requirement::In(owned(key), values)),
            "notin" => Some(Requirement::NotIn(owned(key), values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return Some(Requirement::NotIn(owned(key), vec![owned(value)]));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Some(Requirement::In(owned(key), vec![owned(value)]));
    }
    match part.strip_prefix('!') {
        Some(key) => Some(Requirement::Absent(owned(key))),
        None => Some(Requirement::Exists(owned(part))),
    }
}
