//! The group storagemigration.k8s.io.

use ferry_meta::{FieldError, FieldErrors, Path, names};
use serde_json::Value;

use crate::check;
use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct StorageVersionMigration(pub Plain);

impl Strategy for StorageVersionMigration {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let resource = Cursor::root(object).get("spec").get("resource");
        match resource.text("resource") {
            "" => errors.required(resource.at("resource"), "resource is required to be set"),
            plural => one(&mut errors, resource.at("resource"), plural, names::dns1035_label(plural)),
        }
        let group = resource.text("group");
        if !group.is_empty() {
            one(&mut errors, resource.at("group"), group, names::dns1123_subdomain(group));
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        if context.subresource == "status" {
            return status(&Cursor::root(object).get("status"), &Cursor::root(old).get("status"));
        }
        let mut errors = self.validate_create(context, object);
        let spec = Cursor::root(object).get("spec");
        if Some(spec.value) != old.get("spec") {
            let error = FieldError::invalid(&spec.path, spec.value.clone(), IMMUTABLE);
            errors.push(error.shown_as(internal::show("StorageVersionMigrationSpec", spec.value)));
        }
        errors
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        if subresource.is_empty() { vec!["status"] } else { vec!["metadata", "spec"] }
    }
}

/// All that is wrong with a value, as one error.
fn one(errors: &mut FieldErrors, path: Path, value: &str, reasons: Vec<String>) {
    if !reasons.is_empty() {
        errors.invalid(path, value, reasons.join(","));
    }
}

fn is_true(status: &Cursor<'_>, kind: &str) -> bool {
    status.items("conditions").iter().any(|c| c.text("type") == kind && c.text("status") == "True")
}

fn status(new: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let version = new.text("resourceVersion");
    let well_formed = version.bytes().all(|byte| byte.is_ascii_digit()) && !version.starts_with('0');
    if !version.is_empty() && !well_formed {
        let detail = format!("resource version is not well formed: {version}");
        errors.invalid(new.at("resourceVersion"), version, detail);
    }
    check::conditions(&mut errors, new, "conditions");
    let before = old.text("resourceVersion");
    if !before.is_empty() && before != version {
        errors.invalid(new.at("resourceVersion"), version, IMMUTABLE);
    }
    let mut refuse = |when: bool, detail: &str| {
        if when {
            errors.invalid(new.at("conditions"), new.raw("conditions").clone(), detail);
        }
    };
    let (succeeded, failed) = (is_true(new, "Succeeded"), is_true(new, "Failed"));
    refuse(succeeded && failed, "Both success and failed conditions cannot be true at the same time");
    refuse(is_true(old, "Succeeded") && !succeeded, "Success condition cannot be set to false once it is true");
    refuse(is_true(old, "Failed") && !failed, "Failed condition cannot be set to false once it is true");
    errors
}
