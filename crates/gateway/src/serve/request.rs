//! A request from its head to the rule that it takes.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_connections::{Body, Received};
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;

use super::access_log::{Line, beginning};
use super::auth::Admitted;
use super::body::Watched;
use super::fields::Fields;
use super::forward::{self, Because, Outcome};
use super::told::{self, Way};
use super::traced::Traced;
use super::{Shared, answer, compression, cors};
use crate::table::{Entry, Extras, Head, PathMatcher, PortTable, Redirect, Taken, TooMuch};
use crate::trace::{Stop, micros};

/// What is known of the connection that a request came on.
pub struct Origin {
    pub client: SocketAddr,
    /// The client's address as backends are told of it.
    pub address: HeaderValue,
    /// The listener that its name chose, by Gateway and name; None without TLS.
    pub listener: Option<(Arc<str>, Arc<str>)>,
    /// The port that the client connected to.
    pub port: u16,
}

impl Origin {
    pub fn new(client: SocketAddr, listener: Option<(Arc<str>, Arc<str>)>, port: u16) -> Self {
        let address = HeaderValue::from_str(&client.ip().to_canonical().to_string());
        let address = address.unwrap_or(HeaderValue::from_static("unknown"));
        Self { client, address, listener, port }
    }

    pub fn scheme(&self) -> &'static str {
        if self.listener.is_some() { "https" } else { "http" }
    }
}

/// What is wrong with a request before any route is asked.
fn malformed(parts: &http::request::Parts) -> Option<Stop> {
    let mut hosts = parts.headers.get_all(HOST).iter();
    let host = hosts.next();
    if hosts.next().is_some() {
        return Some(Stop::TwoHosts);
    }
    let is_old = parts.version < Version::HTTP_11;
    if parts.uri.authority().is_none() && host.is_none() && !is_old {
        return Some(Stop::NoHost);
    }
    let is_host = match parts.uri.authority() {
        Some(authority) => is_host(authority.as_str().as_bytes()),
        None => host.is_none_or(|host| is_host(host.as_bytes())),
    };
    if !is_host {
        return Some(Stop::BadHost);
    }
    let path = parts.uri.path();
    if path.contains(|c: char| c.is_ascii_control() || c == '\\') || is_ambiguous(path) {
        return Some(Stop::BadPath);
    }
    None
}

/// A name or an address, and a port behind it or none. A name before an `@` is nobody's business here, and a backend might
/// take it for the host.
fn is_host(text: &[u8]) -> bool {
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+;=%".contains(byte);
    let is_address = |byte: &u8| byte.is_ascii_hexdigit() || b":.".contains(byte);
    let (host, port) = match text {
        [b'[', rest @ ..] => {
            let Some(end) = rest.iter().position(|byte| *byte == b']') else { return false };
            let (address, rest) = rest.split_at(end);
            if !address.iter().all(is_address) {
                return false;
            }
            (&b""[..], rest.get(1..).unwrap_or_default())
        }
        _ => text.split_at(text.iter().position(|byte| *byte == b':').unwrap_or(text.len())),
    };
    let is_port = match port {
        [] => true,
        [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    is_port && host.iter().all(is_name)
}

/// Slashes that are written as `%2f` or `%5c` are characters like others here. Where they stand beside dots, a backend that
/// reads them as slashes would see another path than the one that was looked up; and nobody means the end of a text by `%00`.
fn is_ambiguous(path: &str) -> bool {
    if !path.contains('%') {
        return false;
    }
    let plain = path.to_ascii_lowercase();
    if plain.contains("%00") {
        return true;
    }
    if !plain.contains("%2f") && !plain.contains("%5c") {
        return false;
    }
    let plain = plain.replace("%2f", "/").replace("%5c", "/").replace("%2e", ".");
    plain.split('/').any(|part| matches!(part, "." | ".."))
}

/// The host in lower case, without a port.
fn host(uri: &Uri, headers: &HeaderMap) -> String {
    let whole = match uri.authority() {
        Some(authority) => authority.as_str(),
        None => headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default(),
    };
    let whole = whole.rsplit_once('@').map_or(whole, |(_, host)| host);
    let bare = match whole.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(address, _)| address),
        None => whole.rsplit_once(':').map_or(whole, |(host, _)| host),
    };
    bare.trim_end_matches('.').to_ascii_lowercase()
}

/// Without `.` and `..`: a backend must not see another path than the one that was looked up.
pub fn normal(path: &str) -> Option<String> {
    let bytes = path.as_bytes();
    let starts = |rest: &[u8]| matches!(rest, [b'.', ..] | [b'%', b'2', b'e' | b'E', ..]);
    let is_suspect = |(at, byte): (usize, &u8)| *byte == b'/' && bytes.get(at + 1..).is_some_and(starts);
    if !bytes.iter().enumerate().any(is_suspect) {
        return None;
    }
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_open = false;
    for part in path.split('/').skip(1) {
        let plain = part.to_ascii_lowercase().replace("%2e", ".");
        ends_open = matches!(plain.as_str(), "." | "..");
        match plain.as_str() {
            "." => {}
            ".." => {
                kept.pop();
            }
            _ => kept.push(part),
        }
    }
    let end = if ends_open && !kept.is_empty() { "/" } else { "" };
    Some(format!("/{}{end}", kept.join("/")))
}

/// Everything about one request that is said afterwards.
pub struct Record {
    began: Instant,
    method: Method,
    host: String,
    uri: Uri,
    version: Version,
    trace: Option<Traced>,
    /// Whoever asked may know the way that the request took.
    is_told: bool,
    is_grpc: bool,
    fields: Fields,
    matching: Duration,
    table: Arc<PortTable>,
    listener: Option<Arc<str>>,
    rule: Option<Taken>,
    /// What there is instead of a route for it, where that is told.
    near: Vec<String>,
}

impl Record {
    fn path(&self) -> &str {
        self.uri.path()
    }
}

pub async fn handle(
    shared: Arc<Shared>,
    table: Arc<PortTable>,
    origin: Arc<Origin>,
    request: Request<Received>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let fields = Fields::of(&parts.headers);
    let is_told = fields.has(Fields::TOKEN) && shared.told.take(&mut parts.headers);
    let grpc = fields.has(Fields::CONTENT_TYPE) && answer::is_grpc(&parts.headers);
    // Without a log nobody would ever learn of the gateway's span.
    let trace = shared.access_log.as_ref().and_then(|_| Traced::read(&parts.headers));
    let mut record = Record {
        began: Instant::now(),
        method: parts.method.clone(),
        host: host(&parts.uri, &parts.headers),
        uri: parts.uri.clone(),
        version: parts.version,
        trace,
        is_told,
        is_grpc: grpc,
        fields,
        matching: Duration::ZERO,
        table,
        listener: None,
        rule: None,
        near: Vec::new(),
    };
    // Whoever asks like this wants to know whether the token has come here, and nothing of any backend.
    if record.is_told && parts.method == Method::OPTIONS && parts.uri.path() == "*" {
        let mut response = Response::new(answer::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        return finish(&shared, &origin, record, Outcome::own(response));
    }
    if let Some(wrong) = malformed(&parts) {
        return finish(&shared, &origin, record, Outcome::own(answer::error(wrong, grpc)));
    }
    if let Some(path) = normal(parts.uri.path()) {
        let whole = match parts.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path,
        };
        let mut uri = parts.uri.clone().into_parts();
        uri.path_and_query = whole.parse().ok();
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
        record.uri = parts.uri.clone();
    }
    let head = Head {
        host: &record.host,
        path: record.path(),
        query: parts.uri.query(),
        method: &parts.method,
        headers: &parts.headers,
    };
    let found = find(&origin, &record.table, &head);
    let near = if found.is_err() && record.is_told { told::near(&record.table, &head) } else { Vec::new() };
    if record.is_told {
        (record.matching, record.near) = (record.began.elapsed(), near);
    }
    let entry = match found {
        Ok((listener, entry)) => {
            record.listener = Some(listener);
            entry
        }
        Err((stop, listener)) => {
            record.listener = listener;
            return finish(&shared, &origin, record, Outcome::own(answer::error(stop, grpc)));
        }
    };
    record.rule = Some(entry.clone());
    if let Some(trace) = &record.trace {
        trace.write(&mut parts.headers);
    }
    // Most requests have none: nothing is kept for those.
    let body = match http_body::Body::is_end_stream(&body) {
        true => answer::empty(),
        false => body.map_err(Into::into).boxed_unsync(),
    };
    let outcome = serve(&shared, &origin, &entry, &record, &mut parts, body).await;
    finish(&shared, &origin, record, outcome)
}

/// A listener by name, and the rule that a request takes there; or why none does, and the listener that has no rule for it.
type Found = Result<(Arc<str>, Taken), (Stop, Option<Arc<str>>)>;

/// The rule for a request, and the listener that has it. A connection whose name chose one listener is not good for the
/// hosts of another.
fn find(origin: &Origin, table: &PortTable, head: &Head<'_>) -> Found {
    let mut failure = (Stop::NoListener, None);
    for table in std::iter::once(table).chain(table.fallback.as_deref()) {
        let Some(listener) = table.listener(head.host) else {
            if origin.listener.as_ref().is_some_and(|(gateway, _)| *gateway == table.gateway) {
                failure = (Stop::OtherListener, None);
            }
            continue;
        };
        if let Some((gateway, name)) = &origin.listener
            && (*gateway != table.gateway || *name != listener.name)
        {
            if *gateway == table.gateway {
                failure = (Stop::OtherListener, None);
            }
            continue;
        }
        match listener.http.find(head) {
            Ok(Some(entry)) => return Ok((listener.name.clone(), entry)),
            Ok(None) => {}
            Err(TooMuch) => return Err((Stop::TooMuchWork, Some(listener.name.clone()))),
        }
        if failure.0 == Stop::NoListener {
            failure = (Stop::NoRoute, Some(listener.name.clone()));
        }
    }
    Err(failure)
}

/// What few requests need has a place of its own: each request carries along, and copies, what its steps may need.
async fn serve(
    shared: &Arc<Shared>,
    origin: &Origin,
    entry: &Entry,
    record: &Record,
    parts: &mut http::request::Parts,
    body: Body,
) -> Outcome {
    let (rule, grpc) = (&entry.rule, record.is_grpc);
    let preflight = rule.filters.cors.as_ref().filter(|_| cors::is_preflight(&parts.method, &parts.headers));
    if let Some(extras) = &rule.extras
        && let Some(refused) =
            Box::pin(refuse(shared, extras, origin.client.ip(), &parts.headers, preflight.is_some(), grpc)).await
    {
        return Outcome::own(refused);
    }
    if let Some(rules) = preflight {
        return Outcome::own(cors::preflight(rules, &parts.headers));
    }
    let asked_by = rule.filters.cors.as_ref().and_then(|_| parts.headers.get(http::header::ORIGIN).cloned());
    let compress = rule.extras.as_ref().is_some_and(|extras| extras.compress) && compression::is_wanted(&parts.headers);
    let mut outcome = if rule.filters.broken {
        Outcome::own(answer::error(Stop::RouteFilter, grpc))
    } else if let Some(redirect) = &rule.filters.redirect {
        Outcome::own(redirected(redirect, &entry.matcher.path, origin, record, parts))
    } else {
        let deadline = rule.request_timeout.map(|time| tokio::time::Instant::now() + time);
        let asked = forward::Asked {
            host: &record.host,
            is_grpc: grpc,
            fields: record.fields,
            is_timed: record.is_told || shared.access_log.is_some(),
        };
        match deadline {
            None => forward::forward(shared, origin, entry, asked, parts, body).await,
            Some(deadline) => {
                let work = Box::pin(forward::forward(shared, origin, entry, asked, parts, body));
                match tokio::time::timeout_at(deadline, work).await {
                    Ok(outcome) => Outcome { deadline: Some(deadline), ..outcome },
                    Err(_) => Outcome::own(answer::error(Stop::RequestTimeout, grpc)),
                }
            }
        }
    };
    for edit in &rule.filters.response {
        edit.apply(outcome.response.headers_mut());
    }
    if let Some(rules) = &rule.filters.cors {
        cors::mark(rules, asked_by.as_ref(), outcome.response.headers_mut());
    }
    if compress {
        let is_head = record.method == Method::HEAD;
        outcome.response = compression::compress(outcome.response, is_head);
    }
    outcome
}

/// What annotations do not let in. Browsers ask without a password whether they may send one: a preflight that is answered
/// here needs none, and nothing else comes to a backend without it.
async fn refuse(
    shared: &Shared,
    extras: &Extras,
    client: IpAddr,
    headers: &HeaderMap,
    is_preflight: bool,
    grpc: bool,
) -> Option<Response<Body>> {
    let client = client.to_canonical();
    let error = |stop| Some(answer::error(stop, grpc));
    if !extras.sources.is_empty() && !extras.sources.contains(client) {
        return error(Stop::SourceRange);
    }
    for limit in &extras.rates {
        if limit.exempt.contains(client) {
            continue;
        }
        if let Err(pause) = shared.rates.admit(limit, client) {
            let mut refused = answer::error(Stop::RateLimit, grpc);
            let seconds = pause.as_millis().div_ceil(1000).max(1).to_string();
            refused.headers_mut().extend(HeaderValue::from_str(&seconds).ok().map(|value| (RETRY_AFTER, value)));
            return Some(refused);
        }
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let (Some(most), Some(length)) = (extras.most_body, length)
        && length > most
    {
        return error(Stop::BodyTooLong);
    }
    let users = extras.basic_auth.as_ref().filter(|_| !is_preflight)?;
    match shared.passwords.admits(users, headers).await {
        Admitted::Yes => None,
        Admitted::Busy => error(Stop::Busy),
        Admitted::No => {
            let mut refused = answer::error(Stop::Password, grpc);
            if let Ok(value) = HeaderValue::from_str(&format!("Basic realm=\"{}\"", users.realm)) {
                refused.headers_mut().insert(WWW_AUTHENTICATE, value);
            }
            Some(refused)
        }
    }
}

fn redirected(
    redirect: &Redirect,
    matched: &PathMatcher,
    origin: &Origin,
    record: &Record,
    parts: &http::request::Parts,
) -> Response<Body> {
    let scheme = redirect.scheme.as_deref().unwrap_or(origin.scheme());
    let host = redirect.hostname.as_deref().unwrap_or(&record.host);
    let usual = |scheme: &str| if scheme == "https" { 443 } else { 80 };
    // Another scheme has another port; the same one keeps that of the listener.
    let port = match (redirect.port, &redirect.scheme) {
        (Some(port), _) => port,
        (None, Some(scheme)) => usual(scheme),
        (None, None) => origin.port,
    };
    let path = match &redirect.path {
        Some(rewrite) => rewrite.apply(record.path(), matched),
        None => record.path().to_owned(),
    };
    let port = if port == usual(scheme) { String::new() } else { format!(":{port}") };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    answer::redirect(redirect.status, &format!("{scheme}://{host}{port}{path}{query}"))
}

/// Counts and logs once the answer is through.
fn finish(shared: &Arc<Shared>, origin: &Arc<Origin>, record: Record, outcome: Outcome) -> Response<Body> {
    let Outcome { mut response, backend, endpoint, deadline, hop } = outcome;
    let status = response.status().as_u16();
    if record.is_told {
        let rule = record.rule.as_ref().map(|entry| &entry.rule);
        let because = response.extensions().get::<Because>().cloned();
        let way = Way {
            gateway: &record.table.gateway,
            listener: record.listener.as_deref().unwrap_or_default(),
            route: rule.map_or("", |rule| &rule.route),
            rule: rule.map_or("", |rule| &rule.name),
            backend: backend.as_ref().map_or("", |backend| &backend.name),
            endpoint: endpoint.or(hop.tried).map(|endpoint| endpoint.to_string()),
            attempts: hop.attempts,
            stop: response.extensions().get::<Stop>().copied(),
            because: because.as_ref().map_or("", |because| &because.0),
            near: &record.near,
            reused: hop.reused,
            matching: micros(record.matching),
            connecting: micros(hop.connecting),
            waiting: micros(hop.waiting),
            total: micros(record.began.elapsed()),
        };
        way.write(response.headers_mut());
    }
    let shared = shared.clone();
    if shared.access_log.is_none() {
        let Record { began, table, rule, .. } = record;
        let count = move |_| {
            let route = rule.as_ref().map_or("", |entry| &entry.rule.route);
            let backend = backend.as_ref().map_or("", |backend| &backend.name);
            shared.metrics.request(&table.gateway, route, backend, status, began.elapsed());
        };
        return response.map(|body| Watched::boxed(body, deadline, count));
    }
    let origin = origin.clone();
    let at_end = move |bytes| {
        let took = record.began.elapsed();
        let rule = record.rule.as_ref().map(|entry| &entry.rule);
        let (route, rule) = rule.map_or(("", ""), |rule| (&*rule.route, &*rule.name));
        let backend = backend.as_ref().map_or("", |backend| &backend.name);
        shared.metrics.request(&record.table.gateway, route, backend, status, took);
        let Some(log) = &shared.access_log else { return };
        let trace = record.trace.as_ref();
        let milliseconds = |time: Duration| time.as_secs_f64() * 1000.0;
        log.write(&Line {
            time: k8s_openapi::jiff::Timestamp::now().to_string(),
            gateway: &record.table.gateway,
            client: origin.client.to_string(),
            method: beginning(record.method.as_str()),
            host: beginning(&record.host),
            path: beginning(record.path()),
            protocol: if record.version == Version::HTTP_2 { "HTTP/2" } else { "HTTP/1" },
            status,
            bytes,
            milliseconds: milliseconds(took),
            route,
            rule,
            backend,
            endpoint: endpoint.map(|endpoint| endpoint.to_string()),
            backend_milliseconds: endpoint.map(|_| milliseconds(hop.waiting)),
            attempts: hop.attempts,
            trace_id: trace.map(|trace| &*trace.trace),
            span_id: trace.map(|trace| &*trace.span),
            parent_span_id: trace.map(|trace| &*trace.parent),
        });
    };
    response.map(|body| Watched::boxed(body, deadline, at_end))
}

#[cfg(test)]
mod tests;
