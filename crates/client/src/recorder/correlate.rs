//! Decides what becomes of an event: a new object, a higher count on a known one, or nothing.
//!
//! The numbers are upstream's: an object may cause 25 events at once and one per five minutes after that; more than
//! ten in ten minutes that differ in their message alone become one "combined" event.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::jiff::Timestamp;

use super::Happening;

const BURST: f64 = 25.0;
const REFILL_PER_SECOND: f64 = 1.0 / 300.0;
const SIMILAR: usize = 10;
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
const MEMORY: usize = 4096;

pub(super) enum Correlated {
    Dropped,
    New { key: Key, message: String },
    Seen { key: Key, name: String, message: String, count: i32, first: Timestamp },
}

/// What stands for an object, or for what makes two events the same one: a hash under keys that nobody outside knows, so
/// long that no two things share one. There are several of them to each event, of many texts each.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key(u64, u64);

#[derive(Default)]
struct Keys(RandomState, RandomState);

impl Keys {
    fn of(&self, what: impl Hash) -> Key {
        Key(self.0.hash_one(&what), self.1.hash_one(&what))
    }
}

struct Bucket {
    tokens: f64,
    at: Timestamp,
}

struct Similar {
    messages: HashSet<Key>,
    last: Timestamp,
}

struct Written {
    name: String,
    count: i32,
    first: Timestamp,
}

#[derive(Default)]
pub(super) struct Correlator {
    keys: Keys,
    buckets: Memory<Key, Bucket>,
    similar: Memory<Key, Similar>,
    written: Memory<Key, Written>,
}

impl Correlator {
    pub(super) fn judge(&mut self, happening: &Happening) -> Correlated {
        let subject = self.keys.of(subject(&happening.regarding));
        if !self.allow(subject, happening.at) {
            return Correlated::Dropped;
        }
        let (kind, reason) = (happening.kind, &happening.reason);
        // The message is absent from a combined event's key.
        let similar = self.keys.of((subject, kind, reason, None::<&str>));
        let (key, message) = if self.is_flood(similar, happening) {
            (similar, format!("(combined from similar events): {}", happening.message))
        } else {
            (self.keys.of((subject, kind, reason, Some(&*happening.message))), happening.message.clone())
        };
        match self.written.get(&key) {
            None => Correlated::New { key, message },
            Some(written) => {
                written.count = written.count.saturating_add(1);
                let (name, count, first) = (written.name.clone(), written.count, written.first);
                Correlated::Seen { key, name, message, count, first }
            }
        }
    }

    pub(super) fn written(&mut self, key: Key, name: String, at: Timestamp) {
        self.written.put(key, Written { name, count: 1, first: at });
    }

    pub(super) fn renamed(&mut self, key: &Key, name: String) {
        if let Some(written) = self.written.get(key) {
            written.name = name;
        }
    }

    /// It did not come to be: the next one like it is new again.
    pub(super) fn refused(&mut self, key: &Key) {
        self.written.entries.remove(key);
    }

    fn allow(&mut self, subject: Key, now: Timestamp) -> bool {
        let Some(bucket) = self.buckets.get(&subject) else {
            self.buckets.put(subject, Bucket { tokens: BURST - 1.0, at: now });
            return true;
        };
        let passed = now.duration_since(bucket.at).as_secs_f64().max(0.0);
        bucket.tokens = (bucket.tokens + passed * REFILL_PER_SECOND).min(BURST);
        bucket.at = now;
        let allowed = bucket.tokens >= 1.0;
        if allowed {
            bucket.tokens -= 1.0;
        }
        allowed
    }

    fn is_flood(&mut self, key: Key, happening: &Happening) -> bool {
        let (now, message) = (happening.at, self.keys.of(&happening.message));
        let Some(similar) = self.similar.get(&key) else {
            self.similar.put(key, Similar { messages: HashSet::from([message]), last: now });
            return false;
        };
        if now.duration_since(similar.last).unsigned_abs() > SIMILAR_WITHIN {
            similar.messages.clear();
        }
        similar.last = now;
        if similar.messages.len() < SIMILAR {
            similar.messages.insert(message);
        }
        similar.messages.len() >= SIMILAR
    }
}

/// What tells one object from another.
fn subject(regarding: &ObjectReference) -> [&str; 6] {
    let ObjectReference { api_version, kind, namespace, name, uid, field_path, .. } = regarding;
    [api_version, kind, namespace, name, uid, field_path].map(|part| part.as_deref().unwrap_or_default())
}

/// A map that forgets the half that was not used for longest when it is full.
struct Memory<K, V> {
    entries: HashMap<K, (u64, V)>,
    clock: u64,
}

impl<K, V> Default for Memory<K, V> {
    fn default() -> Self {
        Self { entries: HashMap::new(), clock: 0 }
    }
}

impl<K: Eq + Hash, V> Memory<K, V> {
    fn get(&mut self, key: &K) -> Option<&mut V> {
        self.clock += 1;
        let (used, value) = self.entries.get_mut(key)?;
        *used = self.clock;
        Some(value)
    }

    fn put(&mut self, key: K, value: V) {
        if self.entries.len() >= MEMORY {
            let mut times: Vec<u64> = self.entries.values().map(|(used, _)| *used).collect();
            times.sort_unstable();
            let middle = times[times.len() / 2];
            self.entries.retain(|_, (used, _)| *used >= middle);
        }
        self.clock += 1;
        self.entries.insert(key, (self.clock, value));
    }
}

#[cfg(test)]
mod tests {
    use super::super::EventType;
    use super::*;

    fn happening(message: &str, second: i64) -> Happening {
        Happening {
            regarding: ObjectReference { uid: Some("u".into()), ..ObjectReference::default() },
            kind: EventType::Normal,
            reason: "Because".into(),
            message: message.into(),
            at: Timestamp::from_second(second).expect("a time"),
        }
    }

    /// Plays messages, one per second, and shows what became of each: `new`, its count, or `-`.
    fn check(messages: &[&str], expected: &[&str]) {
        let mut correlator = Correlator::default();
        let mut seen = Vec::new();
        for (second, message) in (0..).zip(messages) {
            let happening = happening(message, second);
            seen.push(match correlator.judge(&happening) {
                Correlated::Dropped => "-".to_owned(),
                Correlated::New { key, message } => {
                    let combined = if message.starts_with("(combined") { "combined" } else { "new" };
                    correlator.written(key, "name".into(), happening.at);
                    combined.to_owned()
                }
                Correlated::Seen { count, .. } => count.to_string(),
            });
        }
        assert_eq!(seen, expected, "{messages:?}");
    }

    #[test]
    fn equal_events_are_counted_and_similar_ones_combined() {
        check(&["a", "b", "a", "a"], &["new", "new", "2", "3"]);
        let letters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        check(&letters, &["new", "new", "new", "new", "new", "new", "new", "new", "new", "combined", "2", "3"]);
    }

    #[test]
    fn a_flood_is_cut() {
        let mut correlator = Correlator::default();
        let dropped = (0..40).filter(|_| matches!(correlator.judge(&happening("a", 0)), Correlated::Dropped)).count();
        assert_eq!(dropped, 15);
        assert!(!matches!(correlator.judge(&happening("a", 301)), Correlated::Dropped));
    }
}
