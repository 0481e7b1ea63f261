//! Who may ask the kubelet for what, as the API server says of them: of its own client identity too.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use ferry_client::Api;
use ferry_connections::Peer;
use http::{Method, Request, Response, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::Client;
use kube::api::PostParams;
use parking_lot::Mutex;
use rustls_pki_types::CertificateDer;

use super::{Body, text};
use crate::settings::Endpoints;

/// A cache that has grown to this begins anew: callers of a kubelet are few.
const MOST_KEPT: usize = 1000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Caller {
    name: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Who a connection belongs to, by the certificate that the handshake has verified.
fn of_certificate(certificates: &[CertificateDer<'_>]) -> Option<Caller> {
    let subject = ferry_x509::subject_of_certificate(certificates.first()?).ok()?;
    let name = subject.common_name()?.to_owned();
    let groups = subject.organizations.into_iter();
    let groups = groups.chain(["system:authenticated".to_owned()]).collect();
    Some(Caller { name, uid: None, groups, extra: BTreeMap::new() })
}

type Decision = (Caller, String, &'static str);

pub(crate) struct Access {
    client: Client,
    node: String,
    settings: Endpoints,
    hasher: RandomState,
    tokens: Mutex<HashMap<u64, (Instant, Option<Caller>)>>,
    decisions: Mutex<HashMap<Decision, (Instant, bool)>>,
}

impl Access {
    pub(crate) fn new(client: Client, node: &str, settings: Endpoints) -> Self {
        let (tokens, decisions) = (Mutex::default(), Mutex::default());
        Self { client, node: node.to_owned(), settings, hasher: RandomState::new(), tokens, decisions }
    }

    /// Whether the request may pass; the answer to it when not.
    pub(crate) async fn check<B>(&self, peer: &Peer, request: &Request<B>) -> Result<(), Response<Body>> {
        let unauthorized = || text(StatusCode::UNAUTHORIZED, "Unauthorized");
        let caller = match of_certificate(&peer.certificates) {
            Some(caller) => caller,
            None => self.of_token(request).await.ok_or_else(unauthorized)?,
        };
        peer.authenticated(&caller.name);
        let verb = verb(request.method(), request.uri().path());
        let wanted = subresources(request.uri().path());
        for subresource in &wanted {
            if self.may(&caller, verb, subresource).await {
                return Ok(());
            }
        }
        let message =
            format!("Forbidden (user={}, verb={verb}, resource=nodes, subresource(s)={wanted:?})\n", caller.name);
        Err(text(StatusCode::FORBIDDEN, message))
    }

    async fn of_token<B>(&self, request: &Request<B>) -> Option<Caller> {
        if !self.settings.tokens {
            return None;
        }
        let header = request.headers().get(http::header::AUTHORIZATION)?.to_str().ok()?;
        let token = header.strip_prefix("Bearer ")?.trim();
        // The hash is keyed anew with every start: tokens themselves are not kept, and nobody can aim at another's.
        let key = self.hasher.hash_one(token);
        if let Some((until, caller)) = self.tokens.lock().get(&key)
            && *until > Instant::now()
        {
            return caller.clone();
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let answer = Api::all(self.client.clone()).create(&PostParams::default(), &review).await.ok()?;
        let user = answer.status.filter(|status| status.authenticated == Some(true)).and_then(|status| status.user);
        let caller = user.map(|user| Caller {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        keep(&self.tokens, key, self.settings.token_ttl, caller.clone());
        caller
    }

    async fn may(&self, caller: &Caller, verb: &'static str, subresource: &str) -> bool {
        let key = (caller.clone(), subresource.to_owned(), verb);
        if let Some((until, allowed)) = self.decisions.lock().get(&key)
            && *until > Instant::now()
        {
            return *allowed;
        }
        let attributes = ResourceAttributes {
            verb: Some(verb.to_owned()),
            version: Some("v1".to_owned()),
            resource: Some("nodes".to_owned()),
            subresource: Some(subresource.to_owned()),
            name: Some(self.node.clone()),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(caller.name.clone()),
            uid: caller.uid.clone(),
            groups: Some(caller.groups.clone()),
            extra: Some(caller.extra.clone()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        match Api::all(self.client.clone()).create(&PostParams::default(), &review).await {
            Ok(answer) => {
                let allowed = answer.status.is_some_and(|status| status.allowed);
                let holds = if allowed { self.settings.allowed_ttl } else { self.settings.denied_ttl };
                keep(&self.decisions, key, holds, allowed);
                allowed
            }
            Err(error) => {
                tracing::debug!("the API server was not asked about {}: {error}", caller.name);
                false
            }
        }
    }
}

fn keep<K: Eq + std::hash::Hash, V>(kept: &Mutex<HashMap<K, (Instant, V)>>, key: K, time: Duration, value: V) {
    let mut kept = kept.lock();
    if kept.len() >= MOST_KEPT {
        kept.clear();
    }
    kept.insert(key, (Instant::now() + time, value));
}

fn verb(method: &Method, path: &str) -> &'static str {
    // A browser opens a WebSocket with GET; a session inside a container is not for readers.
    if matches!(first(path), "exec" | "attach" | "portForward") {
        return "create";
    }
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

fn first(path: &str) -> &str {
    path.trim_start_matches('/').split('/').next().unwrap_or_default()
}

/// The part of a node that a path belongs to; any of them is right enough.
fn subresources(path: &str) -> Vec<&'static str> {
    match first(path) {
        "stats" => vec!["stats"],
        "metrics" => vec!["metrics"],
        "logs" => vec!["log"],
        "checkpoint" => vec!["checkpoint"],
        "healthz" => vec!["healthz", "proxy"],
        "pods" | "runningpods" => vec!["pods", "proxy"],
        "configz" => vec!["configz", "proxy"],
        _ => vec!["proxy"],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_belong_to_parts_of_the_node() {
        assert_eq!(subresources("/stats/summary"), ["stats"]);
        assert_eq!(subresources("/metrics/resource"), ["metrics"]);
        assert_eq!(subresources("/pods"), ["pods", "proxy"]);
        assert_eq!(subresources("/exec/a/b/c"), ["proxy"]);
        assert_eq!(subresources("//stats"), ["stats"]);
        assert_eq!(subresources("/checkpoint/a/b/c"), ["checkpoint"]);
    }

    #[test]
    fn a_session_is_not_for_readers() {
        for path in ["/exec/a/b/c", "//attach/a/b/c", "/portForward/a/b"] {
            assert_eq!((verb(&Method::GET, path), verb(&Method::POST, path)), ("create", "create"), "{path}");
        }
        for path in ["/containerLogs/a/b/c", "/pods", "/metrics/exec"] {
            assert_eq!((verb(&Method::GET, path), verb(&Method::POST, path)), ("get", "create"), "{path}");
        }
    }
}
