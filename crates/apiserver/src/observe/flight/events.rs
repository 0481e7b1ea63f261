//! Events that ended: the cluster keeps an Event for an hour, this store keeps what it said for longer, within fixed memory.
//!
//! It is filled from the watch cache, so that Events which expire and Events which somebody deletes are the same to it. It is
//! this server's own: another server of the cluster has seen other ones, and a restart begins anew.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::object;
use futures::StreamExt;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cache::{FrameKind, ResourceCache, StartFrom, WatchOptions};
use crate::server::Core;

/// Before a watch that broke off is opened again.
const BACKOFF: Duration = Duration::from_secs(1);
/// One text of an Event is cut to so many bytes: only Events of events.k8s.io have bounds of their own.
const LONGEST: usize = 1024;
/// What an Event takes beside its texts, with room to spare: its places in the store, and a namespace of its own.
const FIXED: usize = 256;

/// How much is kept. One namespace has at most a quarter of it: who floods their own pushes out nobody else's.
#[derive(Clone, Copy, Debug)]
struct Limits {
    events: usize,
    bytes: usize,
}

const MOST: Limits = Limits { events: 8192, bytes: 4 << 20 };
const SHARE: usize = 4;

#[derive(Default)]
pub(crate) struct EndedEvents {
    shelf: Mutex<Shelf>,
}

impl EndedEvents {
    /// What is told of the Events of an object, oldest first, as an array in JSON. Its own namespace is empty where it has
    /// none; the Events of such an object are in another.
    pub(crate) fn of(&self, namespace: &str, kind: &str, own_namespace: &str, name: &str) -> String {
        format!("[{}]", self.shelf.lock().of(namespace, &about(kind, own_namespace, name)).join(","))
    }

    /// Events, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        let shelf = self.shelf.lock();
        (shelf.order.len(), shelf.bytes)
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

/// One Event that ended.
struct Ended {
    /// Numbers only grow.
    number: u64,
    about: Box<str>,
    told: Box<str>,
}

impl Ended {
    fn size(&self) -> usize {
        FIXED + self.about.len() + self.told.len()
    }
}

/// The Events of one namespace, oldest first.
#[derive(Default)]
struct Space {
    events: VecDeque<Ended>,
    bytes: usize,
}

struct Shelf {
    spaces: HashMap<Arc<str>, Space>,
    /// Whose each number is: the oldest of all come first.
    order: BTreeMap<u64, Arc<str>>,
    bytes: usize,
    next: u64,
    limits: Limits,
}

impl Default for Shelf {
    fn default() -> Self {
        Self::new(MOST)
    }
}

impl Shelf {
    fn new(limits: Limits) -> Self {
        Self { spaces: HashMap::new(), order: BTreeMap::new(), bytes: 0, next: 0, limits }
    }

    fn put(&mut self, namespace: &str, about: Box<str>, told: String) {
        let new = Ended { number: self.next, about, told: told.into() };
        let size = new.size();
        let own = Limits { events: self.limits.events / SHARE, bytes: self.limits.bytes / SHARE };
        if size > own.bytes {
            return;
        }
        let is_full = |have: usize, bytes: usize, limit: Limits| have >= limit.events || bytes + size > limit.bytes;
        while self.spaces.get(namespace).is_some_and(|space| is_full(space.events.len(), space.bytes, own)) {
            self.drop_first(namespace);
        }
        while is_full(self.order.len(), self.bytes, self.limits) {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            self.drop_first(&oldest.clone());
        }
        let known = self.spaces.get_key_value(namespace).map(|(namespace, _)| namespace.clone());
        let namespace = known.unwrap_or_else(|| namespace.into());
        self.order.insert(new.number, namespace.clone());
        self.next += 1;
        self.bytes += size;
        let space = self.spaces.entry(namespace).or_default();
        space.bytes += size;
        space.events.push_back(new);
    }

    /// Lets go of the oldest of a namespace.
    fn drop_first(&mut self, namespace: &str) {
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        if let Some(first) = space.events.pop_front() {
            self.order.remove(&first.number);
            space.bytes -= first.size();
            self.bytes -= first.size();
        }
        if space.events.is_empty() {
            self.spaces.remove(namespace);
        } else if space.events.capacity() > 4 * space.events.len() {
            // What a flood needed is not kept for ever.
            space.events.shrink_to(2 * space.events.len());
        }
    }

    fn of(&self, namespace: &str, about: &str) -> Vec<&str> {
        let events = self.spaces.get(namespace).into_iter().flat_map(|space| &space.events);
        events.filter(|event| *event.about == *about).map(|event| &*event.told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(shelf: &mut Shelf, namespace: &str, name: &str, length: usize) {
        shelf.put(namespace, about("Pod", namespace, name), "x".repeat(length));
    }

    fn has(shelf: &Shelf, namespace: &str, name: &str) -> bool {
        !shelf.of(namespace, &about("Pod", namespace, name)).is_empty()
    }

    /// What is counted is what is there.
    fn check(shelf: &Shelf) {
        let sum = |space: &Space| space.events.iter().map(Ended::size).sum::<usize>();
        assert!(shelf.spaces.values().all(|space| space.bytes == sum(space) && !space.events.is_empty()));
        assert_eq!(shelf.bytes, shelf.spaces.values().map(sum).sum::<usize>());
        assert_eq!(shelf.order.len(), shelf.spaces.values().map(|space| space.events.len()).sum::<usize>());
        assert!(shelf.order.len() <= shelf.limits.events && shelf.bytes <= shelf.limits.bytes);
        let held: usize = shelf.spaces.values().map(|space| space.events.capacity()).sum();
        assert!(held <= 4 * shelf.order.len() + 4 * shelf.spaces.len(), "room for {held}");
    }

    #[test]
    fn a_flood_in_one_namespace_pushes_out_its_own_events_alone() {
        let mut shelf = Shelf::new(Limits { events: 400, bytes: 1 << 20 });
        put(&mut shelf, "quiet", "p", 100);
        for number in 0..10_000 {
            put(&mut shelf, "loud", &number.to_string(), 100);
        }
        check(&shelf);
        assert!(has(&shelf, "quiet", "p"));
        assert_eq!(shelf.spaces["loud"].events.len(), 100, "a quarter");
        assert!(has(&shelf, "loud", "9999") && has(&shelf, "loud", "9900") && !has(&shelf, "loud", "9899"));
        // Neither do few large ones.
        for number in 0..10_000 {
            put(&mut shelf, "large", &number.to_string(), 100 << 10);
        }
        check(&shelf);
        assert!(has(&shelf, "quiet", "p") && shelf.spaces["large"].bytes <= 256 << 10);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_go_first() {
        for limits in [Limits { events: 400, bytes: 1 << 20 }, Limits { events: 1 << 20, bytes: 64 << 10 }] {
            let mut shelf = Shelf::new(limits);
            for number in 0..5_000_usize {
                put(&mut shelf, &format!("n{}", number % 50), &number.to_string(), number * 7 % 500);
                check(&shelf);
            }
            let oldest = 5_000 - shelf.order.len();
            assert!(oldest < 4_950, "{oldest}");
            for number in 0..5_000 {
                let is_there = has(&shelf, &format!("n{}", number % 50), &number.to_string());
                assert_eq!(is_there, number >= oldest, "{number} of {oldest}");
            }
        }
        let mut shelf = Shelf::default();
        put(&mut shelf, "n", "too-large", 2 << 20);
        assert!(!has(&shelf, "n", "too-large"));
        check(&shelf);
    }

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
