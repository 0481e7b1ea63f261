//! What a controller has done but its cache may not show yet. Without it a reconciliation on a stale cache would
//! create or delete twice.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::key::ObjectKey;

/// After this long the cache is believed again, whatever was expected.
const EXPIRY: Duration = Duration::from_secs(300);

struct Expected {
    creations: i64,
    deletions: HashSet<String>,
    since: Instant,
}

impl Default for Expected {
    fn default() -> Self {
        Self { creations: 0, deletions: HashSet::new(), since: Instant::now() }
    }
}

/// By the key of the owner: how many creations and which deletions (by uid) its cache has yet to show.
#[derive(Default)]
pub struct Expectations {
    by_key: Mutex<HashMap<ObjectKey, Expected>>,
}

impl Expectations {
    pub fn new() -> Self {
        Self::default()
    }

    /// How long to wait at most before the cache can be believed; `None` when it can be now.
    pub fn pending(&self, key: &ObjectKey) -> Option<Duration> {
        let mut by_key = self.by_key.lock();
        let expected = by_key.get(key)?;
        let left = EXPIRY.saturating_sub(expected.since.elapsed());
        if (expected.creations <= 0 && expected.deletions.is_empty()) || left.is_zero() {
            by_key.remove(key);
            return None;
        }
        Some(left)
    }

    /// Call before creating, and `creation_failed` for each one that was not created.
    pub fn expect_creations(&self, key: &ObjectKey, count: usize) {
        let mut by_key = self.by_key.lock();
        let expected = by_key.entry(key.clone()).or_default();
        expected.since = Instant::now();
        expected.creations += i64::try_from(count).unwrap_or(i64::MAX);
    }

    /// Call before deleting, and `deleted` for each one that was not deleted.
    pub fn expect_deletions(&self, key: &ObjectKey, uids: impl IntoIterator<Item = String>) {
        let mut by_key = self.by_key.lock();
        let expected = by_key.entry(key.clone()).or_default();
        expected.since = Instant::now();
        expected.deletions.extend(uids);
    }

    /// The cache showed a new object.
    pub fn created(&self, key: &ObjectKey) {
        if let Some(expected) = self.by_key.lock().get_mut(key) {
            expected.creations -= 1;
        }
    }

    pub fn creation_failed(&self, key: &ObjectKey) {
        self.created(key);
    }

    /// The cache showed that the object is gone or going.
    pub fn deleted(&self, key: &ObjectKey, uid: &str) {
        if let Some(expected) = self.by_key.lock().get_mut(key) {
            expected.deletions.remove(uid);
        }
    }

    /// The owner is gone.
    pub fn forget(&self, key: &ObjectKey) {
        self.by_key.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_hold_until_seen_or_expired() {
        let (expectations, key) = (Expectations::new(), ObjectKey::new("a", "b"));
        assert_eq!(expectations.pending(&key), None);
        expectations.expect_creations(&key, 2);
        expectations.created(&key);
        assert!(expectations.pending(&key).is_some());
        expectations.creation_failed(&key);
        assert_eq!(expectations.pending(&key), None);

        expectations.expect_deletions(&key, ["u".to_owned()]);
        expectations.deleted(&key, "another");
        assert!(expectations.pending(&key).is_some());
        expectations.deleted(&key, "u");
        assert_eq!(expectations.pending(&key), None);

        expectations.expect_creations(&key, 1);
        let long_ago = Instant::now().checked_sub(EXPIRY).expect("a clock older than five minutes");
        expectations.by_key.lock().get_mut(&key).expect("what is expected").since = long_ago;
        assert_eq!(expectations.pending(&key), None);
    }
}
