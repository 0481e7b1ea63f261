//! Admission policies of the cluster: expressions that refuse, warn of or change what is written.
//!
//! | question | where |
//! |---|---|
//! | what a policy says | `compiled`, read and compiled when a policy or binding changes |
//! | which requests it sees | `constraints` |
//! | with which parameters | `params` |
//! | how its expressions are evaluated | `evaluation` |
//! | what comes of them | `validating`, `mutating` |

mod compiled;
mod constraints;
mod evaluation;
mod mutating;
mod params;
mod types;
mod validating;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferry_auth::Authorizer;
use ferry_meta::{ApiError, GroupResource, GroupVersionKind, ObjectReader, Reason};

use crate::Request;
use crate::webhook::Defaulter;

pub(crate) use compiled::Condition;
pub(crate) use evaluation::hold;
pub(crate) use mutating::MutatingPolicies;
pub(crate) use validating::ValidatingPolicies;

/// Where objects of a built-in kind are, and whether they are in namespaces.
pub type Kinds = Arc<dyn Fn(&GroupVersionKind) -> Option<(GroupResource, bool)> + Send + Sync>;

/// What policies need besides the reader.
#[derive(Clone)]
pub struct PolicyOptions {
    pub defaulter: Option<Defaulter>,
    pub kinds: Kinds,
}

/// What both kinds of policies work with.
struct Shared {
    reader: Arc<dyn ObjectReader>,
    authorizer: Arc<dyn Authorizer>,
    kinds: Kinds,
}

/// What no policy sees, in groups. Policies and bindings themselves: a broken one could not be removed. Questions about users and
/// their rights: components ask them on behalf of others, and a policy could refuse them, change what is asked, or tell the token
/// of a TokenReview.
const EXEMPT: [(&str, &[&str]); 3] = [
    (
        "admissionregistration.k8s.io",
        &[
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
        ],
    ),
    ("authentication.k8s.io", &["selfsubjectreviews", "tokenreviews"]),
    (
        "authorization.k8s.io",
        &["localsubjectaccessreviews", "selfsubjectaccessreviews", "selfsubjectrulesreviews", "subjectaccessreviews"],
    ),
];

fn is_exempt(request: &Request<'_>) -> bool {
    let resource = request.resource;
    EXEMPT.iter().any(|(group, names)| resource.group == *group && names.contains(&resource.resource.as_str()))
}

/// A refusal with a reason and the messages of all that refused.
fn refusal(request: &Request<'_>, message: &str, reason: Reason, code: u16, causes: &[String]) -> ApiError {
    let mut error = request.forbidden(message);
    error.0.reason = reason.as_str().to_owned();
    error.0.code = code;
    if let Some(details) = &mut error.0.details {
        let cause =
            |message: &String| ferry_meta::error::StatusCause { message: message.clone(), ..Default::default() };
        details.causes.extend(causes.iter().map(cause));
    }
    error
}
