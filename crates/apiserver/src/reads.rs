//! Reads: one object, a page of a list, a stream of changes, each at the resourceVersion that was asked for.

use std::sync::Arc;

use bytes::Bytes;
use ferry_meta::{ApiError, Reason};
use ferry_registry::Resource;
use ferry_store::{Entry, EventKind, Range, Revision, StoreError, WatchRequest};
use futures::StreamExt;
use futures::stream::{self, BoxStream};

use crate::continuation;
use crate::objects::{self, parse_version, store_error};
use crate::options::{ListOptions, Match};
use crate::render::ListMeta;
use crate::selection::Selection;
use crate::server::Core;

/// The JSON of one object in the row's version.
pub(crate) async fn get(
    core: &Core,
    row: &Resource,
    namespace: &str,
    name: &str,
    version: &str,
) -> Result<Bytes, ApiError> {
    parse_version(version)
        .map_err(|e| objects::bare_error(format!("resourceVersion: Invalid value: {version:?}: {e}")))?;
    let got = core.store.get(&row.key(namespace, name)).await.map_err(|e| store_error(&e))?;
    match got.entry {
        Some(entry) => objects::to_json(row, &entry.value, entry.modified),
        None => Err(ApiError::not_found(&row.group_resource(), name)),
    }
}

pub(crate) struct Page {
    pub meta: ListMeta,
    pub items: Vec<Bytes>,
}

/// At which revision a list is read, and from which key on.
struct Start {
    revision: Option<Revision>,
    after: Option<String>,
    limit: usize,
    consistent: bool,
}

fn start(prefix: &str, options: &ListOptions) -> Result<Start, ApiError> {
    let version = &options.resource_version;
    let wanted = parse_version(version).map_err(|e| {
        ApiError::bad_request(format!("invalid resource version: resourceVersion: Invalid value: {version:?}: {e}"))
    })?;
    if !options.continue_token.is_empty() {
        if wanted != 0 {
            return Err(ApiError::bad_request("specifying resource version is not allowed when using continue"));
        }
        let token = continuation::decode(prefix, &options.continue_token)?;
        // Version 0 reads from the cache, where a limit means nothing.
        let limit = if version == "0" { 0 } else { options.limit };
        return Ok(Start {
            revision: token.revision,
            after: Some(token.after),
            limit,
            consistent: token.revision.is_some(),
        });
    }
    let exact = match options.resource_version_match {
        Match::Exact => true,
        Match::NotOlderThan => false,
        // The old meaning: a page at a version is that version.
        Match::Unset => options.limit > 0,
    };
    let limit = if version == "0" { 0 } else { options.limit };
    Ok(Start { revision: (wanted > 0 && exact).then_some(wanted), after: None, limit, consistent: true })
}

pub(crate) async fn list(
    core: &Core,
    row: &Resource,
    namespace: &str,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Page, ApiError> {
    let prefix = row.key(namespace, "");
    let start = start(&prefix, options)?;
    let wanted = parse_version(&options.resource_version).unwrap_or(0);
    let mut revision = start.revision;
    let mut after = start.after;
    let mut items = Vec::new();
    let mut more = false;
    let mut remaining = 0;
    loop {
        // With a selector a page may need several reads; they share one revision.
        let range = Range { prefix: prefix.clone(), after: after.clone(), limit: start.limit, revision };
        let read = core.store.range(range).await.map_err(|e| list_error(&e, &prefix, after.as_deref()))?;
        revision.get_or_insert(read.revision);
        if start.revision.is_none() && wanted > read.revision {
            return Err(objects::too_large_version(wanted, read.revision));
        }
        let last = read.entries.last().map(|e| e.key.to_string());
        for entry in read.entries {
            if start.limit > 0 && items.len() == start.limit {
                more = true;
                break;
            }
            if selection.is_everything() {
                items.push(objects::to_json(row, &entry.value, entry.modified)?);
                after = Some(entry.key.to_string());
                continue;
            }
            let parsed = objects::parse(row, &entry)?;
            if selection.matches(row, &parsed.object) {
                items.push(objects::to_json(row, &entry.value, entry.modified)?);
            }
            after = Some(entry.key.to_string());
        }
        more |= read.more;
        remaining = read.remaining;
        if !read.more || (start.limit > 0 && items.len() >= start.limit) {
            break;
        }
        after = last.or(after);
    }
    let revision = revision.unwrap_or_default();
    let continue_token = (more && start.limit > 0).then(|| {
        continuation::encode(&prefix, after.as_deref().unwrap_or_default(), start.consistent.then_some(revision))
    });
    let remaining = (continue_token.is_some() && selection.is_everything()).then_some(remaining);
    Ok(Page { meta: ListMeta { revision, continue_token, remaining }, items })
}

fn list_error(error: &StoreError, prefix: &str, after: Option<&str>) -> ApiError {
    let (StoreError::Compacted { .. }, Some(after)) = (error, after) else { return store_error(error) };
    let mut gone = ApiError::new(
        410,
        Reason::Expired,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list without \
         the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
         Continuing with the provided token results in an inconsistent list - objects that were created, modified, or \
         deleted between the time the first chunk was returned and now may show up in the list.",
    );
    gone.0.metadata.continue_token = Some(continuation::encode(prefix, after, None));
    gone
}

/// One event of a watch. The bytes are the object's JSON in the row's version.
pub(crate) enum Change {
    Added(Bytes),
    Modified(Bytes),
    Deleted(Bytes),
    Bookmark {
        revision: Revision,
        initial_end: bool,
    },
    /// The stream ends after this one.
    Error(ApiError),
}

pub(crate) type Changes = BoxStream<'static, Change>;

/// Opens a watch: what is there now (where asked for), then every change after it without a gap.
pub(crate) async fn watch(
    core: &Core,
    row: &Arc<Resource>,
    namespace: &str,
    options: &ListOptions,
    selection: Selection,
) -> Result<Changes, ApiError> {
    let version = &options.resource_version;
    let wanted = parse_version(version)
        .map_err(|e| objects::bare_error(format!("resourceVersion: Invalid value: {version:?}: {e}")))?;
    let prefix = row.key(namespace, "");
    let mut first: Vec<Change> = Vec::new();
    let mut after = wanted;
    if options.send_initial_events == Some(true) {
        let all = ListOptions { limit: 0, continue_token: String::new(), ..options.clone() };
        let page = list(core, row, namespace, &all, &selection).await?;
        first.extend(page.items.into_iter().map(Change::Added));
        after = page.meta.revision;
        if options.allow_bookmarks {
            first.push(Change::Bookmark { revision: after, initial_end: true });
        }
    } else if wanted == 0 {
        after = core.store.revision().await.map_err(|e| store_error(&e))?;
    }
    let batches = match core.store.watch(WatchRequest { prefix, after }).await {
        Ok(stream) => stream,
        Err(error) => {
            first.push(Change::Error(store_error(&error)));
            return Ok(stream::iter(first).boxed());
        }
    };
    let row = row.clone();
    let changes = batches.flat_map(move |batch| {
        let changes = match batch {
            Ok(batch) => batch.events.iter().filter_map(|event| change(&row, &selection, event)).collect(),
            Err(error) => vec![Change::Error(store_error(&error))],
        };
        stream::iter(changes)
    });
    Ok(stream::iter(first).chain(changes).boxed())
}

/// What an event of the store is to a watcher: an object that leaves the selection is deleted for it, one that enters is added.
fn change(row: &Resource, selection: &Selection, event: &ferry_store::Event) -> Option<Change> {
    let selected = |entry: &Entry| {
        selection.is_everything()
            || objects::parse(row, entry).is_ok_and(|parsed| selection.matches(row, &parsed.object))
    };
    let now = event.kind != EventKind::Delete && selected(&event.entry);
    let before = event.previous.as_ref().is_some_and(selected);
    let json = |entry: &Entry, revision| objects::to_json(row, &entry.value, revision).ok();
    match (before, now) {
        (false, true) => json(&event.entry, event.entry.modified).map(Change::Added),
        (true, true) => json(&event.entry, event.entry.modified).map(Change::Modified),
        // The last state, at the revision of its end.
        (true, false) => event.previous.as_ref().and_then(|p| json(p, event.entry.modified)).map(Change::Deleted),
        (false, false) => None,
    }
}
