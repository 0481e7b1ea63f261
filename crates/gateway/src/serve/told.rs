//! The way of one request, told to whoever may know it: `ferry trace URL`. Who may has written the digest of a token to the
//! GatewayClass, and sends the token with the request.

use std::collections::BTreeMap;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::trace::{HEADER, PREFIX};

const SHORTEST: usize = 32;

#[derive(Default)]
pub struct Tokens(ArcSwap<Vec<Box<str>>>);

impl Tokens {
    /// Takes the digests that a GatewayClass has.
    pub fn set<'a>(&self, annotations: impl Iterator<Item = &'a BTreeMap<String, String>>) {
        let digests = annotations.flatten().filter(|(name, _)| name.starts_with(PREFIX));
        let digests: Vec<Box<str>> = digests.map(|(_, digest)| digest.as_str().into()).collect();
        if !digests.is_empty() || !self.0.load().is_empty() {
            self.0.store(digests.into());
        }
    }

    /// Takes the token out of a request, and says whether it is one of those.
    pub fn take(&self, headers: &mut HeaderMap) -> bool {
        let Some(token) = headers.remove(HEADER) else { return false };
        let digests = self.0.load();
        if token.len() < SHORTEST || digests.is_empty() {
            return false;
        }
        let digest = crate::trace::hex(&Sha256::digest(token.as_bytes()));
        digests.iter().any(|known| **known == *digest)
    }
}

/// What is told, in microseconds.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Way<'a> {
    pub gateway: &'a str,
    pub listener: &'a str,
    pub route: &'a str,
    pub rule: &'a str,
    pub backend: &'a str,
    pub endpoint: Option<String>,
    pub attempts: u32,
    /// The connection to the endpoint was there already.
    pub reused: bool,
    pub matching: u64,
    pub connecting: u64,
    pub waiting: u64,
    pub total: u64,
}

impl Way<'_> {
    pub fn write(&self, headers: &mut HeaderMap) {
        let text = serde_json::to_string(self).unwrap_or_default();
        if let Ok(value) = HeaderValue::from_str(&text) {
            headers.insert(HEADER, value);
        }
    }
}
