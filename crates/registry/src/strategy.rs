//! What is truly a kind's own.

use ferry_meta::{FieldErrors, UserInfo, names};
use ferry_schema::Type;
use jiff::Timestamp;
use serde_json::Value;

use crate::apiextensions::custom::ScalePaths;
use crate::cells;
use crate::plain::Plain;

/// What a strategy may know of the request.
pub struct Context<'a> {
    pub user: &'a UserInfo,
    /// The subresource written to; empty for the main resource.
    pub subresource: &'a str,
    pub dry_run: bool,
    /// The object was put together from the stored one and a patch.
    pub patch: bool,
    /// What else the cluster has, for the few rules that depend on it.
    pub reader: Option<&'a dyn ferry_meta::ObjectReader>,
}

/// The hooks of one kind. Objects are decoded, pruned maps of the row's version; hooks that say nothing do the common thing.
/// Order on create: default → mutating admission → prepare_create → validate_create → validating admission; on update the
/// same with prepare_update and validate_update. ObjectMeta is defaulted and validated by the caller through `object_meta`, whose
/// errors come first.
pub trait Strategy: Send + Sync {
    /// The type of a custom resource; None for built-in kinds, whose types are in the catalogue.
    fn custom_type(&self) -> Option<&Type> {
        None
    }

    /// The type of a custom resource in any version of its definition, served or not.
    fn type_in(&self, _api_version: &str) -> Option<&Type> {
        None
    }

    /// Whether `to_storage` adds something to objects that are in the stored version already.
    fn fills_in_stored(&self) -> bool {
        false
    }

    /// Where a custom resource keeps what its Scale shows.
    fn scale_paths(&self) -> Option<&ScalePaths> {
        None
    }

    /// The schema of a custom resource as its definition has it, for OpenAPI.
    fn published_schema(&self) -> Option<&Value> {
        None
    }

    /// The webhook that turns a custom resource from one version into another, as its definition has it.
    fn conversion(&self) -> Option<&Value> {
        None
    }

    /// The defaults of an object that server-side apply put together.
    fn default_applied(&self, object: &mut Value) {
        self.default(object);
    }

    /// The `Warning` of a version that its definition calls deprecated.
    fn deprecation(&self) -> Option<&str> {
        None
    }

    /// What the table's data says of the kind.
    fn plain(&self) -> &Plain;

    /// Fills in upstream's defaults; must be idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Drops what a client may not set on create (status, …) and sets generation and the like.
    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(self.has_status(), self.has_generation(), context, object);
    }

    /// A new object that came without labels got those of its template by default, and has them in common with it.
    fn share_labels(&self, _object: &mut Value) {}

    /// Keeps from `old` what this request may not change: status for the main resource, all but status for `status`.
    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        if context.subresource == "status" && self.plain().status_only {
            common::keep_metadata(object, old);
        }
    }

    /// What is refused before even the metadata is looked at. `old` is None for a new object.
    fn early_errors(&self, _context: &Context<'_>, _object: &Value, _old: Option<&Value>) -> FieldErrors {
        FieldErrors::new()
    }

    fn validate_create(&self, _context: &Context<'_>, _object: &Value) -> FieldErrors {
        FieldErrors::new()
    }

    /// The errors of a new object in their order: those of its metadata come before the kind's own.
    fn in_order(&self, mut metadata: FieldErrors, own: FieldErrors) -> FieldErrors {
        metadata.extend(own);
        metadata
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() { self.validate_create(context, object) } else { FieldErrors::new() }
    }

    /// What is looked at once all other errors of the object are known, those of its metadata too.
    fn last_errors(&self, _object: &Value, _old: Option<&Value>, _errors: &mut FieldErrors) {}

    /// `Warning` headers for what was accepted but is doubtful.
    fn warnings(&self, _context: &Context<'_>, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Whether a name (or with `prefix` a generateName) is allowed: errors as upstream words them.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        self.plain().name(name, prefix)
    }

    /// Whether `status` is a subresource with rules of its own.
    fn has_status(&self) -> bool {
        self.plain().has_status
    }

    /// Whether metadata.generation counts changes of the spec.
    fn has_generation(&self) -> bool {
        self.plain().has_generation
    }

    /// PUT on an absent object creates it.
    fn allow_create_on_update(&self) -> bool {
        self.plain().create_on_update
    }

    /// PUT without a resourceVersion overwrites.
    fn allow_unconditional_update(&self) -> bool {
        !self.plain().conditional
    }

    /// DELETE answers with the object instead of a Status.
    fn delete_returns_object(&self) -> bool {
        self.plain().returns_object
    }

    /// The grace period of a deletion; None deletes at once.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Marks an object as being deleted in the kind's own way; false leaves it to the common one.
    fn begin_deletion(&self, _object: &mut Value, _now: &str) -> bool {
        false
    }

    /// The `Warning` of a deletion that does not say what becomes of dependents.
    fn deletion_warning(&self) -> Option<&'static str> {
        None
    }

    /// How the refusal of a deletion begins whose preconditions do not hold, for kinds that have their own words for it.
    fn precondition_refusal(&self) -> Option<&'static str> {
        None
    }

    /// Why an object is not to be deleted by its name, if it is not.
    fn deletion_refusal(&self, _name: &str) -> Option<&'static str> {
        None
    }

    /// Dependents are orphaned when a deletion does not say otherwise.
    fn orphans_by_default(&self) -> bool {
        self.plain().orphans
    }

    /// Field selectors beyond metadata.name and metadata.namespace.
    fn selectable_fields(&self) -> Vec<&str> {
        Vec::new()
    }

    /// The value of one selectable field of an object of the row's version.
    fn field(&self, object: &Value, field: &str) -> String {
        common::field_text(object, field)
    }

    /// The fields (dotted) that a write to `subresource` never takes from the client, so that no manager owns them by it.
    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        match subresource {
            "" if self.has_status() => vec!["status"],
            "status" if self.plain().status_only => vec!["spec", "metadata"],
            "status" => vec!["spec"],
            _ => Vec::new(),
        }
    }

    /// Turns an object of the row's version into the stored one, where they differ.
    fn to_storage(&self, object: Value) -> Value {
        object
    }

    /// The same for comparisons between versions: without the defaults of the stored version, by which what an applier no longer
    /// sets would come back.
    fn to_storage_bare(&self, object: Value) -> Value {
        self.to_storage(object)
    }

    /// Turns a stored object into the row's version, where they differ.
    #[expect(clippy::wrong_self_convention, reason = "the strategy is of the row, not of the object it turns")]
    fn from_storage(&self, object: Value) -> Value {
        object
    }

    /// Whether not all of a stored object comes back from the row's version. Then the half that a write leaves alone (status
    /// for the main resource, spec for `status`) is taken from the store as it lies there.
    fn loses_in_conversion(&self) -> bool {
        false
    }

    /// Warnings of what a client sent to create, said before it is prepared.
    fn early_warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Annotations that only carry fields this version lacks; the rows of Tables go without them.
    fn carrier_annotations(&self) -> &[&str] {
        &[]
    }

    /// The conditions of a Table row: that a pod has ended.
    fn row_conditions(&self, _object: &Value) -> Vec<Value> {
        Vec::new()
    }

    /// The cells of a Table row, one per column of the row of the resource table.
    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        self.plain().cells.iter().map(|expression| cells::evaluate(expression, object, now)).collect()
    }
}

/// The name rule of most kinds.
pub fn subdomain_name(name: &str, prefix: bool) -> Vec<String> {
    if prefix { names::dns1123_subdomain(&names::mask_trailing_dash(name)) } else { names::dns1123_subdomain(name) }
}

pub fn label_name(name: &str, prefix: bool) -> Vec<String> {
    if prefix { names::dns1123_label(&names::mask_trailing_dash(name)) } else { names::dns1123_label(name) }
}

pub mod common {
    //! What most kinds do on create and update.

    use ferry_meta::object;
    use serde_json::{Map, Value};

    use super::Context;

    /// Status starts empty, generation at one.
    pub fn prepare_create(has_status: bool, has_generation: bool, _context: &Context<'_>, object: &mut Value) {
        if has_status && let Some(map) = object.as_object_mut() {
            map.insert("status".into(), Value::Object(Map::new()));
        }
        // Kinds that do not count keep what was sent.
        if has_generation {
            set_generation(object, 1);
        }
    }

    /// A main write keeps the old status; a status write keeps everything but status and the managed fields.
    pub fn prepare_update(
        has_status: bool,
        has_generation: bool,
        context: &Context<'_>,
        object: &mut Value,
        old: &Value,
    ) {
        if context.subresource == "status" {
            keep_all_but_status(object, old);
            return;
        }
        if has_status {
            keep(object, old, "status");
        }
        let changed = has_generation && !same_but(object, old, &["metadata", "status"]);
        let generation = generation(old) + i64::from(changed);
        set_generation(object, generation);
    }

    pub fn generation(object: &Value) -> i64 {
        object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
    }

    /// Zero removes the field, as it is printed.
    pub fn set_generation(object: &mut Value, generation: i64) {
        let metadata = object::metadata_mut(object);
        if generation == 0 {
            metadata.remove("generation");
        } else {
            metadata.insert("generation".into(), generation.into());
        }
    }

    /// A status write: spec and other top-level fields and the metadata that only main writes change stay as they were.
    pub fn keep_all_but_status(object: &mut Value, old: &Value) {
        let (Some(map), Some(was)) = (object.as_object_mut(), old.as_object()) else { return };
        let mut kept = was.clone();
        for key in ["status", "metadata"] {
            match map.remove(key) {
                Some(value) => kept.insert(key.to_owned(), value),
                None => kept.remove(key),
            };
        }
        *map = kept;
        set_generation(object, generation(old));
    }

    /// Takes from `old` the metadata that a write to a subresource leaves alone.
    pub fn keep_metadata(object: &mut Value, old: &Value) {
        let (new, was) = (object::metadata_mut(object), object::map(old, "/metadata"));
        for key in ["deletionTimestamp", "selfLink", "labels", "annotations", "finalizers", "ownerReferences"] {
            match was.get(key) {
                Some(value) => new.insert(key.into(), value.clone()),
                None => new.remove(key),
            };
        }
    }

    /// Takes all metadata from `old` but who manages what.
    pub fn keep_all_metadata(object: &mut Value, old: &Value) {
        let managed = object::metadata_mut(object).remove("managedFields");
        let metadata = object::metadata_mut(object);
        *metadata = object::map(old, "/metadata").clone();
        match managed {
            Some(managed) => metadata.insert("managedFields".into(), managed),
            None => metadata.remove("managedFields"),
        };
    }

    /// Takes a top-level field from `old`, absence included.
    pub fn keep(object: &mut Value, old: &Value, field: &str) {
        let Some(map) = object.as_object_mut() else { return };
        match old.get(field) {
            Some(value) => map.insert(field.to_owned(), value.clone()),
            None => map.remove(field),
        };
    }

    /// Whether all top-level fields but these are the same.
    pub fn same_but(left: &Value, right: &Value, but: &[&str]) -> bool {
        let (Some(left), Some(right)) = (left.as_object(), right.as_object()) else { return left == right };
        let keys = left.keys().chain(right.keys());
        keys.filter(|key| !but.contains(&key.as_str())).all(|key| left.get(key) == right.get(key))
    }

    /// The text of a dotted field: empty when absent, numbers and booleans as they print.
    pub fn field_text(object: &Value, field: &str) -> String {
        let value = field.split('.').try_fold(object, |value, part| value.get(part));
        match value {
            Some(Value::String(text)) => text.clone(),
            None | Some(Value::Null) => String::new(),
            Some(other) => other.to_string(),
        }
    }
}
