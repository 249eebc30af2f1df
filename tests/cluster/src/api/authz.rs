//! May they: the node authorizer's rules, then RBAC over the `ClusterRole` and `ClusterRoleBinding` objects.
//! Both only ever allow; what nobody allows is refused.

use serde_json::Value;
use std::sync::Arc;

use super::authn::User;
use super::request::Target;

/// What is asked, apart from who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) verb: String,
    pub(crate) group: String,
    /// With its subresource: `nodes/status`.
    pub(crate) resource: String,
    pub(crate) name: Option<String>,
    /// `spec.nodeName` of a field selector: nodes may list their own pods.
    pub(crate) node_name: Option<String>,
}

impl From<&Target> for Attributes {
    fn from(target: &Target) -> Self {
        Self {
            verb: target.verb.to_owned(),
            group: target.resource.group.to_owned(),
            resource: target.rbac_resource(),
            name: target.name.clone(),
            node_name: target.filter.field("spec.nodeName").map(str::to_owned),
        }
    }
}

/// The roles and bindings of the moment.
pub(crate) struct Rules {
    pub(crate) roles: Vec<Arc<Value>>,
    pub(crate) bindings: Vec<Arc<Value>>,
}

/// Whether the user may. `system:masters` may everything, as in Kubernetes.
pub(crate) fn allowed(rules: &Rules, user: &User, asked: &Attributes) -> bool {
    user.groups.iter().any(|group| group == super::authn::MASTERS)
        || user.node().is_some_and(|node| node_allowed(node, asked))
        || (asked.verb == "create" && asked.resource == "selfsubjectaccessreviews") // system:basic-user
        || rbac_allowed(rules, user, asked)
}

/// The node authorizer's static rules, as far as the kinds here go (facts/trust.md 3.1).
fn node_allowed(node: &str, asked: &Attributes) -> bool {
    let own = asked.name.as_deref() == Some(node);
    match (asked.group.as_str(), asked.resource.as_str(), asked.verb.as_str()) {
        // What is created, admission looks at.
        ("", "nodes" | "pods" | "events", "create")
        | ("", "pods", "get")
        | ("", "events", "update" | "patch")
        | ("certificates.k8s.io", "certificatesigningrequests", "create" | "get" | "list" | "watch") => true,
        ("", "nodes", "get" | "list" | "watch" | "update" | "patch")
        | ("", "nodes/status", "update" | "patch") => own,
        ("", "pods", "list" | "watch") => asked.node_name.as_deref() == Some(node),
        _ => false,
    }
}

fn rbac_allowed(rules: &Rules, user: &User, asked: &Attributes) -> bool {
    let bound =
        rules.bindings.iter().filter(|binding| items(&binding["subjects"]).any(|subject| is(subject, user)));
    let names: Vec<&Value> = bound.map(|binding| &binding["roleRef"]["name"]).collect();
    let mut granted = rules.roles.iter().filter(|role| names.contains(&&role["metadata"]["name"]));
    granted.any(|role| items(&role["rules"]).any(|rule| rule_allows(rule, asked)))
}

fn is(subject: &Value, user: &User) -> bool {
    let name = subject["name"].as_str().unwrap_or_default();
    match subject["kind"].as_str() {
        Some("User") => name == user.name,
        Some("Group") => user.groups.iter().any(|group| group == name),
        Some("ServiceAccount") => {
            user.name
                == format!(
                    "system:serviceaccount:{}:{name}",
                    subject["namespace"].as_str().unwrap_or_default()
                )
        }
        _ => false,
    }
}

fn rule_allows(rule: &Value, asked: &Attributes) -> bool {
    let has = |key: &str, wanted: &str| items(&rule[key]).any(|value| value == wanted || value == "*");
    let mut only = items(&rule["resourceNames"]).peekable();
    let named = only.peek().is_none() || only.any(|name| asked.name.as_deref() == name.as_str());
    has("verbs", &asked.verb) && has("apiGroups", &asked.group) && has("resources", &asked.resource) && named
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
