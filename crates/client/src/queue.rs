//! A queue of keys: each key once, never in two hands at the same time, with delays and per-key back-off.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

const FIRST_BACKOFF: Duration = Duration::from_millis(5);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1000);

/// What a key must be.
pub trait QueueKey: Clone + Eq + Ord + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Ord + Hash + Debug + Send + Sync + 'static> QueueKey for T {}

/// Told of what happens in a queue; upstream's `workqueue_*` metrics are built from it. Called under the queue's lock.
pub trait QueueMetrics: Send + Sync {
    fn depth(&self, _depth: usize) {}
    fn added(&self) {}
    fn retried(&self) {}
    /// A worker took a key that had waited so long.
    fn taken(&self, _waited: Duration, _at: Instant) {}
    /// A worker gave back a key it took at that time.
    fn finished(&self, _since: Instant) {}
}

struct NoMetrics;

impl QueueMetrics for NoMetrics {}

struct Keys<Key> {
    ready: VecDeque<Key>,
    /// Keys that need work, with the time they were added: those in `ready`, and those that came back while held.
    dirty: HashMap<Key, Instant>,
    held: HashSet<Key>,
    delayed: BTreeSet<(Instant, Key)>,
    delayed_until: HashMap<Key, Instant>,
    failures: HashMap<Key, u32>,
    /// Keys that nobody gets before that time.
    resting: HashMap<Key, Instant>,
}

impl<Key: QueueKey> Keys<Key> {
    fn rests_until(&self, key: &Key) -> Option<Instant> {
        self.resting.get(key).copied().filter(|until| *until > Instant::now())
    }
}

/// Clones are handles to the same queue.
pub struct WorkQueue<Key> {
    inner: Arc<Inner<Key>>,
}

struct Inner<Key> {
    state: Mutex<Keys<Key>>,
    arrived: Notify,
    metrics: Box<dyn QueueMetrics>,
}

impl<Key> Clone for WorkQueue<Key> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone() }
    }
}

impl<Key: QueueKey> Default for WorkQueue<Key> {
    fn default() -> Self {
        Self::new()
    }
}

impl<Key: QueueKey> WorkQueue<Key> {
    pub fn new() -> Self {
        Self::with_metrics(NoMetrics)
    }

    pub fn with_metrics(metrics: impl QueueMetrics + 'static) -> Self {
        let state = Keys {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            held: HashSet::new(),
            delayed: BTreeSet::new(),
            delayed_until: HashMap::new(),
            failures: HashMap::new(),
            resting: HashMap::new(),
        };
        Self { inner: Arc::new(Inner { state: Mutex::new(state), arrived: Notify::new(), metrics: Box::new(metrics) }) }
    }

    /// Asks for work on the key: once, however often it is added before a worker takes it.
    pub fn add(&self, key: Key) {
        let mut state = self.inner.state.lock();
        self.inner.add(&mut state, key);
    }

    /// Adds the key later. Of several delays the shortest counts.
    pub fn add_after(&self, key: Key, delay: Duration) {
        if delay.is_zero() {
            return self.add(key);
        }
        let mut state = self.inner.state.lock();
        let now = Instant::now();
        // A year stands for "never": the clock cannot add every duration.
        let at = now + delay.min(Duration::from_secs(365 * 24 * 3600));
        self.inner.delay(&mut state, key, at);
    }

    /// Nobody gets the key before so long from now, whoever adds it: work on it is dear, and more that is to be seen by it
    /// may be on its way.
    pub fn rest(&self, key: &Key, time: Duration) {
        let now = Instant::now();
        let mut state = self.inner.state.lock();
        state.resting.retain(|_, until| *until > now);
        state.resting.insert(key.clone(), now + time);
    }

    /// Adds the key after its back-off, which doubles with each failure until `forget`.
    pub fn add_rate_limited(&self, key: Key) {
        let delay = {
            let mut state = self.inner.state.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures = failures.saturating_add(1);
            backoff(*failures)
        };
        self.inner.metrics.retried();
        self.add_after(key, delay);
    }

    /// The key succeeded: its next failure starts with the shortest back-off.
    pub fn forget(&self, key: &Key) {
        self.inner.state.lock().failures.remove(key);
    }

    /// How often the key failed since it was last forgotten.
    pub fn failures(&self, key: &Key) -> u32 {
        self.inner.state.lock().failures.get(key).copied().unwrap_or_default()
    }

    /// Keys that wait for a worker now.
    pub fn len(&self) -> usize {
        self.inner.state.lock().ready.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next key, held until the guard is dropped.
    pub async fn next(&self) -> Held<Key> {
        loop {
            let arrived = self.inner.arrived.notified();
            tokio::pin!(arrived);
            arrived.as_mut().enable();
            let wake = {
                let mut state = self.inner.state.lock();
                self.inner.move_due(&mut state);
                if let Some((key, since)) = self.inner.take(&mut state) {
                    return Held { key, since, inner: self.inner.clone() };
                }
                state.delayed.first().map(|(at, _)| *at)
            };
            match wake {
                Some(at) => tokio::select! {
                    () = &mut arrived => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => arrived.await,
            }
        }
    }
}

/// 5 ms after the first failure, then doubled each time up to 1000 s.
fn backoff(failures: u32) -> Duration {
    ferry_semantics::backoff::delay(FIRST_BACKOFF, LONGEST_BACKOFF, failures)
}

impl<Key: QueueKey> Inner<Key> {
    fn add(&self, state: &mut Keys<Key>, key: Key) {
        if state.dirty.contains_key(&key) {
            return;
        }
        if let Some(until) = state.rests_until(&key) {
            return self.delay(state, key, until);
        }
        state.dirty.insert(key.clone(), Instant::now());
        self.metrics.added();
        if !state.held.contains(&key) {
            self.push(state, key);
        }
    }

    fn delay(&self, state: &mut Keys<Key>, key: Key, at: Instant) {
        match state.delayed_until.get(&key).copied() {
            Some(earlier) if earlier <= at => return,
            Some(later) => {
                state.delayed.remove(&(later, key.clone()));
            }
            None => {}
        }
        state.delayed_until.insert(key.clone(), at);
        state.delayed.insert((at, key));
        // A worker that sleeps until a later time must look again.
        self.arrived.notify_one();
    }

    fn push(&self, state: &mut Keys<Key>, key: Key) {
        state.ready.push_back(key);
        self.metrics.depth(state.ready.len());
        self.arrived.notify_one();
    }

    fn move_due(&self, state: &mut Keys<Key>) {
        let now = Instant::now();
        while state.delayed.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = state.delayed.pop_first() else { return };
            state.delayed_until.remove(&key);
            self.add(state, key);
        }
    }

    fn take(&self, state: &mut Keys<Key>) -> Option<(Key, Instant)> {
        let (key, now) = (state.ready.pop_front()?, Instant::now());
        let waited = state.dirty.remove(&key).map(|added| now.saturating_duration_since(added));
        self.metrics.taken(waited.unwrap_or_default(), now);
        state.held.insert(key.clone());
        self.metrics.depth(state.ready.len());
        Some((key, now))
    }

    fn done(&self, key: &Key, since: Instant) {
        let mut state = self.state.lock();
        self.metrics.finished(since);
        state.held.remove(key);
        if !state.dirty.contains_key(key) {
            return;
        }
        match state.rests_until(key) {
            None => self.push(&mut state, key.clone()),
            Some(until) => {
                state.dirty.remove(key);
                self.delay(&mut state, key.clone(), until);
            }
        }
    }
}

/// A key that this worker alone holds.
pub struct Held<Key: QueueKey> {
    key: Key,
    since: Instant,
    inner: Arc<Inner<Key>>,
}

impl<Key: QueueKey> Deref for Held<Key> {
    type Target = Key;

    fn deref(&self) -> &Key {
        &self.key
    }
}

impl<Key: QueueKey> Drop for Held<Key> {
    fn drop(&mut self) {
        self.inner.done(&self.key, self.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_is_worked_on_once_and_by_one() {
        let queue = WorkQueue::new();
        queue.add("a");
        queue.add("a");
        let held = queue.next().await;
        assert_eq!((*held, queue.len()), ("a", 0));
        queue.add("a");
        assert_eq!(queue.len(), 0, "not while it is held");
        drop(held);
        assert_eq!((*queue.next().await, queue.len()), ("a", 0));
    }

    #[tokio::test]
    async fn delays_are_kept_and_the_shortest_counts() {
        let queue = WorkQueue::new();
        queue.add_after("slow", Duration::from_millis(60));
        queue.add_after("fast", Duration::from_secs(9));
        queue.add_after("fast", Duration::from_millis(1));
        queue.add_after("fast", Duration::from_secs(7));
        assert!(queue.is_empty());
        assert_eq!(*queue.next().await, "fast");
        assert_eq!(*queue.next().await, "slow");
        assert!(queue.inner.state.lock().delayed.is_empty());
    }

    #[tokio::test]
    async fn a_waiting_worker_is_woken_by_an_earlier_key() {
        let queue = WorkQueue::new();
        queue.add_after("late", Duration::from_secs(5000));
        let (held, ()) = tokio::join!(queue.next(), async {
            tokio::task::yield_now().await;
            queue.add_after("early", Duration::from_millis(1));
        });
        assert_eq!(*held, "early");
    }

    #[tokio::test]
    async fn a_resting_key_comes_later_and_once() {
        let queue = WorkQueue::new();
        queue.add("dear");
        let held = queue.next().await;
        queue.add("dear");
        queue.rest(&held, Duration::from_millis(30));
        let until = queue.inner.state.lock().resting["dear"];
        drop(held);
        queue.add("dear");
        queue.add_after("dear", Duration::from_millis(1));
        queue.add("other");
        let taken = BTreeSet::from([*queue.next().await, *queue.next().await]);
        assert_eq!(taken, BTreeSet::from(["dear", "other"]));
        assert!(Instant::now() >= until);
        assert!(queue.is_empty() && queue.inner.state.lock().delayed.is_empty());
        // What has rested leaves nothing behind.
        queue.rest(&"other", Duration::from_secs(1));
        assert_eq!(queue.inner.state.lock().resting.len(), 1);
    }

    #[test]
    fn backoff_doubles_to_its_bound() {
        let millis: Vec<u128> = [1, 2, 3, 11, 18, 19, 99, u32::MAX].map(|n| backoff(n).as_millis()).to_vec();
        assert_eq!(millis, [5, 10, 20, 5120, 655_360, 1_000_000, 1_000_000, 1_000_000]);
    }

    #[tokio::test]
    async fn forgetting_resets_the_backoff() {
        let queue = WorkQueue::new();
        for _ in 0..4 {
            queue.add_rate_limited(1);
            drop(queue.next().await);
        }
        assert_eq!(queue.failures(&1), 4);
        queue.forget(&1);
        assert_eq!(queue.failures(&1), 0);
    }
}
