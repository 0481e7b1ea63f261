//! Cross-origin requests: preflights are answered here, answers are marked.

use bytes::Bytes;
use ferry_connections::Body;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, HeaderName, HeaderValue, ORIGIN, VARY,
};
use http::{HeaderMap, Method, Response, StatusCode};

use super::answer;
use crate::table::Cors;

fn put(headers: &mut HeaderMap, name: HeaderName, text: &str) {
    if let Ok(value) = HeaderValue::from_str(text) {
        headers.insert(name, value);
    }
}

fn joined(list: &[Box<str>]) -> String {
    list.join(", ")
}

fn is_any(list: &[Box<str>]) -> bool {
    list.iter().any(|one| **one == *"*")
}

pub fn is_preflight(method: &Method, headers: &HeaderMap) -> bool {
    method == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight. An origin that is not allowed learns nothing.
pub fn preflight(cors: &Cors, request: &HeaderMap) -> Response<Body> {
    let mut response = Response::new(answer::full(Bytes::new()));
    *response.status_mut() = StatusCode::NO_CONTENT;
    let text = |name: &HeaderName| request.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !cors.allows(text(&ORIGIN)) {
        return response;
    }
    let headers = response.headers_mut();
    mark_origin(cors, text(&ORIGIN), headers);
    let wanted = text(&ACCESS_CONTROL_REQUEST_METHOD);
    // A star means nothing to browsers once credentials are sent: what was asked for is named instead.
    let methods = match (is_any(&cors.methods), cors.credentials) {
        (true, true) => wanted.to_owned(),
        (true, false) => "*".to_owned(),
        (false, _) if cors.methods.is_empty() => "GET, HEAD, POST".to_owned(),
        (false, _) => joined(&cors.methods),
    };
    put(headers, ACCESS_CONTROL_ALLOW_METHODS, &methods);
    let asked = text(&ACCESS_CONTROL_REQUEST_HEADERS);
    let allowed = match (is_any(&cors.headers), cors.credentials) {
        (true, true) => asked.to_owned(),
        (true, false) => "*".to_owned(),
        (false, _) => joined(&cors.headers),
    };
    if !allowed.is_empty() {
        put(headers, ACCESS_CONTROL_ALLOW_HEADERS, &allowed);
    }
    put(headers, ACCESS_CONTROL_MAX_AGE, &cors.max_age.to_string());
    response
}

fn mark_origin(cors: &Cors, origin: &str, headers: &mut HeaderMap) {
    if is_any(&cors.origins) && !cors.credentials {
        put(headers, ACCESS_CONTROL_ALLOW_ORIGIN, "*");
    } else {
        put(headers, ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.append(VARY, HeaderValue::from_static("Origin"));
    }
    if cors.credentials {
        put(headers, ACCESS_CONTROL_ALLOW_CREDENTIALS, "true");
    }
    // Browsers look for it in the answer itself; the specification's tests look for it in preflights too.
    if !cors.expose.is_empty() {
        put(headers, ACCESS_CONTROL_EXPOSE_HEADERS, &joined(&cors.expose));
    }
}

/// Marks the answer for the origin that asked.
pub fn mark(cors: &Cors, origin: Option<&HeaderValue>, headers: &mut HeaderMap) {
    let Some(origin) = origin.and_then(|origin| origin.to_str().ok()).filter(|origin| cors.allows(origin)) else {
        return;
    };
    mark_origin(cors, origin, headers);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preflights_and_answers_name_what_may_be_read() {
        let list = |texts: &[&str]| texts.iter().map(|text| (*text).into()).collect::<Vec<Box<str>>>();
        let cors = Cors {
            origins: list(&["https://a.com"]),
            credentials: true,
            methods: list(&["GET"]),
            headers: list(&["x-a"]),
            expose: list(&["x-b", "x-c"]),
            max_age: 5,
        };
        let origin = HeaderValue::from_static("https://a.com");
        let request = HeaderMap::from_iter([(ORIGIN, origin.clone())]);
        let preflight = preflight(&cors, &request);
        let mut answer = HeaderMap::new();
        mark(&cors, Some(&origin), &mut answer);
        for headers in [preflight.headers(), &answer] {
            assert_eq!(headers[ACCESS_CONTROL_EXPOSE_HEADERS], "x-b, x-c");
            assert_eq!(headers[ACCESS_CONTROL_ALLOW_ORIGIN], origin);
        }
        let other = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://b.com"))]);
        assert!(super::preflight(&cors, &other).headers().is_empty());
    }
}
