//! Encryption at rest: a store in front of another one, whose values of some resources nobody can read without the key.
//!
//! The one place where values are encrypted and decrypted: whoever is above it sees plain values, and engine, backups and
//! etcd below it see `k8s:enc:<provider>:v1:<key>:` and what follows, as upstream writes them.

mod config;
mod kms;
mod providers;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt;

pub(crate) use config::is_sealed;
pub use config::{ConfigError, EncryptionConfig};

use providers::Failure;

use crate::{
    Commit, Entry, Got, LeaseId, Op, Range, RangeResult, Result, Revision, Store, StoreError, Transaction,
    WatchRequest, WatchStream,
};

/// From a key to the group and the plural name of the resource it belongs to.
pub type ResourceOf = Arc<dyn Fn(&str) -> Option<(String, String)> + Send + Sync>;

/// How many entries are looked at together when old ones are written anew.
const PAGE: usize = 500;

pub struct EncryptedStore {
    inner: Arc<dyn Store>,
    resource_of: ResourceOf,
    config: Arc<ArcSwap<EncryptionConfig>>,
}

impl EncryptedStore {
    pub fn new(inner: Arc<dyn Store>, config: EncryptionConfig, resource_of: ResourceOf) -> Arc<Self> {
        Arc::new(Self { inner, resource_of, config: Arc::new(ArcSwap::from_pointee(config)) })
    }

    /// Other keys from now on. Values that only the former ones can read are lost to this store until they come back.
    pub fn set_config(&self, config: EncryptionConfig) {
        self.config.store(Arc::new(config));
    }

    /// Writes every value anew that is not yet in the form the configuration wants, and says how many there were.
    pub async fn rewrite_stale(&self) -> Result<usize> {
        let config = self.config.load_full();
        let mut rewritten = 0;
        let mut after = None;
        loop {
            let range = Range { prefix: crate::key::ROOT.into(), after, limit: PAGE, revision: None };
            let page = self.inner.range(range).await?;
            for entry in &page.entries {
                if !config.is_stale(&self.resource_of, &entry.key, &entry.value) {
                    continue;
                }
                let value = config.open(&entry.key, &entry.value).await.map_err(|why| unreadable(&entry.key, why))?;
                let value = config.seal(&self.resource_of, &entry.key, &value).map_err(StoreError::Corrupt)?;
                let update =
                    Op::Update { key: entry.key.to_string(), value, expected: entry.modified, lease: entry.lease };
                match self.inner.commit(Transaction::one(update)).await {
                    Ok(_) => rewritten += 1,
                    // Somebody wrote it meanwhile, and thereby with the new key.
                    Err(StoreError::Conflict { .. }) => {}
                    Err(error) => return Err(error),
                }
            }
            after = page.entries.last().map(|entry| entry.key.to_string());
            if !page.more || after.is_none() {
                return Ok(rewritten);
            }
        }
    }

    async fn open(&self, entry: &mut Entry) -> Result<()> {
        if is_sealed(&entry.value) {
            let config = self.config.load_full();
            // In a box: every reader and writer would carry its several kilobytes, and most values are plain.
            let opened = Box::pin(config.open(&entry.key, &entry.value)).await;
            entry.value = opened.map_err(|why| unreadable(&entry.key, why))?;
        }
        Ok(())
    }
}

fn unreadable(key: &str, why: Failure) -> StoreError {
    match why {
        Failure::Damaged(why) => StoreError::Corrupt(format!("the value of {key} cannot be decrypted: {why}")),
        Failure::Unavailable(why) => {
            StoreError::Unavailable(format!("the value of {key} cannot be decrypted now: {why}"))
        }
    }
}

/// Among many values one that cannot be read is left as it is: the others must not be lost with it. One that cannot be read
/// now is an error: nobody would come back for it.
async fn open_or_leave(config: &EncryptionConfig, entry: &mut Entry) -> Result<()> {
    if is_sealed(&entry.value) {
        match Box::pin(config.open(&entry.key, &entry.value)).await {
            Ok(value) => entry.value = value,
            Err(Failure::Damaged(why)) => tracing::error!("the value of {} cannot be decrypted: {why}", entry.key),
            Err(why) => return Err(unreadable(&entry.key, why)),
        }
    }
    Ok(())
}

#[async_trait::async_trait]
impl Store for EncryptedStore {
    async fn get(&self, key: &str) -> Result<Got> {
        let mut got = self.inner.get(key).await?;
        if let Some(entry) = &mut got.entry {
            self.open(entry).await?;
        }
        Ok(got)
    }

    async fn range(&self, range: Range) -> Result<RangeResult> {
        let mut found = self.inner.range(range).await?;
        let config = self.config.load_full();
        for entry in &mut found.entries {
            open_or_leave(&config, entry).await?;
        }
        Ok(found)
    }

    async fn commit(&self, mut transaction: Transaction) -> Result<Commit> {
        {
            let config = self.config.load();
            for op in &mut transaction.ops {
                if let Op::Create { key, value, .. } | Op::Update { key, value, .. } = op {
                    crate::key::check_plain(key, value)?;
                    *value = config.seal(&self.resource_of, key, value).map_err(StoreError::Unavailable)?;
                }
            }
        }
        match self.inner.commit(transaction).await {
            Err(StoreError::Conflict { key, current: Some(mut current) }) => {
                self.open(&mut current).await?;
                Err(StoreError::Conflict { key, current: Some(current) })
            }
            other => other,
        }
    }

    async fn watch(&self, request: WatchRequest) -> Result<WatchStream> {
        let stream = self.inner.watch(request).await?;
        let shared = self.config.clone();
        let opened = stream.then(move |batch| {
            // Loaded for each batch: keys may change while a watch runs.
            let config = shared.load_full();
            async move {
                let mut batch = batch?;
                for event in &mut batch.events {
                    open_or_leave(&config, &mut event.entry).await?;
                    if let Some(previous) = &mut event.previous {
                        open_or_leave(&config, previous).await?;
                    }
                }
                Ok(batch)
            }
        });
        Ok(opened.boxed())
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        self.inner.compact(revision).await
    }

    async fn revision(&self) -> Result<Revision> {
        self.inner.revision().await
    }

    async fn grant_lease(&self, ttl_seconds: u64) -> Result<LeaseId> {
        self.inner.grant_lease(ttl_seconds).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<()> {
        self.inner.revoke_lease(lease).await
    }

    async fn is_stale(&self, key: &str) -> Result<bool> {
        let config = self.config.load_full();
        if !config.concerns(&self.resource_of, key) {
            return Ok(false);
        }
        let got = self.inner.get(key).await?;
        Ok(got.entry.is_some_and(|entry| config.is_stale(&self.resource_of, key, &entry.value)))
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn answers(&self) -> Result<()> {
        self.inner.answers().await?;
        self.config.load().health().map_err(StoreError::Unavailable)
    }

    async fn health(&self) -> Result<()> {
        self.inner.health().await?;
        self.config.load().health().map_err(StoreError::Unavailable)
    }
}
