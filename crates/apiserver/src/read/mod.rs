//! Reads from the watch cache: one object, a page of a list, a stream of changes, each at the resourceVersion asked for.

pub(crate) mod continuation;
pub(crate) mod selection;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;
use ferry_store::{Entry, Range, Revision, StoreError};

use self::selection::Selection;
use crate::cache::{CacheError, CachedObject, Frames, PATIENCE, ResourceCache, Snapshot, StartFrom, WatchOptions};
use crate::custom_resources::conversion;
use crate::request::options::{ListOptions, Match};
use crate::response::render::ListMeta;
use crate::server::Core;
use crate::storage::objects::{self, parse_version, store_error};

/// How far the cache may be behind before the store is asked for an object.
const LAG: Duration = Duration::from_millis(5);
/// A webhook gets so many objects of a list at once.
const CONVERTED_AT_ONCE: usize = 500;

pub(crate) fn cache_error(error: &CacheError) -> ApiError {
    match error {
        CacheError::Expired { .. } => ApiError::expired(error.to_string()),
        CacheError::TooLarge { requested, newest } => objects::too_large_version(*requested, *newest, 1),
        CacheError::Store(error) => store_error(error),
    }
}

/// The cache of a resource. A definition that was just changed has its objects read anew: that is waited for.
pub(crate) async fn cache_of(core: &Core, row: &Resource) -> Result<Arc<ResourceCache>, ApiError> {
    let not_ready = || ApiError::unavailable(format!("{} is not ready", row.group_resource()));
    let cache = core.cache.resource(&row.storage_prefix).ok_or_else(not_ready)?;
    tokio::time::timeout(PATIENCE, cache.loaded()).await.map_err(|_| not_ready())?;
    Ok(cache)
}

/// The JSON of a cached object in the row's version. Made once per version and kept with the object.
pub(crate) fn json_of(row: &Resource, object: &CachedObject) -> Result<Bytes, ApiError> {
    let converted = row.strategy.conversion().is_some();
    if if converted { conversion::is_in_version(row, object) } else { row.gvk == row.storage_gvk } {
        return Ok(object.json());
    }
    object.form(&row.gvk.api_version(), |object| {
        if converted {
            return Err(ApiError::internal(format!("{} was not converted", object.key)));
        }
        let stored = object.parse().map_err(ApiError::internal)?;
        let mut converted = row.strategy.from_storage(stored);
        objects::set_kind(&mut converted, row);
        Ok(crate::storage::codec::encode(&row.gvk, &converted).into())
    })
}

/// The JSON of one object in the row's version.
pub(crate) async fn get(
    core: &Core,
    row: &Resource,
    namespace: &str,
    name: &str,
    version: &str,
) -> Result<Bytes, ApiError> {
    let wanted = parse_version(version).map_err(|e| {
        let text = format!("resourceVersion: Invalid value: {version:?}: {e}");
        // Upstream caches all but Events: there the store itself is asked.
        if row.plural == "events" {
            return ApiError::bad_request(format!("invalid resource version: {text}"));
        }
        objects::bare_error(text)
    })?;
    let cache = cache_of(core, row).await?;
    let namespace = scope(row, namespace);
    let found = match (version.is_empty(), wanted) {
        (true, _) => newest(core, &cache, namespace, name).await?,
        (false, 0) => cache.get(namespace, name),
        (false, wanted) => {
            core.cache.wait_for(wanted).await.map_err(|e| cache_error(&e))?;
            cache.get(namespace, name)
        }
    };
    match found {
        Some(object) => {
            let prepared = conversion::prepare(core, row, std::iter::once(&object)).await;
            prepared.map_err(|error| error.of_one())?;
            json_of(row, &object)
        }
        None => Err(ApiError::not_found(&row.group_resource(), name)),
    }
}

/// One object as it is now. The cache has it as soon as it has caught up with the store; where that takes long, the store has the
/// object itself.
async fn newest(
    core: &Core,
    cache: &ResourceCache,
    namespace: &str,
    name: &str,
) -> Result<Option<Arc<CachedObject>>, ApiError> {
    let revision = core.store.revision().await.map_err(|e| store_error(&e))?;
    if core.cache.revision() >= revision {
        return Ok(cache.get(namespace, name));
    }
    let itself = async {
        tokio::time::sleep(LAG).await;
        match core.store.get(&cache.registration.key(namespace, name)).await {
            Ok(got) => got,
            // The cache may still come.
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        caught_up = core.cache.wait_for(revision) => {
            caught_up.map_err(|e| cache_error(&e))?;
            Ok(cache.get(namespace, name))
        }
        got = itself => {
            let entries: Vec<Entry> = got.entry.into_iter().collect();
            Ok(cache.snapshot_of_entries(got.revision, &entries).get(namespace, name).cloned())
        }
    }
}

/// The namespace as a part of keys: none for cluster-scoped objects, a Namespace itself among them.
pub(crate) fn scope<'a>(row: &Resource, namespace: &'a str) -> &'a str {
    if row.namespaced { namespace } else { "" }
}

pub(crate) struct Page {
    pub meta: ListMeta,
    pub items: Vec<Arc<CachedObject>>,
}

impl Page {
    pub(crate) async fn json(&self, core: &Core, row: &Resource) -> Result<Vec<Bytes>, ApiError> {
        conversion::prepare(core, row, self.items.iter()).await.map_err(|error| error.of_list(row))?;
        self.items.iter().map(|item| json_of(row, item)).collect()
    }
}

/// At which revision a list is read, and from which key on.
struct Start {
    revision: At,
    after: Option<String>,
    limit: usize,
}

enum At {
    /// At least this one; None: the newest.
    NotOlderThan(Option<Revision>),
    Exactly(Revision),
}

fn start(prefix: &str, options: &ListOptions) -> Result<Start, ApiError> {
    let version = &options.resource_version;
    // Version 0 takes what the cache has, and all of it.
    let limit = if version == "0" { 0 } else { options.limit };
    if !options.continue_token.is_empty() {
        let token = continuation::decode(prefix, &options.continue_token)?;
        if !matches!(&**version, "" | "0") {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let revision = token.revision.map_or(At::NotOlderThan(None), At::Exactly);
        return Ok(Start { revision, after: Some(token.after), limit });
    }
    let wanted = parse_version(version).map_err(|e| {
        ApiError::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {version:?}: {e}"))
    })?;
    let exact = match options.resource_version_match {
        Match::Exact => true,
        Match::NotOlderThan => false,
        // The old meaning: a page at a version is that version.
        Match::Unset => options.limit > 0,
    };
    let revision = match (version.is_empty(), exact && wanted > 0) {
        (true, _) => At::NotOlderThan(None),
        (false, true) => At::Exactly(wanted),
        (false, false) => At::NotOlderThan(Some(wanted)),
    };
    Ok(Start { revision, after: None, limit })
}

pub(crate) async fn list(
    core: &Core,
    row: &Resource,
    namespace: &str,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    let cache = cache_of(core, row).await?;
    let namespace = scope(row, namespace);
    let prefix = cache.registration.prefix(namespace);
    let start = start(&prefix, options)?;
    let snapshot = match start.revision {
        At::NotOlderThan(revision) => core.cache.snapshot(&cache, revision).await.map_err(|e| cache_error(&e))?,
        At::Exactly(revision) => snapshot_at(core, &cache, revision, &prefix, start.after.as_deref()).await?,
    };
    // What follows a page is of the same moment, also where the page itself is of another than those before it.
    let token = |last: &Arc<CachedObject>| continuation::encode(&prefix, &last.key, Some(snapshot.revision));
    if selection.by_version {
        let (items, more) = selected_in_version(core, row, &snapshot, namespace, &start, selection).await?;
        let continue_token = items.last().filter(|_| more).map(token);
        return Ok(Page { meta: ListMeta { revision: snapshot.revision, continue_token, remaining: None }, items });
    }
    let mut items = Vec::new();
    let mut more = false;
    let mut remaining = 0;
    let everything = selection.is_everything();
    for object in snapshot.range(namespace, start.after.as_deref()) {
        if start.limit > 0 && items.len() == start.limit {
            more |= everything || selection.matches(object);
            remaining += 1;
            // Only the count of a list without a selector is told.
            if more && !everything {
                break;
            }
            continue;
        }
        if everything || selection.matches(object) {
            items.push(object.clone());
        }
    }
    // Upstream offers another page when keys are left, whether they match or not; a named object has no next one.
    let single = selection.fields.required("metadata.name").is_some() && (!row.namespaced || !namespace.is_empty());
    more = (more || remaining > 0) && !single;
    let continue_token = items.last().filter(|_| more).map(token);
    let remaining = (continue_token.is_some() && everything).then_some(remaining);
    Ok(Page { meta: ListMeta { revision: snapshot.revision, continue_token, remaining }, items })
}

/// The selected objects of a page as the row's version shows them, and whether there are others behind them.
async fn selected_in_version(
    core: &Core,
    row: &Resource,
    snapshot: &Snapshot,
    namespace: &str,
    start: &Start,
    selection: &Selection,
) -> Result<(Vec<Arc<CachedObject>>, bool), ApiError> {
    let keys = selection.of_keys();
    let mut rest = snapshot.range(namespace, start.after.as_deref()).filter(|object| keys.matches(object)).cloned();
    let mut items = Vec::new();
    loop {
        let some: Vec<_> = rest.by_ref().take(CONVERTED_AT_ONCE).collect();
        if some.is_empty() {
            return Ok((items, false));
        }
        items.append(&mut selection.filter(core, row, some).await?);
        if start.limit > 0 && items.len() > start.limit {
            items.truncate(start.limit);
            return Ok((items, true));
        }
    }
}

/// The past: from the cache's log where it reaches back, from the store otherwise.
async fn snapshot_at(
    core: &Core,
    cache: &Arc<ResourceCache>,
    revision: Revision,
    prefix: &str,
    after: Option<&str>,
) -> Result<Snapshot, ApiError> {
    core.cache.wait_for(revision).await.map_err(|e| cache_error(&e))?;
    let range = Range { prefix: cache.registration.root.clone(), revision: Some(revision), ..Range::default() };
    if let Some(snapshot) = cache.snapshot_at(revision) {
        // The log may reach back further than the store: what is forgotten there is forgotten for every server.
        core.store.range(Range { limit: 1, ..range }).await.map_err(|e| list_error(&e, prefix, after))?;
        return Ok(snapshot);
    }
    let read = core.store.range(range).await.map_err(|e| list_error(&e, prefix, after))?;
    let entries: Vec<Entry> = read.entries;
    Ok(cache.snapshot_of_entries(revision, &entries))
}

fn list_error(error: &StoreError, prefix: &str, after: Option<&str>) -> ApiError {
    let StoreError::Compacted { .. } = error else { return store_error(error) };
    let Some(after) = after else {
        return ApiError::expired("The resourceVersion for the provided list is too old.");
    };
    let mut gone = ApiError::new(
        410,
        Reason::Expired,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    gone.0.metadata.continue_token = Some(continuation::encode(prefix, after, None));
    gone
}

/// Opens a watch. That it asks for too old or too new a version is told within the stream: it is the inner error.
pub(crate) async fn watch(
    core: &Core,
    row: &Resource,
    namespace: &str,
    options: &ListOptions,
    selection: &Selection,
    timeout: Duration,
) -> Result<Result<Frames, ApiError>, ApiError> {
    let version = &options.resource_version;
    let wanted = parse_version(version)
        .map_err(|e| objects::bare_error(format!("resourceVersion: Invalid value: {version:?}: {e}")))?;
    let from = match (version.is_empty(), wanted) {
        (true, _) => StartFrom::Unset,
        (false, 0) => StartFrom::Zero,
        (false, revision) => StartFrom::After(revision),
    };
    let cache = cache_of(core, row).await?;
    // What only the version asked for can tell is judged when the event is there.
    let selection = if selection.by_version { selection.of_keys() } else { selection.clone() };
    let watch = WatchOptions {
        namespace: scope(row, namespace).to_owned(),
        name: String::new(),
        labels: selection.labels,
        fields: selection.fields,
        from,
        send_initial_events: options.send_initial_events,
        allow_bookmarks: options.allow_bookmarks,
        timeout: Some(timeout),
    };
    match core.cache.watch(&cache, watch).await {
        Ok(frames) => Ok(Ok(frames)),
        Err(error @ (CacheError::Expired { .. } | CacheError::TooLarge { .. })) => Ok(Err(cache_error(&error))),
        Err(error) => Err(cache_error(&error)),
    }
}
