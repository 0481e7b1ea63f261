//! Keeps a cache equal to what the API server says, for ever: list, watch, resume, list again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::Api;
use kube::runtime::watcher::{self, Event, watcher};

use super::{Cached, Shared};

const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(10);
/// After an expired revision, so that not every client lists in the same instant.
const RELIST_JITTER_MILLIS: u64 = 500;

pub(super) async fn run<K: Cached>(api: Api<K>, config: watcher::Config, trim: fn(&mut K), shared: Arc<Shared<K>>) {
    let mut delay = FIRST_DELAY;
    loop {
        let mut stream = Box::pin(watcher(api.clone(), config.clone()));
        let mut listed = Vec::new();
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    delay = FIRST_DELAY;
                    take(event.modify(|object| trimmed(object, trim)), &mut listed, &shared);
                }
                Err(error) => {
                    let expired = is_expired(&error);
                    tracing::debug!(resource = api.resource_url(), "watch interrupted: {}", short(&error));
                    if expired {
                        tokio::time::sleep(Duration::from_millis(rand::random_range(0..RELIST_JITTER_MILLIS))).await;
                        break;
                    }
                    tokio::time::sleep(delay.mul_f64(rand::random_range(1.0..1.5))).await;
                    delay = (delay * 2).min(LONGEST_DELAY);
                }
            }
        }
    }
}

fn take<K: Cached>(event: Event<K>, listed: &mut Vec<K>, shared: &Shared<K>) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(object) => listed.push(object),
        Event::InitDone => shared.replace(std::mem::take(listed)),
        Event::Apply(object) => shared.apply(object),
        Event::Delete(object) => shared.remove(object),
    }
}

/// managedFields are a third of many objects and no loop reads them.
fn trimmed<K: Cached>(object: &mut K, trim: fn(&mut K)) {
    object.meta_mut().managed_fields = None;
    trim(object);
}

/// Whether to list again instead of resuming: the revision is too old, or one that the server does not know because
/// it was restored from an older state. Resuming from such a revision would fail for ever.
fn is_expired(error: &watcher::Error) -> bool {
    let status = match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status,
        _ => return false,
    };
    status.code == 410 || (status.code == 504 && status.message.contains("resource version"))
}

/// The error without kube's debug dump of the whole Status.
fn short(error: &watcher::Error) -> String {
    match error {
        watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status))
        | watcher::Error::WatchError(status) => status.message.clone(),
        other => other.to_string(),
    }
}
