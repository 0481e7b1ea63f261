//! A binary heap whose order comes with each call.

use std::cmp::Ordering;

use super::QueuedPod;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) queued: QueuedPod,
    /// Tells it from leftovers of the same pod.
    pub(super) ticket: u64,
}

/// A binary heap whose order comes with each call, since a plugin decides it.
#[derive(Debug, Default)]
pub(super) struct Heap {
    entries: Vec<Entry>,
}

impl Heap {
    pub(super) fn push(&mut self, entry: Entry, order: impl Fn(&Entry, &Entry) -> Ordering) {
        self.entries.push(entry);
        let mut at = self.entries.len() - 1;
        while at > 0 {
            let parent = (at - 1) / 2;
            if order(&self.entries[at], &self.entries[parent]) != Ordering::Less {
                break;
            }
            self.entries.swap(at, parent);
            at = parent;
        }
    }

    pub(super) fn pop(&mut self, order: impl Fn(&Entry, &Entry) -> Ordering) -> Option<Entry> {
        if self.entries.is_empty() {
            return None;
        }
        let first = self.entries.swap_remove(0);
        let mut at = 0;
        loop {
            let mut least = at;
            for child in [2 * at + 1, 2 * at + 2] {
                if child < self.entries.len() && order(&self.entries[child], &self.entries[least]) == Ordering::Less {
                    least = child;
                }
            }
            if least == at {
                return Some(first);
            }
            self.entries.swap(at, least);
            at = least;
        }
    }
}
