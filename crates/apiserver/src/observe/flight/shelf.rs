//! Texts of the past by what they are about, within fixed memory.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// What an entry takes beside its texts, with room to spare: its places in the store, and a namespace of its own.
const FIXED: usize = 256;

/// How much of it there is. One namespace has at most a quarter of it: who floods their own pushes out nobody else's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub entries: usize,
    pub bytes: usize,
}

const SHARE: usize = 4;

struct Entry {
    /// Numbers only grow.
    number: u64,
    about: Box<str>,
    told: Box<str>,
}

impl Entry {
    fn size(&self) -> usize {
        FIXED + self.about.len() + self.told.len()
    }
}

/// What is kept of one namespace, oldest first.
#[derive(Default)]
struct Space {
    entries: VecDeque<Entry>,
    bytes: usize,
}

pub(super) struct Shelf {
    spaces: HashMap<Arc<str>, Space>,
    /// Whose each number is: the oldest of all come first.
    order: BTreeMap<u64, Arc<str>>,
    bytes: usize,
    next: u64,
    limits: Limits,
}

impl Shelf {
    pub(super) fn new(limits: Limits) -> Self {
        Self { spaces: HashMap::new(), order: BTreeMap::new(), bytes: 0, next: 0, limits }
    }

    pub(super) fn put(&mut self, namespace: &str, about: Box<str>, told: String) {
        let new = Entry { number: self.next, about, told: told.into() };
        let size = new.size();
        let own = Limits { entries: self.limits.entries / SHARE, bytes: self.limits.bytes / SHARE };
        if size > own.bytes {
            return;
        }
        let is_full = |have: usize, bytes: usize, limit: Limits| have >= limit.entries || bytes + size > limit.bytes;
        while self.spaces.get(namespace).is_some_and(|space| is_full(space.entries.len(), space.bytes, own)) {
            self.drop_first(namespace);
        }
        while is_full(self.order.len(), self.bytes, self.limits) {
            let Some((_, oldest)) = self.order.first_key_value() else { break };
            self.drop_first(&oldest.clone());
        }
        let known = self.spaces.get_key_value(namespace).map(|(namespace, _)| namespace.clone());
        let namespace = known.unwrap_or_else(|| namespace.into());
        self.order.insert(new.number, namespace.clone());
        self.next += 1;
        self.bytes += size;
        let space = self.spaces.entry(namespace).or_default();
        space.bytes += size;
        space.entries.push_back(new);
    }

    /// Entries, bytes in all.
    pub(super) fn size(&self) -> (usize, usize) {
        (self.order.len(), self.bytes)
    }

    /// Lets go of the oldest of a namespace.
    fn drop_first(&mut self, namespace: &str) {
        let Some(space) = self.spaces.get_mut(namespace) else { return };
        if let Some(first) = space.entries.pop_front() {
            self.order.remove(&first.number);
            space.bytes -= first.size();
            self.bytes -= first.size();
        }
        if space.entries.is_empty() {
            self.spaces.remove(namespace);
        } else if space.entries.capacity() > 4 * space.entries.len() {
            // What a flood needed is not kept for ever.
            space.entries.shrink_to(2 * space.entries.len());
        }
    }

    pub(super) fn of(&self, namespace: &str, about: &str) -> Vec<&str> {
        let entries = self.spaces.get(namespace).into_iter().flat_map(|space| &space.entries);
        entries.filter(|entry| *entry.about == *about).map(|entry| &*entry.told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(kind: &str, namespace: &str, name: &str) -> Box<str> {
        [kind, namespace, name].join("/").into()
    }

    fn put(shelf: &mut Shelf, namespace: &str, name: &str, length: usize) {
        shelf.put(namespace, about("Pod", namespace, name), "x".repeat(length));
    }

    fn has(shelf: &Shelf, namespace: &str, name: &str) -> bool {
        !shelf.of(namespace, &about("Pod", namespace, name)).is_empty()
    }

    /// What is counted is what is there.
    fn check(shelf: &Shelf) {
        let sum = |space: &Space| space.entries.iter().map(Entry::size).sum::<usize>();
        assert!(shelf.spaces.values().all(|space| space.bytes == sum(space) && !space.entries.is_empty()));
        assert_eq!(shelf.bytes, shelf.spaces.values().map(sum).sum::<usize>());
        assert_eq!(shelf.order.len(), shelf.spaces.values().map(|space| space.entries.len()).sum::<usize>());
        assert!(shelf.order.len() <= shelf.limits.entries && shelf.bytes <= shelf.limits.bytes);
        let held: usize = shelf.spaces.values().map(|space| space.entries.capacity()).sum();
        assert!(held <= 4 * shelf.order.len() + 4 * shelf.spaces.len(), "room for {held}");
    }

    #[test]
    fn a_flood_in_one_namespace_pushes_out_its_own_entries_alone() {
        let mut shelf = Shelf::new(Limits { entries: 400, bytes: 1 << 20 });
        put(&mut shelf, "quiet", "p", 100);
        for number in 0..10_000 {
            put(&mut shelf, "loud", &number.to_string(), 100);
        }
        check(&shelf);
        assert!(has(&shelf, "quiet", "p"));
        assert_eq!(shelf.spaces["loud"].entries.len(), 100, "a quarter");
        assert!(has(&shelf, "loud", "9999") && has(&shelf, "loud", "9900") && !has(&shelf, "loud", "9899"));
        // Neither do few large ones.
        for number in 0..10_000 {
            put(&mut shelf, "large", &number.to_string(), 100 << 10);
        }
        check(&shelf);
        assert!(has(&shelf, "quiet", "p") && shelf.spaces["large"].bytes <= 256 << 10);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_go_first() {
        for limits in [Limits { entries: 400, bytes: 1 << 20 }, Limits { entries: 1 << 20, bytes: 64 << 10 }] {
            let mut shelf = Shelf::new(limits);
            for number in 0..5_000_usize {
                put(&mut shelf, &format!("n{}", number % 50), &number.to_string(), number * 7 % 500);
                check(&shelf);
            }
            let oldest = 5_000 - shelf.order.len();
            assert!(oldest < 4_950, "{oldest}");
            for number in 0..5_000 {
                let is_there = has(&shelf, &format!("n{}", number % 50), &number.to_string());
                assert_eq!(is_there, number >= oldest, "{number} of {oldest}");
            }
        }
        let mut shelf = Shelf::new(Limits { entries: 8192, bytes: 4 << 20 });
        put(&mut shelf, "n", "too-large", 2 << 20);
        assert!(!has(&shelf, "n", "too-large"));
        check(&shelf);
    }
}
