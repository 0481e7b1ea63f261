//! How far the caches have come, and those who wait for it to be further.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ferry_store::Revision;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// One number for all resources. Only those are woken whose revision has come: with many writers at once, each waits for
/// one of its own.
#[derive(Default)]
pub(super) struct RevisionWaiters {
    newest: AtomicU64,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// By revision, and by a number for those who wait for the same one.
    by_revision: BTreeMap<(Revision, u64), oneshot::Sender<()>>,
    next: u64,
}

impl RevisionWaiters {
    pub(super) fn newest(&self) -> Revision {
        self.newest.load(Ordering::Acquire)
    }

    /// Never goes back.
    pub(super) fn advance(&self, revision: Revision) {
        let mut waiting = self.waiting.lock();
        let newest = self.newest.fetch_max(revision, Ordering::AcqRel).max(revision);
        let rest = waiting.by_revision.split_off(&(newest + 1, 0));
        let arrived = std::mem::replace(&mut waiting.by_revision, rest);
        drop(waiting);
        for waiter in arrived.into_values() {
            // One that no longer waits needs no waking.
            let _ = waiter.send(());
        }
    }

    pub(super) async fn wait_for(&self, revision: Revision) {
        if self.newest() >= revision {
            return;
        }
        let (arrived, place) = {
            let mut waiting = self.waiting.lock();
            // Looked at again under the lock, which `advance` holds while it moves on.
            if self.newest() >= revision {
                return;
            }
            let (sender, arrived) = oneshot::channel();
            let number = waiting.next;
            waiting.next += 1;
            waiting.by_revision.insert((revision, number), sender);
            (arrived, Waiter { waiters: self, key: (revision, number) })
        };
        let _ = arrived.await;
        drop(place);
    }
}

/// Gives the place up when the wait is.
struct Waiter<'a> {
    waiters: &'a RevisionWaiters,
    key: (Revision, u64),
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.waiters.newest() < self.key.0 {
            self.waiters.waiting.lock().by_revision.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use super::*;

    #[tokio::test]
    async fn each_is_woken_for_its_own_revision_and_leaves_nothing_behind() {
        let waiters = RevisionWaiters::default();
        let mut five = std::pin::pin!(waiters.wait_for(5));
        let mut also_five = std::pin::pin!(waiters.wait_for(5));
        assert!(futures::poll!(&mut five).is_pending() && futures::poll!(&mut also_five).is_pending());
        {
            let mut given_up = std::pin::pin!(waiters.wait_for(9));
            assert!(futures::poll!(&mut given_up).is_pending());
            assert_eq!(waiters.waiting.lock().by_revision.len(), 3);
        }
        assert_eq!(waiters.waiting.lock().by_revision.len(), 2);
        waiters.advance(4);
        assert!(futures::poll!(&mut five).is_pending());
        waiters.advance(6);
        assert_eq!((futures::poll!(&mut five), futures::poll!(&mut also_five)), (Poll::Ready(()), Poll::Ready(())));
        waiters.advance(3);
        assert_eq!(waiters.newest(), 6);
        waiters.wait_for(6).await;
        assert!(waiters.waiting.lock().by_revision.is_empty());
    }
}
