//! Namespaces: the name label, the finalizer that empties them, the phase.

use ferry_meta::{FieldErrors, names, object};
use serde_json::{Value, json};

use crate::cursor::{Cursor, Report, default_to, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common, label_name};

pub struct Namespace(pub Plain);

const NAME_LABEL: &str = "kubernetes.io/metadata.name";

impl Strategy for Namespace {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn precondition_refusal(&self) -> Option<&'static str> {
        Some("Precondition failed")
    }

    fn default(&self, object: &mut Value) {
        let name = object::name(object).to_owned();
        if !name.is_empty() {
            object_at(object, &["metadata", "labels"]).insert(NAME_LABEL.into(), name.into());
        }
        default_to(object_at(object, &["status"]), "phase", "Active");
    }

    fn prepare_create(&self, _context: &Context<'_>, object: &mut Value) {
        if let Some(map) = object.as_object_mut() {
            map.insert("status".into(), json!({"phase": "Active"}));
        }
        let finalizers = object_at(object, &["spec"]).entry("finalizers").or_insert_with(|| json!([]));
        if !finalizers.is_array() {
            *finalizers = json!([]);
        }
        if let Some(list) = finalizers.as_array_mut()
            && !list.iter().any(|f| f == "kubernetes")
        {
            list.push("kubernetes".into());
        }
        // A generated name was not known when labels were defaulted.
        let name = object::name(object).to_owned();
        object_at(object, &["metadata", "labels"]).insert(NAME_LABEL.into(), name.into());
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        match context.subresource {
            "status" => common::keep(object, old, "spec"),
            "finalize" => common::keep(object, old, "status"),
            _ => {
                common::keep(object, old, "spec");
                common::keep(object, old, "status");
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        for finalizer in spec.texts("finalizers") {
            finalizer_name(&mut errors, &spec.at("finalizers"), finalizer);
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let at = Cursor::root(object);
        match context.subresource {
            "status" => {
                let phase = at.get("status").text("phase");
                let path = at.at("status").child("Phase");
                match (object::is_being_deleted(object), phase) {
                    (false, "Active") | (true, "Terminating") => {}
                    (false, _) => errors.invalid(path, phase, "may only be 'Active' if `deletionTimestamp` is empty"),
                    (true, _) => {
                        errors.invalid(path, phase, "may only be 'Terminating' if `deletionTimestamp` is not empty");
                    }
                }
            }
            "finalize" => {
                for finalizer in at.get("spec").items("finalizers") {
                    finalizer_name(&mut errors, &finalizer.path, finalizer.as_text());
                }
            }
            _ => {}
        }
        errors
    }

    /// Whoever finalizes it does not touch its status either.
    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource == "status" { vec!["spec"] } else { vec!["status"] }
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        label_name(name, prefix)
    }

    fn selectable_fields(&self) -> Vec<&str> {
        vec!["status.phase"]
    }
}

fn finalizer_name(errors: &mut FieldErrors, path: &ferry_meta::Path, name: &str) {
    errors.reasons(path.clone(), name, names::qualified_name(name));
    if !name.contains('/') && !["kubernetes", "orphan", "foregroundDeletion"].contains(&name) {
        let detail = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path.clone(), name, detail);
    }
}
