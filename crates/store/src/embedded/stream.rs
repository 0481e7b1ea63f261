//! A watch as a stream: history in chunks, a progress mark once it has caught up, then what the committer publishes.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::watchers::Subscription;
use crate::batches::Batches;
use crate::types::{Revision, WatchBatch, WatchRequest};
use crate::{Result, StoreError, WatchStream};

/// Disk reads away from the runtime's workers.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(error) => Err(StoreError::Unavailable(format!("a read was interrupted: {error}"))),
    }
}

struct Watch {
    shared: Arc<Shared>,
    prefix: String,
    subscription: Subscription,
    /// History up to here is delivered.
    reached: Revision,
    /// Live batches begin after this.
    live_after: Revision,
    ready: VecDeque<WatchBatch>,
    caught_up: bool,
}

/// Subscribing and noting the newest revision are one step: what is published later is live, the rest is history.
pub(crate) fn watch(shared: Arc<Shared>, request: WatchRequest) -> Result<WatchStream> {
    let mut state = shared.state.write();
    let newest = state.revision;
    if request.after > newest {
        return Err(StoreError::Future { requested: request.after, newest });
    }
    if request.after < state.compacted {
        return Err(StoreError::Compacted { requested: request.after, oldest: state.compacted });
    }
    let subscription = state.watchers.subscribe(&request.prefix, newest, shared.options.watch_buffer);
    drop(state);
    let watch = Watch {
        shared,
        prefix: request.prefix,
        subscription,
        reached: request.after,
        live_after: newest,
        ready: VecDeque::new(),
        caught_up: false,
    };
    Ok(watch.into_stream())
}

impl Batches for Watch {
    async fn next(&mut self) -> Result<WatchBatch> {
        loop {
            if let Some(batch) = self.ready.pop_front() {
                return Ok(batch);
            }
            if self.reached < self.live_after {
                let (shared, prefix) = (self.shared.clone(), self.prefix.clone());
                let (after, until) = (self.reached, self.live_after);
                let (batches, reached) = blocking(move || shared.batches(&prefix, after, until)).await?;
                self.ready.extend(batches);
                self.reached = reached;
                continue;
            }
            if !self.caught_up {
                self.caught_up = true;
                return Ok(WatchBatch { revision: self.live_after, events: Vec::new() });
            }
            return match self.subscription.receiver.recv().await {
                Some(batch) => Ok(batch),
                None if self.subscription.lagged.load(Ordering::Acquire) => Err(StoreError::SlowWatcher),
                None => Err(StoreError::Unavailable("the store is closed".into())),
            };
        }
    }
}
