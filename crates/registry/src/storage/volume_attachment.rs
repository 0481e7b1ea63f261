//! VolumeAttachments.

use ferry_meta::{FieldErrors, Path, names};
use serde_json::Value;

use crate::cursor::{Cursor, IMMUTABLE, Report};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct VolumeAttachment(pub Plain);

impl Strategy for VolumeAttachment {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let source = spec.get("source");
        match (source.has("inlineVolumeSpec"), source.raw("persistentVolumeName").as_str()) {
            (false, None) => {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.required(source.path.clone(), detail);
            }
            (false, Some("")) => {
                errors.required(source.at("persistentVolumeName"), "must specify non empty persistentVolumeName");
            }
            (true, Some(_)) => {
                let detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
                errors.forbidden(source.path.clone(), detail);
            }
            _ => {}
        }
        let node = spec.text("nodeName");
        errors.reasons(spec.at("nodeName"), node, names::dns1123_subdomain(node));
        if let Some(volume) = source.raw("persistentVolumeName").as_str() {
            let path = Path::new("spec.source.persistentVolumeName");
            errors.reasons(path, volume, names::dns1123_subdomain(volume));
        }
        // The attacher's shape is found by a later pass.
        crate::devices::driver_name(&mut errors, spec.at("attacher"), spec.text("attacher"));
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if context.subresource.is_empty() {
            errors = self.validate_create(context, object);
            // … but that there is none is found by an earlier one.
            let spec = Cursor::root(object).get("spec");
            if spec.text("attacher").is_empty() {
                errors.sort_by_key(|error| error.path != spec.at("attacher"));
            }
            if object.get("spec") != old.get("spec") {
                errors.invalid(Path::new("spec"), Value::Null, IMMUTABLE);
            }
        }
        for failure in ["attachError", "detachError"].map(|key| Cursor::root(object).get("status").get(key)) {
            if let Some(code) = failure.int("errorCode").filter(|code| *code < 0) {
                errors.invalid(failure.at("errorCode"), code, names::in_range(0, i32::MAX.into()));
            }
        }
        errors
    }
}
