//! Requests: paths and bodies in, JSON or a Status out.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::Value;

use crate::error::{Error, Result};
use crate::log;
use crate::refusal::{EOF, in_words_of_go, refusal, said, unread};
use crate::text::warn;

pub const JSON: &str = "application/json";
pub const TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";

/// An answer that is not a list is not larger; a list comes in chunks.
const MOST: usize = 512 << 20;

/// As often as client-go does.
const RETRIES: usize = 10;

pub struct Client {
    pub kube: kube::Client,
    /// For what is upgraded: exec, attach, port-forward.
    pub upgraded: kube::Client,
    /// `127.0.0.1:6443`, for messages.
    pub host: String,
    pub url: String,
    warned: Mutex<HashSet<String>>,
    timeout: i64,
    verbosity: i64,
}

/// When an answer that goes on must have ended, where `--request-timeout` says so.
pub type Deadline = Option<tokio::time::Instant>;

#[derive(Clone)]
pub struct Call<'a> {
    pub method: Method,
    pub path: String,
    pub accept: &'a str,
    pub body: Option<(&'a str, Vec<u8>)>,
    /// What the server says of an error counts more than what kubectl makes of its code.
    heard: bool,
}

impl<'a> Call<'a> {
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), accept: JSON, body: None, heard: true }
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

    /// An error is told by its code alone, as kubectl does where it asks what the server is.
    pub fn unheard(mut self) -> Self {
        self.heard = false;
        self
    }

    pub fn json(self, value: &Value) -> Self {
        self.body(JSON, value.to_string().into_bytes())
    }
}

impl Client {
    pub fn new(kube: kube::Client, upgraded: kube::Client, url: String, timeout: i64, verbosity: i64) -> Self {
        let host =
            url.split_once("://").map_or(&*url, |(_, rest)| rest).split('/').next().unwrap_or_default().to_owned();
        Self { kube, upgraded, host, url, warned: Mutex::default(), timeout, verbosity }
    }

    /// The answer whatever its code; only what did not reach the server is an error. A server that says when to come again is asked
    /// again then.
    pub async fn send(&self, call: Call<'_>) -> Result<Response<Body>> {
        for _ in 0..RETRIES {
            let answer = self.once(call.clone()).await?;
            match patience(&answer) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => return Ok(answer),
            }
        }
        self.once(call).await
    }

    async fn once(&self, call: Call<'_>) -> Result<Response<Body>> {
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
        refused |= last.contains("connection refused");
        let why = in_words_of_go(&last, &self.host);
        Error::Connection { host: self.host.clone(), refused, why }
    }

    /// The body of an answer, or its Status as an error.
    pub async fn bytes(&self, call: Call<'_>) -> Result<Bytes> {
        let mut left = if call.method == Method::GET { RETRIES } else { 0 };
        let answer = loop {
            match self.send(call.clone()).await {
                // Nothing was changed by a question: a server that went away meanwhile is asked again.
                Err(Error::Connection { why, .. }) if left > 0 && (why == EOF || why.contains("onnection reset")) => {
                    left -= 1;
                    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                }
                answer => break answer?,
            }
        };
        let code = answer.status();
        if code.is_success() { self.read(answer).await } else { Err(self.refused(answer, &call).await) }
    }

    /// Why the server does not do it.
    async fn refused(&self, answer: Response<Body>, call: &Call<'_>) -> Error {
        let code = answer.status();
        let kind = answer.headers().get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        let is_text = kind.is_none_or(|kind| kind.is_empty() || kind.starts_with("text/"));
        let body = match self.read(answer).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        match said(&body).filter(|_| call.heard) {
            Some(status) => Error::Status(Box::new(status)),
            None => {
                let text =
                    if is_text { String::from_utf8_lossy(&body).trim().to_owned() } else { "unknown".to_owned() };
                refusal(code, &text, &subject(call))
            }
        }
    }

    async fn read(&self, answer: Response<Body>) -> Result<Bytes> {
        let limited = http_body_util::Limited::new(answer.into_body(), MOST);
        match limited.collect().await {
            Ok(whole) => {
                let whole = whole.to_bytes();
                log::body(self.verbosity, &whole);
                Ok(whole)
            }
            Err(error) if error.is::<http_body_util::LengthLimitError>() => {
                Err(Error::say("the server's answer is too long"))
            }
            Err(_) => Err(Error::say(
                "unexpected error when reading response body. Please retry. Original error: unexpected EOF",
            )),
        }
    }

    pub async fn json(&self, call: Call<'_>) -> Result<Value> {
        let body = self.bytes(call).await?;
        serde_json::from_slice(&body).map_err(|error| Error::say(unread(&body, &error)))
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
        let answer = self.send(call.clone()).await?;
        let code = answer.status();
        if code.is_success() || code == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(answer.into_body());
        }
        Err(self.refused(answer, &call).await)
    }
}

/// How long to wait before a request is sent again, where the server says so.
fn patience(answer: &Response<Body>) -> Option<std::time::Duration> {
    let code = answer.status();
    let wait = answer.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.parse::<u32>().ok()?;
    (code == StatusCode::TOO_MANY_REQUESTS || code.is_server_error())
        .then(|| std::time::Duration::from_secs(wait.into()))
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
