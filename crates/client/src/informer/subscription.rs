//! A subscriber's mailbox: what it has not read yet, merged per object, so that it cannot outgrow the cache.

use std::collections::{BTreeMap, HashMap};
use std::marker::PhantomData;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::cache::{Held, Object, key_of};
use super::{Cached, Change};
use crate::key::ObjectKey;

/// What a subscriber has yet to hear of one name: perhaps an end, then perhaps a state.
struct Pending {
    place: u64,
    deleted: Option<Held>,
    current: Option<Change<dyn Object>>,
}

struct Unread {
    /// Counts up: a name's place in the order of arrival.
    next_place: u64,
    order: BTreeMap<u64, ObjectKey>,
    pending: HashMap<ObjectKey, Pending>,
}

pub(super) struct Mailbox {
    unread: Mutex<Unread>,
    arrived: Notify,
}

impl Mailbox {
    pub(super) fn new() -> Self {
        Self {
            unread: Mutex::new(Unread { next_place: 0, order: BTreeMap::new(), pending: HashMap::new() }),
            arrived: Notify::new(),
        }
    }

    fn take(&self) -> Option<Change<dyn Object>> {
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

    pub(super) fn put(&self, change: &Change<dyn Object>) {
        let key = key_of(&**change.object());
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
    mailbox: Arc<Mailbox>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Cached> Subscription<K> {
    pub(super) fn new(mailbox: Arc<Mailbox>) -> Self {
        Self { mailbox, kind: PhantomData }
    }

    /// The next change; waits for ever when none comes. Safe to drop and call again.
    pub async fn next(&mut self) -> Change<K> {
        loop {
            if let Some(change) = self.try_next() {
                return change;
            }
            self.mailbox.arrived.notified().await;
        }
    }

    /// The next change if one is there already.
    pub fn try_next(&mut self) -> Option<Change<K>> {
        self.mailbox.take().and_then(Change::typed)
    }
}
