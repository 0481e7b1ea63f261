//! What is truly a kind's own.

use ferry_meta::{FieldErrors, UserInfo};
use serde_json::{Map, Value};

/// What a strategy may know of the request.
pub struct Context<'a> {
    pub user: &'a UserInfo,
    /// The subresource written to; empty for the main resource.
    pub subresource: &'a str,
    pub dry_run: bool,
}

/// The hooks of one kind. Objects are decoded, pruned maps of the row's version; hooks that say nothing do the common thing.
/// Order on create: default → prepare_create → (mutating admission) → validate_create; on update: default → prepare_update →
/// (mutating admission) → validate_update. ObjectMeta is defaulted and validated by the caller.
pub trait Strategy: Send + Sync {
    /// Fills in upstream's defaults; must be idempotent.
    fn default(&self, _object: &mut Value) {}

    /// Drops what a client may not set on create (status, …) and sets generation and the like.
    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(self.has_status(), self.has_generation(), context, object);
    }

    /// Keeps from `old` what this request may not change: status for the main resource, all but status for `status`.
    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
    }

    fn validate_create(&self, _context: &Context<'_>, _object: &Value) -> FieldErrors {
        FieldErrors::new()
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        self.validate_create(context, object)
    }

    /// `Warning` headers for what was accepted but is doubtful.
    fn warnings(&self, _context: &Context<'_>, _object: &Value, _old: Option<&Value>) -> Vec<String> {
        Vec::new()
    }

    /// Rules for the object's name beyond a DNS subdomain: errors as upstream words them.
    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String>;

    /// Whether `status` is a subresource with rules of its own.
    fn has_status(&self) -> bool;
    /// Whether metadata.generation counts changes of the spec.
    fn has_generation(&self) -> bool;

    /// PUT on an absent object creates it.
    fn allow_create_on_update(&self) -> bool {
        false
    }

    /// PUT without a resourceVersion overwrites.
    fn allow_unconditional_update(&self) -> bool {
        true
    }

    /// DELETE answers with the object instead of a Status.
    fn delete_returns_object(&self) -> bool {
        false
    }

    /// The grace period of a deletion; None deletes at once.
    fn grace_period(&self, _object: &Value, _requested: Option<i64>) -> Option<i64> {
        None
    }

    /// Dependents are orphaned when a deletion does not say otherwise.
    fn orphans_by_default(&self) -> bool {
        false
    }

    /// Field selectors beyond metadata.name and metadata.namespace: (field, value) pairs of this object.
    fn selectable_fields(&self) -> &'static [&'static str] {
        &[]
    }

    /// The value of one selectable field.
    fn field(&self, _object: &Value, _field: &str) -> String {
        String::new()
    }

    /// The cells of a Table row, one per column of the row of the resource table.
    fn cells(&self, object: &Value) -> Vec<Value>;
}

pub mod common {
    //! What most kinds do on create and update.

    use super::{Context, Map, Value};

    pub fn prepare_create(has_status: bool, has_generation: bool, _context: &Context<'_>, object: &mut Value) {
        let _ = (has_status, has_generation);
        let _: Option<&mut Map<String, Value>> = object.as_object_mut();
    }

    pub fn prepare_update(has_status: bool, has_generation: bool, _context: &Context<'_>, object: &mut Value, old: &Value) {
        let _ = (has_status, has_generation, object, old);
    }
}
