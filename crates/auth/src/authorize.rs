//! The authorization chain: what is asked, what may be answered, and the chain that asks in order.

use std::sync::Arc;

use arc_swap::ArcSwap;
use ferry_meta::error::StatusDetails;
use ferry_meta::user::MASTERS;
use ferry_meta::{ApiError, GroupResource, Reason, UserInfo};

/// What is to be decided on.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    pub user: &'a UserInfo,
    /// False for paths such as `/healthz`. Told by the path alone: `/apis/a/v1//x` is a request for a resource that has no
    /// name, and no rule for paths allows it.
    pub is_resource: bool,
    /// get, list, watch, create, update, patch, delete, deletecollection, …; the lower-case method for plain paths.
    pub verb: &'a str,
    pub namespace: &'a str,
    pub group: &'a str,
    pub version: &'a str,
    pub resource: &'a str,
    pub subresource: &'a str,
    pub name: &'a str,
    pub path: &'a str,
    /// The `field=value` parts of the request's field selector: the Node authorizer goes by them.
    pub fields: &'a [(String, String)],
}

impl<'a> Attributes<'a> {
    /// A request for a resource; the parts that are rarely needed are left empty.
    pub fn resource(user: &'a UserInfo, verb: &'a str, group: &'a str, resource: &'a str) -> Self {
        Self { is_resource: true, group, resource, ..Self::path(user, verb, "") }
    }

    /// A request for a plain path.
    pub fn path(user: &'a UserInfo, verb: &'a str, path: &'a str) -> Self {
        Self {
            user,
            is_resource: false,
            verb,
            namespace: "",
            group: "",
            version: "",
            resource: "",
            subresource: "",
            name: "",
            path,
            fields: &[],
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow {
        reason: String,
    },
    Deny {
        reason: String,
    },
    /// The next authorizer decides; when none does, the request is refused with the collected reasons.
    NoOpinion {
        reason: String,
    },
    /// It could not be found out. Unless it denies, the next authorizer decides; when none does, the request fails.
    Failed {
        reason: String,
        error: String,
        denies: bool,
    },
}

impl Decision {
    pub fn allow() -> Self {
        Self::Allow { reason: String::new() }
    }

    pub fn no_opinion(reason: impl Into<String>) -> Self {
        Self::NoOpinion { reason: reason.into() }
    }

    pub fn is_allowed(&self) -> bool {
        matches!(self, Self::Allow { .. })
    }

    pub fn reason(&self) -> &str {
        match self {
            Self::Allow { reason }
            | Self::Deny { reason }
            | Self::NoOpinion { reason }
            | Self::Failed { reason, .. } => reason,
        }
    }

    /// Whether nobody else is asked any more.
    pub fn denies(&self) -> bool {
        matches!(self, Self::Deny { .. } | Self::Failed { denies: true, .. })
    }

    /// Why it could not be found out.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error, .. } => Some(error),
            _ => None,
        }
    }
}

#[async_trait::async_trait]
pub trait Authorizer: Send + Sync {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision;
}

/// Asks authorizers in order until one allows or denies. `system:masters` are allowed before anyone is asked.
#[derive(Default)]
pub struct AuthorizerChain {
    authorizers: ArcSwap<Vec<(&'static str, Arc<dyn Authorizer>)>>,
}

impl AuthorizerChain {
    pub fn new() -> Self {
        Self::default()
    }

    /// The name stands before the authorizer's reasons: `node`, `rbac`, `webhook`.
    #[must_use]
    pub fn with(self, name: &'static str, authorizer: Arc<dyn Authorizer>) -> Self {
        let mut authorizers = Vec::clone(&self.authorizers.load());
        authorizers.push((name, authorizer));
        self.authorizers.store(Arc::new(authorizers));
        self
    }

    /// Who is asked, in order.
    pub fn names(&self) -> Vec<&'static str> {
        self.authorizers.load().iter().map(|(name, _)| *name).collect()
    }

    /// Asks those of another chain from now on: the configuration changed while the server runs.
    pub fn replace(&self, other: &Self) {
        self.authorizers.store(other.authorizers.load_full());
    }

    /// The 403 of a refused request, the 500 of one that could not be decided on, or Ok.
    pub async fn check(&self, attributes: &Attributes<'_>) -> Result<(), ApiError> {
        let decision = self.authorize(attributes).await;
        if let Some(error) = decision.error() {
            return Err(ApiError::internal(error));
        }
        if decision.is_allowed() { Ok(()) } else { Err(forbidden(attributes, decision.reason())) }
    }
}

#[async_trait::async_trait]
impl Authorizer for AuthorizerChain {
    async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        if attributes.user.in_group(MASTERS) {
            return Decision::allow();
        }
        let (mut reasons, mut errors) = (Vec::new(), Vec::new());
        for (name, authorizer) in self.authorizers.load_full().iter() {
            let decision = authorizer.authorize(attributes).await;
            if decision.is_allowed() || decision.denies() {
                return decision;
            }
            errors.extend(decision.error().map(str::to_owned));
            if !decision.reason().is_empty() {
                reasons.push(format!("{name}: {}", decision.reason()));
            }
        }
        let reason = reasons.join("\n");
        if errors.is_empty() {
            return Decision::NoOpinion { reason };
        }
        Decision::Failed { reason, error: crate::chain::aggregate(errors), denies: false }
    }
}

pub struct AlwaysAllow;

#[async_trait::async_trait]
impl Authorizer for AlwaysAllow {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::allow()
    }
}

pub struct AlwaysDeny;

#[async_trait::async_trait]
impl Authorizer for AlwaysDeny {
    async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
        Decision::no_opinion("Everything is forbidden.")
    }
}

/// The 403 for a request that was not allowed.
pub fn forbidden(attributes: &Attributes<'_>, reason: &str) -> ApiError {
    let Attributes { user, is_resource, verb, namespace, group, resource, subresource, name, path, .. } = attributes;
    let user = ferry_meta::field::quote(&user.name);
    let end = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    if !is_resource {
        let message = format!("forbidden: User {user} cannot {verb} path {}{end}", ferry_meta::field::quote(path));
        return ApiError::new(403, Reason::Forbidden, message).with_details(StatusDetails::default());
    }
    let whole = if subresource.is_empty() { (*resource).to_owned() } else { format!("{resource}/{subresource}") };
    let scope = if namespace.is_empty() {
        "at the cluster scope".to_owned()
    } else {
        format!("in the namespace {namespace:?}")
    };
    let why = format!("User {user} cannot {verb} resource {whole:?} in API group {group:?} {scope}{end}");
    ApiError::forbidden(&GroupResource::new(*group, *resource), name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Decision);

    #[async_trait::async_trait]
    impl Authorizer for Fixed {
        async fn authorize(&self, _attributes: &Attributes<'_>) -> Decision {
            self.0.clone()
        }
    }

    #[tokio::test]
    async fn the_chain_collects_reasons_under_their_names() {
        let fixed = |reason: &str| Arc::new(Fixed(Decision::no_opinion(reason)));
        let chain = AuthorizerChain::new().with("node", fixed("a")).with("x", fixed("")).with("rbac", fixed("b"));
        let user = UserInfo::new("bob", &[]);
        let attributes = Attributes::resource(&user, "get", "", "pods");
        assert_eq!(chain.authorize(&attributes).await.reason(), "node: a\nrbac: b");
        let failed = |denies| Arc::new(Fixed(Decision::Failed { reason: String::new(), error: "away".into(), denies }));
        let allows = Arc::new(Fixed(Decision::allow()));
        for (chain, allowed, denied, error) in [
            (AuthorizerChain::new().with("a", failed(false)).with("b", allows.clone()), true, false, None),
            (AuthorizerChain::new().with("a", failed(true)).with("b", allows.clone()), false, true, Some("away")),
            (AuthorizerChain::new().with("a", failed(false)).with("b", fixed("no")), false, false, Some("away")),
            (AuthorizerChain::new().with("a", failed(false)).with("b", failed(false)), false, false, Some("away")),
        ] {
            let decision = chain.authorize(&attributes).await;
            assert_eq!((decision.is_allowed(), decision.denies(), decision.error()), (allowed, denied, error));
            let code = chain.check(&attributes).await.map_err(|error| error.code());
            assert_eq!(code, if allowed { Ok(()) } else { Err(500) });
        }
        let master = UserInfo::new("root", &[MASTERS]);
        assert!(chain.check(&Attributes { user: &master, ..attributes }).await.is_ok());
    }

    #[test]
    fn refusals_read_as_upstream() {
        let user = UserInfo::new("bob", &[]);
        let check = |attributes: Attributes<'_>, want: &str| assert_eq!(forbidden(&attributes, "").0.message, want);
        check(
            Attributes { namespace: "a", name: "x", ..Attributes::resource(&user, "get", "", "pods") },
            r#"pods "x" is forbidden: User "bob" cannot get resource "pods" in API group "" in the namespace "a""#,
        );
        check(
            Attributes { subresource: "scale", ..Attributes::resource(&user, "get", "apps", "deployments") },
            r#"deployments.apps is forbidden: User "bob" cannot get resource "deployments/scale" in API group "apps" at the cluster scope"#,
        );
        check(Attributes::path(&user, "post", "/metrics"), r#"forbidden: User "bob" cannot post path "/metrics""#);
    }
}
