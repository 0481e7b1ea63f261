//! Which requests a cookie speaks for.
//!
//! Browsers send cookies by themselves: with requests that other sites cause, and to other ports of the same host. So a
//! cookie counts only beside the session's key, which the pages keep where their origin alone can read it and send in a
//! header, or as a WebSocket protocol, and only in requests that the browser says come from the pages themselves.

use http::header::{AUTHORIZATION, COOKIE as COOKIE_HEADER, HOST, ORIGIN, SEC_WEBSOCKET_PROTOCOL, UPGRADE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method};

use crate::sessions::{Digest, digest};
use crate::{Certificates, SESSION_PATH};

/// The prefix makes browsers insist on TLS, on this very host and on the whole path.
pub const COOKIE: &str = "__Host-ferry-console";
pub const KEY_HEADER: HeaderName = HeaderName::from_static("x-ferry-console");
pub const CODE_HEADER: HeaderName = HeaderName::from_static("x-ferry-console-code");
/// The key where no header can be set.
const KEY_PROTOCOL: &str = "console.ferry.dev.";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The longest cookie, key or code that is looked at.
const LONGEST: usize = 128;

/// Why a request is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The session is over, or there never was one.
    Over,
    /// The code was used, is too old, or there never was one.
    Code,
    /// The request comes from another site.
    Foreign,
    /// It changes something, and does not come from the pages.
    Keyless,
}

impl Refusal {
    pub fn error(self) -> ferry_meta::ApiError {
        use ferry_meta::{ApiError, Reason};
        let (code, reason, text) = match self {
            Self::Over => (401, Reason::Unauthorized, "the console's session is over: sign in again"),
            Self::Code => (
                401,
                Reason::Unauthorized,
                "the one-time code was used or is too old: ask for another with `ferry console`",
            ),
            Self::Foreign => (
                403,
                Reason::Forbidden,
                "the request comes from another site: a browser's sign-in does not count there",
            ),
            Self::Keyless => (
                403,
                Reason::Forbidden,
                "a cookie alone changes nothing: the request has no key of the console's session",
            ),
        };
        ApiError::new(code, reason, text)
    }
}

/// What a request brought for the console alone.
#[derive(Debug, Default)]
pub(crate) struct Brought {
    cookie: Option<String>,
    key: Option<String>,
    code: Option<String>,
}

/// Whom the request asks to be.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Session { id: Digest, key: String },
    Code(String),
}

pub(crate) fn cookie(id: &str, seconds: u64) -> HeaderValue {
    let text = format!("{COOKIE}={id}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict");
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

fn short(text: &str) -> Option<String> {
    (text.len() <= LONGEST).then(|| text.to_owned())
}

/// Takes it out of the headers: no server behind this one is to see it.
pub(crate) fn take(headers: &mut HeaderMap) -> Brought {
    let mut brought = Brought::default();
    if headers.contains_key(COOKIE_HEADER) {
        let all: Vec<HeaderValue> = headers.get_all(COOKIE_HEADER).iter().cloned().collect();
        headers.remove(COOKIE_HEADER);
        for value in all {
            // Ours is text. What is none goes on as it is, unless ours may be hidden in it.
            let Ok(text) = value.to_str() else {
                if !value.as_bytes().windows(COOKIE.len()).any(|part| part == COOKIE.as_bytes()) {
                    headers.append(COOKIE_HEADER, value);
                }
                continue;
            };
            let (own, others): (Vec<&str>, Vec<&str>) = text
                .split(';')
                .map(str::trim)
                .partition(|pair| pair.split_once('=').is_some_and(|(name, _)| name == COOKIE));
            let id = own.first().and_then(|pair| pair.split_once('=')).and_then(|(_, id)| short(id));
            brought.cookie = brought.cookie.or(id);
            if let (false, Ok(rest)) = (others.is_empty(), HeaderValue::from_str(&others.join("; "))) {
                headers.append(COOKIE_HEADER, rest);
            }
        }
    }
    let mut text = |name: HeaderName| headers.remove(name).and_then(|value| short(value.to_str().ok()?));
    brought.key = text(KEY_HEADER);
    brought.code = text(CODE_HEADER);
    if let Some(protocols) = headers.get(SEC_WEBSOCKET_PROTOCOL).and_then(|value| value.to_str().ok())
        && protocols.contains(KEY_PROTOCOL)
    {
        let (own, others): (Vec<&str>, Vec<&str>) =
            protocols.split(',').map(str::trim).partition(|protocol| protocol.starts_with(KEY_PROTOCOL));
        let key = own.first().and_then(|protocol| short(protocol.strip_prefix(KEY_PROTOCOL)?));
        match HeaderValue::from_str(&others.join(", ")) {
            Ok(rest) if !others.is_empty() => drop(headers.insert(SEC_WEBSOCKET_PROTOCOL, rest)),
            _ => drop(headers.remove(SEC_WEBSOCKET_PROTOCOL)),
        }
        brought.key = brought.key.or(key);
    }
    brought
}

/// None: the request stands for itself.
pub(crate) fn judge(request: &Parts, certificates: &Certificates, brought: Brought) -> Result<Option<Wanted>, Refusal> {
    if request.headers.contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    if let Some(code) = brought.code {
        let signs_in = request.method == Method::POST && request.uri.path() == SESSION_PATH;
        return if signs_in && is_own(request, AnyScheme::Refused) {
            Ok(Some(Wanted::Code(code)))
        } else {
            Err(Refusal::Foreign)
        };
    }
    let acts = !matches!(request.method, Method::GET | Method::HEAD) || request.headers.contains_key(UPGRADE);
    let Some(id) = brought.cookie.filter(|id| !id.is_empty()) else {
        // A certificate that the browser shows by itself is no better than a cookie.
        let foreign =
            acts && !certificates.is_empty() && is_of_a_browser(request) && !is_own(request, AnyScheme::Taken);
        return if foreign { Err(Refusal::Foreign) } else { Ok(None) };
    };
    match brought.key {
        Some(_) if !is_own(request, AnyScheme::Refused) => Err(Refusal::Foreign),
        Some(key) => Ok(Some(Wanted::Session { id: digest(&id), key })),
        None if acts => Err(Refusal::Keyless),
        // Somebody follows a link: they are nobody until the pages ask.
        None => Ok(None),
    }
}

/// Some clients that are no browsers say `http` of where they come from.
#[derive(PartialEq, Eq)]
enum AnyScheme {
    Taken,
    Refused,
}

/// Other clients name places they do not come from: Go's library for WebSockets cannot do without an `Origin`, and upstream's
/// tests give it `http://localhost`. No page can take either header out of what its browser sends without being asked first.
fn is_of_a_browser(request: &Parts) -> bool {
    let agent = request.headers.get(USER_AGENT).map(HeaderValue::as_bytes);
    request.headers.contains_key(FETCH_SITE) || agent.is_some_and(|agent| agent.starts_with(b"Mozilla/"))
}

/// As far as the browser tells: most clients that are no browsers tell nothing.
fn is_own(request: &Parts, scheme: AnyScheme) -> bool {
    let text = |name: HeaderName| request.headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let same_site = text(FETCH_SITE).is_none_or(|site| matches!(site, "same-origin" | "none"));
    let host = request.uri.authority().map(|authority| authority.as_str()).or_else(|| text(HOST));
    let own_host = |origin: &str| match origin.split_once("://") {
        Some(("https", place)) => Some(place) == host,
        Some((_, place)) => Some(place) == host && scheme == AnyScheme::Taken,
        None => false,
    };
    same_site && text(ORIGIN).is_none_or(own_host)
}

#[cfg(test)]
mod tests;
