//! What the stages of a write do. Their order is in the module above.

use ferry_admission::Operation;
use ferry_meta::{ApiError, FieldError, GroupKind, Path, object};
use ferry_registry::{Context, object_meta};
use rand::Rng;
use serde_json::Value;

use super::Write;
use super::admission::{self, Attributes};
use crate::request::context::Stage;
use crate::request::verb::Subresource;
use crate::storage::codec;
use crate::storage::objects::{self, Stored};

impl Write<'_> {
    fn strategy_context(&self) -> Context<'_> {
        Context {
            user: &self.context.user,
            subresource: self.subresource.as_str(),
            dry_run: self.options.dry_run,
            patch: self.context.method == http::Method::PATCH,
            reader: Some(&*self.core.cache),
        }
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

    /// Adds what the request's manager owns now. `live` is None for a new object.
    pub(crate) fn track_fields(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        let manager = self.options.manager(self.context.agent());
        codec::managed_update(&self.core.table(), self.row, self.subresource.as_str(), object, live, &manager)
    }

    pub(super) async fn mutate(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        let options = self.options.object();
        let name = if self.name.is_empty() { object::name(object).to_owned() } else { self.name.to_owned() };
        let attributes = self.attributes(operation(live), &name, &options);
        let outcome = admission::mutate(self.core, self.context, &attributes, Some(object), live).await;
        self.context.stages.done(Stage::Mutate);
        outcome
    }

    pub(super) async fn admit(&self, object: &mut Value, live: Option<&Value>) -> Result<(), ApiError> {
        self.context.stages.done(Stage::Schema);
        let options = self.options.object();
        let name = object::name(object).to_owned();
        let attributes = self.attributes(operation(live), &name, &options);
        let outcome = admission::validate(self.core, self.context, &attributes, Some(object), live).await;
        self.context.stages.done(Stage::Validate);
        outcome
    }

    /// What the plug-ins are told of this write.
    pub(crate) fn attributes<'b>(&'b self, operation: Operation, name: &'b str, options: &'b Value) -> Attributes<'b> {
        Attributes {
            operation,
            row: self.row,
            kind: &self.row.gvk,
            subresource: self.subresource.as_str(),
            namespace: if self.stands_in_itself() { name } else { self.namespace },
            name,
            dry_run: self.options.dry_run,
            options,
        }
    }

    /// Nobody grants what they do not have themselves.
    pub(super) async fn check_escalation(&self, object: &Value, old: Option<&Value>) -> Result<(), ApiError> {
        let (Some(rbac), resource) = (&self.core.rbac, self.row.group_resource()) else { return Ok(()) };
        let chain = &*self.core.authorization;
        ferry_auth::rbac::check_write(rbac, chain, &self.context.user, &resource, object, old).await
    }

    pub(super) fn prepare_create(&self, object: &mut Value, shared: bool) {
        for warning in self.row.strategy.early_warnings(object) {
            self.context.warn(warning);
        }
        self.row.drop_disabled(object, None);
        self.row.strategy.prepare_create(&self.strategy_context(), object);
        if shared {
            self.row.strategy.share_labels(object);
        }
    }

    pub(super) async fn validate_create(&self, object: &Value) -> Result<(), ApiError> {
        let strategy = self.strategy_context();
        let mut errors = self.row.validate_create(&strategy, object);
        if errors.is_empty() {
            errors = self.missing_rights_of_sound(object, None).await;
        }
        if !errors.is_empty() {
            return Err(self.row.refusal(object, errors));
        }
        for warning in self.row.strategy.warnings(&strategy, object, None) {
            self.context.warn(warning);
        }
        Ok(())
    }

    /// A version that the request names must be that of the live object; some kinds want one.
    pub(super) fn check_version(&self, object: &Value, live: &Stored) -> Result<(), ApiError> {
        let given = objects::parse_version(object::resource_version(object)).map_err(objects::bare_error)?;
        let whole = matches!(self.subresource, Subresource::Main | Subresource::Status);
        if given == 0 && whole && !self.row.strategy.allow_unconditional_update() {
            let path = Path::new("metadata").child("resourceVersion");
            let errors = FieldError::invalid(&path, 0, "must be specified for an update").into();
            let resource = self.row.group_resource();
            let kind = GroupKind { group: resource.group, kind: resource.resource };
            return Err(ApiError::invalid(&kind, self.name, &errors));
        }
        if given != 0 && given != live.revision {
            return Err(ApiError::modified(&self.row.group_resource(), self.name));
        }
        Ok(())
    }

    pub(super) fn prepare_update(&self, object: &mut Value, live: &Value) {
        object_meta::prepare_update(object, live);
        self.row.drop_disabled(object, Some(live));
        self.row.strategy.prepare_update(&self.strategy_context(), object, live);
    }

    pub(super) async fn validate_update(&self, object: &Value, live: &Value) -> Result<(), ApiError> {
        let mut errors = self.missing_rights(object, live).await;
        let strategy = self.strategy_context();
        errors.extend(self.row.validate_update(&strategy, object, live));
        if errors.is_empty() {
            errors = self.missing_rights_of_sound(object, Some(live)).await;
        }
        if !errors.is_empty() {
            return Err(self.row.refusal(object, errors));
        }
        for warning in self.row.strategy.warnings(&strategy, object, Some(live)) {
            self.context.warn(warning);
        }
        Ok(())
    }

    /// PUT carries the uid it means; another one there is a conflict, and so is none.
    pub(crate) fn check_uid(&self, object: &Value, live: Option<&Stored>) -> Result<(), ApiError> {
        let (given, have) = (object::uid(object), live.map_or("", |l| object::uid(&l.object)));
        if given.is_empty() || given == have { Ok(()) } else { Err(self.uid_conflict(given, have)) }
    }

    /// The same for the patch of a subresource, whose refusal names it.
    pub(crate) fn check_patched_uid(&self, object: &Value, live: &Stored, subresource: &str) -> Result<(), ApiError> {
        let (given, have) = (object::uid(object), object::uid(&live.object));
        if given.is_empty() || given == have {
            return Ok(());
        }
        let mut resource = self.row.group_resource();
        resource.resource = format!("{}/{subresource}", resource.resource);
        let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {have}");
        Err(ApiError::conflict(&resource, self.name, &why))
    }

    /// The same for an apply that finds nothing there.
    pub(crate) fn refuse_uid(&self, object: &Value) -> Result<(), ApiError> {
        let uid = object::uid(object);
        if uid.is_empty() {
            return Ok(());
        }
        let why = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        Err(ApiError::conflict(&self.row.group_resource(), self.name, &why))
    }

    fn uid_conflict(&self, given: &str, have: &str) -> ApiError {
        let key = self.row.key(self.namespace, self.name);
        // Who only tries is not told where the store keeps it.
        let key = if self.options.dry_run { key.strip_prefix("/registry").unwrap_or(&key) } else { &key };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {given}, UID in object meta: {have}"
        );
        ApiError::conflict(&self.row.group_resource(), self.name, &why)
    }
}

fn operation(live: Option<&Value>) -> Operation {
    if live.is_none() { Operation::Create } else { Operation::Update }
}

pub(super) fn generate_name(base: &str) -> String {
    let mut random = rand::rng();
    let alphabet = object_meta::SUFFIX_ALPHABET;
    let suffix: String =
        (0..object_meta::SUFFIX_LENGTH).map(|_| char::from(alphabet[random.random_range(0..alphabet.len())])).collect();
    object_meta::generated_name(base, &suffix)
}
