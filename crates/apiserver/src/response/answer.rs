//! Answers: what a handler returns, and how it becomes an HTTP response.

use std::io::Write;

use bytes::{Bytes, BytesMut};
use ferry_meta::{ApiError, GroupVersionKind};
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use serde_json::Value;

use crate::request::context::RequestContext;
use crate::request::negotiate::{Encoding, Negotiated};
use crate::request::verb::Verb;
use crate::storage::codec;

pub use ferry_connections::{Body, BoxError};

pub(crate) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(crate) enum Answer {
    /// JSON in its final form and order (a stored object, a list, a Table). `kind` is needed to transcode it.
    Json { code: u16, kind: GroupVersionKind, json: Bytes },
    /// Text, or any other bytes with their media type.
    Plain { code: u16, content_type: &'static str, body: Bytes },
    /// The response is ready: a stream, an upgrade, an answer with headers of its own.
    Ready(Response<Body>),
}

impl Answer {
    pub(crate) fn text(code: u16, text: impl Into<String>) -> Self {
        Self::Plain { code, content_type: "text/plain; charset=utf-8", body: text.into().into() }
    }

    /// What goes wrong before a request is understood is told in plain text.
    pub(crate) fn internal_error(context: &RequestContext, why: &str) -> Self {
        let query = context.raw_query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
        let uri = ferry_meta::field::quote(&format!("{}{query}", context.raw_path));
        let text = format!("Internal Server Error: {uri}: {why}\n");
        Self::text(500, text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;"))
    }

    /// What is behind no route.
    pub(crate) fn no_such_page() -> Self {
        Self::text(404, "404 page not found\n")
    }
}

/// Answers of this size and more are compressed when the client wants it, as upstream does.
const GZIP_FROM: usize = 128 * 1024;

pub(crate) fn respond(context: &RequestContext, outcome: Result<Answer, ApiError>) -> Response<Body> {
    let mut response = match outcome {
        Ok(Answer::Json { code, kind, json }) => encoded(context, &context.negotiated, code, &kind, json),
        Ok(Answer::Plain { code, content_type, body }) => whole(context, code, content_type, body),
        Ok(Answer::Ready(response)) => response,
        Err(error) => error_response(context, &error),
    };
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&context.audit_id) {
        headers.insert("audit-id", id);
    }
    if let Some(flow) = &context.flow {
        for (name, uid) in [
            ("x-kubernetes-pf-flowschema-uid", &flow.schema_uid),
            ("x-kubernetes-pf-prioritylevel-uid", &flow.level_uid),
        ] {
            if let Ok(value) = HeaderValue::from_str(uid) {
                headers.insert(name, value);
            }
        }
    }
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-cache, private"));
    for text in context.warnings() {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        let clean: String = quoted.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        if let Ok(value) = HeaderValue::from_bytes(format!("299 - \"{clean}\"").as_bytes()) {
            headers.append("warning", value);
        }
    }
    response
}

fn error_response(context: &RequestContext, error: &ApiError) -> Response<Body> {
    let negotiated = crate::request::negotiate::for_errors(&context.headers, &context.query);
    let json = serde_json::to_vec(&*error.0).unwrap_or_default();
    let kind = GroupVersionKind::new("", "v1", "Status");
    let code = if error.code() == 0 { 500 } else { error.code() };
    let mut response = encoded(context, &negotiated, code, &kind, json.into());
    if let Some(details) = &error.0.details
        && details.retry_after_seconds > 0
        && let Ok(value) = HeaderValue::from_str(&details.retry_after_seconds.to_string())
    {
        response.headers_mut().insert("retry-after", value);
    }
    response
}

/// Bytes of an object that have to be read again to be sent as what was negotiated. Lists are made of parts that are kept.
pub(crate) fn labour(context: &RequestContext, outcome: &Result<Answer, ApiError>) -> usize {
    let as_it_is = context.negotiated.encoding == Encoding::Json && !context.cbor.answer;
    match outcome {
        Ok(Answer::Json { json, .. }) if !as_it_is && context.info.verb != Verb::List => json.len(),
        _ => 0,
    }
}

/// Turns final JSON into what was negotiated.
fn encoded(
    context: &RequestContext,
    to: &Negotiated,
    code: u16,
    kind: &GroupVersionKind,
    json: Bytes,
) -> Response<Body> {
    match to.encoding {
        Encoding::Json if context.cbor.answer => {
            let value: Value = serde_json::from_slice(&json).unwrap_or_default();
            let bytes = ferry_schema::cbor::encode(codec::type_of(kind).as_ref(), &value);
            whole(context, code, "application/cbor", bytes.into())
        }
        Encoding::Json if to.pretty => whole(context, code, "application/json", codec::pretty(&json)),
        Encoding::Json => {
            // A list is this answer's alone and has room for one byte more; an object is shared with others and small.
            let mut line = json.try_into_mut().unwrap_or_else(|shared| {
                let mut copy = BytesMut::with_capacity(shared.len() + 1);
                copy.extend_from_slice(&shared);
                copy
            });
            line.extend_from_slice(b"\n");
            whole(context, code, "application/json", line.freeze())
        }
        Encoding::Yaml => whole(context, code, "application/yaml", codec::yaml(&json)),
        Encoding::Protobuf => match codec::to_protobuf(kind, &json) {
            Some(bytes) => whole(context, code, "application/vnd.kubernetes.protobuf", bytes),
            None => whole(context, code, "application/json", json),
        },
    }
}

fn whole(context: &RequestContext, code: u16, content_type: &'static str, body: Bytes) -> Response<Body> {
    let gzip = body.len() >= GZIP_FROM && accepts_gzip(context);
    let (body, gzipped) = match gzip.then(|| compress(&body)).flatten() {
        Some(small) => (small, true),
        None => (body, false),
    };
    let mut response = Response::new(context.peer.body(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if content_type.starts_with("text/plain") {
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    }
    if gzipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    }
    response
}

/// Only a plain `gzip` counts, as upstream looks at it: weights switch it off.
pub(crate) fn accepts_gzip(context: &RequestContext) -> bool {
    context.header("accept-encoding").split(',').any(|part| part.trim() == "gzip")
}

pub(crate) fn compress(body: &[u8]) -> Option<Bytes> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::with_capacity(body.len() / 4), flate2::Compression::fast());
    encoder.write_all(body).ok()?;
    encoder.finish().ok().map(Bytes::from)
}
