//! A request from its head to the rule that it takes.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ferry_connections::Body;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;

use super::access_log::Line;
use super::body::{AtEnd, Watched};
use super::forward::{self, Outcome};
use super::{Shared, answer, auth, cors};
use crate::table::{Entry, Extras, Head, PathMatcher, PortTable, Redirect, Rule};

/// What is known of the connection that a request came on.
#[derive(Clone)]
pub struct Origin {
    pub client: SocketAddr,
    /// The listener that its name chose, by Gateway and name; None without TLS.
    pub listener: Option<(Box<str>, Box<str>)>,
    /// The port that the client connected to.
    pub port: u16,
}

impl Origin {
    pub fn scheme(&self) -> &'static str {
        if self.listener.is_some() { "https" } else { "http" }
    }
}

/// What is wrong with a request before any route is asked.
fn malformed(parts: &http::request::Parts) -> Option<&'static str> {
    let headers = &parts.headers;
    if headers.get_all(HOST).iter().count() > 1 {
        return Some("a request has one host");
    }
    let is_old = parts.version < Version::HTTP_11;
    if parts.uri.authority().is_none() && !headers.contains_key(HOST) && !is_old {
        return Some("a request has a host");
    }
    if parts.uri.path().contains(|c: char| c.is_ascii_control() || c == '\\') {
        return Some("the path has characters that it must not have");
    }
    None
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
    let lower = path.to_ascii_lowercase();
    if !lower.contains("/.") && !lower.contains("/%2e") {
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
    path: String,
    version: Version,
    trace: Option<HeaderValue>,
    gateway: Box<str>,
    rule: Option<Arc<Rule>>,
}

pub async fn handle(
    shared: Arc<Shared>,
    table: Arc<PortTable>,
    origin: Origin,
    request: Request<Incoming>,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let grpc = answer::is_grpc(&parts.headers);
    let mut record = Record {
        began: Instant::now(),
        method: parts.method.clone(),
        host: host(&parts.uri, &parts.headers),
        path: parts.uri.path().to_owned(),
        version: parts.version,
        trace: parts.headers.get("traceparent").cloned(),
        gateway: table.gateway.clone(),
        rule: None,
    };
    let body = body.map_err(Into::into).boxed_unsync();
    if let Some(wrong) = malformed(&parts) {
        return finish(&shared, &origin, record, Outcome::own(answer::error(StatusCode::BAD_REQUEST, wrong, grpc)));
    }
    if let Some(path) = normal(parts.uri.path()) {
        let whole = match parts.uri.query() {
            Some(query) => format!("{path}?{query}"),
            None => path.clone(),
        };
        let mut uri = parts.uri.clone().into_parts();
        uri.path_and_query = whole.parse().ok();
        parts.uri = Uri::from_parts(uri).unwrap_or_default();
        record.path = path;
    }
    let entry = match find(&table, &origin, &record, &parts) {
        Ok(entry) => entry,
        Err(status) => {
            let text = if status == StatusCode::NOT_FOUND {
                "no route has this"
            } else {
                "this connection is for another host"
            };
            return finish(&shared, &origin, record, Outcome::own(answer::error(status, text, grpc)));
        }
    };
    record.rule = Some(entry.rule.clone());
    let outcome = serve(&shared, &origin, &entry, &record, parts, body).await;
    finish(&shared, &origin, record, outcome)
}

/// The rule for a request. A connection whose name chose one listener is not good for the hosts of another.
fn find(
    table: &PortTable,
    origin: &Origin,
    record: &Record,
    parts: &http::request::Parts,
) -> Result<Entry, StatusCode> {
    let head = Head {
        host: &record.host,
        path: &record.path,
        query: parts.uri.query(),
        method: &parts.method,
        headers: &parts.headers,
    };
    let mut failure = StatusCode::NOT_FOUND;
    for table in std::iter::once(table).chain(table.fallback.as_deref()) {
        let Some(listener) = table.listener(&record.host) else {
            if origin.listener.as_ref().is_some_and(|(gateway, _)| *gateway == table.gateway) {
                failure = StatusCode::MISDIRECTED_REQUEST;
            }
            continue;
        };
        if let Some((gateway, name)) = &origin.listener
            && (*gateway != table.gateway || *name != listener.name)
        {
            if *gateway == table.gateway {
                failure = StatusCode::MISDIRECTED_REQUEST;
            }
            continue;
        }
        if let Some(entry) = listener.http.find(&head) {
            return Ok(entry.clone());
        }
    }
    Err(failure)
}

async fn serve(
    shared: &Arc<Shared>,
    origin: &Origin,
    entry: &Entry,
    record: &Record,
    parts: http::request::Parts,
    body: Body,
) -> Outcome {
    let rule = &entry.rule;
    let grpc = answer::is_grpc(&parts.headers);
    if let Some(extras) = &rule.extras
        && let Some(refused) = refuse(extras, origin.client.ip(), &parts.headers, &parts.method)
    {
        return Outcome::own(refused);
    }
    if let Some(rules) = &rule.filters.cors
        && cors::is_preflight(&parts.method, &parts.headers)
    {
        return Outcome::own(cors::preflight(rules, &parts.headers));
    }
    let asked_by = parts.headers.get(http::header::ORIGIN).cloned();
    let mut outcome = if rule.filters.broken {
        let text = "a filter of the route cannot be carried out";
        Outcome::own(answer::error(StatusCode::INTERNAL_SERVER_ERROR, text, grpc))
    } else if let Some(redirect) = &rule.filters.redirect {
        Outcome::own(redirected(redirect, &entry.matcher.path, origin, record, &parts))
    } else {
        let deadline = rule.request_timeout.map(|time| tokio::time::Instant::now() + time);
        let work = forward::forward(shared, origin, entry, &record.host, parts, body);
        match deadline {
            None => work.await,
            Some(deadline) => match tokio::time::timeout_at(deadline, work).await {
                Ok(outcome) => Outcome { deadline: Some(deadline), ..outcome },
                Err(_) => Outcome::own(answer::error(StatusCode::GATEWAY_TIMEOUT, "the request took too long", grpc)),
            },
        }
    };
    for edit in &rule.filters.response {
        edit.apply(outcome.response.headers_mut());
    }
    if let Some(rules) = &rule.filters.cors {
        cors::mark(rules, asked_by.as_ref(), outcome.response.headers_mut());
    }
    outcome
}

/// What annotations of an Ingress do not let in.
fn refuse(extras: &Extras, client: IpAddr, headers: &HeaderMap, method: &Method) -> Option<Response<Body>> {
    let client = client.to_canonical();
    if !extras.sources.is_empty() && !extras.sources.iter().any(|range| range.contains(&client)) {
        return Some(answer::error(StatusCode::FORBIDDEN, "this address is not let in", false));
    }
    let length = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if let (Some(most), Some(length)) = (extras.most_body, length)
        && length > most
    {
        return Some(answer::error(StatusCode::PAYLOAD_TOO_LARGE, "the body is too long", false));
    }
    if let Some(users) = &extras.basic_auth
        && method != Method::OPTIONS
        && !auth::admits(users, headers)
    {
        let mut refused = answer::error(StatusCode::UNAUTHORIZED, "a password is needed", false);
        if let Ok(value) = HeaderValue::from_str(&format!("Basic realm=\"{}\"", users.realm)) {
            refused.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
        return Some(refused);
    }
    None
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
        Some(rewrite) => rewrite.apply(&record.path, matched),
        None => record.path.clone(),
    };
    let port = if port == usual(scheme) { String::new() } else { format!(":{port}") };
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    let query = parts.uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    answer::redirect(redirect.status, &format!("{scheme}://{host}{port}{path}{query}"))
}

/// Counts and logs once the answer is through.
fn finish(shared: &Arc<Shared>, origin: &Origin, record: Record, outcome: Outcome) -> Response<Body> {
    let Outcome { response, backend, endpoint, deadline } = outcome;
    let status = response.status().as_u16();
    let (shared, client) = (shared.clone(), origin.client);
    let at_end: AtEnd = Box::new(move |bytes| {
        let took = record.began.elapsed();
        let (route, rule) = record.rule.as_ref().map_or(("", ""), |rule| (&*rule.route, &*rule.name));
        shared.metrics.request(&record.gateway, route, &backend, status, took);
        let Some(log) = &shared.access_log else { return };
        log.write(&Line {
            time: k8s_openapi::jiff::Timestamp::now().to_string(),
            gateway: &record.gateway,
            client: client.to_string(),
            method: record.method.as_str(),
            host: &record.host,
            path: &record.path,
            protocol: if record.version == Version::HTTP_2 { "HTTP/2" } else { "HTTP/1" },
            status,
            bytes,
            milliseconds: took.as_secs_f64() * 1000.0,
            route,
            rule,
            backend: &backend,
            endpoint: endpoint.map(|endpoint| endpoint.to_string()),
            trace: record.trace.as_ref().and_then(|trace| trace.to_str().ok()),
        });
    });
    response.map(|body| Watched::boxed(body, deadline, at_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_read() {
        for (uri, header, want) in [
            ("/", "Example.com", "example.com"),
            ("/", "example.com:8080", "example.com"),
            ("/", "example.com.", "example.com"),
            ("/", "[::1]:80", "::1"),
            ("http://other.com:1/x", "example.com", "other.com"),
            ("/", "", ""),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, header.parse().unwrap());
            assert_eq!(host(&uri.parse().unwrap(), &headers), want, "{uri} {header}");
        }
    }

    #[test]
    fn dots_are_taken_out_of_paths() {
        for (path, want) in [
            ("/a/b", None),
            ("/a/../b", Some("/b")),
            ("/a/./b", Some("/a/b")),
            ("/a/%2e%2E/b", Some("/b")),
            ("/../../b", Some("/b")),
            ("/a/..", Some("/")),
            ("/a/b/..", Some("/a/")),
            ("/.well-known/x", Some("/.well-known/x")),
            ("/a/...", Some("/a/...")),
        ] {
            assert_eq!(normal(path).as_deref(), want, "{path}");
        }
    }
}
