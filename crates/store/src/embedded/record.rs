//! How records lie on disk. One table holds them all; the first byte of the key tells them apart.
//!
//! `h` revision index → one change; `l` id → one lease; `c` → the compacted revision; `f` → up to where a compaction has
//! forgotten all that it had to. Numbers in keys are big-endian,
//! so that the table's order is the order of revisions.

use std::sync::Arc;

use bytes::Bytes;

use crate::types::{Entry, EventKind, LeaseId, Revision};

/// Where a change stands in the history: its revision, and its place in the transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) revision: Revision,
    pub(crate) index: u32,
}

pub(crate) const COMPACTED: &[u8] = b"c";
pub(crate) const FINISHED: &[u8] = b"f";

pub(crate) fn history_key(place: Position) -> [u8; 13] {
    let mut key = [0; 13];
    key[0] = b'h';
    key[1..9].copy_from_slice(&place.revision.to_be_bytes());
    key[9..].copy_from_slice(&place.index.to_be_bytes());
    key
}

pub(crate) fn history_place(key: &[u8]) -> Option<Position> {
    let rest = key.strip_prefix(b"h")?;
    let (revision, index) = rest.split_first_chunk::<8>()?;
    Some(Position { revision: u64::from_be_bytes(*revision), index: u32::from_be_bytes(index.try_into().ok()?) })
}

pub(crate) fn lease_key(lease: LeaseId) -> [u8; 9] {
    let mut key = [0; 9];
    key[0] = b'l';
    key[1..].copy_from_slice(&lease.to_be_bytes());
    key
}

pub(crate) fn lease_id(key: &[u8]) -> Option<LeaseId> {
    Some(i64::from_be_bytes(key.strip_prefix(b"l")?.try_into().ok()?))
}

/// A lease as persisted: its time to live and when it ends by the wall clock, so that a restart does not renew it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseRecord {
    pub(crate) ttl_seconds: u64,
    pub(crate) ends_unix_millis: u64,
}

impl LeaseRecord {
    pub(crate) fn encode(self) -> [u8; 16] {
        let mut out = [0; 16];
        out[..8].copy_from_slice(&self.ttl_seconds.to_le_bytes());
        out[8..].copy_from_slice(&self.ends_unix_millis.to_le_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (ttl, ends) = bytes.split_first_chunk::<8>()?;
        Some(Self {
            ttl_seconds: u64::from_le_bytes(*ttl),
            ends_unix_millis: u64::from_le_bytes(ends.try_into().ok()?),
        })
    }
}

/// One change of one key, as persisted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) kind: EventKind,
    /// For a deletion as in `Event`: the key, the revision, no value.
    pub(crate) entry: Entry,
    /// Where the value that this change replaced stands.
    pub(crate) previous: Option<Position>,
}

const HEADER: usize = 1 + 8 + 8 + 4 + 8 + 4;

impl Record {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let key = self.entry.key.as_bytes();
        let mut out = Vec::with_capacity(HEADER + key.len() + self.entry.value.len());
        out.push(match self.kind {
            EventKind::Create => 1,
            EventKind::Update => 2,
            EventKind::Delete => 3,
        });
        let previous = self.previous.unwrap_or(Position { revision: 0, index: 0 });
        out.extend_from_slice(&self.entry.created.to_le_bytes());
        out.extend_from_slice(&previous.revision.to_le_bytes());
        out.extend_from_slice(&previous.index.to_le_bytes());
        out.extend_from_slice(&self.entry.lease.unwrap_or(0).to_le_bytes());
        out.extend_from_slice(&u32::try_from(key.len()).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(&self.entry.value);
        out
    }

    /// None when the bytes are no record: the caller knows which file to blame.
    pub(crate) fn decode(revision: Revision, bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let number = |at: usize| Some(u64::from_le_bytes(header.get(at..at + 8)?.try_into().ok()?));
        let short = |at: usize| Some(u32::from_le_bytes(header.get(at..at + 4)?.try_into().ok()?));
        let kind = match header[0] {
            1 => EventKind::Create,
            2 => EventKind::Update,
            3 => EventKind::Delete,
            _ => return None,
        };
        let previous = Position { revision: number(9)?, index: short(17)? };
        let lease = i64::from_le_bytes(header.get(21..29)?.try_into().ok()?);
        let key_length = short(29)? as usize;
        if key_length > rest.len() {
            return None;
        }
        let (key, value) = rest.split_at(key_length);
        Some(Self {
            kind,
            entry: Entry {
                key: Arc::from(std::str::from_utf8(key).ok()?),
                value: Bytes::copy_from_slice(value),
                created: number(1)?,
                modified: revision,
                lease: (lease != 0).then_some(lease),
            },
            previous: (previous.revision != 0).then_some(previous),
        })
    }

    /// Reads the key alone, for scans that skip most records.
    pub(crate) fn key(bytes: &[u8]) -> Option<&str> {
        let (header, rest) = bytes.split_first_chunk::<HEADER>()?;
        let length = u32::from_le_bytes(header.get(29..33)?.try_into().ok()?) as usize;
        std::str::from_utf8(rest.get(..length)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_encoding_and_damage_is_no_panic() {
        let record = Record {
            kind: EventKind::Update,
            entry: Entry {
                key: "/registry/pods/a/b".into(),
                value: Bytes::from_static(b"{}"),
                created: 3,
                modified: 9,
                lease: Some(77),
            },
            previous: Some(Position { revision: 8, index: 1 }),
        };
        let bytes = record.encode();
        assert_eq!(Record::decode(9, &bytes), Some(record));
        assert_eq!(Record::key(&bytes), Some("/registry/pods/a/b"));
        for cut in 0..bytes.len() {
            let _ = Record::decode(9, &bytes[..cut]);
            let _ = Record::key(&bytes[..cut]);
        }
        assert_eq!(Record::decode(1, &[9; 64]), None);
        let place = Position { revision: u64::MAX - 1, index: 7 };
        assert_eq!(history_place(&history_key(place)), Some(place));
        assert_eq!(lease_id(&lease_key(5)), Some(5));
        let lease = LeaseRecord { ttl_seconds: 5, ends_unix_millis: 6 };
        assert_eq!(LeaseRecord::decode(&lease.encode()), Some(lease));
    }
}
