//! The records of the newest writes, within a budget of bytes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::context::{Call, Stage};

/// One write of one object.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub revision: u64,
    /// When the request came in, in microseconds since 1970.
    pub received: i64,
    /// Microseconds, in the order of [`Stage::ALL`].
    pub stages: [u32; Stage::ALL.len()],
    pub uid: u128,
    /// Its place in the store.
    pub key: Box<str>,
    pub origin: Origin,
    /// The object was taken out of the store.
    pub removed: bool,
    /// What was written, as long as there is room for it.
    pub value: super::Value,
    pub calls: Option<Box<[Call]>>,
}

/// Who did what, shared by all records of the same: user, agent, verb and subresource, a NUL between them.
#[derive(Clone, Debug)]
pub(super) struct Origin(Arc<str>);

impl Origin {
    /// User, agent, verb, subresource.
    pub(super) fn parts(&self) -> [&str; 4] {
        // From behind: agents and verbs have no NUL, a user's name might.
        let mut parts = self.0.rsplitn(4, '\0');
        let mut next = || parts.next().unwrap_or_default();
        let (subresource, verb, agent, user) = (next(), next(), next(), next());
        [user, agent, verb, subresource]
    }
}

impl Record {
    /// Without the value and the origin, which are counted by themselves.
    fn size(&self) -> usize {
        let calls = self.calls.iter().flat_map(|calls| calls.iter());
        size_of::<Self>() + self.key.len() + calls.map(|(name, _)| size_of::<Call>() + name.len()).sum::<usize>()
    }

    fn value_size(&self) -> usize {
        self.value.as_ref().map_or(0, |value| value.len())
    }
}

/// Agents and users are cut to this length.
const LONGEST_NAME: usize = 128;

pub(super) struct Ring {
    records: VecDeque<Record>,
    /// How many records were dropped: the number of the first one that is there.
    dropped: u64,
    /// Numbers of the records that have a value, oldest first.
    valued: VecDeque<u64>,
    origins: HashSet<Arc<str>>,
    /// Where a new origin is put together.
    scratch: String,
    record_bytes: usize,
    value_bytes: usize,
    /// What records may take; values may take three times as much.
    share: usize,
}

impl Ring {
    pub(super) fn new(budget: usize) -> Self {
        Self {
            records: VecDeque::new(),
            dropped: 0,
            valued: VecDeque::new(),
            origins: HashSet::new(),
            scratch: String::new(),
            record_bytes: 0,
            value_bytes: 0,
            share: budget / 4,
        }
    }

    pub(super) fn origin(&mut self, user: &str, agent: &str, verb: &str, subresource: &str) -> Origin {
        self.scratch.clear();
        for (part, end) in [(user, "\0"), (agent, "\0"), (verb, "\0"), (subresource, "")] {
            self.scratch.push_str(part.get(..part.floor_char_boundary(LONGEST_NAME)).unwrap_or(part));
            self.scratch.push_str(end);
        }
        if let Some(known) = self.origins.get(&*self.scratch) {
            return Origin(known.clone());
        }
        let new: Arc<str> = Arc::from(&*self.scratch);
        self.record_bytes += new.len();
        self.origins.insert(new.clone());
        Origin(new)
    }

    pub(super) fn push(&mut self, record: Record) {
        self.record_bytes += record.size();
        if record.value.is_some() {
            self.value_bytes += record.value_size();
            self.valued.push_back(self.dropped + self.records.len() as u64);
        }
        self.records.push_back(record);
        while self.record_bytes > self.share && self.records.len() > 1 {
            self.drop_first();
        }
        while self.value_bytes > 3 * self.share {
            let Some(number) = self.valued.pop_front() else { break };
            let at = usize::try_from(number - self.dropped).unwrap_or(usize::MAX);
            if let Some(record) = self.records.get_mut(at) {
                self.value_bytes -= record.value_size();
                record.value = None;
            }
        }
    }

    fn drop_first(&mut self) {
        let Some(first) = self.records.pop_front() else { return };
        if self.valued.front() == Some(&self.dropped) {
            self.valued.pop_front();
        }
        self.dropped += 1;
        self.record_bytes -= first.size();
        self.value_bytes -= first.value_size();
        // The table of origins and this record were the last to know it.
        if Arc::strong_count(&first.origin.0) == 2 {
            self.record_bytes -= first.origin.0.len();
            self.origins.remove(&first.origin.0);
        }
    }

    /// The writes of one object, oldest first.
    pub(super) fn of(&self, key: &str) -> Vec<Record> {
        self.records.iter().filter(|record| &*record.key == key).cloned().collect()
    }

    /// Since when everything is here.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.records.front().map(|record| record.received)
    }

    /// Records, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.records.len(), self.record_bytes + self.value_bytes)
    }
}
