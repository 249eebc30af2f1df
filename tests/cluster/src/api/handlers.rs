//! The verbs: read, write, delete, over the store, with admission in the same step as the write.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;

use super::authn::User;
use super::authz::{self, Attributes, Rules};
use super::object;
use super::request::Target;
use super::resources::Resource;
use super::status::Refusal;
use super::store::{Decision, Key, Store};
use super::{admission, patch, watch};
use crate::http::{Body, respond};

impl From<std::io::Error> for Refusal {
    fn from(error: std::io::Error) -> Self {
        Self::io(&error)
    }
}

/// What a handler needs.
pub(crate) struct Context<'a> {
    pub(crate) store: &'a Arc<Store>,
    pub(crate) target: &'a Target,
    pub(crate) user: &'a User,
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    /// The MachineConfig CRD has `neededBeforeNodeApproved`.
    pub(crate) extended: bool,
    /// When a watch is to fail while it runs.
    pub(crate) interrupted: watch::Interrupted,
}

/// Where a resource's objects are in the store.
pub(crate) fn bucket(resource: &Resource) -> String {
    format!("{}/{}", resource.group, resource.plural)
}

/// Roles and bindings as they are now.
pub(crate) fn rules(store: &Store) -> Rules {
    let list = |plural: &str| store.list(&format!("rbac.authorization.k8s.io/{plural}"), "").1;
    Rules { roles: list("clusterroles"), bindings: list("clusterrolebindings") }
}

/// Answers an authorised request.
pub(crate) fn handle(context: Context<'_>) -> Result<Response<Body>, Refusal> {
    match context.target.verb {
        "get" => {
            let found =
                context.store.get(&key(context.target)).ok_or_else(|| Refusal::not_found(context.target))?;
            Ok(json_response(StatusCode::OK, &found))
        }
        "list" => Ok(list(&context)),
        "watch" => {
            let body = watch::start(context.store, context.target, context.interrupted)?;
            let mut response = respond(StatusCode::OK, "application/json", "");
            *response.body_mut() = body;
            Ok(response)
        }
        "create" => create(&context),
        "update" | "patch" => update(&context),
        "delete" => delete(&context),
        _ => Err(Refusal::method()),
    }
}

fn key(target: &Target) -> Key {
    let name = target.name.clone().unwrap_or_default();
    Key { resource: bucket(target.resource), namespace: target.namespace.clone(), name }
}

fn list(context: &Context<'_>) -> Response<Body> {
    let target = context.target;
    let (version, objects) = context.store.list(&bucket(target.resource), &target.namespace);
    let items: Vec<&Value> =
        objects.iter().map(AsRef::as_ref).filter(|object| target.filter.matches(object)).collect();
    let list = json!({
        "kind": format!("{}List", target.resource.kind), "apiVersion": target.resource.api_version(),
        "metadata": {"resourceVersion": version.to_string()}, "items": items,
    });
    json_response(StatusCode::OK, &list)
}

fn create(context: &Context<'_>) -> Result<Response<Body>, Refusal> {
    let target = context.target;
    if target.resource.namespaced && target.namespace.is_empty() {
        return Err(Refusal::no_such_path());
    }
    let mut new = parse(context)?;
    object::check(target, &mut new)?;
    match target.resource.kind {
        "SelfSubjectAccessReview" => return Ok(access_review(context, new)),
        "CertificateSigningRequest" => admission::stamp_csr(target, context.user, &mut new)?,
        "Secret" => string_data(&mut new),
        _ => {}
    }
    let name = object::prepare_create(target, &mut new, context.extended)?;
    admission::admit(target, context.user, None, &new)?;
    let key = Key { name: name.clone(), ..key(target) };
    let stored = context.store.write(&key, |existing| match existing {
        Some(_) => Err(Refusal::exists(target, &name)),
        None => Ok(Decision::Put(new)),
    })?;
    Ok(json_response(StatusCode::CREATED, &stored))
}

fn update(context: &Context<'_>) -> Result<Response<Body>, Refusal> {
    let target = context.target;
    let stored = context.store.write(&key(target), |existing| {
        let existing = existing.ok_or_else(|| Refusal::not_found(target))?;
        let mut new = if target.verb == "patch" {
            patch::apply(target.resource, context.content_type, existing, context.body)?
        } else {
            parse(context)?
        };
        object::check(target, &mut new)?;
        // Whoever names a version (every PUT that read first, a patch that wants to be sure) must name the newest.
        let named = &new["metadata"]["resourceVersion"];
        if !named.as_str().unwrap_or_default().is_empty() && *named != existing["metadata"]["resourceVersion"]
        {
            return Err(Refusal::conflict(target));
        }
        if target.resource.kind == "Secret" {
            string_data(&mut new);
        }
        let new = object::prepare_update(target, existing, new, context.extended);
        if target.resource.kind == "CertificateSigningRequest" {
            object::check_conditions(target, existing, &new)?;
        }
        admission::admit(target, context.user, Some(existing), &new)?;
        Ok(Decision::Put(new))
    })?;
    Ok(json_response(StatusCode::OK, &stored))
}

fn delete(context: &Context<'_>) -> Result<Response<Body>, Refusal> {
    let target = context.target;
    let gone = context.store.write(&key(target), |existing| match existing {
        Some(_) => Ok(Decision::Delete),
        None => Err(Refusal::not_found(target)),
    })?;
    Ok(json_response(StatusCode::OK, &gone))
}

fn access_review(context: &Context<'_>, mut review: Value) -> Response<Body> {
    let asked = &review["spec"]["resourceAttributes"];
    let text = |key: &str| asked[key].as_str().unwrap_or_default().to_owned();
    let resource = if text("subresource").is_empty() {
        text("resource")
    } else {
        format!("{}/{}", text("resource"), text("subresource"))
    };
    let name = Some(text("name")).filter(|name| !name.is_empty());
    let attributes = Attributes { verb: text("verb"), group: text("group"), resource, name, node_name: None };
    let allowed = authz::allowed(&rules(context.store), context.user, &attributes);
    review["status"] = json!({"allowed": allowed});
    json_response(StatusCode::CREATED, &review)
}

/// `stringData` is how people write Secrets; it is stored as `data`.
fn string_data(secret: &mut Value) {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let Value::Object(map) = secret else { return };
    if let Some(Value::Object(plain)) = map.remove("stringData") {
        for (key, value) in plain {
            secret["data"][key] = STANDARD.encode(value.as_str().unwrap_or_default()).into();
        }
    }
}

fn parse(context: &Context<'_>) -> Result<Value, Refusal> {
    if context.content_type.starts_with("application/vnd.kubernetes.protobuf") {
        return Err(Refusal::media_type("application/json, application/yaml"));
    }
    if context.content_type.starts_with("application/yaml") {
        let text = std::str::from_utf8(context.body).unwrap_or_default();
        return serde_norway::from_str(text).map_err(|_| Refusal::bad_request("the body is not YAML"));
    }
    serde_json::from_slice(context.body).map_err(|_| Refusal::bad_request("the body is not JSON"))
}

fn json_response(status: StatusCode, value: &Value) -> Response<Body> {
    respond(status, "application/json", value.to_string())
}
