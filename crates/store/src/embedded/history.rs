//! The past: reads at an older revision, and the part of a watch that lies before its start.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use super::Shared;
use super::disk::View;
use super::record::{Position, Record};
use super::state::{Change, Map, Stored};
use crate::types::{Entry, Event, EventKind, Range, RangeResult, Revision, WatchBatch};
use crate::{Result, StoreError};

/// The revision of a store that was never written to; clients take 0 for "any".
pub(super) const FIRST: Revision = 1;
/// Changes read for a watch at once.
const CHUNK: usize = 512;

impl Shared {
    /// The revision must be kept and not in the future; the view is taken before a compaction can pass it.
    fn view_at(&self, revision: Revision) -> Result<(View, Map, Revision)> {
        let state = self.state.read();
        if revision > state.revision {
            return Err(StoreError::Future { requested: revision, newest: state.revision });
        }
        if revision < state.compacted {
            return Err(StoreError::Compacted { requested: revision, oldest: state.compacted });
        }
        Ok((self.disk()?.view(), state.map.clone(), state.revision))
    }

    /// The newest state with every later change to the prefix undone.
    pub(crate) fn range_at(&self, range: &Range, revision: Revision) -> Result<RangeResult> {
        let (view, map, newest) = self.view_at(revision)?;
        let mut before: BTreeMap<Arc<str>, Option<Position>> = BTreeMap::new();
        view.scan(revision + 1, newest, |place, bytes| {
            if Record::key(bytes).is_none_or(|key| key.starts_with(&range.prefix)) {
                let record = view.decode(place, bytes)?;
                before.entry(record.entry.key).or_insert(record.previous);
            }
            Ok(true)
        })?;
        let mut map = map;
        for (key, place) in before {
            match place {
                None => {
                    map.remove(&key);
                }
                Some(place) => {
                    let record = view.record(place)?.ok_or_else(|| missing(place))?;
                    map.insert(key, Arc::new(Stored { entry: record.entry, index: place.index }));
                }
            }
        }
        Ok(page(&map, range, newest))
    }

    /// The next batches of a watch after `after`, not beyond `until`; the second is how far they reach.
    pub(crate) fn batches(
        &self,
        prefix: &str,
        after: Revision,
        until: Revision,
    ) -> Result<(Vec<WatchBatch>, Revision)> {
        let (view, _, _) = self.view_at(after)?;
        let mut batches: Vec<WatchBatch> = Vec::new();
        let mut events = 0;
        let mut reached = until;
        view.scan(after + 1, until, |place, bytes| {
            let same_batch = batches.last().is_some_and(|batch| batch.revision == place.revision);
            if events >= CHUNK && !same_batch {
                reached = place.revision - 1;
                return Ok(false);
            }
            if Record::key(bytes).is_some_and(|key| !key.starts_with(prefix)) {
                return Ok(true);
            }
            let event = event(&view, view.decode(place, bytes)?)?;
            events += 1;
            match batches.last_mut() {
                Some(batch) if batch.revision == place.revision => batch.events.push(event),
                _ => batches.push(WatchBatch { revision: place.revision, events: vec![event] }),
            }
            Ok(true)
        })?;
        Ok((batches, reached))
    }
}

pub(super) fn missing(place: Position) -> StoreError {
    StoreError::Corrupt(format!("revision {} is missing from the history", place.revision))
}

pub(super) fn event(view: &View, record: Record) -> Result<Event> {
    let previous = match record.previous {
        None => None,
        Some(place) => Some(view.record(place)?.ok_or_else(|| missing(place))?.entry),
    };
    Ok(Event { kind: record.kind, entry: record.entry, previous })
}

/// Everything after a revision as changes to `map`, grouped by revision, for those who apply them.
pub(crate) fn replay(view: &View, after: Revision, map: &Map) -> Result<Vec<(Revision, Vec<Change>)>> {
    let mut map = map.clone();
    let mut transactions: Vec<(Revision, Vec<Change>)> = Vec::new();
    view.scan(after + 1, Revision::MAX, |place, bytes| {
        let record = view.decode(place, bytes)?;
        let key = record.entry.key.clone();
        let change = Change { index: place.index, previous: map.get(&key).cloned(), record };
        match change.stored() {
            Some(stored) => map.insert(key, stored),
            None => map.remove(&key),
        };
        match transactions.last_mut() {
            Some((revision, changes)) if *revision == place.revision => changes.push(change),
            _ => transactions.push((place.revision, vec![change])),
        }
        Ok(true)
    })?;
    Ok(transactions)
}

/// The whole state from disk: the newest revision and what stands at each key.
pub(crate) fn load(view: &View, compacted: Revision) -> Result<(Revision, Map)> {
    let mut map = Map::new();
    let mut newest = compacted.max(FIRST);
    view.scan(0, Revision::MAX, |place, bytes| {
        let record = view.decode(place, bytes)?;
        newest = newest.max(place.revision);
        if record.kind == EventKind::Delete {
            map.remove(&record.entry.key);
        } else {
            let stored = Stored { entry: record.entry, index: place.index };
            map.insert(stored.entry.key.clone(), Arc::new(stored));
        }
        Ok(true)
    })?;
    Ok((newest, map))
}

/// One page of a map.
pub(crate) fn page(map: &Map, range: &Range, revision: Revision) -> RangeResult {
    let prefix = range.prefix.as_str();
    let start = match range.after.as_deref() {
        Some(after) if after >= prefix => Bound::Excluded(after),
        _ => Bound::Included(prefix),
    };
    let mut keys = map
        .range::<(Bound<&str>, Bound<&str>), str>((start, Bound::Unbounded))
        .take_while(|(key, _)| key.starts_with(prefix));
    let limit = if range.limit == 0 { usize::MAX } else { range.limit };
    let entries: Vec<Entry> = keys.by_ref().take(limit).map(|(_, stored)| stored.entry.clone()).collect();
    let remaining = if range.limit == 0 { 0 } else { keys.count() };
    RangeResult { revision, entries, more: remaining > 0, remaining }
}
