//! A subscriber's mailbox: what it has not read yet, merged per object, so that it cannot outgrow the cache.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use kube::Resource;
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Change;
use crate::key::ObjectKey;

/// What a subscriber has yet to hear of one name: perhaps an end, then perhaps a state.
struct Pending<K> {
    place: u64,
    deleted: Option<Arc<K>>,
    current: Option<Change<K>>,
}

struct Unread<K> {
    /// Counts up: a name's place in the order of arrival.
    next_place: u64,
    order: BTreeMap<u64, ObjectKey>,
    pending: HashMap<ObjectKey, Pending<K>>,
}

pub(super) struct Mailbox<K> {
    unread: Mutex<Unread<K>>,
    arrived: Notify,
}

impl<K> Mailbox<K> {
    pub(super) fn new() -> Self {
        Self {
            unread: Mutex::new(Unread { next_place: 0, order: BTreeMap::new(), pending: HashMap::new() }),
            arrived: Notify::new(),
        }
    }
}

impl<K: Resource> Mailbox<K> {
    fn take(&self) -> Option<Change<K>> {
        let mut unread = self.unread.lock();
        let Unread { order, pending, .. } = &mut *unread;
        let (place, key) = order.first_key_value()?;
        let place = *place;
        let waiting = pending.get_mut(key)?;
        if let Some(deleted) = waiting.deleted.take() {
            if waiting.current.is_none() {
                pending.remove(key);
                order.remove(&place);
            }
            return Some(Change::Deleted(deleted));
        }
        let current = pending.remove(key)?.current;
        order.remove(&place);
        current
    }
}

impl<K> Mailbox<K> {
    pub(super) fn put(&self, change: &Change<K>)
    where
        K: Resource,
    {
        let key = ObjectKey::of(&**change.object());
        let mut unread = self.unread.lock();
        let Unread { next_place, order, pending } = &mut *unread;
        let waiting = pending.entry(key.clone()).or_insert_with(|| {
            *next_place += 1;
            order.insert(*next_place, key.clone());
            Pending { place: *next_place, deleted: None, current: None }
        });
        waiting.current = match (waiting.current.take(), change) {
            (_, Change::Added(new)) => Some(Change::Added(new.clone())),
            (Some(Change::Added(_)), Change::Modified { new, .. }) => Some(Change::Added(new.clone())),
            (Some(Change::Modified { old, .. }), Change::Modified { new, .. }) => {
                Some(Change::Modified { old, new: new.clone() })
            }
            (_, Change::Modified { .. }) => Some(change.clone()),
            // The reader never heard that it was there.
            (Some(Change::Added(_)), Change::Deleted(_)) => None,
            (_, Change::Deleted(last)) => {
                waiting.deleted = Some(last.clone());
                None
            }
        };
        if waiting.deleted.is_none() && waiting.current.is_none() {
            order.remove(&waiting.place);
            pending.remove(&key);
        }
        drop(unread);
        self.arrived.notify_one();
    }
}

/// A stream of changes. Dropping it ends the subscription.
pub struct Subscription<K> {
    mailbox: Arc<Mailbox<K>>,
}

impl<K: Resource> Subscription<K> {
    pub(super) fn new(mailbox: Arc<Mailbox<K>>) -> Self {
        Self { mailbox }
    }

    /// The next change; waits for ever when none comes. Safe to drop and call again.
    pub async fn next(&mut self) -> Change<K> {
        loop {
            if let Some(change) = self.mailbox.take() {
                return change;
            }
            self.mailbox.arrived.notified().await;
        }
    }

    /// The next change if one is there already.
    pub fn try_next(&mut self) -> Option<Change<K>> {
        self.mailbox.take()
    }
}
