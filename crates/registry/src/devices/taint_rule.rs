//! DeviceTaintRules: taints on devices that match.

use ferry_meta::{FieldError, FieldErrors, names, time};
use serde_json::Value;

use super::{pool_name, taint};
use crate::check;
use crate::core::pod::csi_driver_name;
use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy};

pub struct DeviceTaintRule(pub Plain);

impl Strategy for DeviceTaintRule {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        if let Some(taint) = map_mut(object_at(object, &["spec"]), "taint") {
            default_to(taint, "timeAdded", time::time(time::now()));
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        validate(object, None)
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        if context.subresource.is_empty() {
            return validate(object, Some(old));
        }
        let mut errors = FieldErrors::new();
        let status = Cursor::root(object).get("status");
        check::conditions(&mut errors, &status, "conditions");
        let count = status.array("conditions").len();
        if count > 8 {
            errors.push(FieldError::too_many(&status.at("conditions"), count, 8));
        }
        errors
    }
}

fn validate(object: &Value, old: Option<&Value>) -> FieldErrors {
    let (mut errors, mut late) = (FieldErrors::new(), FieldErrors::new());
    let spec = Cursor::root(object).get("spec");
    let selector = spec.get("deviceSelector");
    if let Some(driver) = selector.raw("driver").as_str() {
        csi_driver_name(&mut errors, selector.at("driver"), driver);
    }
    if let Some(pool) = selector.raw("pool").as_str() {
        pool_name(&mut errors, &selector.at("pool"), pool);
    }
    if let Some(device) = selector.raw("device").as_str() {
        errors.reasons(selector.at("device"), device, names::dns1123_label(device));
    }
    let was = old.map(|old| Cursor::root(old).get("spec").get("taint"));
    taint(&mut errors, &mut late, &spec.get("taint"), was.as_ref());
    errors.extend(late);
    errors
}
