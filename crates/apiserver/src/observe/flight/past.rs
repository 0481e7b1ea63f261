//! What writes changed, for longer than the watch cache's log has the objects: field by field, within fixed memory.
//!
//! It is found out behind the writes, which do not wait for it, and at a bounded rate: in a flood of writes some are told
//! without what they changed. It is this server's own, and a restart begins anew.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use super::shelf::{Limits, Shelf};
use super::{Fresh, differences, page, place};
use crate::server::Core;

/// How much is kept.
pub(super) const MOST: Limits = Limits { entries: 32 << 10, bytes: 16 << 20 };
/// So many writes are looked at in each of these spans of time: some two percent of a core at most.
const AT_ONCE: usize = 64;
const SPAN: Duration = Duration::from_millis(250);
/// An object that is larger is not looked at.
const LARGEST: usize = 256 << 10;

pub(crate) struct PastChanges {
    shelf: Mutex<Shelf>,
}

impl Default for PastChanges {
    fn default() -> Self {
        Self { shelf: Mutex::new(Shelf::new(MOST)) }
    }
}

impl PastChanges {
    /// Of the object at a place of the store, oldest first: writes as the recorder tells them, with `differences`.
    pub(crate) fn of(&self, namespace: &str, key: &str) -> Vec<Value> {
        let shelf = self.shelf.lock();
        shelf.of(space(namespace, key), key).into_iter().filter_map(|told| serde_json::from_str(told).ok()).collect()
    }

    /// Writes, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        self.shelf.lock().size()
    }
}

/// Whose share it is of: that of its namespace, or of its kind where it has none.
fn space<'a>(namespace: &'a str, key: &'a str) -> &'a str {
    if namespace.is_empty() { key.rsplit_once('/').map_or(key, |(kind, _)| kind) } else { namespace }
}

/// Looks at what is written from now on.
pub(crate) async fn keep(core: Arc<Core>) {
    let mut changed = core.flight.changes();
    let mut next = core.flight.newest();
    while changed.changed().await.is_ok() {
        loop {
            let fresh = core.flight.since(next, AT_ONCE);
            let Some(last) = fresh.last() else { break };
            next = last.number + 1;
            for one in &fresh {
                look(&core, one);
                tokio::task::consume_budget().await;
            }
            tokio::time::sleep(SPAN).await;
        }
    }
}

fn look(core: &Core, one: &Fresh) {
    let table = core.table();
    let Some((row, namespace, _)) = place(&table, &one.key) else { return };
    // Nothing that was in a Secret is kept.
    let cache = core.cache.resource(&row.storage_prefix).filter(|_| row.storage_prefix != "secrets");
    let Some(change) = cache.and_then(|cache| cache.change(one.record.revision, &one.key)) else { return };
    let is_large =
        |object: &Option<Arc<crate::cache::CachedObject>>| object.as_ref().is_some_and(|o| o.json_length() > LARGEST);
    if is_large(&change.before) || is_large(&change.after) {
        return;
    }
    let [before, after] = [&change.before, &change.after].map(|object| object.as_ref().and_then(|o| o.parse().ok()));
    // What an object was when it went is in the writes before.
    let before = before.filter(|_| after.is_some());
    let mut told = page::write(&one.record, None);
    told["created"] = (before.is_none() && after.is_some()).into();
    told["differences"] = differences::between(before.as_ref(), after.as_ref()).into();
    core.flight.past.shelf.lock().put(space(namespace, &one.key), one.key.as_str().into(), told.to_string());
}
