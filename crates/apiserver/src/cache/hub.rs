//! The task that reads the store's changes and routes them.

use std::sync::Arc;
use std::time::Duration;

use ferry_semantics::backoff::Backoff;
use ferry_store::{Event, Range, Revision, StoreError, WatchBatch, WatchRequest};
use futures::StreamExt;

use super::log::Woken;
use super::resource::ResourceCache;
use super::{Cache, Routes};

const ROOT: &str = "/registry/";
/// How far back a fresh start reads, so that watches of before a restart can go on.
const PAST: Revision = 4096;
/// Revisions that are taken in before anybody is told of them.
const TOGETHER: usize = 256;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    Now,
    InThePast,
}

/// Fills every cache with the state at one revision, which is returned.
pub(super) async fn load(cache: &Cache, start: Start) -> Result<Revision, StoreError> {
    let whole = |revision| Range { prefix: ROOT.into(), revision, ..Range::default() };
    let mut at = None;
    let found = if start == Start::InThePast {
        let newest = cache.store.revision().await?;
        let past = newest.saturating_sub(PAST).max(1);
        at = Some(past.min(newest));
        match cache.store.range(whole(at)).await {
            Err(StoreError::Compacted { oldest, .. }) => {
                at = (oldest > 0).then_some(oldest);
                match cache.store.range(whole(at)).await {
                    // Compacted once more in between: then without a past.
                    Err(StoreError::Compacted { .. }) => {
                        at = None;
                        cache.store.range(whole(None)).await?
                    }
                    found => found?,
                }
            }
            found => found?,
        }
    } else {
        cache.store.range(whole(None)).await?
    };
    let revision = at.unwrap_or(found.revision);
    let routes = cache.routes.read();
    let mut rest = found.entries.as_slice();
    let mut loaded = Vec::new();
    // Entries come in key order, so those of a resource lie together.
    while let Some(first) = rest.first() {
        let Some(resource) = routes.route(&first.key) else {
            rest = &rest[1..];
            continue;
        };
        let root = &resource.registration.root;
        let count = rest.iter().take_while(|entry| entry.key.starts_with(root)).count().max(1);
        resource.load(revision, &rest[..count]);
        loaded.push(Arc::as_ptr(resource));
        rest = &rest[count..];
    }
    for resource in routes.by_prefix.values().filter(|resource| !loaded.contains(&Arc::as_ptr(resource))) {
        resource.load(revision, &[]);
    }
    drop(routes);
    cache.revision.advance(revision);
    Ok(revision)
}

/// Runs as long as the server does: a failed watch goes on where it ended, or starts over where that is compacted.
/// `from` is the revision that the caches have reached; None where nobody knows.
pub(super) async fn feed(cache: Arc<Cache>, mut from: Option<Revision>) {
    let mut pause = Backoff::new(RETRY_FIRST, RETRY_LAST);
    loop {
        if let Some(reached) = &mut from {
            let before = *reached;
            let error = follow(&cache, reached).await;
            if *reached > before {
                pause.reset();
            }
            tracing::warn!("the watch of the store ended at revision {reached}: {error}");
            if matches!(error, StoreError::Compacted { .. } | StoreError::Future { .. }) {
                from = None;
                continue;
            }
        } else {
            match load(&cache, Start::Now).await {
                Ok(revision) => {
                    from = Some(revision);
                    continue;
                }
                Err(error) => tracing::warn!("the caches cannot be loaded: {error}"),
            }
        }
        tokio::time::sleep(pause.next_delay()).await;
    }
}

async fn follow(cache: &Cache, from: &mut Revision) -> StoreError {
    let mut watch = match cache.store.watch(WatchRequest { prefix: ROOT.into(), after: *from }).await {
        // What was made durable together comes together: readers are told once.
        Ok(watch) => watch.ready_chunks(TOGETHER),
        Err(error) => return error,
    };
    while let Some(chunk) = watch.next().await {
        let mut woken = Woken::default();
        let mut ended = None;
        {
            let routes = cache.routes.read();
            for batch in chunk {
                match batch {
                    Ok(batch) => {
                        *from = (*from).max(batch.revision);
                        apply(&routes, &batch, &mut woken);
                    }
                    Err(error) => {
                        ended = Some(error);
                        break;
                    }
                }
            }
        }
        woken.wake();
        cache.revision.advance(*from);
        if let Some(error) = ended {
            return error;
        }
    }
    StoreError::Unavailable("the watch ended".into())
}

fn apply(routes: &Routes, batch: &WatchBatch, woken: &mut Woken) {
    if let [event] = batch.events.as_slice() {
        if let Some(resource) = routes.route(&event.entry.key) {
            resource.apply(batch.revision, &[event], woken);
        }
        return;
    }
    // A resource's events of one revision are applied in one step.
    let mut by_resource: Vec<(&Arc<ResourceCache>, Vec<&Event>)> = Vec::new();
    for event in &batch.events {
        let Some(resource) = routes.route(&event.entry.key) else { continue };
        match by_resource.iter_mut().find(|(known, _)| Arc::ptr_eq(known, resource)) {
            Some((_, events)) => events.push(event),
            None => by_resource.push((resource, vec![event])),
        }
    }
    for (resource, events) in by_resource {
        resource.apply(batch.revision, &events, woken);
    }
}
