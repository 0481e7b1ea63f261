//! `Status`, and the one place that maps a failure to an HTTP code, a reason and a message.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::field_errors::FieldErrors;
use crate::gvk::{GroupKind, GroupResource};

/// `Status` reasons that Ferry answers with; the text is the variant's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Unknown,
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    ServerTimeout,
    Timeout,
    TooManyRequests,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    InternalError,
    Expired,
    ServiceUnavailable,
    StorageReadError,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "",
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Invalid => "Invalid",
            Self::ServerTimeout => "ServerTimeout",
            Self::Timeout => "Timeout",
            Self::TooManyRequests => "TooManyRequests",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::StorageReadError => "StorageReadError",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::InternalError => "InternalError",
            Self::Expired => "Expired",
            Self::ServiceUnavailable => "ServiceUnavailable",
        }
    }
}

/// The wire form, in upstream's field order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Status {
    pub kind: String,
    #[serde(rename = "apiVersion")]
    pub api_version: String,
    pub metadata: ListMeta,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ListMeta {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", rename = "continue")]
    pub continue_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remaining_item_count: Option<i64>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StatusDetails {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    #[serde(skip_serializing_if = "is_zero_i32")]
    pub retry_after_seconds: i32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCause {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u16) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero_i32(n: &i32) -> bool {
    *n == 0
}

/// Longer messages are cut: some show what was sent.
const LONGEST_MESSAGE: usize = 512 << 10;

/// What a request failed with. Every error of the server ends here before it becomes an answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ApiError(pub Box<Status>);

impl ApiError {
    pub fn new(code: u16, reason: Reason, message: impl Into<String>) -> Self {
        let mut message = message.into();
        if message.len() > LONGEST_MESSAGE {
            message = bounds::cut(&message, LONGEST_MESSAGE).into_owned();
        }
        Self(Box::new(Status {
            kind: "Status".into(),
            api_version: "v1".into(),
            status: "Failure".into(),
            message,
            reason: reason.as_str().into(),
            code,
            ..Status::default()
        }))
    }

    #[must_use]
    pub fn with_details(mut self, details: StatusDetails) -> Self {
        self.0.details = Some(details);
        self
    }

    pub fn code(&self) -> u16 {
        self.0.code
    }

    pub fn is(&self, reason: Reason) -> bool {
        self.0.reason == reason.as_str()
    }

    pub fn not_found(resource: &GroupResource, name: &str) -> Self {
        Self::new(404, Reason::NotFound, format!("{resource} {name:?} not found")).with_details(named(resource, name))
    }

    pub fn already_exists(resource: &GroupResource, name: &str) -> Self {
        Self::new(409, Reason::AlreadyExists, format!("{resource} {name:?} already exists"))
            .with_details(named(resource, name))
    }

    pub fn conflict(resource: &GroupResource, name: &str, why: &str) -> Self {
        Self::new(409, Reason::Conflict, format!("Operation cannot be fulfilled on {resource} {name:?}: {why}"))
            .with_details(named(resource, name))
    }

    /// The answer to a write that came with an old resourceVersion.
    pub fn modified(resource: &GroupResource, name: &str) -> Self {
        Self::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn forbidden(resource: &GroupResource, name: &str, why: &str) -> Self {
        let message = if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {name:?} is forbidden: {why}")
        };
        Self::new(403, Reason::Forbidden, message).with_details(named(resource, name))
    }

    pub fn invalid(kind: &GroupKind, name: &str, errors: &FieldErrors) -> Self {
        // What is found twice is told once, though each has its cause.
        let mut told = HashSet::new();
        let mut lines: Vec<String> = errors.iter().map(|e| e.line()).filter(|line| told.insert(line.clone())).collect();
        if errors.more() > 0 {
            lines.push(format!("and {} more errors", errors.more()));
        }
        let text = if let [one] = lines.as_slice() { one.clone() } else { format!("[{}]", lines.join(", ")) };
        let causes = errors
            .iter()
            .map(|e| StatusCause {
                reason: e.kind.reason().into(),
                message: e.to_string(),
                // A field without a place is told as such, as in the message.
                field: e.path.to_string(),
            })
            .collect();
        Self::new(422, Reason::Invalid, format!("{kind} {name:?} is invalid: {text}")).with_details(StatusDetails {
            name: name.into(),
            group: kind.group.clone(),
            kind: kind.kind.clone(),
            causes,
            ..StatusDetails::default()
        })
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, Reason::BadRequest, message)
    }

    pub fn too_large(why: impl std::fmt::Display) -> Self {
        Self::new(413, Reason::RequestEntityTooLarge, format!("Request entity too large: {why}"))
    }

    pub fn unauthorized() -> Self {
        Self::new(401, Reason::Unauthorized, "Unauthorized")
    }

    pub fn internal(message: impl std::fmt::Display) -> Self {
        let message = message.to_string();
        Self::new(500, Reason::InternalError, format!("Internal error occurred: {message}")).with_details(
            StatusDetails {
                causes: vec![StatusCause { message, ..StatusCause::default() }],
                ..StatusDetails::default()
            },
        )
    }

    pub fn method_not_allowed() -> Self {
        Self::new(405, Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
            .with_details(StatusDetails::default())
    }

    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, Reason::Expired, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(503, Reason::ServiceUnavailable, message)
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: i32) -> Self {
        Self::new(429, Reason::TooManyRequests, message)
            .with_details(StatusDetails { retry_after_seconds, ..StatusDetails::default() })
    }
}

fn named(resource: &GroupResource, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.into(),
        group: resource.group.clone(),
        kind: resource.resource.clone(),
        ..StatusDetails::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::{FieldError, Path};

    #[test]
    fn a_missing_object_reads_as_upstream() {
        let error = ApiError::not_found(&GroupResource::new("apps", "deployments"), "web");
        assert_eq!(
            serde_json::to_string(&*error.0).ok().as_deref(),
            Some(
                r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"web\" not found","reason":"NotFound","details":{"name":"web","group":"apps","kind":"deployments"},"code":404}"#
            )
        );
    }

    #[test]
    fn several_field_errors_stand_in_brackets() {
        let kind = GroupKind { group: "apps".into(), kind: "Deployment".into() };
        let path = Path::new("spec.replicas");
        let one = FieldError::invalid(&path, -1, "no");
        assert_eq!(
            ApiError::invalid(&kind, "a", &one.clone().into()).0.message,
            "Deployment.apps \"a\" is invalid: spec.replicas: Invalid value: -1: no"
        );
        let other = FieldError::invalid(&path, -2, "no");
        assert_eq!(
            ApiError::invalid(&kind, "a", &[one.clone(), other, one.clone()].into_iter().collect()).0.message,
            "Deployment.apps \"a\" is invalid: [spec.replicas: Invalid value: -1: no, spec.replicas: Invalid value: -2: no]"
        );
        // What is found twice has two causes, and is told once.
        let twice = ApiError::invalid(&kind, "a", &[one.clone(), one].into_iter().collect()).0;
        assert_eq!(twice.message, "Deployment.apps \"a\" is invalid: spec.replicas: Invalid value: -1: no");
        assert_eq!(twice.details.map(|details| details.causes.len()), Some(2));
    }
}
