//! `/console/feed`: the writes of all objects as they happen, one JSON document per line, of those that the caller may watch.
//! `/console/writes`: a page of those that the recorder still has.
//!
//! The answer goes on until the client leaves. It is pulled: a client that does not read makes nothing pile up, and skips what
//! the recorder has dropped meanwhile.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_auth::Attributes;
use ferry_connections::{AtItsEnd, abandoned_after};
use ferry_meta::UserInfo;
use ferry_registry::Resource;
use ferry_store::{Range, StoreError};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::observe::flight::{self, Fresh, json_answer, place};
use crate::request::context::RequestContext;
use crate::response::answer::{Answer, BoxError};
use crate::server::Core;

/// So many writes of the past come first, and so many at once.
const AT_ONCE: usize = 256;
/// Writes that come together are told together.
const TOGETHER: Duration = Duration::from_millis(20);
/// Where nothing is written, the client is told that the stream lives.
const QUIET: Duration = Duration::from_secs(15);
/// Rights are asked for again after this time.
const RIGHTS: Duration = Duration::from_secs(30);
/// A feed ends after this time, and the pages ask for another: who they are is found out again.
const LONGEST: Duration = Duration::from_secs(600);

struct Feed {
    core: Arc<Core>,
    user: UserInfo,
    next: u64,
    /// Whether objects of a resource in a namespace may be watched.
    rights: HashMap<(String, String), bool>,
    asked: Instant,
    ends: Instant,
}

pub(super) fn answer(core: &Arc<Core>, context: &RequestContext) -> Answer {
    let newest = core.flight.newest();
    let after = context.query.text("after").parse::<u64>().unwrap_or(0).min(newest);
    let feed = Feed::new(core, context, after.max(newest.saturating_sub(AT_ONCE as u64)));
    let stream = futures::stream::unfold(feed, |mut feed| async move {
        let bytes = feed.more().await?;
        Some((Ok::<_, BoxError>(Frame::data(bytes)), feed))
    });
    let body = abandoned_after(&context.peer, AtItsEnd::Complete, StreamBody::new(stream).boxed_unsync());
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    Answer::Ready(response)
}

/// The writes from a number on, at most `most`; which numbers there are; and since which revision the store has the past.
pub(super) async fn writes(core: &Arc<Core>, context: &RequestContext) -> Answer {
    let number = |name: &str| context.query.text(name).parse::<u64>().ok();
    let most = number("most").and_then(|most| usize::try_from(most).ok()).unwrap_or(AT_ONCE).min(AT_ONCE);
    let (first, next) = (core.flight.first(), core.flight.newest());
    let from = number("from").unwrap_or_else(|| next.saturating_sub(most as u64)).max(first);
    let mut feed = Feed::new(core, context, from);
    let fresh = core.flight.since(from, most);
    let lines = feed.told(&fresh).await;
    let writes: Vec<Value> = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    json_answer(&json!({ "first": first, "next": next, "storedSince": stored_since(core).await, "writes": writes }))
}

/// The oldest revision that can still be listed.
async fn stored_since(core: &Core) -> Option<u64> {
    // Of what is forgotten, the answer tells where the rest begins.
    let range = Range { prefix: "/registry/namespaces/".into(), revision: Some(1), limit: 1, ..Range::default() };
    match core.store.range(range).await {
        Ok(_) => Some(1),
        Err(StoreError::Compacted { oldest, .. }) => Some(oldest),
        Err(_) => None,
    }
}

impl Feed {
    fn new(core: &Arc<Core>, context: &RequestContext, next: u64) -> Self {
        let now = Instant::now();
        Self {
            core: core.clone(),
            user: context.user.clone(),
            next,
            rights: HashMap::new(),
            asked: now,
            ends: now + LONGEST,
        }
    }

    async fn more(&mut self) -> Option<Bytes> {
        let mut changed = self.core.flight.changes();
        let stopping = self.core.tasks.stopping();
        let quiet = Instant::now() + QUIET;
        loop {
            if self.ends <= Instant::now() {
                return None;
            }
            let fresh = self.core.flight.since(self.next, AT_ONCE);
            if let Some(last) = fresh.last() {
                self.next = last.number + 1;
                let lines = self.told(&fresh).await;
                if !lines.is_empty() {
                    return Some(lines.into());
                }
                continue;
            }
            tokio::select! {
                () = stopping.cancelled() => return None,
                () = tokio::time::sleep_until(quiet) => {
                    return Some(format!("{}\n", json!({ "next": self.next })).into());
                }
                outcome = changed.changed() => outcome.ok()?,
            }
            tokio::time::sleep(TOGETHER).await;
        }
    }

    async fn told(&mut self, fresh: &[Fresh]) -> String {
        if self.asked.elapsed() >= RIGHTS {
            self.rights.clear();
            self.asked = Instant::now();
        }
        let table = self.core.table();
        let mut lines = String::new();
        for one in fresh {
            let Some((row, namespace, name)) = place(&table, &one.key) else { continue };
            if !self.may_watch(&row, namespace).await {
                continue;
            }
            let gvk = &row.gvk;
            let mut line: Value = flight::told(&self.core, &row, &one.key, &one.record);
            line["number"] = one.number.into();
            line["next"] = (one.number + 1).into();
            line["object"] = json!({
                "group": gvk.group, "version": gvk.version, "resource": row.plural, "kind": gvk.kind,
                "namespace": namespace, "name": name,
            });
            lines.push_str(&line.to_string());
            lines.push('\n');
        }
        lines
    }

    async fn may_watch(&mut self, row: &Resource, namespace: &str) -> bool {
        let key = (row.storage_prefix.clone(), namespace.to_owned());
        if let Some(known) = self.rights.get(&key) {
            return *known;
        }
        let gvk = &row.gvk;
        let wanted = Attributes {
            namespace,
            version: &gvk.version,
            ..Attributes::resource(&self.user, "watch", &gvk.group, &row.plural)
        };
        let allowed = self.core.authorization.check(&wanted).await.is_ok();
        self.rights.insert(key, allowed);
        allowed
    }
}
