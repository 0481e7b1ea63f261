//! DaemonSets.

use ferry_meta::{FieldError, FieldErrors};
use serde_json::{Map, Value, json};

use super::{amount, counts, default_template, long_running, template_warnings};
use crate::check;
use crate::core::pod;
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct DaemonSet(pub Plain);

const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

/// The count of template changes lives in an annotation of this version.
fn template_generation(object: &Value) -> i64 {
    let text = ferry_meta::object::annotations(object).get(TEMPLATE_GENERATION).and_then(Value::as_str);
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    object_at(object, &["metadata", "annotations"]).insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
}

impl Strategy for DaemonSet {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        spec.entry("updateStrategy").or_insert_with(|| json!({}));
        if let Some(strategy) = map_mut(spec, "updateStrategy") {
            default_to(strategy, "type", "RollingUpdate");
            if strategy.get("type") == Some(&json!("RollingUpdate")) {
                default_to(strategy, "rollingUpdate", Value::Object(Map::new()));
                if let Some(rolling) = map_mut(strategy, "rollingUpdate") {
                    default_absent(rolling, "maxUnavailable", 1);
                    default_absent(rolling, "maxSurge", 0);
                }
            }
        }
        default_to(spec, "revisionHistoryLimit", 10);
        default_template(spec);
        let generation = template_generation(object);
        set_template_generation(object, generation);
    }

    fn prepare_create(&self, context: &Context<'_>, object: &mut Value) {
        common::prepare_create(true, true, context, object);
        let generation = template_generation(object).max(1);
        set_template_generation(object, generation);
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(true, true, context, object, old);
        let own = context.subresource.is_empty();
        let changed = own && object.pointer("/spec/template") != old.pointer("/spec/template");
        set_template_generation(object, template_generation(old) + i64::from(changed));
    }

    fn carrier_annotations(&self) -> &[&str] {
        &[TEMPLATE_GENERATION]
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        let selector = spec.get("selector");
        check::label_selector(&mut errors, &selector);
        let metadata = spec.get("template").get("metadata");
        if check::is_sound_selector(&selector) && !check::selects(selector.value, metadata.map("labels")) {
            let labels = metadata.raw("labels").clone();
            errors.invalid(metadata.at("labels"), labels, "`selector` does not match template `labels`");
        }
        if selector.exists() && check::is_empty_selector(&selector) {
            check::bad_selector(&mut errors, &selector, "empty selector is invalid for daemonset");
        }
        pod::validate_template(&mut errors, &spec.get("template"));
        long_running(&mut errors, &spec, "DaemonSet");
        counts(&mut errors, &spec, &["minReadySeconds"]);
        update_strategy(&mut errors, &spec.get("updateStrategy"));
        counts(&mut errors, &spec, &["revisionHistoryLimit"]);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let new = Cursor::root(object);
        if context.subresource == "status" {
            let keys = [
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
                "observedGeneration",
                "updatedNumberScheduled",
                "numberAvailable",
                "numberUnavailable",
                "collisionCount",
            ];
            counts(&mut errors, &new.get("status"), &keys);
            super::never_less(&mut errors, &new.get("status"), &Cursor::root(old).get("status"), "collisionCount");
            return errors;
        }
        let spec = new.get("spec");
        check::same_selector(&mut errors, &spec.get("selector"), &Cursor::root(old).get("spec").get("selector"));
        errors.extend(self.validate_create(context, object));
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        // Other changes of the spec leave the generation of the template alone.
        if old.is_some_and(|old| old.pointer("/spec/template") == object.pointer("/spec/template")) {
            return Vec::new();
        }
        template_warnings(object, old)
    }
}

fn update_strategy(errors: &mut FieldErrors, strategy: &Cursor<'_>) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.exists() => errors.required(rolling.path, ""),
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            check::int_or_percent(errors, &unavailable);
            check::int_or_percent(errors, &surge);
            check::at_most_hundred_percent(errors, &unavailable);
            check::at_most_hundred_percent(errors, &surge);
            match (amount(unavailable.value) != 0, amount(surge.value) != 0) {
                (true, true) => {
                    let value = surge.value.clone();
                    errors.invalid(surge.path, value, "may not be set when maxUnavailable is non-zero");
                }
                (false, false) => errors.required(unavailable.path, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        _ => {
            let error =
                FieldError::not_supported(&strategy.path, strategy.value.clone(), &["RollingUpdate", "OnDelete"]);
            errors.push(error.shown_as(crate::internal::show("DaemonSetUpdateStrategy", strategy.value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;
    use serde_json::json;

    use super::*;

    #[test]
    fn names_with_dots_are_no_reason_to_warn() {
        let table = crate::ResourceTable::builtin();
        let user = UserInfo::new("u", &[]);
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let object = json!({"metadata": {"name": "a.b"}, "spec": {"template": {"spec": {"containers": []}}}});
        for (resource, warnings) in [("daemonsets", 0), ("deployments", 1)] {
            let row = table.find("apps", "v1", resource).expect("a row");
            assert_eq!(row.strategy.warnings(&context, &object, None).len(), warnings, "{resource}");
        }
    }
}
