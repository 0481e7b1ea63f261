//! Watchers of the embedded engine: told of each revision as it is published, dropped when they do not keep up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::state::Change;
use crate::types::{Revision, WatchBatch};

struct Watcher {
    prefix: String,
    sender: mpsc::Sender<WatchBatch>,
    lagged: Arc<AtomicBool>,
    /// The last revision it was told of.
    told: Revision,
}

/// The receiving end: `lagged` is set before the channel closes on a slow watcher.
pub(crate) struct Subscription {
    pub(crate) receiver: mpsc::Receiver<WatchBatch>,
    pub(crate) lagged: Arc<AtomicBool>,
}

#[derive(Default)]
pub(crate) struct Watchers(Vec<Watcher>);

impl Watchers {
    /// From the next published revision on. `told` is the newest one published so far.
    pub(crate) fn subscribe(&mut self, prefix: &str, told: Revision, buffer: usize) -> Subscription {
        self.0.retain(|watcher| !watcher.sender.is_closed());
        let (sender, receiver) = mpsc::channel(buffer);
        let lagged = Arc::new(AtomicBool::new(false));
        self.0.push(Watcher { prefix: prefix.to_owned(), sender, lagged: lagged.clone(), told });
        Subscription { receiver, lagged }
    }

    pub(crate) fn publish(&mut self, revision: Revision, changes: &[Change]) {
        self.0.retain_mut(|watcher| {
            let mut events = changes
                .iter()
                .filter(|change| change.record.entry.key.starts_with(&watcher.prefix))
                .map(Change::event)
                .peekable();
            if events.peek().is_none() {
                return true;
            }
            let events = events.collect();
            watcher.send(WatchBatch { revision, events })
        });
    }

    /// Whether somebody does not know yet that nothing happened below the newest revision.
    pub(crate) fn wants_progress(&self, newest: Revision) -> bool {
        self.0.iter().any(|watcher| watcher.told < newest)
    }

    pub(crate) fn progress(&mut self, newest: Revision) {
        self.0.retain_mut(|watcher| {
            watcher.told >= newest || watcher.send(WatchBatch { revision: newest, events: Vec::new() })
        });
    }

    /// Ends every watch: the store is going away.
    pub(crate) fn close(&mut self) {
        self.0.clear();
    }
}

impl Watcher {
    fn send(&mut self, batch: WatchBatch) -> bool {
        self.told = batch.revision;
        match self.sender.try_send(batch) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Closed(_)) => false,
            Err(mpsc::error::TrySendError::Full(_)) => {
                self.lagged.store(true, Ordering::Release);
                false
            }
        }
    }
}
