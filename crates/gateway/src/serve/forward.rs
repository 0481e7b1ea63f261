//! A request on its way to a backend, and its answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_connections::Body;
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, TE, UPGRADE};
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use tokio::time::Instant;

use super::body::{Sendable, is_too_long, limited};
use super::fields::{Fields, HOP_BY_HOP};
use super::identity::request_id;
use super::persistence::{self, Session};
use super::pool::{Failure, Sent};
use super::request::Origin;
use super::{Shared, answer, upgrade};
use crate::table::{Backend, Broken, Entry, Filters, Protocol, Retry, Rule, Target, Weighted};
use crate::trace::Stop;

/// Bodies up to this are kept while an answer may still ask for another try, or for mirrors.
const MOST_KEPT: u64 = 64 << 10;
/// Where nothing is said of retries, so many other endpoints are tried when one cannot be reached.
const OTHERS: u32 = 3;
pub const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

pub struct Outcome {
    pub response: Response<Body>,
    pub backend: Option<Arc<Backend>>,
    pub endpoint: Option<SocketAddr>,
    pub deadline: Option<Instant>,
    pub hop: Hop,
}

/// What the last attempt took, until the head of the answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hop {
    pub attempts: u32,
    pub reused: bool,
    pub connecting: Duration,
    /// Connecting included.
    pub waiting: Duration,
    /// The endpoint, whether it answered or not.
    pub tried: Option<SocketAddr>,
}

/// What an endpoint that could not be reached met: kept with the answer, for those who may know.
#[derive(Clone)]
pub struct Because(pub Box<str>);

impl Outcome {
    /// An answer of the gateway itself.
    pub fn own(response: Response<Body>) -> Self {
        Self { response, backend: None, endpoint: None, deadline: None, hop: Hop::default() }
    }
}

/// What was found out about a request already.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// In lower case, without a port.
    pub host: &'a str,
    pub is_grpc: bool,
    pub fields: Fields,
    /// Somebody is told how long each step took.
    pub is_timed: bool,
}

pub async fn forward(
    shared: &Arc<Shared>,
    origin: &Origin,
    entry: &Entry,
    asked: Asked<'_>,
    parts: &mut Parts,
    body: Body,
) -> Outcome {
    let rule = &entry.rule;
    let Asked { host, is_grpc: grpc, fields, is_timed } = asked;
    let fail = |stop| Outcome::own(answer::error(stop, grpc));
    if !rule.has_backends {
        return fail(Stop::NoBackend);
    }
    let Some(passed) = shared.passages.read(&parts.headers, fields) else { return fail(Stop::Loop) };
    let affinity = rule.extras.as_ref().and_then(|extras| extras.affinity.as_ref());
    let session = affinity.and_then(|affinity| Session::read(affinity, &parts.headers));
    let remembered = session.and_then(|session| session.find(&rule.split));
    let sticky = remembered.map(|(_, endpoint)| endpoint);
    let Some(weighted) = remembered.map(|(weighted, _)| weighted).or_else(|| rule.split.choose()) else {
        return fail(Stop::NoWeight);
    };
    if weighted.filters.broken {
        return fail(Stop::BackendFilter);
    }
    let backend = match &weighted.target {
        Target::Backend(backend) if backend.endpoints().is_empty() => return fail(Stop::NoEndpoints),
        Target::Backend(backend) => backend.clone(),
        Target::Broken(Broken::NoEndpoints) => return fail(Stop::NoEndpoints),
        Target::Broken(Broken::Reference) => return fail(Stop::Reference),
        Target::Broken(Broken::Tls) => return fail(Stop::Verification),
    };
    let wants_upgrade = if fields.has(Fields::UPGRADE) { upgrade::wanted(&parts.headers) } else { None };
    let on_client = wants_upgrade.is_some().then(|| parts.extensions.remove::<hyper::upgrade::OnUpgrade>()).flatten();
    prepare(parts, origin, asked, wants_upgrade);
    let body = match rule.extras.as_ref().and_then(|extras| extras.most_body) {
        Some(most) => limited(body, most),
        None => body,
    };
    let is_first = !passed.again;
    let retry = rule.retry.as_ref().filter(|retry| is_first && retry.attempts > 0);
    let has_mirrors = is_first && !(rule.filters.mirrors.is_empty() && weighted.filters.mirrors.is_empty());
    let body = match retry.is_some() || has_mirrors {
        _ if http_body::Body::is_end_stream(&body) => Ok(Sendable::Whole(Bytes::new())),
        true => Box::pin(Sendable::gather(body, MOST_KEPT)).await,
        false => Ok(Sendable::Stream(body)),
    };
    let body = match body {
        Ok(body) => body,
        Err(error) if is_too_long(&error) => return fail(Stop::BodyTooLong),
        Err(_) => return fail(Stop::BodyMissing),
    };
    for filters in [&rule.filters, &weighted.filters] {
        for edit in &filters.request {
            edit.apply(&mut parts.headers);
        }
    }
    passed.write(&mut parts.headers);
    if has_mirrors {
        mirror(shared, entry, weighted, host, parts, &body);
    }
    if !rewrite(parts, host, entry, &[&weighted.filters, &rule.filters]) {
        return fail(Stop::Rewrite);
    }
    let sent = Attempts { shared, rule, retry, backend: &backend, sticky, parts, is_timed };
    let mut outcome = sent.run(body, grpc).await;
    if outcome.response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let on_backend = outcome.response.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
        match (on_client, on_backend) {
            (Some(client), Some(backend)) => upgrade::join(shared, client, &mut outcome.response, backend),
            _ => return fail(Stop::Switched),
        }
    } else {
        let headers = outcome.response.headers_mut();
        strip(headers, Fields::of(headers));
    }
    for edit in &weighted.filters.response {
        edit.apply(outcome.response.headers_mut());
    }
    if let (Some(affinity), Some(endpoint)) = (affinity, outcome.endpoint) {
        let is_secure = origin.scheme() == "https";
        persistence::write(affinity, session, &backend, endpoint, is_secure, outcome.response.headers_mut());
    }
    outcome
}

/// Takes away what is between the client and the gateway alone, and says who asked.
fn prepare(parts: &mut Parts, origin: &Origin, asked: Asked<'_>, wants_upgrade: Option<HeaderValue>) {
    let (headers, fields) = (&mut parts.headers, asked.fields);
    let is_trailers = |value: &HeaderValue| {
        value.to_str().is_ok_and(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("trailers")))
    };
    let trailers = fields.has(Fields::TE) && headers.get_all(TE).iter().any(is_trailers);
    strip(headers, fields);
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = wants_upgrade {
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(UPGRADE, protocol);
    }
    let known = if fields.has(Fields::FORWARDED_FOR) { headers.get(FORWARDED_FOR) } else { None };
    let chain = match known.and_then(|value| value.to_str().ok()) {
        Some(known) => HeaderValue::try_from(format!("{known}, {}", origin.client.ip().to_canonical())).ok(),
        None => Some(origin.address.clone()),
    };
    headers.insert(FORWARDED_PROTO, HeaderValue::from_static(origin.scheme()));
    if let Some(chain) = chain {
        headers.insert(FORWARDED_FOR, chain);
    }
    // Mostly it is what the client says: no text is made of that.
    let said = headers.get(HOST).filter(|said| said.as_bytes() == asked.host.as_bytes()).cloned();
    if let Some(host) = said.or_else(|| HeaderValue::from_str(asked.host).ok()) {
        headers.insert(FORWARDED_HOST, host);
    }
    // What a client names in `Connection` is gone by now.
    let is_named = fields.has(Fields::REQUEST_ID) && headers.contains_key(REQUEST_ID);
    if let Some(id) = (!is_named).then(request_id).flatten() {
        headers.insert(REQUEST_ID, id);
    }
}

/// `fields` are those of the head.
fn strip(headers: &mut HeaderMap, fields: Fields) {
    if !fields.has(Fields::OF_CONNECTION) {
        return;
    }
    if fields.has(Fields::CONNECTION) {
        // What most say names nothing that is not looked for anyway.
        let is_plain = |line: &&HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"keep-alive");
        let named: Vec<HeaderName> = headers
            .get_all(CONNECTION)
            .iter()
            .filter(|line| !is_plain(line))
            .filter_map(|value| value.to_str().ok())
            .flat_map(|line| line.split(','))
            .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
            .collect();
        for name in &named {
            headers.remove(name);
        }
        headers.remove(CONNECTION);
    }
    if fields.has(Fields::UPGRADE) {
        headers.remove(UPGRADE);
    }
    if fields.has(Fields::TE) {
        headers.remove(TE);
    }
    if fields.has(Fields::HOP_BY_HOP) {
        HOP_BY_HOP.iter().for_each(|name| drop(headers.remove(name)));
    }
}

/// The address that the backend sees. False: it cannot be made.
fn rewrite(parts: &mut Parts, host: &str, entry: &Entry, filters: &[&Filters]) -> bool {
    let rewrite = filters.iter().find_map(|filters| filters.rewrite.as_ref());
    let named = rewrite.and_then(|rewrite| rewrite.hostname.clone());
    let asked = || {
        let authority = parts.uri.authority().and_then(|authority| HeaderValue::from_str(authority.as_str()).ok());
        authority.or_else(|| (!parts.headers.contains_key(HOST)).then(|| HeaderValue::from_str(host).ok()).flatten())
    };
    if let Some(name) = named.or_else(asked) {
        parts.headers.insert(HOST, name);
    }
    let path = rewrite.and_then(|rewrite| rewrite.path(parts.uri.path(), &entry.matcher.path));
    let whole = match (path, parts.uri.query()) {
        // As it came: a path is all that the address has.
        (None, _) if parts.uri.authority().is_none() && parts.uri.path().starts_with('/') => return true,
        (None, _) => {
            let whole = parts.uri.path_and_query().cloned();
            let is_path = whole.as_ref().is_some_and(|whole| whole.as_str().starts_with('/'));
            let made = whole.filter(|_| is_path).map(|whole| {
                let mut bare = http::uri::Parts::default();
                bare.path_and_query = Some(whole);
                Uri::from_parts(bare)
            });
            let Some(Ok(uri)) = made else { return false };
            parts.uri = uri;
            return true;
        }
        (Some(path), Some(query)) => format!("{path}?{query}"),
        (Some(path), None) => path,
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
    retry: Option<&'a Retry>,
    backend: &'a Arc<Backend>,
    sticky: Option<SocketAddr>,
    parts: &'a Parts,
    is_timed: bool,
}

/// What is sent once more, and what is not.
enum Verdict {
    Answer(Response<Body>, Sent),
    /// Nothing was processed.
    Unreached(String, Body),
    Failed(Stop),
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
                return self.failed(Stop::NoEndpoints, Hop::default(), grpc);
            };
            let began = self.is_timed.then(Instant::now);
            let body = stream.take().unwrap_or_else(|| match &whole {
                Some(whole) if !whole.is_empty() => answer::full(whole.clone()),
                _ => answer::empty(),
            });
            let verdict = self.attempt(endpoint, body).await;
            let left = |most: u32| sent_again < most;
            let retry = self.retry;
            let again = match &verdict {
                Verdict::Unreached(..) => retry.map_or_else(|| left(OTHERS), |retry| left(retry.attempts)),
                Verdict::Answer(response, _) => retry.is_some_and(|retry| {
                    left(retry.attempts) && whole.is_some() && retry.codes.contains(&response.status().as_u16())
                }),
                Verdict::Failed(stop) => retry.is_some_and(|retry| {
                    let status = stop.status();
                    let wanted = status == StatusCode::GATEWAY_TIMEOUT || retry.codes.contains(&status.as_u16());
                    left(retry.attempts) && whole.is_some() && wanted
                }),
            };
            if !again {
                let waiting = began.map(|began| began.elapsed()).unwrap_or_default();
                let hop = Hop { attempts: sent_again + 1, waiting, tried: Some(endpoint), ..Hop::default() };
                return match verdict {
                    Verdict::Answer(response, Sent { connecting, reused }) => Outcome {
                        response,
                        backend: Some(self.backend.clone()),
                        endpoint: Some(endpoint),
                        deadline: None,
                        hop: Hop { reused, connecting, ..hop },
                    },
                    Verdict::Unreached(why, _) => {
                        tracing::debug!(backend = %self.backend.name, "no endpoint could be reached: {why}");
                        let mut outcome = self.failed(Stop::Unreached, hop, grpc);
                        outcome.response.extensions_mut().insert(Because(why.into()));
                        outcome
                    }
                    Verdict::Failed(stop) => self.failed(stop, hop, grpc),
                };
            }
            tried.push(endpoint);
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

    fn failed(&self, stop: Stop, hop: Hop, grpc: bool) -> Outcome {
        Outcome { backend: Some(self.backend.clone()), hop, ..Outcome::own(answer::error(stop, grpc)) }
    }

    async fn attempt(&self, endpoint: SocketAddr, body: Body) -> Verdict {
        let is_safe = http_body::Body::is_end_stream(&body) && is_idempotent(&self.parts.method);
        let request = outgoing(self.parts, self.backend, body);
        let sent = match self.rule.backend_timeout {
            None => Ok(self.exchange(endpoint, request, is_safe).await),
            Some(time) => tokio::time::timeout(time, Box::pin(self.exchange(endpoint, request, is_safe))).await,
        };
        match sent {
            Err(_) => Verdict::Failed(Stop::BackendTimeout),
            Ok(Ok((response, sent))) => Verdict::Answer(response, sent),
            Ok(Err(Failure::Connect(why, request))) => {
                self.shared.metrics.connect_failure();
                Verdict::Unreached(why, request.into_body())
            }
            Ok(Err(Failure::Exchange { error, .. })) => {
                let source = std::error::Error::source(&error);
                let is_long = source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>());
                tracing::debug!(backend = %self.backend.name, %endpoint, "no answer: {error}");
                Verdict::Failed(if is_long { Stop::BodyTooLong } else { Stop::NoAnswer })
            }
        }
    }

    async fn exchange(
        &self,
        endpoint: SocketAddr,
        request: Request<Body>,
        is_safe: bool,
    ) -> Result<(Response<Body>, Sent), Failure> {
        let connect = self.rule.extras.as_ref().and_then(|extras| extras.connect_timeout);
        let pools = &self.shared.pools;
        match pools.send(endpoint, self.backend, request, connect).await {
            // The backend had closed an idle connection when the request was on its way.
            Err(Failure::Exchange { reused: true, .. }) if is_safe => {
                let again = outgoing(self.parts, self.backend, answer::empty());
                Box::pin(pools.send(endpoint, self.backend, again, connect)).await
            }
            other => other,
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
        let Ok(room) = mirror.room.clone().try_acquire_owned() else { continue };
        let (shared, backend, bytes) = (shared.clone(), backend.clone(), bytes.clone());
        shared.clone().tasks.spawn("mirrored request", async move {
            let _room = room;
            let Some(endpoint) = backend.endpoint(&[]) else { return };
            let request = outgoing(&copy, &backend, answer::full(bytes));
            let work = async {
                let Ok((response, _)) = shared.pools.send(endpoint, &backend, request, None).await else { return };
                // Read to its end, so that the connection can be used again, and kept nowhere: it may have none.
                let mut answer = response.into_body();
                while let Some(Ok(_)) = http_body_util::BodyExt::frame(&mut answer).await {}
            };
            let _ = tokio::time::timeout(Duration::from_secs(60), work).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_of_one_connection_alone_goes_no_further() {
        let kept = ("x-kept", "1");
        for head in [
            &[("connection", "keep-alive"), ("keep-alive", "timeout=5")][..],
            &[("connection", "Keep-Alive, x-named"), ("x-named", "1"), ("keep-alive", "timeout=5")],
            &[("connection", "keep-alive"), ("connection", "x-named"), ("x-named", "1"), ("x-named", "2")],
            &[("connection", "close"), ("transfer-encoding", "chunked"), ("trailer", "x"), ("te", "trailers")],
            &[("upgrade", "websocket"), ("proxy-connection", "close"), ("http2-settings", "x")],
            &[],
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in head.iter().chain([&kept]) {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let fields = Fields::of(&headers);
            strip(&mut headers, fields);
            assert_eq!(
                headers,
                HeaderMap::from_iter([(HeaderName::from_static("x-kept"), "1".parse().unwrap())]),
                "{head:?}"
            );
        }
    }
}
