//! The records of the newest writes, within fixed memory.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use crate::request::context::{Call, Stage};

/// One write of one object. Its key stands beside it, in the same order.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub revision: u64,
    /// When the request came in, in microseconds since 1970.
    pub received: i64,
    /// Microseconds, in the order of [`Stage::ALL`].
    pub stages: [u32; Stage::ALL.len()],
    /// As bytes: a number of that size would be aligned to sixteen.
    pub uid: [u8; 16],
    pub origin: Origin,
    /// Webhooks, which most writes do not meet.
    pub calls: Option<Arc<[Call]>>,
    /// The object was taken out of the store.
    pub removed: bool,
}

/// Who did what, shared by all records of the same: user, agent, verb and subresource, a NUL between them.
#[derive(Clone, Debug)]
pub(crate) struct Origin(Arc<str>);

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
    fn calls_size(&self) -> usize {
        let calls = self.calls.iter().flat_map(|calls| calls.iter());
        calls.map(|(name, _)| size_of::<Call>() + name.len()).sum()
    }
}

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub records: usize,
    pub key_bytes: usize,
    /// Origins and webhooks.
    pub other_bytes: usize,
}

impl Limits {
    pub(super) fn bytes(self) -> usize {
        self.records * (size_of::<Record>() + size_of::<u16>()) + self.key_bytes + self.other_bytes
    }
}

/// Some 6 MB when it is full.
pub(super) const MOST: Limits = Limits { records: 32 << 10, key_bytes: 2 << 20, other_bytes: 512 << 10 };
/// Agents and users are cut to this length.
const LONGEST_NAME: usize = 128;

pub(super) struct Ring {
    records: VecDeque<Record>,
    /// The length of each record's key.
    lengths: VecDeque<u16>,
    /// The keys, one behind the other: they come and go in order, so that nothing is allocated for them.
    keys: VecDeque<u8>,
    origins: HashSet<Arc<str>>,
    /// Where an origin is put together.
    scratch: String,
    other_bytes: usize,
    /// How many there ever were: the number of the next one.
    pushed: u64,
    limits: Limits,
}

impl Ring {
    /// Memory that is not written to yet costs nothing.
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            records: VecDeque::with_capacity(limits.records),
            lengths: VecDeque::with_capacity(limits.records),
            keys: VecDeque::with_capacity(limits.key_bytes),
            origins: HashSet::new(),
            scratch: String::new(),
            other_bytes: 0,
            pushed: 0,
            limits,
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
        self.other_bytes += new.len();
        self.origins.insert(new.clone());
        Origin(new)
    }

    pub(super) fn push(&mut self, record: Record, key: &str) {
        let length = u16::try_from(key.len()).unwrap_or(u16::MAX);
        let key = &key.as_bytes()[..length.into()];
        while !self.records.is_empty()
            && (self.records.len() >= self.limits.records
                || self.keys.len() + key.len() > self.limits.key_bytes
                || self.other_bytes + record.calls_size() > self.limits.other_bytes)
        {
            self.drop_first();
        }
        self.other_bytes += record.calls_size();
        self.records.push_back(record);
        self.pushed += 1;
        self.lengths.push_back(length);
        self.keys.extend(key);
    }

    fn drop_first(&mut self) {
        let (Some(first), Some(length)) = (self.records.pop_front(), self.lengths.pop_front()) else { return };
        self.keys.drain(..usize::from(length));
        self.other_bytes -= first.calls_size();
        // The table of origins and this record were the last to know it.
        if Arc::strong_count(&first.origin.0) == 2 {
            self.other_bytes -= first.origin.0.len();
            self.origins.remove(&first.origin.0);
        }
    }

    /// The writes of one object, oldest first.
    pub(super) fn of(&self, key: &str) -> Vec<Record> {
        let (front, back) = self.keys.as_slices();
        let mut start = 0;
        let mut found = Vec::new();
        for (record, length) in self.records.iter().zip(&self.lengths) {
            let end = start + usize::from(*length);
            let is_it = usize::from(*length) == key.len()
                && match (end <= front.len(), start >= front.len()) {
                    (true, _) => &front[start..end] == key.as_bytes(),
                    (_, true) => &back[start - front.len()..end - front.len()] == key.as_bytes(),
                    _ => {
                        let (first, second) = key.as_bytes().split_at(front.len() - start);
                        &front[start..] == first && back.starts_with(second)
                    }
                };
            if is_it {
                found.push(record.clone());
            }
            start = end;
        }
        found
    }

    /// The number of the next one.
    pub(super) fn pushed(&self) -> u64 {
        self.pushed
    }

    /// The number of the oldest one.
    pub(super) fn first(&self) -> u64 {
        self.pushed - self.records.len() as u64
    }

    /// Those from a number on, at most so many, with their numbers and keys.
    pub(super) fn since(&self, number: u64, most: usize) -> Vec<(u64, String, Record)> {
        let first = self.first();
        let skipped = usize::try_from(number.saturating_sub(first)).unwrap_or(usize::MAX).min(self.records.len());
        let mut start: usize = self.lengths.iter().take(skipped).map(|length| usize::from(*length)).sum();
        let mut found = Vec::new();
        for (index, record) in self.records.iter().enumerate().skip(skipped).take(most) {
            let end = start + usize::from(self.lengths[index]);
            let key: Vec<u8> = self.keys.range(start..end).copied().collect();
            found.push((first + index as u64, String::from_utf8_lossy(&key).into_owned(), record.clone()));
            start = end;
        }
        found
    }

    /// Since when everything is here.
    pub(super) fn oldest(&self) -> Option<i64> {
        self.records.front().map(|record| record.received)
    }

    /// Records, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        let records = self.records.len();
        (records, records * (size_of::<Record>() + size_of::<u16>()) + self.keys.len() + self.other_bytes)
    }
}
