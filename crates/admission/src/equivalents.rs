//! A request seen in another version of its resource.
//!
//! Rules name versions, and clients choose one of those that are served. Unless `matchPolicy` is `Exact`, a rule for one
//! version means the resource in all of them: the object is converted to the version that the rule names, so that whoever
//! wrote the rule gets the shape it was written for.

use ferry_meta::{ApiError, GroupVersionKind, GroupVersionResource};
use serde_json::Value;

use crate::Request;

/// Another version of a resource: of the same storage, maybe in another group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Equivalent {
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}

/// The versions that the resource of a request is served in besides the request's own.
#[async_trait::async_trait]
pub trait Equivalents: Send + Sync {
    fn list(&self) -> &[Equivalent];

    /// The object in another kind: one of the list, or that of the request.
    async fn convert(&self, object: &Value, from: &GroupVersionKind, to: &GroupVersionKind) -> Result<Value, ApiError>;
}

/// The version in which a request matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    Requested,
    Other(Equivalent),
}

/// The objects of a request in another version.
pub(crate) struct View {
    pub other: Equivalent,
    object: Option<Value>,
    before: Option<Value>,
    old: Option<Value>,
}

impl View {
    pub async fn of(request: &Request<'_>, other: Equivalent) -> Result<Self, ApiError> {
        let object = convert(request, request.object.as_deref(), request.kind, &other.kind).await?;
        let old = convert(request, request.old, request.kind, &other.kind).await?;
        Ok(Self { other, before: object.clone(), object, old })
    }

    /// The request with these objects. What it gathers is the caller's to take over.
    pub fn request<'v>(&'v mut self, request: &'v Request<'_>) -> Request<'v> {
        Request {
            operation: request.operation,
            kind: &self.other.kind,
            resource: &self.other.resource,
            subresource: request.subresource,
            namespace: request.namespace,
            name: request.name,
            user: request.user,
            dry_run: request.dry_run,
            object: self.object.as_mut(),
            old: self.old.as_ref(),
            options: request.options,
            warnings: Vec::new(),
            annotations: Vec::new(),
            reinvoked: request.reinvoked,
            calls: Vec::new(),
            equivalents: None,
            requested: Some((request.kind, request.resource)),
        }
    }

    pub fn is(&self, version: &Version) -> bool {
        matches!(version, Version::Other(other) if *other == self.other)
    }

    pub fn object(&self) -> Option<&Value> {
        self.object.as_ref()
    }

    pub fn old(&self) -> Option<&Value> {
        self.old.as_ref()
    }

    /// What was changed here is changed in the request.
    pub async fn write_back(self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if self.object == self.before {
            return Ok(());
        }
        let changed = convert(request, self.object.as_ref(), &self.other.kind, request.kind).await?;
        if let (Some(object), Some(changed)) = (request.object.as_deref_mut(), changed) {
            *object = changed;
        }
        Ok(())
    }
}

/// Objects of subresources may have one kind in all versions.
async fn convert(
    request: &Request<'_>,
    object: Option<&Value>,
    from: &GroupVersionKind,
    to: &GroupVersionKind,
) -> Result<Option<Value>, ApiError> {
    match (object, request.equivalents) {
        (Some(object), Some(equivalents)) if from != to => equivalents.convert(object, from, to).await.map(Some),
        (object, _) => Ok(object.cloned()),
    }
}
