//! All that one engine keeps, in the form in which the other takes it: every change that is not compacted, at its own
//! revision, and the leases.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::types::{Entry, EventKind, LeaseId, Range, Revision};
use crate::{Result, Store, StoreError, key};

/// One change of one key.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: EventKind,
    /// Its place among the changes of its revision.
    pub index: u32,
    /// For a deletion as in `Event`: the key, the revision, no value.
    pub entry: Entry,
}

/// What an engine keeps besides its changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    pub revision: Revision,
    pub compacted: Revision,
    /// The seconds that are left of each.
    pub leases: BTreeMap<LeaseId, u64>,
}

/// A state that nobody changes while it is read.
pub trait Past {
    fn outline(&self) -> Result<Outline>;

    /// Every change in the order of revisions; superseded ones below the compacted revision may be among them.
    fn visit(&self, visit: &mut dyn FnMut(Change) -> Result<()>) -> Result<()>;
}

/// How much was visited, and a checksum of all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest {
    pub changes: u64,
    pub objects: usize,
    pub sum: u128,
}

fn hash(key: &str) -> u128 {
    xxh3_128(key.as_bytes())
}

/// Every change that a reader can still ask for: all above the compacted revision, and below it the last of each key that is
/// there.
pub fn kept(past: &dyn Past, visit: &mut dyn FnMut(Change) -> Result<()>) -> Result<()> {
    let compacted = past.outline()?.compacted;
    let mut last: HashMap<u128, (Revision, u32)> = HashMap::new();
    past.visit(&mut |change| {
        if change.entry.modified <= compacted {
            match change.kind {
                EventKind::Delete => last.remove(&hash(&change.entry.key)),
                _ => last.insert(hash(&change.entry.key), (change.entry.modified, change.index)),
            };
        }
        Ok(())
    })?;
    past.visit(&mut |change| {
        let place = (change.entry.modified, change.index);
        let wanted = place.0 > compacted || last.get(&hash(&change.entry.key)) == Some(&place);
        if wanted { visit(change) } else { Ok(()) }
    })
}

/// Two engines with the same digest answer every question alike, also about the past.
pub fn digest(past: &dyn Past) -> Result<Digest> {
    let mut hasher = Xxh3::new();
    let (mut changes, mut alive) = (0, std::collections::HashSet::new());
    hasher.update(&past.outline()?.compacted.to_le_bytes());
    kept(past, &mut |change| {
        let entry = &change.entry;
        match change.kind {
            EventKind::Delete => alive.remove(&hash(&entry.key)),
            _ => alive.insert(hash(&entry.key)),
        };
        let deleted = u64::from(change.kind == EventKind::Delete);
        let lease = entry.lease.unwrap_or_default().cast_unsigned();
        for number in [entry.modified, change.index.into(), deleted, entry.created, lease, entry.key.len() as u64] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(entry.key.as_bytes());
        hasher.update(&xxh3_128(&entry.value).to_le_bytes());
        changes += 1;
        Ok(())
    })?;
    Ok(Digest { changes, objects: alive.len(), sum: hasher.digest128() })
}

#[derive(PartialEq, Eq)]
struct Mark {
    created: Revision,
    modified: Revision,
    lease: Option<LeaseId>,
    value: u128,
}

impl Mark {
    fn of(entry: &Entry) -> Self {
        Self { created: entry.created, modified: entry.modified, lease: entry.lease, value: xxh3_128(&entry.value) }
    }
}

/// Keys per question.
const PAGE: usize = 500;

/// Asks a store that serves for every key, and fails with the first that is not as it was. Returns how many there are.
pub async fn compare(past: &(dyn Past + Sync), store: &dyn Store) -> Result<usize> {
    let mut marks: BTreeMap<Arc<str>, Mark> = BTreeMap::new();
    kept(past, &mut |change| {
        match change.kind {
            EventKind::Delete => marks.remove(&change.entry.key),
            _ => marks.insert(change.entry.key.clone(), Mark::of(&change.entry)),
        };
        Ok(())
    })?;
    let differs =
        |key: &str, how: &str| StoreError::Corrupt(format!("the copy is not what it was made of: {key} {how}"));
    let count = marks.len();
    let mut range = Range { prefix: key::ROOT.to_owned(), limit: PAGE, ..Range::default() };
    loop {
        let found = store.range(range.clone()).await?;
        for entry in &found.entries {
            match marks.remove(&entry.key) {
                Some(mark) if mark == Mark::of(entry) => {}
                Some(_) => return Err(differs(&entry.key, "has changed")),
                None => return Err(differs(&entry.key, "is not in the source")),
            }
        }
        range.revision = Some(found.revision);
        range.after = found.entries.last().map(|entry| entry.key.to_string());
        if !found.more {
            break;
        }
    }
    // One whose lease ended meanwhile is gone by right.
    match marks.iter().find(|(_, mark)| mark.lease.is_none()) {
        Some((key, _)) => Err(differs(key, "is missing")),
        None => Ok(count),
    }
}
