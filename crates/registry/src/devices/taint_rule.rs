//! DeviceTaintRules: taints on devices that match.

use ferry_meta::{FieldError, FieldErrors, names, time};
use serde_json::Value;

use super::{pool_name, taint};
use crate::check;
use crate::core::pod::csi_driver_name;
use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

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

    /// Tolerations count from the moment of the effect, not of the rule.
    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        let of = |rule: &Value, key: &str| rule.pointer(&format!("/spec/taint/{key}")).cloned();
        let same = |key: &str| of(object, key) == of(old, key);
        if context.subresource.is_empty() && !same("effect") && same("timeAdded") {
            let now = time::time(time::now());
            object_at(object, &["spec", "taint"]).insert("timeAdded".into(), now.into());
        }
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        if context.subresource == "status" {
            common::keep_metadata(object, old);
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

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn another_effect_begins_now() {
        let user = UserInfo::new("u", &[]);
        let strategy = DeviceTaintRule(Plain { has_generation: true, ..<Plain as Default>::default() });
        let rule = |effect: &str, time: &str| json!({"metadata": {"generation": 1}, "spec": {"taint": {"key": "k", "effect": effect, "timeAdded": time}}});
        let old = rule("None", "2026-01-01T00:00:00Z");
        for (effect, time, kept) in [
            ("None", "2026-01-01T00:00:00Z", true),
            ("NoExecute", "2026-01-01T00:00:00Z", false),
            ("NoExecute", "2026-02-02T00:00:00Z", true),
        ] {
            let mut new = rule(effect, time);
            let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
            strategy.prepare_update(&context, &mut new, &old);
            assert_eq!(new["spec"]["taint"]["timeAdded"] == json!(time), kept, "{effect} {time}: {new}");
        }
    }
}
