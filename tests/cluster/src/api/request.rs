//! From a request line to what is asked for: `RequestInfo`, as Kubernetes calls it.

use hyper::Method;
use std::collections::BTreeMap;

use super::resources::Resource;
use super::status::Refusal;
use crate::selector::Filter;

/// What a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub(crate) verb: &'static str,
    pub(crate) resource: &'static Resource,
    pub(crate) subresource: Option<String>,
    pub(crate) namespace: String,
    /// From the path or, for list and watch, from `metadata.name` in the field selector (facts/trust.md 3.3).
    pub(crate) name: Option<String>,
    pub(crate) filter: Filter,
    pub(crate) query: BTreeMap<String, String>,
}

impl Target {
    /// Reads method, path and query.
    pub(crate) fn parse(method: &Method, path: &str, query: Option<&str>) -> Result<Self, Refusal> {
        let query = parse_query(query.unwrap_or_default());
        let decoded: Vec<String> = path.trim_matches('/').split('/').map(decode).collect();
        let steps: Vec<&str> = decoded.iter().map(String::as_str).collect();
        let (group, version, rest) = match steps.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return Err(Refusal::no_such_path()),
        };
        let (namespace, rest) = match rest {
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
            rest => ("", rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some((*name).to_owned()), None),
            [plural, name, sub] => (plural, Some((*name).to_owned()), Some((*sub).to_owned())),
            _ => return Err(Refusal::no_such_path()),
        };
        let resource = Resource::find(group, version, plural).ok_or_else(Refusal::no_such_path)?;
        if subresource.as_deref().is_some_and(|sub| !resource.subresources.contains(&sub))
            || resource.namespaced == namespace.is_empty() && (!resource.namespaced || name.is_some())
        {
            return Err(Refusal::no_such_path());
        }
        let filter = Filter::parse(
            query.get("labelSelector").map(String::as_str),
            query.get("fieldSelector").map(String::as_str),
        )
        .map_err(Refusal::bad_request)?;
        let watching = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let verb = match (method, &name) {
            (&Method::GET | &Method::HEAD, Some(_)) if !watching => "get",
            (&Method::GET | &Method::HEAD, _) if watching => "watch",
            (&Method::GET | &Method::HEAD, _) => "list",
            (&Method::POST, None) => "create",
            (&Method::PUT, Some(_)) => "update",
            (&Method::PATCH, Some(_)) => "patch",
            (&Method::DELETE, Some(_)) => "delete",
            _ => return Err(Refusal::method()),
        };
        let name = name.or_else(|| filter.field("metadata.name").map(str::to_owned));
        Ok(Self { verb, resource, subresource, namespace: namespace.to_owned(), name, filter, query })
    }

    /// `machineconfigpools/status`: as RBAC rules name it.
    pub(crate) fn rbac_resource(&self) -> String {
        match &self.subresource {
            Some(sub) => format!("{}/{sub}", self.resource.plural),
            None => self.resource.plural.to_owned(),
        }
    }
}

fn parse_query(query: &str) -> BTreeMap<String, String> {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(key, value)| (decode(key), decode(&value.replace('+', " "))))
        .collect()
}

/// Percent-decoding; what is not valid stays as it is and then matches nothing.
pub fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = bytes.get(at + 1..at + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[at], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_owned())
}
