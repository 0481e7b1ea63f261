//! Answers of the gateway itself.

use bytes::Bytes;
use ferry_connections::Body;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::{BodyExt, Full};

use crate::trace::Stop;

pub fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub fn empty() -> Body {
    http_body_util::Empty::new().map_err(|never| match never {}).boxed_unsync()
}

pub fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// An error, in the words of whoever asked. Why it is one stays with the answer, for those who may know.
pub fn error(stop: Stop, grpc: bool) -> Response<Body> {
    let (status, text) = (stop.status(), stop.text());
    if !grpc {
        let mut response = Response::new(full(format!("{text}\n")));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        response.extensions_mut().insert(stop);
        return response;
    }
    let code = match status.as_u16() {
        400 => "13",
        401 => "16",
        403 => "7",
        404 => "12",
        413 | 429 => "8",
        504 => "4",
        _ => "14",
    };
    let mut response = Response::new(full(Bytes::new()));
    response.extensions_mut().insert(stop);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from_static(code));
    if let Ok(message) = HeaderValue::from_str(text) {
        headers.insert("grpc-message", message);
    }
    response
}

pub fn redirect(status: StatusCode, location: &str) -> Response<Body> {
    match HeaderValue::from_str(location) {
        Ok(location) => {
            let mut response = Response::new(full(Bytes::new()));
            *response.status_mut() = status;
            response.headers_mut().insert(http::header::LOCATION, location);
            response
        }
        Err(_) => error(Stop::Location, false),
    }
}
