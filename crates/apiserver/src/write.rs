//! The write path: one new or changed object on its way to the store, in upstream's order:
//! managed fields → mutating admission → preparation → validation → validating admission → compare-and-swap.

use bytes::Bytes;
use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, GroupKind, Path, object, time};
use ferry_registry::{Context, Resource, object_meta};
use ferry_store::{Op, Revision, StoreError, Transaction};
use rand::Rng;
use serde_json::Value;

use crate::admission::{self, Attributes};
use crate::allocate::{self, Allocation};
use crate::codec;
use crate::context::{RequestContext, Stage};
use crate::device_rights;
use crate::objects::{self, Stored};
use crate::options::WriteOptions;
use crate::rights;
use crate::server::Core;

/// One write of one object. `subresource` is empty for the main resource.
pub(crate) struct Write<'a> {
    pub core: &'a Core,
    pub context: &'a RequestContext,
    pub row: &'a Resource,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub options: &'a WriteOptions,
    /// False where the plug-ins saw another object in its place: the Scale of a Deployment.
    pub admits: bool,
}

/// What a write ended with.
pub(crate) struct Written {
    pub object: Value,
    pub created: bool,
    /// Kept where the object went to the store, so that the answer needs no second encoding.
    pub stored: Option<(Bytes, Revision)>,
}

/// Writes that lose the race this often give up; each round means that another writer won.
const ATTEMPTS: usize = 64;
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
    fn strategy_context(&self) -> Context<'_> {
        Context {
            user: &self.context.user,
            subresource: self.subresource,
            dry_run: self.options.dry_run,
            patch: self.context.method == http::Method::PATCH,
            reader: Some(&*self.core.cache),
        }
    }

    /// Adds what the request's manager owns now. `live` is None for a new object.
    pub(crate) fn track_fields(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        let manager = self.options.manager(self.context.agent());
        codec::managed_update(&self.core.table(), self.row, self.subresource, object, live, &manager)
    }

    /// A new object that was decoded and defaulted.
    pub(crate) async fn create(&self, mut object: Value) -> Result<Written, ApiError> {
        object_meta::wipe_system_fields(&mut object);
        self.match_namespace(&mut object)?;
        self.note_duplicate_owners(&mut object);
        self.track_fields(&mut object, None)?;
        self.mutate(&mut object, None).await?;
        self.finish_create(object).await
    }

    /// The namespace of an object is the request's; a cluster-scoped object has none.
    pub(crate) fn match_namespace(&self, object: &mut Value) -> Result<(), ApiError> {
        let have = object::namespace(object);
        if !self.row.namespaced {
            object::metadata_mut(object).remove("namespace");
        } else if have.is_empty() {
            object::metadata_mut(object).insert("namespace".into(), self.namespace.into());
        } else if have != self.namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    fn note_duplicate_owners(&self, object: &mut Value) {
        if let Some(warning) = object_meta::remove_duplicate_owners(object) {
            self.context.warn(warning);
        }
    }

    async fn mutate(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        let options = self.options.object();
        let name = if self.name.is_empty() { object::name(object).to_owned() } else { self.name.to_owned() };
        let attributes = self.attributes(live.is_none(), &name, &options);
        let outcome = admission::mutate(self.core, self.context, &attributes, Some(object), live).await;
        self.context.stages.done(Stage::Mutate);
        outcome?;
        self.note_duplicate_owners(object);
        Ok(())
    }

    async fn admit(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        let options = self.options.object();
        let name = object::name(object).to_owned();
        let attributes = self.attributes(live.is_none(), &name, &options);
        let outcome = admission::validate(self.core, self.context, &attributes, Some(object), live).await;
        self.context.stages.done(Stage::Validate);
        outcome
    }

    fn attributes<'b>(&'b self, creating: bool, name: &'b str, options: &'b Value) -> Attributes<'b> {
        // A Namespace is admitted as if it stood in itself.
        let own = self.row.gvk.group.is_empty() && self.row.plural == "namespaces";
        Attributes {
            operation: if creating { Operation::Create } else { Operation::Update },
            row: self.row,
            kind: &self.row.gvk,
            subresource: self.subresource,
            namespace: if own { name } else { self.namespace },
            name,
            dry_run: self.options.dry_run,
            options,
        }
    }

    /// Nobody grants what they do not have themselves.
    async fn check_escalation(&self, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let (Some(rbac), resource) = (&self.core.rbac, self.row.group_resource()) else { return Ok(()) };
        let chain = &*self.core.authorization;
        ferry_auth::rbac::check_write(rbac, chain, &self.context.user, &resource, object, old).await
    }

    /// From preparation to the commit, for an object that passed mutating admission.
    async fn finish_create(&self, mut object: Value) -> Result<Written, ApiError> {
        self.check_escalation(&object, None).await?;
        let generated = object::name(&object).is_empty() && !object::text(&object, "/metadata/generateName").is_empty();
        objects::set_kind(&mut object, self.row);
        let now = time::time(time::now());
        object_meta::prepare_create(&mut object, &crate::context::new_uid(), &now);
        if !generated {
            return self.try_create(object, self.options.bare_labels).await;
        }
        for attempt in 0.. {
            let mut candidate = object.clone();
            let name = generate_name(object::text(&candidate, "/metadata/generateName"));
            object::metadata_mut(&mut candidate).insert("name".into(), name.into());
            let outcome = self.try_create(candidate, false).await;
            let taken = matches!(&outcome, Err(e) if e.is(ferry_meta::Reason::AlreadyExists));
            if !(taken && attempt < GENERATED_NAME_ATTEMPTS) {
                return outcome;
            }
        }
        Err(ApiError::internal("no free name was found"))
    }

    /// `shared`: a kind may show labels of its template as its own. A copy made for a generated name does not.
    async fn try_create(&self, mut object: Value, shared: bool) -> Result<Written, ApiError> {
        let strategy = self.strategy_context();
        for warning in self.row.strategy.early_warnings(&object) {
            self.context.warn(warning);
        }
        self.row.drop_disabled(&mut object, None);
        self.row.strategy.prepare_create(&strategy, &mut object);
        if shared {
            self.row.strategy.share_labels(&mut object);
        }
        let mut allocation = allocate::for_create(self.core, self.row, &mut object, self.options.dry_run)?;
        let errors = self.row.validate_create(&strategy, &object);
        if !errors.is_empty() {
            return Err(self.row.refusal(&object, errors));
        }
        for warning in self.row.strategy.warnings(&strategy, &object, None) {
            self.context.warn(warning);
        }
        let name = object::name(&object).to_owned();
        self.admit(&mut object, None).await?;
        // Who only tries is told nothing of it.
        if !self.options.dry_run {
            if objects::parse_version(object::resource_version(&object)).unwrap_or(1) != 0 {
                return Err(objects::bare_error("resourceVersion should not be set on objects to be created"));
            }
            object::metadata_mut(&mut object).remove("resourceVersion");
        }
        let key = self.row.key(self.namespace, &name);
        if self.options.dry_run {
            let got = self.core.store.get(&key).await.map_err(|e| objects::store_error(&e))?;
            if got.entry.is_some() {
                return Err(ApiError::already_exists(&self.row.group_resource(), &name));
            }
            if self.row.strategy.conversion().is_none() {
                objects::as_stored(self.row, &mut object)?;
            }
            return Ok(Written { object, created: true, stored: None });
        }
        for _ in 0..ATTEMPTS {
            let bytes = crate::conversion::to_bytes(self.core, self.row, &object).await?;
            let lease = self.lease(&object).await?;
            let mut ops = vec![Op::Create { key: key.clone(), value: bytes.clone(), lease }];
            ops.extend(allocation.operations(self.core, &object).await?);
            let outcome = self.core.commit(Transaction { ops }, Some(&self.context.stages)).await;
            match outcome {
                Ok(commit) => {
                    objects::set_version(&mut object, commit.revision);
                    return Ok(Written { object, created: true, stored: Some((bytes, commit.revision)) });
                }
                Err(StoreError::Conflict { key: taken, current }) if taken == key => {
                    let mut error = ApiError::already_exists(&self.row.group_resource(), &name);
                    let there = current.and_then(|entry| objects::parse(self.row, &entry).ok());
                    if there.is_some_and(|stored| object::is_being_deleted(&stored.object)) {
                        error.0.message = format!("object is being deleted: {}", error.0.message);
                    }
                    return Err(error);
                }
                Err(StoreError::Conflict { key: taken, .. }) => {
                    allocation.lost(self.core, self.row, &mut object, &taken)?;
                }
                Err(error) => return Err(objects::store_error(&error)),
            }
        }
        Err(ApiError::internal("the allocators are under too much contention"))
    }

    /// Events are forgotten after an hour.
    async fn lease(&self, _object: &Value) -> Result<Option<ferry_store::LeaseId>, ApiError> {
        if self.row.storage_prefix != "events" {
            return Ok(None);
        }
        self.core.event_leases.current(&*self.core.store).await.map(Some)
    }

    /// Changes the object by `change`, which is given the live one (None: it does not exist) and is asked again when
    /// another writer was faster. `create` allows a new object where the kind alone would not.
    pub(crate) async fn update(
        &self,
        create: bool,
        mut change: impl FnMut(Option<&Stored>) -> Result<Value, ApiError> + Send,
    ) -> Result<Written, ApiError> {
        for _ in 0..ATTEMPTS {
            let live = objects::load(self.core, self.row, self.namespace, self.name).await?;
            // A subresource of what is not there is not there either, whatever the kind allows.
            let may_create = self.subresource.is_empty() && (create || self.row.strategy.allow_create_on_update());
            if live.is_none() && !may_create {
                return Err(ApiError::not_found(&self.row.group_resource(), self.name));
            }
            let object = change(live.as_ref())?;
            let outcome = match live {
                None => self.create_by_update(object, create).await.map(Some),
                Some(live) => self.try_update(object, live).await,
            };
            match outcome {
                Ok(Some(written)) => return Ok(written),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        Err(ApiError::modified(&self.row.group_resource(), self.name))
    }

    async fn create_by_update(&self, mut object: Value, applied: bool) -> Result<Written, ApiError> {
        rights::must_create(self.core, self.context).await?;
        let uid = object::uid(&object);
        if !uid.is_empty() && applied {
            let why =
                format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
            return Err(ApiError::conflict(&self.row.group_resource(), self.name, &why));
        }
        if !uid.is_empty() {
            return Err(self.uid_conflict(uid, ""));
        }
        self.match_namespace(&mut object)?;
        self.mutate(&mut object, None).await?;
        object::metadata_mut(&mut object).remove("resourceVersion");
        self.finish_create(object).await
    }

    pub(crate) fn uid_conflict(&self, given: &str, have: &str) -> ApiError {
        let key = self.row.key(self.namespace, self.name);
        // Who only tries is not told where the store keeps it.
        let key = if self.options.dry_run { key.strip_prefix("/registry").unwrap_or(&key) } else { &key };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {given}, UID in object meta: {have}"
        );
        ApiError::conflict(&self.row.group_resource(), self.name, &why)
    }

    /// `None`: another writer was faster, so it is tried again on what that one wrote.
    pub(crate) async fn try_update(&self, mut object: Value, live: Stored) -> Result<Option<Written>, ApiError> {
        let given = objects::parse_version(object::resource_version(&object)).map_err(objects::bare_error)?;
        if given == 0 && !self.row.strategy.allow_unconditional_update() && matches!(self.subresource, "" | "status") {
            let path = Path::new("metadata").child("resourceVersion");
            let errors = FieldError::invalid(&path, 0, "must be specified for an update").into();
            let resource = self.row.group_resource();
            let kind = GroupKind { group: resource.group, kind: resource.resource };
            return Err(ApiError::invalid(&kind, self.name, &errors));
        }
        if given != 0 && given != live.revision {
            return Err(ApiError::modified(&self.row.group_resource(), self.name));
        }
        objects::set_version(&mut object, live.revision);
        objects::set_kind(&mut object, self.row);
        self.match_namespace(&mut object)?;
        if self.admits {
            self.mutate(&mut object, Some(&live.object)).await?;
        }
        self.check_escalation(&object, Some(&live.object)).await?;
        let strategy = self.strategy_context();
        object_meta::prepare_update(&mut object, &live.object);
        self.row.drop_disabled(&mut object, Some(&live.object));
        self.row.strategy.prepare_update(&strategy, &mut object, &live.object);
        let allocation = allocate::for_update(self.core, self.row, &mut object, &live.object, self.options.dry_run)?;
        let mut errors =
            device_rights::errors(self.core, self.context, self.row, self.subresource, &object, &live.object).await;
        errors.extend(self.row.validate_update(&strategy, &object, &live.object));
        if !errors.is_empty() {
            return Err(self.row.refusal(&object, errors));
        }
        for warning in self.row.strategy.warnings(&strategy, &object, Some(&live.object)) {
            self.context.warn(warning);
        }
        if self.admits {
            self.admit(&mut object, Some(&live.object)).await?;
        }
        if self.completes_deletion(&object, &live.object) {
            return self.finish_deletion(object, &live).await;
        }
        self.commit_update(object, &live, allocation).await
    }

    async fn commit_update(
        &self,
        mut object: Value,
        live: &Stored,
        mut allocation: Allocation,
    ) -> Result<Option<Written>, ApiError> {
        for _ in 0..ATTEMPTS {
            // A write that changes nothing is none, not even of the times of its managed fields.
            ferry_schema::managed::keep_times(&live.object, &mut object);
            let bytes = crate::conversion::to_bytes(self.core, self.row, &object).await?;
            let key = self.row.key(self.namespace, self.name);
            // What an old key protects is written again, so that it gets the new one.
            if bytes == live.bytes && !self.core.store.is_stale(&key).await.map_err(|e| objects::store_error(&e))? {
                let stored = Some((live.bytes.clone(), live.revision));
                return Ok(Some(Written { object, created: false, stored }));
            }
            if self.options.dry_run {
                // The answer is what would come back from the store, where empty lists do not survive.
                return Ok(Some(Written { object, created: false, stored: Some((bytes, live.revision)) }));
            }
            let lease = self.lease(&object).await?;
            let mut ops = vec![Op::Update { key: key.clone(), value: bytes.clone(), expected: live.revision, lease }];
            ops.extend(allocation.operations(self.core, &object).await?);
            let outcome = self.core.commit(Transaction { ops }, Some(&self.context.stages)).await;
            match outcome {
                Ok(commit) => {
                    objects::set_version(&mut object, commit.revision);
                    return Ok(Some(Written { object, created: false, stored: Some((bytes, commit.revision)) }));
                }
                // A request that names a version finds on its next try that it is no longer the one.
                Err(StoreError::Conflict { key: taken, .. }) if taken == key => return Ok(None),
                Err(StoreError::Conflict { key: taken, .. }) => {
                    allocation.lost(self.core, self.row, &mut object, &taken)?;
                }
                Err(error) => return Err(objects::store_error(&error)),
            }
        }
        Err(ApiError::internal("the allocators are under too much contention"))
    }

    /// The last finalizer of an object under deletion is gone.
    fn completes_deletion(&self, object: &Value, live: &Value) -> bool {
        let grace = live.pointer("/metadata/deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        let is_namespace = self.row.gvk.group.is_empty() && self.row.plural == "namespaces";
        let held = is_namespace && !object::items(object, "/spec/finalizers").is_empty();
        object::is_being_deleted(live) && grace == 0 && object::finalizers(object).next().is_none() && !held
    }

    async fn finish_deletion(&self, object: Value, live: &Stored) -> Result<Option<Written>, ApiError> {
        let written = Written { object, created: false, stored: None };
        if self.options.dry_run {
            return Ok(Some(written));
        }
        let key = self.row.key(self.namespace, self.name);
        let mut ops = vec![Op::Delete { key, expected: live.revision }];
        ops.extend(allocate::releases(self.core, self.row, &live.object).await?);
        match self.core.commit(Transaction { ops }, Some(&self.context.stages)).await {
            Ok(_) => Ok(Some(written)),
            Err(StoreError::Conflict { .. }) => Ok(None),
            Err(error) => Err(objects::store_error(&error)),
        }
    }

    /// PUT carries the uid it means; another one there is a conflict.
    pub(crate) fn check_uid(&self, object: &Value, live: Option<&Stored>) -> Result<(), ApiError> {
        let (given, have) = (object::uid(object), live.map_or("", |l| object::uid(&l.object)));
        if live.is_some() && !given.is_empty() && given != have {
            return Err(self.uid_conflict(given, have));
        }
        Ok(())
    }
}

fn generate_name(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = object_meta::SUFFIX_ALPHABET;
    let suffix: String =
        (0..object_meta::SUFFIX_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])).collect();
    object_meta::generated_name(base, &suffix)
}
