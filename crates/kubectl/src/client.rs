//! Requests: paths and bodies in, JSON or a Status out.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::log;
use crate::text::warn;

pub const JSON: &str = "application/json";
pub const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// An answer that is not a list is not larger; a list comes in chunks.
const MOST: usize = 512 << 20;

pub struct Client {
    pub kube: kube::Client,
    /// `127.0.0.1:6443`, for messages.
    pub host: String,
    pub url: String,
    warned: Mutex<HashSet<String>>,
    timeout: i64,
    verbosity: i64,
}

/// When an answer that goes on must have ended, where `--request-timeout` says so.
pub type Deadline = Option<tokio::time::Instant>;

pub struct Call<'a> {
    pub method: Method,
    pub path: String,
    pub accept: &'a str,
    pub body: Option<(&'a str, Vec<u8>)>,
}

impl<'a> Call<'a> {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), accept: JSON, body: None }
    }

    pub fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub fn accept(mut self, accept: &'a str) -> Self {
        self.accept = accept;
        self
    }

    pub fn body(mut self, kind: &'a str, body: Vec<u8>) -> Self {
        self.body = Some((kind, body));
        self
    }

    pub fn json(self, value: &Value) -> Self {
        self.body(JSON, value.to_string().into_bytes())
    }
}

impl Client {
    pub fn new(kube: kube::Client, url: String, timeout: i64, verbosity: i64) -> Self {
        let host =
            url.split_once("://").map_or(&*url, |(_, rest)| rest).split('/').next().unwrap_or_default().to_owned();
        Self { kube, host, url, warned: Mutex::default(), timeout, verbosity }
    }

    /// The answer whatever its code; only what did not reach the server is an error.
    pub async fn send(&self, call: Call<'_>) -> Result<Response<Body>> {
        // What was done is told before there is something to wait for.
        crate::text::flush();
        let mut request = Request::builder()
            .method(call.method)
            .uri(&call.path)
            .header(http::header::ACCEPT, call.accept)
            .header(http::header::USER_AGENT, user_agent());
        let body = match call.body {
            Some((kind, body)) => {
                request = request.header(http::header::CONTENT_TYPE, kind);
                body
            }
            None => Vec::new(),
        };
        let told = request.headers_ref().zip(request.method_ref()).and_then(|(headers, verb)| {
            let url = format!("{}{}", self.url, call.path);
            log::Exchange::begin(self.verbosity, verb, url, headers, &body)
        });
        let request = request.body(Body::from(body)).map_err(|error| Error::say(error.to_string()))?;
        let sent = self.kube.send(request);
        let answer = if self.timeout > 0 {
            let limit = std::time::Duration::from_nanos(self.timeout.unsigned_abs());
            match tokio::time::timeout(limit, sent).await {
                Ok(answer) => answer,
                Err(_) => {
                    let why = "net/http: request canceled (Client.Timeout exceeded while awaiting headers)".to_owned();
                    return Err(Error::Connection { host: self.host.clone(), refused: false, why });
                }
            }
        } else {
            sent.await
        };
        if let Some(told) = told {
            told.answered(answer.as_ref().ok().map(|answer| (answer.status(), answer.headers())));
        }
        let answer = answer.map_err(|error| self.lost(&error))?;
        self.warnings(&answer);
        Ok(answer)
    }

    fn warnings(&self, answer: &Response<Body>) {
        for header in answer.headers().get_all("warning") {
            let Ok(text) = header.to_str() else { continue };
            // `299 - "text"`.
            let Some(text) = text.splitn(3, ' ').nth(2) else { continue };
            let said: String = serde_json::from_str(text).unwrap_or_else(|_| text.trim_matches('"').to_owned());
            if self.warned.lock().unwrap_or_else(PoisonError::into_inner).insert(said.clone()) {
                warn(format!("Warning: {said}"));
            }
        }
    }

    /// Why nobody answered.
    fn lost(&self, error: &kube::Error) -> Error {
        let mut refused = false;
        let mut source: Option<&dyn std::error::Error> = Some(error);
        let mut last = error.to_string();
        while let Some(inner) = source {
            if let Some(io) = inner.downcast_ref::<std::io::Error>() {
                refused |= io.kind() == std::io::ErrorKind::ConnectionRefused;
            }
            last = inner.to_string();
            source = inner.source();
        }
        let why = if last.contains("UnknownIssuer") {
            "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_owned()
        } else if let Some(names) = names_of(&last) {
            format!("tls: failed to verify certificate: x509: certificate is valid for {names}")
        } else if last.contains("NotValidForName") {
            format!("tls: failed to verify certificate: x509: the certificate is not valid for {}", self.host)
        } else if let Some(scheme) = last.strip_prefix("unsupported scheme ") {
            format!("unsupported protocol scheme {}", crate::text::quote(scheme))
        } else if last.contains("failed to lookup address") {
            let name = self.host.rsplit_once(':').map_or(&*self.host, |(name, _)| name);
            format!("dial tcp: lookup {name}: no such host")
        } else {
            last
        };
        Error::Connection { host: self.host.clone(), refused, why }
    }

    /// The body of an answer, or its Status as an error.
    pub async fn bytes(&self, call: Call<'_>) -> Result<Bytes> {
        let what = subject(&call);
        let answer = self.send(call).await?;
        let code = answer.status();
        let body = self.read(answer).await?;
        if code.is_success() { Ok(body) } else { Err(refusal(code, &body, &what)) }
    }

    async fn read(&self, answer: Response<Body>) -> Result<Bytes> {
        let limited = http_body_util::Limited::new(answer.into_body(), MOST);
        match limited.collect().await {
            Ok(whole) => {
                let whole = whole.to_bytes();
                log::body(self.verbosity, &whole);
                Ok(whole)
            }
            Err(error) => Err(Error::Connection {
                host: self.host.clone(),
                refused: false,
                why: format!("unexpected EOF: {error}"),
            }),
        }
    }

    pub async fn json(&self, call: Call<'_>) -> Result<Value> {
        let body = self.bytes(call).await?;
        serde_json::from_slice(&body)
            .map_err(|error| Error::say(format!("the server's answer cannot be read: {error}")))
    }

    /// How many different warnings the server gave.
    pub fn warned(&self) -> usize {
        self.warned.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    pub fn deadline(&self) -> Deadline {
        let limit = std::time::Duration::from_nanos(self.timeout.unsigned_abs());
        (self.timeout > 0).then(|| tokio::time::Instant::now() + limit)
    }

    /// An answer that goes on, as of a watch or of logs.
    pub async fn stream(&self, call: Call<'_>) -> Result<Body> {
        let what = subject(&call);
        let answer = self.send(call).await?;
        let code = answer.status();
        if code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer.into_body());
        }
        let body = self.read(answer).await?;
        Err(refusal(code, &body, &what))
    }
}

/// `a, b, not c`: whom a certificate is for, of the TLS library's words.
fn names_of(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("certificate not valid for name \"")?;
    let (wanted, rest) = rest.split_once("\"; certificate is only valid for ")?;
    let is_address = wanted.parse::<std::net::IpAddr>().is_ok();
    let of = |begin: &str, end: &str| -> Vec<String> {
        rest.split(begin).skip(1).filter_map(|part| part.split_once(end)).map(|(name, _)| name.to_owned()).collect()
    };
    let names = if is_address { of("IpAddress(", ")") } else { of("DnsName(\"", "\")") };
    match &*names {
        [] => None,
        names => Some(format!("{}, not {wanted}", names.join(", "))),
    }
}

/// ` (get boats.example.com anna)`: what a path of the API is about, for answers that do not say.
fn subject(call: &Call<'_>) -> String {
    let verb = match call.method {
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    };
    let path = call.path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let (group, rest) = match &*parts {
        ["api", _, rest @ ..] => ("", rest),
        ["apis", group, _, rest @ ..] => (*group, rest),
        _ => return String::new(),
    };
    let rest = match rest {
        ["namespaces", _, rest @ ..] if !rest.is_empty() => rest,
        rest => rest,
    };
    match rest {
        [] => String::new(),
        [plural] => format!(" ({verb} {})", crate::discovery::qualified(plural, group)),
        [plural, name, ..] => format!(" ({verb} {} {name})", crate::discovery::qualified(plural, group)),
    }
}

pub fn user_agent() -> &'static str {
    concat!("kubectl/v1.37.0 (linux/", "amd64", ") ferry/", env!("CARGO_PKG_VERSION"))
}

/// A Status as it came, or one made of the code, as client-go makes it.
pub fn refusal(code: StatusCode, body: &[u8], subject: &str) -> Error {
    if let Ok(status) = serde_json::from_slice::<Value>(body)
        && status["kind"] == "Status"
    {
        return Error::Status(Box::new(status));
    }
    let text = String::from_utf8_lossy(body).trim().to_owned();
    let (reason, message) = match code.as_u16() {
        404 => ("NotFound", "the server could not find the requested resource".to_owned()),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".to_owned()),
        403 => ("Forbidden", if text.is_empty() { "forbidden".to_owned() } else { text }),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".to_owned()),
        406 => ("NotAcceptable", text),
        415 => ("UnsupportedMediaType", text),
        429 => (
            "TooManyRequests",
            "the server has received too many requests and has asked us to try again later".to_owned(),
        ),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".to_owned()),
        500..=599 => {
            let why = crate::text::quote(&text);
            ("InternalError", format!("an error on the server ({why}) has prevented the request from succeeding"))
        }
        _ => ("BadRequest", "the server rejected our request for an unknown reason".to_owned()),
    };
    let message = format!("{message}{subject}");
    let status =
        json!({"kind": "Status", "status": "Failure", "code": code.as_u16(), "reason": reason, "message": message});
    Error::Status(Box::new(status))
}

/// A query without the parameters that are empty.
pub fn query(path: &str, parameters: &[(&str, &str)]) -> String {
    let mut out = path.to_owned();
    let mut first = !path.contains('?');
    for (name, value) in parameters.iter().filter(|(_, value)| !value.is_empty()) {
        out.push(if std::mem::replace(&mut first, false) { '?' } else { '&' });
        out.push_str(name);
        out.push('=');
        escape(&mut out, value);
    }
    out
}

/// What may stand in a path or a query as it is.
pub fn escape(out: &mut String, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

pub fn escaped(text: &str) -> String {
    let mut out = String::new();
    escape(&mut out, text);
    out
}
