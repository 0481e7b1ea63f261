//! ControllerRevisions: snapshots of a workload's template, written once.

use ferry_meta::FieldErrors;
use serde_json::Value;

use super::counts;
use crate::at::{At, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct ControllerRevision(pub Plain);

impl Strategy for ControllerRevision {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let revision = At::root(object);
        counts(&mut errors, &revision, &["revision"]);
        match revision.raw("data") {
            Value::Null => errors.required(revision.at("data"), "data is mandatory"),
            Value::Object(_) => {}
            _ => errors.required(revision.at("data"), "data must be a valid JSON object"),
        }
        errors
    }

    fn validate_update(&self, _context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let (new, old) = (At::root(object), At::root(old));
        counts(&mut errors, &new, &["revision"]);
        // Upstream compares the bytes as they came with a copy that was decoded, so that any update is refused.
        if new.raw("data") != old.raw("data") || new.raw("revision") != old.raw("revision") {
            errors.invalid(new.at("data"), new.raw("data").clone(), IMMUTABLE);
        }
        errors
    }
}
