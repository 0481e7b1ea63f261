//! Events that ended: the cluster keeps an Event for an hour, this store keeps what it said for longer, within fixed memory.
//!
//! It is filled from the watch cache, so that Events which expire and Events which somebody deletes are the same to it. It is
//! this server's own: another server of the cluster has seen other ones, and a restart begins anew.

use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::shelf::{Limits, Shelf};
use crate::cache::{FrameKind, ResourceCache, StartFrom, WatchOptions};
use crate::server::Core;

/// Before a watch that broke off is opened again.
const BACKOFF: Duration = Duration::from_secs(1);
/// One text of an Event is cut to so many bytes: only Events of events.k8s.io have bounds of their own.
const LONGEST: usize = 1024;
/// How much is kept.
const MOST: Limits = Limits { entries: 8192, bytes: 4 << 20 };

pub(crate) struct EndedEvents {
    shelf: Mutex<Shelf>,
}

impl Default for EndedEvents {
    fn default() -> Self {
        Self { shelf: Mutex::new(Shelf::new(MOST)) }
    }
}

impl EndedEvents {
    /// What is told of the Events of an object, oldest first, as an array in JSON. Its own namespace is empty where it has
    /// none; the Events of such an object are in another.
    pub(crate) fn of(&self, namespace: &str, kind: &str, own_namespace: &str, name: &str) -> String {
        format!("[{}]", self.shelf.lock().of(namespace, &about(kind, own_namespace, name)).join(","))
    }

    /// Events, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        self.shelf.lock().size()
    }

    fn keep(&self, namespace: &str, event: &Value) {
        let involved = |field: &str| cut(object::text(event, &format!("/involvedObject/{field}")));
        let about = about(involved("kind"), involved("namespace"), involved("name"));
        let told = told(event).to_string();
        self.shelf.lock().put(namespace, about, told);
    }
}

/// Keeps the Events that end from now on. Those that end while the watch is behind are lost: nobody waits for it.
pub(crate) async fn keep(core: Arc<Core>) {
    let Some(cache) = core.cache.resource("events") else { return std::future::pending().await };
    loop {
        follow(&core, &cache).await;
        tokio::time::sleep(BACKOFF).await;
    }
}

async fn follow(core: &Core, cache: &Arc<ResourceCache>) {
    let options = WatchOptions { from: StartFrom::After(core.cache.revision()), ..WatchOptions::default() };
    let mut frames = match core.cache.watch(cache, options).await {
        Ok(frames) => frames,
        Err(error) => return tracing::debug!("Events cannot be watched: {error}"),
    };
    while let Some(frame) = frames.next().await {
        // A minute's Events share a lease and expire together: others have their turn in between.
        tokio::task::consume_budget().await;
        let Some(event) = frame.object.filter(|_| frame.kind == FrameKind::Deleted) else { continue };
        if let Ok(parsed) = event.parse() {
            core.flight.ended_events.keep(event.namespace(), &parsed);
        }
    }
}

fn about(kind: &str, namespace: &str, name: &str) -> Box<str> {
    [kind, namespace, name].join("\0").into()
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// Both versions of an Event are stored in that of the core group.
fn told(event: &Value) -> Value {
    let first_of = |pointers: &[&str]| {
        let mut texts = pointers.iter().map(|pointer| cut(object::text(event, pointer)));
        texts.find(|text| !text.is_empty()).unwrap_or_default()
    };
    let count = ["/series/count", "/count"].iter().find_map(|pointer| event.pointer(pointer)?.as_i64());
    json!({
        "type": first_of(&["/type"]),
        "reason": first_of(&["/reason"]),
        "message": first_of(&["/message"]),
        "count": count.unwrap_or(1).max(1),
        "first": first_of(&["/firstTimestamp", "/eventTime", "/metadata/creationTimestamp"]),
        "last": first_of(&["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"]),
        "from": first_of(&["/reportingComponent", "/source/component"]),
        "uid": first_of(&["/involvedObject/uid"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_short_and_the_same_for_both_versions() {
        let old = json!({
            "type": "Warning", "reason": "BackOff", "message": "é".repeat(100_000), "count": 7,
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T01:00:00Z", "eventTime": null,
            "source": {"component": "kubelet", "host": "n"}, "reportingComponent": "",
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "d", "uid": "u"},
        });
        let mut told_of = told(&old);
        assert_eq!(told_of["message"].as_str().map(str::len), Some(LONGEST));
        told_of["message"] = Value::Null;
        let want = json!({
            "type": "Warning", "reason": "BackOff", "message": null, "count": 7, "uid": "u", "from": "kubelet",
            "first": "2026-01-01T00:00:00Z", "last": "2026-01-01T01:00:00Z",
        });
        assert_eq!(told_of, want);
        let new = json!({
            "metadata": {"creationTimestamp": "2026-01-01T00:00:02Z"}, "type": "Normal", "reason": "Pulled", "message": "m",
            "eventTime": "2026-01-01T00:00:01.000000Z", "reportingComponent": "kubelet",
            "series": {"count": 3, "lastObservedTime": "2026-01-01T00:30:00.000000Z"},
        });
        let want = json!({
            "type": "Normal", "reason": "Pulled", "message": "m", "count": 3, "uid": "", "from": "kubelet",
            "first": "2026-01-01T00:00:01.000000Z", "last": "2026-01-01T00:30:00.000000Z",
        });
        assert_eq!(told(&new), want);
        let count = told(&json!({}))["count"].clone();
        assert_eq!(count, 1);
    }
}
