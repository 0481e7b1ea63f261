//! Clients that are led back to the endpoint that answered them before: by a cookie or by a header.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::{COOKIE, HeaderName, HeaderValue, SET_COOKIE};
use k8s_openapi::jiff::Timestamp;

use crate::table::{Affinity, Backend, Carrier, Split, Target, Weighted};

/// What a client shows: which endpoint, since when, and when last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session {
    token: u64,
    begun: i64,
    used: i64,
}

fn now() -> i64 {
    Timestamp::now().as_second()
}

fn token(backend: &Backend, endpoint: SocketAddr) -> u64 {
    let mut hasher = DefaultHasher::new();
    (&backend.name, endpoint).hash(&mut hasher);
    hasher.finish()
}

impl Session {
    /// The session of a request, as long as it is neither too old nor unused for too long.
    pub fn read(affinity: &Affinity, headers: &HeaderMap) -> Option<Self> {
        let text = match affinity.carrier {
            Carrier::Header => headers.get(&*affinity.name)?.to_str().ok()?,
            Carrier::Cookie { .. } => cookie(headers, &affinity.name)?,
        };
        let mut parts = text.split('.');
        let token = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mut time = || i64::from_str_radix(parts.next()?, 16).ok();
        let read = Self { token, begun: time()?, used: time()? };
        let is_within = |since: i64, limit: Option<Duration>| {
            limit.is_none_or(|limit| {
                let passed = now().checked_sub(since).and_then(|passed| u64::try_from(passed).ok());
                passed.is_some_and(|passed| passed < limit.as_secs().max(1))
            })
        };
        let is_good = is_within(read.begun, affinity.absolute_timeout) && is_within(read.used, affinity.idle_timeout);
        is_good.then_some(read)
    }

    /// The endpoint that it stands for, of a backend that still takes requests, as long as it is there.
    pub fn find<'a>(&self, split: &'a Split) -> Option<(&'a Weighted, SocketAddr)> {
        split.backends.iter().filter(|weighted| weighted.weight > 0).find_map(|weighted| {
            let Target::Backend(backend) = &weighted.target else { return None };
            let endpoints = backend.endpoints();
            let endpoint = endpoints.iter().find(|endpoint| token(backend, **endpoint) == self.token)?;
            Some((weighted, *endpoint))
        })
    }
}

fn cookie<'a>(headers: &'a HeaderMap, wanted: &str) -> Option<&'a str> {
    let lines = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// Tells the client what to show next time, if it does not know that already.
pub fn write(
    affinity: &Affinity,
    shown: Option<Session>,
    backend: &Arc<Backend>,
    endpoint: SocketAddr,
    is_secure: bool,
    headers: &mut HeaderMap,
) {
    let token = token(backend, endpoint);
    let same = shown.filter(|shown| shown.token == token);
    if same.is_some() && affinity.idle_timeout.is_none() && affinity.carrier != Carrier::Header {
        return;
    }
    let (begun, used) = (same.map_or_else(now, |shown| shown.begun), now());
    let value = format!("{token:x}.{begun:x}.{used:x}");
    match &affinity.carrier {
        Carrier::Header => {
            let name = HeaderName::from_bytes(affinity.name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value)) {
                headers.insert(name, value);
            }
        }
        Carrier::Cookie { max_age, path } => {
            let age = max_age.map(|age| format!("; Max-Age={age}")).unwrap_or_default();
            let secure = if is_secure { "; Secure" } else { "" };
            let text = format!("{}={value}; Path={path}; HttpOnly{age}{secure}", affinity.name);
            if let Ok(value) = HeaderValue::from_str(&text) {
                headers.append(SET_COOKIE, value);
            }
        }
    }
}
