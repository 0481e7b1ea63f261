//! Answers of others, remembered for a while.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// How many answers are kept, in each of two generations.
const KEPT: usize = 4096;

type Generation<T> = HashMap<[u8; 32], (T, Instant)>;

/// A bounded map whose entries run out. Keys are digests, so that no token is kept.
pub(crate) struct Expiring<T> {
    generations: Mutex<[Generation<T>; 2]>,
}

impl<T: Clone> Expiring<T> {
    pub(crate) fn new() -> Self {
        Self { generations: Mutex::new([HashMap::new(), HashMap::new()]) }
    }

    pub(crate) fn get(&self, key: &[u8; 32]) -> Option<T> {
        let generations = self.generations.lock();
        let (value, until) = generations.iter().find_map(|map| map.get(key))?;
        (*until > Instant::now()).then(|| value.clone())
    }

    pub(crate) fn put(&self, key: [u8; 32], value: T, life: Duration) {
        if life.is_zero() {
            return;
        }
        let mut generations = self.generations.lock();
        if generations[0].len() >= KEPT {
            generations[1] = std::mem::take(&mut generations[0]);
        }
        generations[0].insert(key, (value, Instant::now() + life));
    }
}
