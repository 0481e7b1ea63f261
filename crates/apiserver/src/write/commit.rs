//! The last stage of a write: compare-and-swap, in one transaction with what the kind takes or gives back.

use std::sync::atomic::Ordering;

use ferry_meta::{ApiError, object};
use ferry_store::{Entry, Op, Revision, StoreError, Transaction};
use serde_json::Value;

use super::allocate::Allocation;
use super::{ATTEMPTS, Tried, Write, Written};
use crate::custom_resources::conversion;
use crate::request::verb::{Subresource, Verb};
use crate::storage::objects::{self, Stored};

/// How a transaction ended.
pub(crate) enum Commit {
    Done(Revision),
    /// Another writer was faster with the object itself; what it left, as far as it is known.
    Lost(Option<Box<Entry>>),
    /// A key beside the object was taken.
    Taken(String),
}

impl Write<'_> {
    /// The first operation is the one on the object.
    pub(crate) async fn commit(&self, ops: Vec<Op>) -> Result<Commit, ApiError> {
        let own = match ops.first() {
            Some(Op::Create { key, .. } | Op::Update { key, .. } | Op::Delete { key, .. }) => key.clone(),
            _ => String::new(),
        };
        match self.core.commit(Transaction { ops }, Some(&self.context.stages)).await {
            Ok(commit) => Ok(Commit::Done(commit.revision)),
            Err(StoreError::Conflict { key, current }) if key == own => Ok(Commit::Lost(current)),
            Err(StoreError::Conflict { key, .. }) => Ok(Commit::Taken(key)),
            Err(error) => {
                self.open.store(true, Ordering::Relaxed);
                Err(objects::store_error(&error))
            }
        }
    }

    pub(super) async fn commit_create(
        &self,
        mut object: Value,
        mut allocation: Allocation,
    ) -> Result<Written, ApiError> {
        let name = object::name(&object).to_owned();
        let key = self.row.key(self.namespace, &name);
        if self.options.dry_run {
            // Who only tries is told nothing of a version that must not be there.
            return self.pretend_create(object, &key, &name).await;
        }
        // What is no number is none: it is dropped like one that is not there.
        if objects::parse_version(object::resource_version(&object)).unwrap_or(0) != 0 {
            return Err(objects::bare_error("resourceVersion should not be set on objects to be created"));
        }
        object::metadata_mut(&mut object).remove("resourceVersion");
        for _ in 0..ATTEMPTS {
            let bytes = conversion::to_bytes(self.core, self.row, &object).await?;
            let lease = self.lease().await?;
            let mut ops = vec![Op::Create { key: key.clone(), value: bytes.clone(), lease }];
            ops.extend(allocation.operations(self.core, &object).await?);
            match self.commit(ops).await? {
                Commit::Done(revision) => {
                    objects::set_version(&mut object, revision);
                    return Ok(Written { object, created: true, stored: Some((bytes, revision)) });
                }
                Commit::Lost(current) => {
                    // An update that found nothing to change finds it now.
                    if self.context.info.verb == Verb::Create {
                        allocation.check_free(self.core, self.row, &object).await?;
                    }
                    let mut error = self.taken(&object, &name);
                    let there = current.and_then(|entry| objects::parse(self.row, &entry).ok());
                    if there.is_some_and(|stored| object::is_being_deleted(&stored.object)) {
                        error.0.message = format!("object is being deleted: {}", error.0.message);
                    }
                    return Err(error);
                }
                Commit::Taken(key) => allocation.lost(self.core, self.row, &mut object, &key).await?,
            }
        }
        Err(contended())
    }

    /// The answer to a name that is there. Who asked for a generated name as well may try again.
    fn taken(&self, object: &Value, name: &str) -> ApiError {
        let mut error = ApiError::already_exists(&self.row.group_resource(), name);
        if !object::text(object, "/metadata/generateName").is_empty() {
            error.0.message += ", the server was not able to generate a unique name for the object";
            error.0.details.get_or_insert_default().retry_after_seconds = 1;
        }
        error
    }

    async fn pretend_create(&self, mut object: Value, key: &str, name: &str) -> Result<Written, ApiError> {
        let got = self.core.store.get(key).await.map_err(|e| objects::store_error(&e))?;
        if got.entry.is_some() {
            return Err(self.taken(&object, name));
        }
        if self.row.strategy.conversion().is_none() {
            objects::as_stored(self.row, &mut object)?;
        }
        Ok(Written { object, created: true, stored: None })
    }

    pub(super) async fn commit_update(
        &self,
        mut object: Value,
        live: &Stored,
        mut allocation: Allocation,
    ) -> Result<Tried, ApiError> {
        let key = self.row.key(self.namespace, self.name);
        for _ in 0..ATTEMPTS {
            // A write that changes nothing is none, not even of the times of its managed fields.
            ferry_schema::managed::keep_times(&live.object, &mut object);
            let bytes = if self.row.strategy.loses_in_conversion() {
                let kept = if *self.subresource == Subresource::Status { "spec" } else { "status" };
                objects::to_bytes_over(self.row, &object, &live.bytes, kept)?
            } else {
                conversion::to_bytes(self.core, self.row, &object).await?
            };
            // What an old key protects is written again, so that it gets the new one.
            if bytes == live.bytes && !self.core.store.is_stale(&key).await.map_err(|e| objects::store_error(&e))? {
                let stored = Some((live.bytes.clone(), live.revision));
                return Ok(Tried::Unchanged(Written { object, created: false, stored }));
            }
            if self.options.dry_run {
                // The answer is what would come back from the store, where empty lists do not survive.
                return Ok(Tried::Done(Written { object, created: false, stored: Some((bytes, live.revision)) }));
            }
            let lease = self.lease().await?;
            let mut ops = vec![Op::Update { key: key.clone(), value: bytes.clone(), expected: live.revision, lease }];
            ops.extend(allocation.operations(self.core, &object).await?);
            match self.commit(ops).await? {
                Commit::Done(revision) => {
                    objects::set_version(&mut object, revision);
                    return Ok(Tried::Done(Written { object, created: false, stored: Some((bytes, revision)) }));
                }
                // A request that names a version finds on its next try that it is no longer the one.
                Commit::Lost(current) => return Ok(Tried::Lost(current)),
                Commit::Taken(key) => allocation.lost(self.core, self.row, &mut object, &key).await?,
            }
        }
        Err(contended())
    }

    /// The last finalizer of an object under deletion is gone.
    pub(super) fn completes_deletion(&self, object: &Value, live: &Value) -> bool {
        let grace = live.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        object::is_being_deleted(live) && grace == 0 && !self.is_held(object)
    }

    pub(super) async fn finish_deletion(&self, object: Value, live: &Stored) -> Result<Tried, ApiError> {
        let gone = self.options.dry_run || self.remove(live.revision, &live.object).await?.is_some();
        Ok(if gone { Tried::Done(Written { object, created: false, stored: None }) } else { Tried::Lost(None) })
    }

    /// Removes the object, and gives back what it had taken. `None`: another writer was faster.
    pub(crate) async fn remove(&self, expected: Revision, old: &Value) -> Result<Option<Revision>, ApiError> {
        let mut ops = vec![Op::Delete { key: self.row.key(self.namespace, self.name), expected }];
        ops.extend(self.releases(old).await?);
        self.settle(ops).await
    }

    /// Writes the bytes in the place of those of a revision. `None`: another writer was faster.
    pub(crate) async fn replace(&self, value: bytes::Bytes, expected: Revision) -> Result<Option<Revision>, ApiError> {
        let key = self.row.key(self.namespace, self.name);
        self.settle(vec![Op::Update { key, value, expected, lease: None }]).await
    }

    async fn settle(&self, ops: Vec<Op>) -> Result<Option<Revision>, ApiError> {
        Ok(match self.commit(ops).await? {
            Commit::Done(revision) => Some(revision),
            Commit::Lost(_) | Commit::Taken(_) => None,
        })
    }
}

fn contended() -> ApiError {
    ApiError::internal("the allocators are under too much contention")
}
