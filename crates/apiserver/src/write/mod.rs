//! The write path: one new or changed object on its way to the store.
//!
//! [`Write::create`] and [`Write::update`] are the list of its stages, in upstream's order. What a stage does is in
//! `stages`; how the outcome reaches the store is in `commit`; what a kind adds of its own is in `hooks`, by the flag of its
//! row. What PUT, PATCH and a Scale make of the live object is a [`Change`].

pub(crate) mod admission;
pub(crate) mod allocate;
mod commit;
mod device_rights;
mod equivalents;
pub(crate) mod fencing;
mod hooks;
pub(crate) mod lease_fast_path;
pub(crate) mod patching;
mod policy_rights;
pub(crate) mod quotas;
mod said;
mod signing_rights;
mod stages;

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use ferry_meta::{ApiError, Reason, object, time};
use ferry_registry::{Resource, object_meta};
use ferry_store::{Entry, Revision};
use serde_json::Value;

use crate::custom_resources::conversion::NotDecodable;
use crate::filters::rights;
use crate::request::context::{RequestContext, new_uid};
use crate::request::info::RequestInfo;
use crate::request::options::WriteOptions;
use crate::request::verb::Subresource;
use crate::server::Core;
use crate::storage::codec;
use crate::storage::live::Attempts;
use crate::storage::objects::{self, Stored};

/// One write of one object.
pub(crate) struct Write<'a> {
    pub core: &'a Core,
    pub context: &'a RequestContext,
    pub row: &'a Resource,
    pub subresource: &'a Subresource,
    pub namespace: &'a str,
    pub name: &'a str,
    pub options: &'a WriteOptions,
    /// False where the plug-ins saw another object in its place: the Scale of a Deployment.
    pub admits: bool,
    /// A transaction of it ended without an answer that is known: it is not tried again.
    pub open: AtomicBool,
}

/// What a request makes of the live object.
pub(crate) trait Change: Sync {
    /// Whether an object may be made where there is none and the kind alone would not allow it.
    fn creates(&self) -> bool {
        false
    }

    /// The object as it is wanted, its managed fields up to date. `live` is None where there is none. Asked again when
    /// another writer was faster.
    fn apply(&self, write: &Write<'_>, live: Option<&Stored>) -> impl Future<Output = Result<Value, ApiError>> + Send;
}

/// What a write ended with.
pub(crate) struct Written {
    pub object: Value,
    pub created: bool,
    /// Kept where the object went to the store, so that the answer needs no second encoding.
    pub stored: Option<(Bytes, Revision)>,
}

/// What an attempt to change the live object came to.
enum Tried {
    Done(Written),
    /// There was nothing to write.
    Unchanged(Written),
    /// Another writer was faster, and left this, as far as it is known.
    Lost(Option<Box<Entry>>),
}

/// Writes that lose the race this often give up; each round means that another writer won.
pub(crate) const ATTEMPTS: usize = 64;
const GENERATED_NAME_ATTEMPTS: usize = 8;

impl Written {
    pub(crate) fn json(&self, row: &Resource) -> Result<Bytes, ApiError> {
        match &self.stored {
            Some((bytes, revision)) if row.strategy.conversion().is_none() => objects::to_json(row, bytes, *revision),
            _ => Ok(codec::encode(&row.gvk, &self.object).into()),
        }
    }
}

impl<'a> Write<'a> {
    /// The write that a request asks for.
    pub(crate) fn new(
        core: &'a Core,
        context: &'a RequestContext,
        row: &'a Resource,
        options: &'a WriteOptions,
    ) -> Self {
        let RequestInfo { subresource, namespace, name, .. } = &context.info;
        Self { core, context, row, subresource, namespace, name, options, admits: true, open: AtomicBool::new(false) }
    }
}

impl Write<'_> {
    /// POST: a new object that was decoded and defaulted.
    pub(crate) async fn create(&self, mut object: Value) -> Result<Written, ApiError> {
        object_meta::wipe_system_fields(&mut object);
        self.match_namespace(&mut object)?;
        admission::note_duplicate_owners(self.context, &mut object);
        self.track_fields(&mut object, None)?;
        self.mutate(&mut object, None).await?;
        self.create_admitted(object).await
    }

    /// PUT, PATCH and all that changes what is there: the live object is read, changed and written, again and again while
    /// other writers are faster.
    pub(crate) async fn update(&self, change: &impl Change) -> Result<Written, ApiError> {
        let mut attempts = self.attempts(NotDecodable::plain);
        for _ in 0..ATTEMPTS {
            let live = attempts.load().await?;
            match self.attempt(change, live).await {
                Ok(Tried::Done(written)) => return Ok(written),
                Ok(Tried::Lost(current)) => attempts.lost(current),
                Ok(Tried::Unchanged(written)) if attempts.stands().await? => return Ok(written),
                Err(error) if self.is_open() || attempts.stands().await? => return Err(error),
                Ok(Tried::Unchanged(_)) | Err(_) => {}
            }
        }
        Err(ApiError::modified(&self.row.group_resource(), self.name))
    }

    /// The live objects to try it with.
    pub(crate) fn attempts(&self, told: fn(NotDecodable) -> ApiError) -> Attempts<'_> {
        let attempts = Attempts::new(self.core, self.row, self.namespace, self.name, told);
        if self.options.dry_run { attempts.sure() } else { attempts }
    }

    /// Whether it is not known what became of it.
    pub(crate) fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    async fn attempt(&self, change: &impl Change, live: Option<Stored>) -> Result<Tried, ApiError> {
        // A subresource of what is not there is not there either, whatever the kind allows.
        let may_create = self.subresource.is_main() && (change.creates() || self.row.strategy.allow_create_on_update());
        if live.is_none() && !may_create {
            return Err(ApiError::not_found(&self.row.group_resource(), self.name));
        }
        let object = change.apply(self, live.as_ref()).await?;
        let Some(live) = live else {
            return match self.create_by_update(object).await {
                // Somebody else made it meanwhile: then it is that one which changes.
                Err(error) if error.is(Reason::AlreadyExists) => Ok(Tried::Lost(None)),
                outcome => outcome.map(Tried::Done),
            };
        };
        self.try_update(object, live).await
    }

    /// A PUT or an apply of what does not exist.
    async fn create_by_update(&self, mut object: Value) -> Result<Written, ApiError> {
        rights::must_create(self.core, self.context).await?;
        self.match_namespace(&mut object)?;
        self.mutate(&mut object, None).await?;
        // A version of what is not there is no matter, but it must be one.
        objects::parse_version(object::resource_version(&object)).map_err(objects::bare_error)?;
        // Who only tries gets back what was sent.
        if !self.options.dry_run {
            object::metadata_mut(&mut object).remove("resourceVersion");
        }
        self.create_admitted(object).await
    }

    /// A new object behind mutating admission. A name that was generated and is taken is generated again.
    async fn create_admitted(&self, mut object: Value) -> Result<Written, ApiError> {
        self.check_escalation(&object, None).await?;
        let generated = object::name(&object).is_empty() && !object::text(&object, "/metadata/generateName").is_empty();
        objects::set_kind(&mut object, self.row);
        object_meta::prepare_create(&mut object, &new_uid(), &time::time(time::now()));
        if !generated {
            return self.create_named(object, self.options.bare_labels).await;
        }
        for attempt in 0.. {
            let mut candidate = object.clone();
            let name = stages::generate_name(object::text(&candidate, "/metadata/generateName"));
            object::metadata_mut(&mut candidate).insert("name".into(), name.into());
            let outcome = self.create_named(candidate, false).await;
            let taken = matches!(&outcome, Err(e) if e.is(Reason::AlreadyExists));
            if !(taken && attempt < GENERATED_NAME_ATTEMPTS) {
                return outcome;
            }
        }
        Err(ApiError::internal("no free name was found"))
    }

    /// The rest of a creation. `shared`: a kind may show labels of its template as its own. A copy made for a generated
    /// name does not.
    async fn create_named(&self, mut object: Value, shared: bool) -> Result<Written, ApiError> {
        self.prepare_create(&mut object, shared);
        let allocation = self.allocate(&mut object, None)?;
        self.validate_create(&object).await?;
        self.admit(&mut object, None).await?;
        self.commit_create(object, allocation).await
    }

    /// The rest of an update.
    async fn try_update(&self, mut object: Value, live: Stored) -> Result<Tried, ApiError> {
        objects::set_kind(&mut object, self.row);
        self.match_namespace(&mut object)?;
        // Plug-ins see the version that was sent, whether it holds or not.
        if self.admits {
            self.mutate(&mut object, Some(&live.object)).await?;
        }
        self.check_version(&object, &live)?;
        objects::set_version(&mut object, live.revision);
        self.check_escalation(&object, Some(&live.object)).await?;
        self.prepare_update(&mut object, &live.object);
        let allocation = self.allocate(&mut object, Some(&live.object))?;
        self.validate_update(&object, &live.object).await?;
        if self.admits {
            self.admit(&mut object, Some(&live.object)).await?;
        }
        if self.completes_deletion(&object, &live.object) {
            return self.finish_deletion(object, &live).await;
        }
        self.commit_update(object, &live, allocation).await
    }
}
