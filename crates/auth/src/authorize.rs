//! The authorization chain.

use ferry_meta::UserInfo;

/// What is to be decided on. `resource` is empty for paths such as `/healthz`.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    /// get, list, watch, create, update, patch, delete, deletecollection, …; the lower-case method for plain paths.
    pub verb: &'a str,
    pub namespace: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    pub path: &'a str,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow { reason: String },
    Deny { reason: String },
    /// The next authorizer decides; when none does, the request is refused with the collected reasons.
    NoOpinion { reason: String },
}

#[async_trait::async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}
