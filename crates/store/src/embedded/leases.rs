//! Leases in memory: when each ends and which keys go with it. Owned by the committer alone.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::record::LeaseRecord;
use super::state::Change;
use crate::types::LeaseId;
use crate::{Result, StoreError};

/// etcd's limit.
const MAX_TTL_SECONDS: u64 = 9_000_000_000;

struct Lease {
    ends: Instant,
    keys: BTreeSet<Arc<str>>,
}

#[derive(Default)]
pub(crate) struct Leases {
    leases: HashMap<LeaseId, Lease>,
    ends: BTreeSet<(Instant, LeaseId)>,
    newest: LeaseId,
}

pub(crate) fn check_ttl(ttl_seconds: u64) -> Result<()> {
    if ttl_seconds == 0 || ttl_seconds > MAX_TTL_SECONDS {
        let why = format!("the time to live must be between 1 and {MAX_TTL_SECONDS} seconds, not {ttl_seconds}");
        return Err(StoreError::InvalidLease(why));
    }
    Ok(())
}

/// etcd takes 0 for none at all: an object would live for ever where its writer meant it to go.
pub(crate) fn check_lease(lease: Option<LeaseId>) -> Result<()> {
    match lease {
        Some(lease) if lease <= 0 => Err(StoreError::InvalidLease(format!("{lease} is no lease"))),
        _ => Ok(()),
    }
}

pub(super) fn unix_millis() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

impl Leases {
    /// A new id and record; `insert` it once it is durable. Ids follow the clock, so that none is used again.
    pub(crate) fn prepare(&mut self, ttl_seconds: u64) -> (LeaseId, LeaseRecord) {
        let now = unix_millis();
        let by_clock = i64::try_from(now).unwrap_or(i64::MAX).saturating_mul(1000);
        self.newest = by_clock.max(self.newest.saturating_add(1));
        let ends_unix_millis = now.saturating_add(ttl_seconds.saturating_mul(1000));
        (self.newest, LeaseRecord { ttl_seconds, ends_unix_millis })
    }

    /// What is left of its time by the wall clock, and never more than its time to live: clocks are set back.
    pub(crate) fn insert(&mut self, lease: LeaseId, record: LeaseRecord) {
        if self.leases.contains_key(&lease) {
            return;
        }
        let left = Duration::from_millis(record.ends_unix_millis.saturating_sub(unix_millis()));
        let left = left.min(Duration::from_secs(record.ttl_seconds.min(MAX_TTL_SECONDS)));
        let now = Instant::now();
        let ends = now.checked_add(left).unwrap_or(now);
        self.newest = self.newest.max(lease);
        self.ends.insert((ends, lease));
        self.leases.insert(lease, Lease { ends, keys: BTreeSet::new() });
    }

    pub(crate) fn contains(&self, lease: LeaseId) -> bool {
        self.leases.contains_key(&lease)
    }

    pub(crate) fn attach(&mut self, lease: LeaseId, key: &Arc<str>) {
        if let Some(lease) = self.leases.get_mut(&lease) {
            lease.keys.insert(key.clone());
        }
    }

    pub(crate) fn apply(&mut self, changes: &[Change]) {
        for change in changes {
            let entry = &change.record.entry;
            if let Some(lease) = change.previous.as_ref().and_then(|previous| previous.entry.lease)
                && let Some(lease) = self.leases.get_mut(&lease)
            {
                lease.keys.remove(&entry.key);
            }
            if let Some(lease) = entry.lease {
                self.attach(lease, &entry.key);
            }
        }
    }

    pub(crate) fn keys(&self, lease: LeaseId) -> Vec<Arc<str>> {
        self.leases.get(&lease).map(|lease| lease.keys.iter().cloned().collect()).unwrap_or_default()
    }

    pub(crate) fn remove(&mut self, lease: LeaseId) {
        if let Some(removed) = self.leases.remove(&lease) {
            self.ends.remove(&(removed.ends, lease));
        }
    }

    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.ends.first().map(|(ends, _)| *ends)
    }

    pub(crate) fn ended(&self, now: Instant) -> Vec<LeaseId> {
        self.ends.iter().take_while(|(ends, _)| *ends <= now).map(|(_, lease)| *lease).collect()
    }
}
