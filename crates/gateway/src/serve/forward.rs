//! A request on its way to a backend, and its answer.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ferry_connections::Body;
use http::header::{
    CONNECTION, COOKIE, HOST, HeaderName, HeaderValue, SET_COOKIE, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::body::{Sendable, is_too_long, limited};
use super::pool::Failure;
use super::request::Origin;
use super::{Shared, answer, upgrade};
use crate::table::{Affinity, Backend, Broken, Entry, Filters, Protocol, Rule, Target, Weighted};

/// Bodies up to this are kept while an answer may still ask for another try, or for mirrors.
const MOST_KEPT: u64 = 64 << 10;
/// Where nothing is said of retries, so many other endpoints are tried when one cannot be reached.
const OTHERS: u32 = 3;
const HOP_BY_HOP: [HeaderName; 3] = [TRANSFER_ENCODING, TRAILER, HeaderName::from_static("keep-alive")];

pub struct Outcome {
    pub response: Response<Body>,
    pub backend: Box<str>,
    pub endpoint: Option<SocketAddr>,
    pub deadline: Option<Instant>,
}

impl Outcome {
    /// An answer of the gateway itself.
    pub fn own(response: Response<Body>) -> Self {
        Self { response, backend: Box::default(), endpoint: None, deadline: None }
    }
}

pub async fn forward(
    shared: &Arc<Shared>,
    origin: &Origin,
    entry: &Entry,
    host: &str,
    mut parts: Parts,
    body: Body,
) -> Outcome {
    let rule = &entry.rule;
    let grpc = answer::is_grpc(&parts.headers);
    let fail = |status, text: &str| Outcome::own(answer::error(status, text, grpc));
    if !rule.has_backends {
        return fail(StatusCode::INTERNAL_SERVER_ERROR, "the route has no backend");
    }
    let Some(weighted) = rule.split.choose() else {
        return fail(StatusCode::INTERNAL_SERVER_ERROR, "no backend of the route has any weight");
    };
    if weighted.filters.broken {
        return fail(StatusCode::INTERNAL_SERVER_ERROR, "a filter of the backend cannot be carried out");
    }
    let backend = match &weighted.target {
        Target::Backend(backend) => backend.clone(),
        Target::Broken(Broken::NoEndpoints) => {
            return fail(StatusCode::SERVICE_UNAVAILABLE, "the backend has no endpoints");
        }
        Target::Broken(Broken::Reference) => {
            return fail(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the backend of the route does not exist or is not permitted",
            );
        }
        Target::Broken(Broken::Tls) => return fail(StatusCode::BAD_GATEWAY, "the backend cannot be verified"),
    };
    let wants_upgrade = upgrade::wanted(&parts.headers);
    let on_client = wants_upgrade.is_some().then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>()).flatten();
    let affinity = rule.extras.as_ref().and_then(|extras| extras.affinity.as_ref());
    let sticky = affinity.and_then(|affinity| remembered(affinity, &parts.headers, &backend));
    prepare(&mut parts, origin, host, wants_upgrade);
    let body = match rule.extras.as_ref().and_then(|extras| extras.most_body) {
        Some(most) => limited(body, most),
        None => body,
    };
    let is_retried = rule.retry.as_ref().is_some_and(|retry| retry.attempts > 0);
    let has_mirrors = !rule.filters.mirrors.is_empty() || !weighted.filters.mirrors.is_empty();
    let body = match is_retried || has_mirrors {
        true => Sendable::gather(body, MOST_KEPT).await,
        false if http_body::Body::is_end_stream(&body) => Ok(Sendable::Whole(Bytes::new())),
        false => Ok(Sendable::Stream(body)),
    };
    let body = match body {
        Ok(body) => body,
        Err(error) if is_too_long(&error) => return fail(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long"),
        Err(_) => return fail(StatusCode::BAD_REQUEST, "the body did not come"),
    };
    for filters in [&rule.filters, &weighted.filters] {
        for edit in &filters.request {
            edit.apply(&mut parts.headers);
        }
    }
    mirror(shared, entry, weighted, host, &parts, &body);
    if !rewrite(&mut parts, host, entry, &[&weighted.filters, &rule.filters]) {
        return fail(StatusCode::BAD_REQUEST, "the path cannot be rewritten");
    }
    let sent = Attempts { shared, rule, backend: &backend, sticky, parts: &parts };
    let mut outcome = sent.run(body, grpc).await;
    if outcome.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let on_backend = outcome.response.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
        match (on_client, on_backend) {
            (Some(client), Some(backend)) => upgrade::join(shared, client, &mut outcome.response, backend),
            _ => return fail(StatusCode::BAD_GATEWAY, "the backend switched protocols without being asked"),
        }
    } else {
        strip(outcome.response.headers_mut());
    }
    for edit in &weighted.filters.response {
        edit.apply(outcome.response.headers_mut());
    }
    if let (Some(affinity), Some(endpoint)) = (affinity, outcome.endpoint)
        && sticky != Some(endpoint)
    {
        remember(affinity, endpoint, origin, outcome.response.headers_mut());
    }
    outcome
}

/// Takes away what is between the client and the gateway alone, and says who asked.
fn prepare(parts: &mut Parts, origin: &Origin, host: &str, wants_upgrade: Option<HeaderValue>) {
    let trailers = parts.headers.get_all(TE).iter().any(|value| {
        value.to_str().is_ok_and(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("trailers")))
    });
    strip(&mut parts.headers);
    if trailers {
        parts.headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = wants_upgrade {
        parts.headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        parts.headers.insert(UPGRADE, protocol);
    }
    let headers = &mut parts.headers;
    let client = origin.client.ip().to_canonical().to_string();
    let chain = headers.get("x-forwarded-for").and_then(|value| value.to_str().ok());
    let chain = chain.map_or_else(|| client.clone(), |chain| format!("{chain}, {client}"));
    let set = [("x-forwarded-for", chain.as_str()), ("x-forwarded-proto", origin.scheme()), ("x-forwarded-host", host)];
    for (name, text) in set {
        if let Ok(value) = HeaderValue::from_str(text) {
            headers.insert(name, value);
        }
    }
    if !headers.contains_key("x-request-id")
        && let Ok(value) = HeaderValue::from_str(&format!("{:032x}", rand::random::<u128>()))
    {
        headers.insert("x-request-id", value);
    }
}

fn strip(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|line| line.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named.iter().chain(&HOP_BY_HOP).chain([&CONNECTION, &UPGRADE, &TE]) {
        headers.remove(name);
    }
    headers.remove("proxy-connection");
}

/// The address that the backend sees. False: it cannot be made.
fn rewrite(parts: &mut Parts, host: &str, entry: &Entry, filters: &[&Filters]) -> bool {
    let rewrite = filters.iter().find_map(|filters| filters.rewrite.as_ref());
    let authority = parts.uri.authority().map(|authority| authority.as_str().to_owned());
    let asked = authority.or_else(|| parts.headers.get(HOST).and_then(|value| value.to_str().ok()).map(str::to_owned));
    let mut name = HeaderValue::from_str(asked.as_deref().unwrap_or(host)).ok();
    let mut path = parts.uri.path().to_owned();
    if let Some(rewrite) = rewrite {
        name = rewrite.hostname.clone().or(name);
        path = rewrite.path(&path, &entry.matcher.path).unwrap_or(path);
    }
    if let Some(name) = name {
        parts.headers.insert(HOST, name);
    }
    let whole = match parts.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path,
    };
    match whole.parse::<Uri>() {
        Ok(uri) if whole.starts_with('/') => {
            parts.uri = uri;
            true
        }
        _ => false,
    }
}

/// The request as the backend's protocol has it.
fn outgoing(parts: &Parts, backend: &Backend, body: Body) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = parts.method.clone();
    *request.headers_mut() = parts.headers.clone();
    *request.uri_mut() = parts.uri.clone();
    *request.version_mut() = Version::HTTP_11;
    if backend.protocol != Protocol::Http1 {
        // HTTP/2 says the host in its address; HTTP/1 takes it from the header and ignores this.
        let mut uri = parts.uri.clone().into_parts();
        uri.scheme = Some(if backend.tls.is_some() { http::uri::Scheme::HTTPS } else { http::uri::Scheme::HTTP });
        uri.authority = parts.headers.get(HOST).and_then(|host| host.to_str().ok()?.parse().ok());
        if let Ok(whole) = Uri::from_parts(uri) {
            *request.uri_mut() = whole;
        }
        if backend.protocol == Protocol::Http2 {
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(HOST);
        }
    }
    request
}

struct Attempts<'a> {
    shared: &'a Arc<Shared>,
    rule: &'a Rule,
    backend: &'a Arc<Backend>,
    sticky: Option<SocketAddr>,
    parts: &'a Parts,
}

/// What is sent once more, and what is not.
enum Verdict {
    Answer(Response<Body>),
    /// Nothing was processed.
    Unreached(String, Body),
    Failed(StatusCode, String),
}

impl Attempts<'_> {
    async fn run(&self, body: Sendable, grpc: bool) -> Outcome {
        let (mut tried, mut sent_again) = (Vec::new(), 0);
        let (mut stream, whole) = match body {
            Sendable::Stream(stream) => (Some(stream), None),
            Sendable::Whole(whole) => (None, Some(whole)),
        };
        loop {
            // All were tried: from the beginning.
            let endpoint = self.sticky.filter(|endpoint| !tried.contains(endpoint));
            let endpoint = endpoint.or_else(|| self.backend.endpoint(&tried)).or_else(|| self.backend.endpoint(&[]));
            let Some(endpoint) = endpoint else {
                return self.failed(StatusCode::SERVICE_UNAVAILABLE, "the backend has no endpoints", grpc);
            };
            tried.push(endpoint);
            let body = stream.take().unwrap_or_else(|| answer::full(whole.clone().unwrap_or_default()));
            let verdict = self.attempt(endpoint, body).await;
            let left = |most: u32| sent_again < most;
            let retry = self.rule.retry.as_ref();
            let again = match &verdict {
                Verdict::Unreached(..) => retry.map_or_else(|| left(OTHERS), |retry| left(retry.attempts)),
                Verdict::Answer(response) => retry.is_some_and(|retry| {
                    left(retry.attempts) && whole.is_some() && retry.codes.contains(&response.status().as_u16())
                }),
                Verdict::Failed(status, _) => retry.is_some_and(|retry| {
                    let wanted = *status == StatusCode::GATEWAY_TIMEOUT || retry.codes.contains(&status.as_u16());
                    left(retry.attempts) && whole.is_some() && wanted
                }),
            };
            if !again {
                return match verdict {
                    Verdict::Answer(response) => Outcome {
                        response,
                        backend: self.backend.name.clone(),
                        endpoint: Some(endpoint),
                        deadline: None,
                    },
                    Verdict::Unreached(why, _) => {
                        tracing::debug!(backend = %self.backend.name, "no endpoint could be reached: {why}");
                        self.failed(StatusCode::BAD_GATEWAY, "the backend cannot be reached", grpc)
                    }
                    Verdict::Failed(status, text) => self.failed(status, &text, grpc),
                };
            }
            sent_again += 1;
            self.shared.metrics.retry();
            if let Verdict::Unreached(_, body) = verdict
                && whole.is_none()
            {
                stream = Some(body);
            }
            if let Some(retry) = retry {
                let pause = retry.backoff.saturating_mul(1 << (sent_again - 1).min(6));
                tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
            }
        }
    }

    fn failed(&self, status: StatusCode, text: &str, grpc: bool) -> Outcome {
        Outcome { backend: self.backend.name.clone(), ..Outcome::own(answer::error(status, text, grpc)) }
    }

    async fn attempt(&self, endpoint: SocketAddr, body: Body) -> Verdict {
        let is_safe = http_body::Body::is_end_stream(&body) && is_idempotent(&self.parts.method);
        let request = outgoing(self.parts, self.backend, body);
        let connect = self.rule.extras.as_ref().and_then(|extras| extras.connect_timeout);
        let pools = &self.shared.pools;
        let work = async {
            match pools.send(endpoint, self.backend, request, connect).await {
                // The backend had closed an idle connection when the request was on its way.
                Err(Failure::Exchange { reused: true, .. }) if is_safe => {
                    let again = outgoing(self.parts, self.backend, answer::full(Bytes::new()));
                    pools.send(endpoint, self.backend, again, connect).await
                }
                other => other,
            }
        };
        let sent = match self.rule.backend_timeout {
            None => Ok(work.await),
            Some(time) => tokio::time::timeout(time, work).await,
        };
        match sent {
            Err(_) => Verdict::Failed(StatusCode::GATEWAY_TIMEOUT, "the backend took too long".to_owned()),
            Ok(Ok(response)) => Verdict::Answer(response),
            Ok(Err(Failure::Connect(why, request))) => {
                self.shared.metrics.connect_failure();
                Verdict::Unreached(why, request.into_body())
            }
            Ok(Err(Failure::Exchange { error, .. })) => {
                let source = std::error::Error::source(&error);
                let is_long = source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
                let status = if is_long { StatusCode::PAYLOAD_TOO_LARGE } else { StatusCode::BAD_GATEWAY };
                tracing::debug!(backend = %self.backend.name, %endpoint, "no answer: {error}");
                let text = if is_long { "the body is too long" } else { "the backend did not answer" };
                Verdict::Failed(status, text.to_owned())
            }
        }
    }
}

fn is_idempotent(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS | Method::PUT | Method::DELETE | Method::TRACE)
}

/// Sends copies whose answers nobody waits for.
fn mirror(shared: &Arc<Shared>, entry: &Entry, weighted: &Weighted, host: &str, parts: &Parts, body: &Sendable) {
    for mirror in entry.rule.filters.mirrors.iter().chain(&weighted.filters.mirrors) {
        let is_chosen = rand::random_range(0..mirror.denominator.max(1)) < mirror.numerator;
        let (Target::Backend(backend), Sendable::Whole(bytes), true) = (&mirror.target, body, is_chosen) else {
            continue;
        };
        let mut copy = Request::new(()).into_parts().0;
        copy.method = parts.method.clone();
        copy.uri = parts.uri.clone();
        copy.headers = parts.headers.clone();
        if upgrade::wanted(&copy.headers).is_some() || !rewrite(&mut copy, host, entry, &[]) {
            continue;
        }
        let (shared, backend, bytes) = (shared.clone(), backend.clone(), bytes.clone());
        shared.clone().tasks.spawn("mirrored request", async move {
            let Some(endpoint) = backend.endpoint(&[]) else { return };
            let request = outgoing(&copy, &backend, answer::full(bytes));
            let work = async {
                if let Ok(response) = shared.pools.send(endpoint, &backend, request, None).await {
                    // Read to its end, so that the connection can be used again.
                    let _ = http_body_util::BodyExt::collect(response.into_body()).await;
                }
            };
            let _ = tokio::time::timeout(std::time::Duration::from_secs(60), work).await;
        });
    }
}

fn token(endpoint: SocketAddr) -> String {
    let mut hasher = DefaultHasher::new();
    endpoint.hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// The endpoint that the client's cookie stands for, as long as it is there.
fn remembered(affinity: &Affinity, headers: &HeaderMap, backend: &Backend) -> Option<SocketAddr> {
    let cookies =
        headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|line| line.split(';'));
    let value = cookies.filter_map(|pair| pair.trim().split_once('=')).find(|(name, _)| *name == &*affinity.cookie)?.1;
    backend.endpoints.iter().copied().find(|endpoint| token(*endpoint) == value)
}

fn remember(affinity: &Affinity, endpoint: SocketAddr, origin: &Origin, headers: &mut HeaderMap) {
    let age = affinity.max_age.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
    let secure = if origin.scheme() == "https" { "; Secure" } else { "" };
    let text = format!("{}={}; Path={}; HttpOnly{age}{secure}", affinity.cookie, token(endpoint), affinity.path);
    if let Ok(value) = HeaderValue::from_str(&text) {
        headers.append(SET_COOKIE, value);
    }
}
