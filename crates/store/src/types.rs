//! What goes into and comes out of a store.

use std::sync::Arc;

use bytes::Bytes;

pub type Revision = u64;
pub type LeaseId = i64;

/// A key with its newest (or asked-for) value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub key: Arc<str>,
    pub value: Bytes,
    /// The revision that created the key.
    pub created: Revision,
    /// The revision of this value.
    pub modified: Revision,
    pub lease: Option<LeaseId>,
}

#[derive(Clone, Debug)]
pub struct Got {
    /// The store's revision at the time of the read.
    pub revision: Revision,
    pub entry: Option<Entry>,
}

#[derive(Clone, Debug, Default)]
pub struct Range {
    pub prefix: String,
    /// Only keys greater than this one: the place where the last page ended.
    pub after: Option<String>,
    /// 0 means no limit.
    pub limit: usize,
    /// None reads the newest state.
    pub revision: Option<Revision>,
}

#[derive(Clone, Debug)]
pub struct RangeResult {
    pub revision: Revision,
    pub entries: Vec<Entry>,
    pub more: bool,
    /// How many keys lie after the last one returned.
    pub remaining: usize,
}

/// One operation with its precondition.
#[derive(Clone, Debug)]
pub enum Op {
    /// The key must not exist.
    Create { key: String, value: Bytes, lease: Option<LeaseId> },
    /// The key's `modified` must be `expected`.
    Update { key: String, value: Bytes, expected: Revision, lease: Option<LeaseId> },
    /// The key's `modified` must be `expected`.
    Delete { key: String, expected: Revision },
    /// Writes nothing: the key's `modified` must be `expected` (0: must not exist).
    Check { key: String, expected: Revision },
}

#[derive(Clone, Debug, Default)]
pub struct Transaction {
    pub ops: Vec<Op>,
}

impl Transaction {
    pub fn one(op: Op) -> Self {
        Self { ops: vec![op] }
    }
}

#[derive(Clone, Debug)]
pub struct Commit {
    pub revision: Revision,
}

#[derive(Clone, Debug, Default)]
pub struct WatchRequest {
    pub prefix: String,
    /// Events with a revision greater than this one.
    pub after: Revision,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Create,
    Update,
    Delete,
}

#[derive(Clone, Debug)]
pub struct Event {
    pub kind: EventKind,
    /// For a deletion: the key, the revision of the deletion as `modified`, and an empty value.
    pub entry: Entry,
    pub previous: Option<Entry>,
}

/// All changes of one revision, or none: then it is a progress mark, and nothing at or below `revision` will follow.
#[derive(Clone, Debug)]
pub struct WatchBatch {
    pub revision: Revision,
    pub events: Vec<Event>,
}
