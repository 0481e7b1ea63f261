//! The live object that a write begins with.
//!
//! The cache has it without a question to the store, but may be behind. A write that is made needs no more: it names the revision
//! that it changes, and the store refuses it where that is not the newest. What is decided without a write - a refusal, that there is
//! nothing to do - stands only for an object that the store has now.

use ferry_meta::ApiError;
use ferry_registry::Resource;
use ferry_store::{Entry, Revision};

use super::objects::{self, Stored};
use crate::custom_resources::conversion::NotDecodable;
use crate::read::scope;
use crate::server::Core;

/// The object as the cache has it. None where the store is to be asked.
pub(crate) fn cached(core: &Core, row: &Resource, namespace: &str, name: &str) -> Option<Entry> {
    core.cache.resource(&row.storage_prefix)?.get(scope(row, namespace), name)?.entry()
}

enum Next {
    Cache,
    Store,
    Known(Option<Box<Entry>>),
}

/// One attempt after the other, each with an object to begin with.
pub(crate) struct Attempts<'a> {
    core: &'a Core,
    row: &'a Resource,
    namespace: &'a str,
    name: &'a str,
    told: fn(NotDecodable) -> ApiError,
    next: Next,
    /// What the cache had, where that is what this attempt began with.
    doubtful: Option<Revision>,
}

impl<'a> Attempts<'a> {
    /// `told` words what no webhook converts.
    pub(crate) fn new(
        core: &'a Core,
        row: &'a Resource,
        namespace: &'a str,
        name: &'a str,
        told: fn(NotDecodable) -> ApiError,
    ) -> Self {
        Self { core, row, namespace, name, told, next: Next::Cache, doubtful: None }
    }

    /// The same where nothing is written, so that the store is to be asked in any case.
    #[must_use]
    pub(crate) fn sure(self) -> Self {
        Self { next: Next::Store, ..self }
    }

    pub(crate) async fn load(&mut self) -> Result<Option<Stored>, ApiError> {
        self.doubtful = None;
        let entry = match std::mem::replace(&mut self.next, Next::Store) {
            Next::Known(entry) => entry.map(|entry| *entry),
            Next::Cache => match cached(self.core, self.row, self.namespace, self.name) {
                Some(entry) => {
                    self.doubtful = Some(entry.modified);
                    Some(entry)
                }
                None => self.find().await?,
            },
            Next::Store => self.find().await?,
        };
        match entry {
            Some(entry) => objects::read(self.core, self.row, entry, self.told).await.map(Some),
            None => Ok(None),
        }
    }

    /// Whether what was decided stands because the object is what the store has. If not, the next attempt begins with that.
    pub(crate) async fn stands(&mut self) -> Result<bool, ApiError> {
        let Some(seen) = self.doubtful.take() else { return Ok(true) };
        let entry = self.find().await?;
        if entry.as_ref().is_some_and(|entry| entry.modified == seen) {
            return Ok(true);
        }
        self.next = Next::Known(entry.map(Box::new));
        Ok(false)
    }

    /// Another writer was faster, and left this, if that is known.
    pub(crate) fn lost(&mut self, current: Option<Box<Entry>>) {
        self.next = current.map_or(Next::Store, |entry| Next::Known(Some(entry)));
    }

    async fn find(&self) -> Result<Option<Entry>, ApiError> {
        objects::find(self.core, self.row, self.namespace, self.name).await
    }
}
