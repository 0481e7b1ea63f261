//! Who is calling, and may they: the authentication and authorization chains.
//!
//! Reads cluster state only through `meta::ObjectReader`; must not depend on the store, the registry or the API server.
//!
//! How the API server is wired:
//! ```text
//! let audiences = vec![issuer.clone()];                              // what its own tokens are for
//! let loopback = Arc::new(LoopbackTokens::new(audiences.clone()));   // loopback.issue(UserInfo) -> token
//! let issuer = TokenIssuer::new(issuer, audiences.clone(), SigningKey::from_pem(&pem)?, reader.clone());
//! let accounts = ServiceAccountTokens::new(vec![issuer.issuer().into()],
//!                                          vec![issuer.signing_key().verifying_key().clone()], reader.clone());
//! let authentication = Chain::new(audiences.clone())
//!     .with(Arc::new(X509::of(client_ca)))                            // TLS takes any certificate
//!     .with_tokens(loopback)
//!     .with_tokens(Arc::new(StaticTokens::parse(&file, audiences.clone())?))
//!     .with_tokens(Arc::new(accounts))
//!     .with_tokens(Arc::new(BootstrapTokens::new(reader.clone(), audiences)));
//! let user = authentication.authenticate(&Credentials { headers, certificates, path }, &notes).await?;   // Err: 401
//!
//! let rbac = Arc::new(Rbac::new(reader.clone()));
//! let authorization = Arc::new(AuthorizerChain::new()
//!     .with("node", Arc::new(NodeAuthorizer::new(reader)))
//!     .with("rbac", rbac.clone()));
//! let impersonator = Impersonator::new(authorization.clone());
//! let user = impersonator.resolve(headers, &attributes).await?.unwrap_or(user);
//! authorization.check(&attributes).await?;                           // Err: the 403
//! rbac::check_write(&rbac, &*authorization, &user, &resource, &object, old).await?;   // before roles and bindings are stored
//! ```
//! `bootstrap::objects()` and `bootstrap::reconcile()` say what to write at start; `TokenIssuer::request` answers
//! TokenRequests, `Chain::review` TokenReviews, `Rbac::rules_for` SelfSubjectRulesReviews.

pub mod authenticate;
pub mod authorize;
pub mod bootstrap;
pub mod rbac;

mod bootstrap_token;
mod chain;
mod expiring;
pub mod first_version;
mod headers;
mod impersonate;
mod jws;
mod node;
mod oidc;
mod removed_nodes;
mod request_header;
mod resources;
mod serviceaccount;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod testing_server;
mod tokens;
mod webhook;
mod x509;

/// Longer tokens are nobody's: what they say is read before their signature is looked at, and takes many times their length.
const LONGEST_TOKEN: usize = 64 << 10;

pub use authenticate::{Authenticator, AuthnError, Credentials, Notes, TokenAuthenticator, TokenError, TokenIdentity};
pub use authorize::{AlwaysAllow, AlwaysDeny, Attributes, Authorizer, AuthorizerChain, Decision, forbidden};
pub use bootstrap_token::BootstrapTokens;
pub use chain::{Chain, NobodysToken, Settings, aggregate};
pub use impersonate::Impersonator;
pub use node::{NodeAuthorizer, node_name};
pub use oidc::{AnonymousConfig, AuthenticationConfig, Oidc, OidcError, OidcFlags, Provider};
pub use rbac::{PolicyRule, Rbac, RoleError};
pub use removed_nodes::{REMOVED_NODES, RemovedNodes};
pub use request_header::{AuthorityError, ClientAuthority, RequestHeader, RequestHeaderOptions};
pub use serviceaccount::{
    KeyError, LAST_USED, LegacyTokens, ServiceAccountTokens, SigningKey, TokenIssuer, UsedToken, VerifyingKey, jwks,
    openid_configuration,
};
pub use tokens::{LoopbackTokens, StaticTokens, TokenFileError};
pub use webhook::{AccessConditions, AccessWebhook, AccessWebhookOptions, ConditionsError, TokenWebhook};
pub use x509::X509;

/// Who the API server is to kubelets; bound to `system:kubelet-api-admin` in every cluster.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The `extra` key that names the credential a user came with.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";
