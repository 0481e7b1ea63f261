//! The newest state in memory, and those who wait for its changes. What is here is durable.

use std::sync::Arc;

use imbl::OrdMap;

use super::record::{Position, Record};
use super::watchers::Watchers;
use crate::types::{Entry, Event, EventKind, Revision};

/// A current value and where it stands in the history.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) entry: Entry,
    pub(crate) index: u32,
}

impl Stored {
    pub(crate) fn place(&self) -> Position {
        Position { revision: self.entry.modified, index: self.index }
    }
}

pub(crate) type Map = OrdMap<Arc<str>, Arc<Stored>>;

/// One checked change: what goes to disk, and what it replaces.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) index: u32,
    pub(crate) record: Record,
    pub(crate) previous: Option<Arc<Stored>>,
}

impl Change {
    pub(crate) fn event(&self) -> Event {
        Event {
            kind: self.record.kind,
            entry: self.record.entry.clone(),
            previous: self.previous.as_ref().map(|previous| previous.entry.clone()),
        }
    }

    /// What stands at the key afterwards.
    pub(crate) fn stored(&self) -> Option<Arc<Stored>> {
        (self.record.kind != EventKind::Delete)
            .then(|| Arc::new(Stored { entry: self.record.entry.clone(), index: self.index }))
    }
}

pub(crate) struct Keyspace {
    pub(crate) revision: Revision,
    pub(crate) compacted: Revision,
    pub(crate) map: Map,
    pub(crate) watchers: Watchers,
}

impl Keyspace {
    /// Makes a durable transaction visible to readers and watchers.
    pub(crate) fn publish(&mut self, revision: Revision, changes: &[Change]) {
        for change in changes {
            let key = &change.record.entry.key;
            match change.stored() {
                Some(stored) => self.map.insert(key.clone(), stored),
                None => self.map.remove(key),
            };
        }
        self.revision = revision;
        self.watchers.publish(revision, changes);
    }
}
