//! Admission: plug-ins that change or refuse a write after authorization and before the store.
//!
//! Reads cluster state only through `meta::ObjectReader`; must not depend on the store, the registry or the API server.

use ferry_meta::{ApiError, GroupVersionKind, GroupVersionResource, UserInfo};
use serde_json::Value;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// One write on its way to the store. `object` is None for deletions, `old` None for creations.
pub struct Request<'a> {
    pub operation: Operation,
    pub kind: &'a GroupVersionKind,
    pub resource: &'a GroupVersionResource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub user: &'a UserInfo,
    pub dry_run: bool,
    pub object: Option<&'a mut Value>,
    pub old: Option<&'a Value>,
    /// The options of the request (CreateOptions, …) as JSON.
    pub options: &'a Value,
    /// `Warning` headers for the answer.
    pub warnings: Vec<String>,
}

#[async_trait::async_trait]
pub trait Plugin: Send + Sync {
    fn name(&self) -> &'static str;

    fn handles(&self, operation: Operation) -> bool;

    /// May change `request.object`.
    async fn mutate(&self, _request: &mut Request<'_>) -> Result<(), ApiError> {
        Ok(())
    }

    /// Must not change anything.
    async fn validate(&self, _request: &mut Request<'_>) -> Result<(), ApiError> {
        Ok(())
    }
}
