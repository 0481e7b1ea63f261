//! The group coordination.k8s.io.

use ferry_meta::FieldErrors;
use serde_json::Value;

use crate::cursor::{Cursor, NOT_NEGATIVE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

/// Leases: who holds something, and until when.
pub struct Lease(pub Plain);

impl Strategy for Lease {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        if let Some(seconds) = spec.int("leaseDurationSeconds").filter(|s| *s <= 0) {
            errors.invalid(spec.at("leaseDurationSeconds"), seconds, "must be greater than 0");
        }
        if let Some(count) = spec.int("leaseTransitions").filter(|c| *c < 0) {
            errors.invalid(spec.at("leaseTransitions"), count, NOT_NEGATIVE);
        }
        errors
    }
}
