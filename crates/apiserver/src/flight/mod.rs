//! The flight recorder: who wrote what, when, and how long each stage of the write took.
//!
//! Every change passes the front door, so that what is kept here tells the way of an object through all components, those
//! of others too. Nothing is written into objects. Memory is bounded (`ring`); what a write changed is found out when
//! somebody asks (`changes`), not when it is made.

mod changes;
mod page;
mod ring;
#[cfg(test)]
mod tests;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::context::{Committed, RequestContext, Stage};
use ring::{Record, Ring};

pub(crate) use page::{page, verdict};

/// What records and the values beside them may take together.
const BUDGET: usize = 8 << 20;
/// Larger objects are noted without what was in them.
const LARGEST_VALUE: usize = 32 << 10;

pub(crate) struct Recorder {
    ring: Mutex<Ring>,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { ring: Mutex::new(Ring::new(BUDGET)) }
    }
}

impl Recorder {
    /// Keeps what a request wrote, if it wrote anything.
    pub(crate) fn record(&self, context: &RequestContext) {
        let (commits, calls) = context.stages.take_written();
        if commits.is_empty() {
            return;
        }
        let mut stages = [0_u32; Stage::ALL.len()];
        for (stage, took) in context.stages.durations() {
            let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
            let place = &mut stages[stage as usize];
            *place = place.saturating_add(micros);
        }
        let calls: Option<Box<[_]>> = (!calls.is_empty()).then(|| calls.into());
        let received = context.received.as_microsecond();
        for Committed { key, value, revision } in commits {
            let Some(kept) = kept(&key) else { continue };
            let removed = value.is_none();
            let uid = value.as_deref().and_then(uid).unwrap_or_default();
            let value = value.filter(|value| kept == Kept::Whole && value.len() <= LARGEST_VALUE);
            let info = &context.info;
            let mut ring = self.ring.lock();
            let origin = ring.origin(&context.user.name, context.agent(), &info.verb, &info.subresource);
            ring.push(Record {
                revision,
                received,
                stages,
                uid,
                key: key.into(),
                origin,
                removed,
                value,
                calls: calls.clone(),
            });
        }
    }

    fn of(&self, key: &str) -> (Vec<Record>, Option<i64>) {
        let ring = self.ring.lock();
        (ring.of(key), ring.oldest())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    /// That it was written, by whom, and when.
    Noted,
    /// What was written too.
    Whole,
}

/// Leases are renewed all the time, and events tell their story themselves: None of them is kept. Nothing of a Secret is ever
/// kept; ConfigMaps and nodes are too large for what they tell.
fn kept(key: &str) -> Option<Kept> {
    let rest = key.strip_prefix("/registry/")?;
    match rest.split('/').next()? {
        "leases" | "events" => None,
        "secrets" | "configmaps" | "minions" => Some(Kept::Noted),
        _ => Some(Kept::Whole),
    }
}

/// The uid of a stored object. It stands near the beginning: names and namespaces before it have no quotes.
fn uid(value: &[u8]) -> Option<u128> {
    const FIELD: &[u8] = b"\"uid\":\"";
    let head = value.get(..value.len().min(768))?;
    let start = memchr::memmem::find(head, FIELD)? + FIELD.len();
    let text = std::str::from_utf8(head.get(start..start + 36)?).ok()?;
    uuid::Uuid::parse_str(text).ok().map(|uid| uid.as_u128())
}

type Value = Option<Bytes>;
