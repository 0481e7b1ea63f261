//! The authorizer in expressions: questions put together step by step. Who may answer lies outside; see [`Bindings::decide`].
//!
//! [`Bindings::decide`]: crate::Bindings::decide

use std::sync::Arc;

/// Who is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Authority {
    /// The user of the request.
    Requester,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

/// What is asked for, as far as it is put together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Check {
    Path { authority: Authority, path: String },
    Group { authority: Authority, group: String },
    Resource(Resource),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Resource {
    pub authority: Authority,
    pub group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    pub field_selector: Option<String>,
    pub label_selector: Option<String>,
}

/// A complete question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Question {
    pub check: Arc<Check>,
    pub verb: String,
}

/// The answer to a question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthorizerDecision {
    pub allowed: bool,
    pub reason: String,
    pub error: Option<String>,
}

impl Check {
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Path { .. } => "kubernetes.authorization.PathCheck",
            Self::Group { .. } => "kubernetes.authorization.GroupCheck",
            Self::Resource(_) => "kubernetes.authorization.ResourceCheck",
        }
    }
}
