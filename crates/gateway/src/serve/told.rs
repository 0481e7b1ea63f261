//! The way of one request, told to whoever may know it: `ferry trace URL`. Who may has written the digest of a token to the
//! GatewayClass, and sends the token with the request.

use std::collections::BTreeMap;

use arc_swap::ArcSwap;
use http::{HeaderMap, HeaderValue};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::table::{Head, Listener, PortTable};
use crate::trace::{HEADER, PREFIX, Stop};

const SHORTEST: usize = 32;
/// So much is told of what there is instead of a route: the answer's head must stay small.
const MOST_NEAR: usize = 6;
const LONGEST: usize = 240;

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
    /// Why the gateway answered it itself.
    pub stop: Option<Stop>,
    pub because: &'a str,
    pub near: &'a [String],
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
        // Names may have letters that are not ASCII.
        if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
            headers.insert(HEADER, value);
        }
    }
}

/// What there is where a request found no rule: rules of its host with what they ask for, other hosts, other listeners.
pub fn near(table: &PortTable, head: &Head<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for table in std::iter::once(table).chain(table.fallback.as_deref()) {
        match table.listener(head.host) {
            Some(listener) => rules(table, listener, head, &mut found),
            None => {
                let hosts = table.listeners.iter().filter_map(|one| Some((one, one.hostname.as_ref()?)));
                found.extend(hosts.map(|(one, host)| format!("listener {} is for {host}", one.name)));
            }
        }
    }
    found.truncate(MOST_NEAR);
    for text in &mut found {
        if let Some((end, _)) = text.char_indices().nth(LONGEST) {
            text.truncate(end);
            text.push('…');
        }
    }
    found
}

fn rules(table: &PortTable, listener: &Listener, head: &Head<'_>, found: &mut Vec<String>) {
    let before = found.len();
    let mut entries = listener.http.of_host(head.host);
    // Those that only want something else of the request come nearest.
    entries.sort_by_key(|entry| !entry.matcher.path.matches(head.path));
    for entry in entries {
        if let Some(unmet) = entry.matcher.unmet(head) {
            found.push(format!("{}, rule {}, is for {unmet}", entry.rule.route, entry.rule.name));
        }
    }
    if found.len() > before {
        return;
    }
    let hosts = listener.http.hosts();
    found.push(match hosts.is_empty() {
        true => format!("no route is attached to listener {} of {}", listener.name, table.gateway),
        false => format!("listener {} of {} has routes for {}", listener.name, table.gateway, hosts.join(", ")),
    });
}
