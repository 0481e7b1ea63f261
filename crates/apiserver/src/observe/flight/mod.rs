//! The flight recorder: who wrote what, when, and how long each stage of the write took.
//!
//! Every change passes the front door, so that what is kept here tells the way of an object through all components, those
//! of others too. Nothing is written into objects. Memory is bounded (`ring`). What a write changed is found out when
//! somebody asks (`changes`), from the objects that the watch cache's log has anyway.

mod changes;
mod differences;
pub(crate) mod events;
mod page;
pub(crate) mod past;
mod ring;
mod shelf;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ferry_registry::{Resource, ResourceTable};
use ferry_store::{Op, Transaction};
use parking_lot::Mutex;

use crate::request::context::RequestContext;
use ring::{Record, Ring};
use serde_json::Value;
use tokio::sync::watch;

pub(crate) use page::{json_answer, may_get, named, oldest, page, told, verdict};

/// What a transaction changes, before the store has it.
#[derive(Debug)]
pub(crate) struct Change {
    pub key: String,
    /// 0 where it is not known.
    pub uid: u128,
    pub removed: bool,
}

impl Change {
    /// None: it is nothing that is kept. The key of the first operation follows; the others go along with it.
    pub(crate) fn of(transaction: &Transaction) -> Option<Self> {
        let (key, uid, removed) = match transaction.ops.first()? {
            Op::Create { key, value, .. } | Op::Update { key, value, .. } => (key, uid(value), false),
            Op::Delete { key, .. } => (key, None, true),
            _ => return None,
        };
        is_kept(key).then(|| Self { key: String::new(), uid: uid.unwrap_or_default(), removed })
    }
}

pub(crate) struct Recorder {
    ring: Mutex<Ring>,
    /// The number of the next record, for those who wait for it.
    newest: watch::Sender<u64>,
    pub(crate) ended_events: events::EndedEvents,
    pub(crate) past: past::PastChanges,
}

/// A write that somebody has not seen yet.
pub(crate) struct Fresh {
    pub number: u64,
    pub key: String,
    pub record: Record,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            ring: Mutex::new(Ring::new(ring::MOST)),
            newest: watch::Sender::new(0),
            ended_events: events::EndedEvents::default(),
            past: past::PastChanges::default(),
        }
    }
}

impl Recorder {
    /// Keeps what a request wrote, if it wrote anything.
    pub(crate) fn record(&self, context: &RequestContext) {
        let Some(written) = context.stages.take_written() else { return };
        let received = context.received.as_microsecond();
        let calls = (!written.calls.is_empty()).then(|| written.calls.into());
        let info = &context.info;
        let mut ring = self.ring.lock();
        let origin = ring.origin(&context.user.name, context.agent(), info.verb.as_str(), info.subresource.as_str());
        for (revision, Change { key, uid, removed }) in written.commits {
            let (origin, calls) = (origin.clone(), calls.clone());
            let record =
                Record { revision, received, stages: written.stages, uid: uid.to_ne_bytes(), origin, calls, removed };
            ring.push(record, &key);
        }
        let pushed = ring.pushed();
        drop(ring);
        self.newest.send_replace(pushed);
    }

    /// The number of the next write.
    pub(crate) fn newest(&self) -> u64 {
        *self.newest.borrow()
    }

    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.newest.subscribe()
    }

    /// The writes from a number on that are still here, at most so many.
    pub(crate) fn since(&self, number: u64, most: usize) -> Vec<Fresh> {
        let found = self.ring.lock().since(number, most);
        found.into_iter().map(|(number, key, record)| Fresh { number, key, record }).collect()
    }

    /// The writes of one object, oldest first: the revision, and what is known of it without looking at the object.
    pub(crate) fn told(&self, key: &str) -> Vec<(u64, Value)> {
        self.of(key).0.iter().map(|record| (record.revision, page::write(record, None))).collect()
    }

    /// The number of the oldest write that is still here.
    pub(crate) fn first(&self) -> u64 {
        self.ring.lock().first()
    }

    fn of(&self, key: &str) -> (Vec<Record>, Option<i64>) {
        let ring = self.ring.lock();
        (ring.of(key), ring.oldest())
    }
}

/// Leases are renewed all the time, and Events tell their story themselves (`events` has those that ended).
fn is_kept(key: &str) -> bool {
    let kind = key.strip_prefix("/registry/").and_then(|rest| rest.split('/').next());
    kind.is_some_and(|kind| !matches!(kind, "leases" | "events"))
}

/// The uid of a stored object. It stands near the beginning: names and namespaces before it have no quotes.
fn uid(value: &[u8]) -> Option<u128> {
    const FIELD: &[u8] = b"\"uid\":\"";
    let head = value.get(..value.len().min(768))?;
    let start = memchr::memmem::find(head, FIELD)? + FIELD.len();
    let text = std::str::from_utf8(head.get(start..start + 36)?).ok()?;
    uuid::Uuid::parse_str(text).ok().map(|uid| uid.as_u128())
}

/// Whose key it is: the row, its namespace and its name.
pub(crate) fn place<'a>(table: &ResourceTable, key: &'a str) -> Option<(Arc<Resource>, &'a str, &'a str)> {
    let rest = key.strip_prefix("/registry/")?;
    let of = |row: &&Arc<Resource>| {
        let below = rest.strip_prefix(&*row.storage_prefix).and_then(|rest| rest.strip_prefix('/'));
        row.stored && below.is_some_and(|below| below.matches('/').count() == usize::from(row.namespaced))
    };
    let row = table.rows().iter().find(of)?.clone();
    let below = rest.get(row.storage_prefix.len() + 1..)?;
    let (namespace, name) = if row.namespaced { below.split_once('/')? } else { ("", below) };
    Some((row, namespace, name))
}
