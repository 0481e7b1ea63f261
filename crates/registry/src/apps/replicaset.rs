//! ReplicaSets.

use ferry_meta::FieldErrors;
use serde_json::Value;

use super::{counts, default_template, name_warning, parts_of_replicas, replica_template, selector, template_warnings};
use crate::check;
use crate::cursor::{Cursor, default_to, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct ReplicaSet(pub Plain);

impl Strategy for ReplicaSet {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "replicas", 1);
        default_template(spec);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        counts(&mut errors, &spec, &["replicas", "minReadySeconds"]);
        selector(&mut errors, &spec, "deployment");
        replica_template(&mut errors, &spec);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let new = Cursor::root(object);
        if context.subresource == "status" {
            return status(&new.get("status"), "readyReplicas");
        }
        let mut errors = self.validate_create(context, object);
        let spec = new.get("spec");
        check::same_selector(&mut errors, &spec.get("selector"), &Cursor::root(old).get("spec").get("selector"));
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        name_warning(object).filter(|_| old.is_none()).into_iter().chain(template_warnings(object, old)).collect()
    }
}

/// A count that prints as zero where it is absent.
pub fn replicas_field(object: &Value, field: &str) -> String {
    match common::field_text(object, field) {
        text if text.is_empty() => "0".to_owned(),
        text => text,
    }
}

/// The status of ReplicaSets and ReplicationControllers.
pub fn status(status: &Cursor<'_>, ready: &str) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let keys = [
        "replicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "observedGeneration",
        "terminatingReplicas",
    ];
    counts(&mut errors, status, &keys);
    let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    parts_of_replicas(&mut errors, status, &parts, ready);
    errors
}
