//! Definitions of custom resources at work: names are given out, versions become rows of the table with caches of their
//! objects, and what a definition leaves behind goes with it.
//!
//! One loop, fed by the watch cache, is the only writer of the table.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ferry_meta::error::StatusDetails;
use ferry_meta::{ApiError, Reason, object, time};
use ferry_registry::apiextensions::{CLEANUP_FINALIZER, approval_condition, has_condition, rows};
use ferry_registry::{Resource, ResourceTable};
use ferry_schema::Type;
use ferry_store::{Op, Range, StoreError, Transaction};
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::cache::{FrameKind, Registration, ResourceCache, StartFrom, WatchOptions};
use crate::resource_metrics;
use crate::server::Core;
use crate::storage::objects;

/// A loop that cannot read the store tries again after this.
const BACKOFF: Duration = Duration::from_millis(200);
const ATTEMPTS: usize = 64;

/// What the definitions have put into the table, by the definition's name.
pub(crate) struct Definitions {
    served: Mutex<BTreeMap<String, Served>>,
    synced: watch::Sender<bool>,
}

struct Served {
    /// What the rows were made of: when it is the same, so are they.
    made_of: String,
    prefix: String,
    rows: Vec<Arc<Resource>>,
    removing: bool,
}

impl Default for Definitions {
    fn default() -> Self {
        Self { served: Mutex::default(), synced: watch::Sender::new(false) }
    }
}

impl Definitions {
    /// No new objects while the old ones are taken away.
    pub(crate) fn check_create(&self, row: &Resource) -> Result<(), ApiError> {
        if row.strategy.custom_type().is_none() {
            return Ok(());
        }
        let served = self.served.lock();
        if !served.get(&row.group_resource().to_string()).is_some_and(|served| served.removing) {
            return Ok(());
        }
        let why = "create not allowed while custom resource definition is terminating";
        let details =
            StatusDetails { group: row.gvk.group.clone(), kind: row.plural.clone(), ..StatusDetails::default() };
        Err(ApiError::new(405, Reason::MethodNotAllowed, why).with_details(details))
    }

    pub(crate) fn is_synced(&self) -> bool {
        *self.synced.borrow()
    }

    /// Returns once the definitions that were there at the start are served.
    pub(crate) async fn wait(&self) {
        let _ = self.synced.subscribe().wait_for(|synced| *synced).await;
    }
}

pub(crate) async fn run(core: Arc<Core>) {
    let table = core.table();
    let row = table.find("apiextensions.k8s.io", "v1", "customresourcedefinitions").cloned();
    let found = row.and_then(|row| Some((core.cache.resource(&row.storage_prefix)?, row)));
    let Some((cache, row)) = found else {
        core.definitions.synced.send_replace(true);
        return std::future::pending().await;
    };
    let keeper = Keeper { core, row, cache };
    loop {
        keeper.follow().await;
        tokio::time::sleep(BACKOFF).await;
    }
}

struct Keeper {
    core: Arc<Core>,
    row: Arc<Resource>,
    cache: Arc<ResourceCache>,
}

impl Keeper {
    async fn follow(&self) {
        let options = WatchOptions {
            from: StartFrom::Unset,
            send_initial_events: Some(true),
            allow_bookmarks: true,
            ..WatchOptions::default()
        };
        let mut frames = match self.core.cache.watch(&self.cache, options).await {
            Ok(frames) => frames,
            Err(error) => return tracing::warn!("definitions of custom resources cannot be watched: {error}"),
        };
        while let Some(frame) = frames.next().await {
            if frame.initial_events_end {
                self.core.definitions.synced.send_replace(true);
            }
            let Some(object) = frame.object.filter(|_| frame.kind != FrameKind::Bookmark) else { continue };
            // A panic is a bug of one definition: the others are served all the same.
            match AssertUnwindSafe(self.reconcile(object.name())).catch_unwind().await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!("the definition {} is not served: {}", object.name(), error.0.message),
                Err(_panic) => tracing::error!("the definition {} is not served: it made a panic", object.name()),
            }
        }
    }

    fn all(&self) -> Vec<Value> {
        self.cache.snapshot().range("", None).filter_map(|object| object.parse().ok()).collect()
    }

    async fn reconcile(&self, name: &str) -> Result<(), ApiError> {
        let Some(found) = self.cache.get("", name) else {
            self.forget(name);
            // Names are free again.
            for other in self.all().iter().filter(|other| !has_condition(other, "NamesAccepted")) {
                self.accept(other).await?;
            }
            return Ok(());
        };
        let definition = found.parse().map_err(ApiError::internal)?;
        if object::is_being_deleted(&definition) {
            return self.remove(definition).await;
        }
        self.accept(&definition).await
    }

    /// Gives out names and serves what has them.
    async fn accept(&self, definition: &Value) -> Result<(), ApiError> {
        let (names, refused) = rows::accept_names(definition, &self.all());
        let mut wanted = definition.clone();
        let status = object::child_mut(&mut wanted, "status");
        status.insert("acceptedNames".into(), names);
        let accepted = match &refused {
            Some((reason, message)) => condition("NamesAccepted", false, reason, message),
            None => condition("NamesAccepted", true, "NoConflicts", "no conflicts found"),
        };
        objects::set_condition(status, accepted);
        let established = has_condition(definition, "Established");
        if established || refused.is_none() {
            // Served before it says so: who waits for the condition may write at once.
            self.serve(&wanted).await?;
        }
        if !established {
            objects::set_condition(
                object::child_mut(&mut wanted, "status"),
                match refused {
                    None => {
                        condition("Established", true, "InitialNamesAccepted", "the initial names have been accepted")
                    }
                    Some(_) => condition("Established", false, "NotAccepted", "not all names are accepted"),
                },
            );
        }
        if let Some((holds, reason, message)) = approval_condition(definition) {
            let told = condition("KubernetesAPIApprovalPolicyConformant", holds, reason, &message);
            objects::set_condition(object::child_mut(&mut wanted, "status"), told);
        }
        if wanted.get("status") == definition.get("status") {
            return Ok(());
        }
        let (status, uid) = (wanted["status"].take(), object::uid(definition));
        let outcome =
            objects::modify_status(&self.core, &self.row, object::name(definition), "kube-apiserver", |live| {
                if object::uid(live) == uid && live.get("spec") == definition.get("spec") {
                    let live = object::child_mut(live, "status");
                    for key in ["acceptedNames", "conditions"] {
                        live.insert(key.into(), status[key].clone());
                    }
                }
            });
        match outcome.await {
            // Gone meanwhile: its last event is on the way.
            Err(error) if error.code() == 404 => Ok(()),
            other => other.map(drop),
        }
    }

    async fn serve(&self, definition: &Value) -> Result<(), ApiError> {
        let name = object::name(definition);
        let made_of = json!([object::uid(definition), definition.get("spec"), definition["status"]["acceptedNames"]]);
        let made_of = made_of.to_string();
        if self.core.definitions.served.lock().get(name).is_some_and(|served| served.made_of == made_of) {
            return Ok(());
        }
        let new = rows::rows(definition);
        let prefix = rows::storage_prefix(definition);
        if let Some(registration) = registration(definition, &new) {
            self.core.cache.register(registration).await.map_err(|e| crate::read::cache_error(&e))?;
        }
        let served = Served { made_of, prefix, rows: new, removing: false };
        self.core.definitions.served.lock().insert(name.to_owned(), served);
        self.swap();
        Ok(())
    }

    /// The built-in rows, and behind them those of the definitions.
    fn swap(&self) {
        swap(&self.core);
    }

    fn forget(&self, name: &str) {
        let gone = self.core.definitions.served.lock().remove(name);
        if let Some(served) = gone {
            self.swap();
            self.core.cache.unregister(&served.prefix);
        }
    }

    /// Takes the objects away, then the definition.
    async fn remove(&self, definition: Value) -> Result<(), ApiError> {
        let name = object::name(&definition).to_owned();
        if !object::finalizers(&definition).any(|finalizer| finalizer == CLEANUP_FINALIZER) {
            return Ok(());
        }
        if has_condition(&definition, "Established") {
            self.serve(&definition).await?;
        }
        {
            let mut all = self.core.definitions.served.lock();
            if all.get_mut(&name).is_some_and(|served| std::mem::replace(&mut served.removing, true)) {
                return Ok(());
            }
        }
        let (core, row) = (self.core.clone(), self.row.clone());
        self.core.tasks.spawn_until_stopped("remove-custom-resources", async move {
            while let Err(error) = remove(&core, &row, &name).await {
                tracing::warn!("the objects of {name} are not gone yet: {}", error.0.message);
                tokio::time::sleep(BACKOFF).await;
            }
        });
        Ok(())
    }
}

/// Makes the table anew: the built-in rows, the resource metrics while they are served here, the definitions' rows.
pub(crate) fn swap(core: &Core) {
    let served = core.definitions.served.lock();
    let table = core.table();
    let built_in =
        |row: &&Arc<Resource>| row.strategy.custom_type().is_none() && row.gvk.group != resource_metrics::GROUP;
    let mut all: Vec<Arc<Resource>> = table.rows().iter().filter(built_in).cloned().collect();
    all.extend(core.resource_metrics.iter().flat_map(|metrics| metrics.rows()).cloned());
    let mut custom: Vec<&Arc<Resource>> = served.values().flat_map(|served| &served.rows).collect();
    custom.sort_by_cached_key(|row| {
        let version = std::cmp::Reverse(rows::priority(&row.gvk.version));
        (row.gvk.group.clone(), version, row.plural.clone())
    });
    all.extend(custom.into_iter().cloned());
    core.table.store(Arc::new(ResourceTable::new(all)));
    core.aggregation.table_changed.notify_one();
}

fn registration(definition: &Value, rows: &[Arc<Resource>]) -> Option<Registration> {
    let registration = Registration::of_table(&ResourceTable::new(rows.to_vec())).into_iter().next()?;
    let changed = definition.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(1) > 1;
    // What a webhook converts stays as it was written until it is read.
    let converted = rows.iter().any(|row| row.strategy.conversion().is_some());
    let stored = rows::stored_type(definition).filter(|_| changed && !converted);
    // Objects may have been written under an older schema or in another version.
    Some(match stored {
        None => registration,
        Some((kind, ty)) => {
            let api_version = kind.api_version();
            registration.with_decode(move |_, bytes| {
                let mut object: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
                refresh(&ty, &mut object);
                if let Some(map) = object.as_object_mut() {
                    map.insert("apiVersion".into(), api_version.clone().into());
                }
                Ok(ferry_schema::encode::encode_custom(&object).into())
            })
        }
    })
}

fn refresh(ty: &Type, object: &mut Value) {
    if let Some(schema) = ty.schema() {
        schema.prune(object);
        schema.fill_defaults(object);
    }
}

async fn remove(core: &Arc<Core>, row: &Resource, name: &str) -> Result<(), ApiError> {
    let rows = core.definitions.served.lock().get(name).map(|served| (served.rows.clone(), served.prefix.clone()));
    if let Some((rows, prefix)) = rows {
        if let (Some(instance), Some(cache)) = (rows.first(), core.cache.resource(&prefix)) {
            empty(core, instance, &cache).await?;
        }
        if let Some(served) = core.definitions.served.lock().get_mut(name) {
            served.rows.clear();
        }
        swap(core);
        // What was written while the rows were still there.
        purge(core, &format!("/registry/{prefix}/")).await?;
    }
    release(core, row, name).await
}

/// Deletes every object and waits for those that finalizers hold.
async fn empty(core: &Core, row: &Resource, cache: &Arc<ResourceCache>) -> Result<(), ApiError> {
    let options = WatchOptions { from: StartFrom::Unset, ..WatchOptions::default() };
    let mut frames = core.cache.watch(cache, options).await.map_err(|e| crate::read::cache_error(&e))?;
    let snapshot = cache.snapshot();
    for object in snapshot.range("", None) {
        delete(core, row, object.namespace(), object.name()).await?;
    }
    core.cache.wait_for_newest().await.map_err(|e| crate::read::cache_error(&e))?;
    while !cache.snapshot().is_empty() {
        match frames.next().await {
            Some(frame) if frame.kind == FrameKind::Added => {
                if let Some(object) = frame.object {
                    delete(core, row, object.namespace(), object.name()).await?;
                }
            }
            Some(_) => {}
            None => return Err(ApiError::unavailable("the watch ended")),
        }
    }
    Ok(())
}

async fn delete(core: &Core, row: &Resource, namespace: &str, name: &str) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        let key = row.key(namespace, name);
        let got = core.store.get(&key).await.map_err(|e| objects::store_error(&e))?;
        let Some(live) = got.entry else { return Ok(()) };
        // As it is stored: a webhook that is gone must not keep what it converted.
        let mut object = crate::storage::codec::decode_stored(&live.value).map_err(ApiError::internal)?;
        let held = object::finalizers(&object).next().is_some();
        if held && object::is_being_deleted(&object) {
            return Ok(());
        }
        let op = if held {
            let metadata = object::metadata_mut(&mut object);
            metadata.insert("deletionTimestamp".into(), time::time(time::now()).into());
            metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
            let value = ferry_schema::encode::encode_custom(&object).into();
            Op::Update { key, value, expected: live.modified, lease: None }
        } else {
            Op::Delete { key, expected: live.modified }
        };
        match core.commit(Transaction::one(op), None).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(objects::store_error(&error)),
        }
    }
    Err(ApiError::modified(&row.group_resource(), name))
}

async fn purge(core: &Core, prefix: &str) -> Result<(), ApiError> {
    let range = Range { prefix: prefix.to_owned(), ..Range::default() };
    let left = core.store.range(range).await.map_err(|e| objects::store_error(&e))?;
    for entry in left.entries {
        let op = Op::Delete { key: entry.key.to_string(), expected: entry.modified };
        match core.commit(Transaction::one(op), None).await {
            Ok(_) | Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(objects::store_error(&error)),
        }
    }
    Ok(())
}

/// Takes the finalizer off; without others the definition goes.
async fn release(core: &Core, row: &Resource, name: &str) -> Result<(), ApiError> {
    for _ in 0..ATTEMPTS {
        let Some(live) = objects::load(core, row, "", name).await? else { return Ok(()) };
        let mut definition = live.object;
        let left: Vec<String> =
            object::finalizers(&definition).filter(|f| *f != CLEANUP_FINALIZER).map(str::to_owned).collect();
        let key = row.key("", name);
        let op = if left.is_empty() {
            Op::Delete { key, expected: live.revision }
        } else {
            let done = if has_condition(&definition, "Established") {
                condition("Terminating", false, "InstanceDeletionCompleted", "removed all instances")
            } else {
                condition("Terminating", false, "NeverEstablished", "resource was never established")
            };
            objects::set_condition(object::child_mut(&mut definition, "status"), done);
            object::metadata_mut(&mut definition).insert("finalizers".into(), json!(left));
            Op::Update { key, value: objects::to_bytes(row, &definition), expected: live.revision, lease: None }
        };
        match core.commit(Transaction::one(op), None).await {
            Ok(_) => return Ok(()),
            Err(StoreError::Conflict { .. }) => {}
            Err(error) => return Err(objects::store_error(&error)),
        }
    }
    Err(ApiError::modified(&row.group_resource(), name))
}

fn condition(kind: &str, holds: bool, reason: &str, message: &str) -> Value {
    let status = if holds { "True" } else { "False" };
    let now = time::time(time::now());
    json!({"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message})
}
