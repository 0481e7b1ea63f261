//! Connections of one class, by who holds them: when there is no room, whoever holds most loses one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::connection::Connection;

pub(crate) struct Pool<Holder> {
    most: usize,
    count: usize,
    /// Oldest first.
    held_by: HashMap<Holder, BTreeMap<u64, Arc<Connection>>>,
    by_share: BTreeSet<(usize, Holder)>,
}

impl<Holder: Clone + Hash + Ord> Pool<Holder> {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, count: 0, held_by: HashMap::new(), by_share: BTreeSet::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_overfull(&self) -> bool {
        self.count > self.most
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Connection>> {
        self.held_by.values().flat_map(BTreeMap::values)
    }

    pub(crate) fn add(&mut self, holder: Holder, connection: Arc<Connection>) {
        let share = self.held_by.entry(holder.clone()).or_default();
        let before = share.len();
        share.insert(connection.number, connection);
        let after = share.len();
        self.count += after - before;
        self.counted(holder, before, after);
    }

    pub(crate) fn remove(&mut self, holder: &Holder, number: u64) {
        let Some(share) = self.held_by.get_mut(holder) else { return };
        let before = share.len();
        share.remove(&number);
        let after = share.len();
        self.count -= before - after;
        if after == 0 {
            self.held_by.remove(holder);
        }
        self.counted(holder.clone(), before, after);
    }

    fn counted(&mut self, holder: Holder, before: usize, after: usize) {
        self.by_share.remove(&(before, holder.clone()));
        if after > 0 {
            self.by_share.insert((after, holder));
        }
    }

    /// The one to give way to another: the oldest idle one of whoever holds most, or else their oldest.
    pub(crate) fn victim(&self, newcomer: Option<u64>) -> Option<Arc<Connection>> {
        self.by_share.iter().rev().find_map(|(_, holder)| {
            let share = self.held_by.get(holder)?;
            let mut others = share.values().filter(|connection| Some(connection.number) != newcomer);
            let oldest = others.next()?;
            let idle = std::iter::once(oldest).chain(others).find(|connection| connection.is_idle());
            Some(idle.unwrap_or(oldest).clone())
        })
    }
}
