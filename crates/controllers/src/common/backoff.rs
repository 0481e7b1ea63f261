//! Doubling waits per key, for what fails again and again.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

struct Entry {
    delay: Duration,
    since: Instant,
}

pub(crate) struct Backoff<Key> {
    first: Duration,
    longest: Duration,
    entries: Mutex<HashMap<Key, Entry>>,
}

impl<Key: Eq + Hash> Backoff<Key> {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, entries: Mutex::default() }
    }

    /// None when it may be done now, which doubles the wait until the next time; otherwise how long to wait.
    pub(crate) fn next(&self, key: Key) -> Option<Duration> {
        let (first, longest) = (self.first, self.longest);
        let mut entries = self.entries.lock();
        // What has been quiet for twice the longest wait starts afresh; this also keeps the map small.
        entries.retain(|_, entry| entry.since.elapsed() < longest * 2);
        match entries.get_mut(&key) {
            None => {
                entries.insert(key, Entry { delay: first, since: Instant::now() });
                None
            }
            Some(entry) => {
                let left = entry.delay.saturating_sub(entry.since.elapsed());
                if left.is_zero() {
                    entry.delay = (entry.delay * 2).min(longest);
                    entry.since = Instant::now();
                    return None;
                }
                Some(left)
            }
        }
    }
}
