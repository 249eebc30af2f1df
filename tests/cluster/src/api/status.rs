//! Status objects: how the API says no.

use hyper::{Response, StatusCode};
use serde_json::{Value, json};

use super::request::Target;
use crate::http::{Body, respond};

/// A refusal, as Kubernetes words it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) code: u16,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// Seconds, for 429.
    pub(crate) retry_after: Option<u32>,
}

impl Refusal {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), retry_after: None }
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn forbidden(target: &Target, user: &str, why: &str) -> Self {
        let name = target.name.as_deref().map(|name| format!(" \"{name}\"")).unwrap_or_default();
        Self::new(
            403,
            "Forbidden",
            format!("{}{name} is forbidden: User \"{user}\" {why}", target.resource.qualified()),
        )
    }

    pub(crate) fn not_an_administrator(user: &str) -> Self {
        Self::new(403, "Forbidden", format!("User \"{user}\" is not an administrator"))
    }

    pub(crate) fn not_found(target: &Target) -> Self {
        let name = target.name.as_deref().unwrap_or_default();
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", target.resource.qualified()))
    }

    pub(crate) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(crate) fn method() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    pub(crate) fn exists(target: &Target, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", target.resource.qualified()))
    }

    pub(crate) fn conflict(target: &Target) -> Self {
        let name = target.name.as_deref().unwrap_or_default();
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": the object has been modified; please apply your changes to the latest version and try again",
                target.resource.qualified()
            ),
        )
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn invalid(target: &Target, name: &str, why: impl std::fmt::Display) -> Self {
        Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {why}", target.resource.kind))
    }

    pub(crate) fn media_type(accepted: &str) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    pub(crate) fn gone(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    pub(crate) fn too_many(seconds: u32) -> Self {
        let why = "the server has received too many requests and has asked us to try again later";
        Self { retry_after: Some(seconds), ..Self::new(429, "TooManyRequests", why) }
    }

    pub(crate) fn too_large() -> Self {
        Self::new(413, "RequestEntityTooLarge", "the request body is too large or did not arrive in time")
    }

    pub(crate) fn io(error: &std::io::Error) -> Self {
        Self::new(500, "InternalError", format!("cannot store the object: {error}"))
    }

    /// As an object: what a client parses, and what a watch sends in an ERROR event.
    pub(crate) fn to_value(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if let Some(seconds) = self.retry_after {
            status["details"] = json!({"retryAfterSeconds": seconds});
        }
        status
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let code = StatusCode::from_u16(self.code).expect("codes are literals of this file");
        let mut response = respond(code, "application/json", self.to_value().to_string());
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(hyper::header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
