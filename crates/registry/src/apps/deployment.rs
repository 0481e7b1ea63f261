//! Deployments.

use ferry_meta::{FieldError, FieldErrors, object};
use serde_json::{Map, Value, json};

use super::{
    amount, counts, default_template, name_warning, parts_of_replicas, replica_template, selector, template_warnings,
};
use crate::check;
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct Deployment(pub Plain);

impl Strategy for Deployment {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "replicas", 1);
        spec.entry("strategy").or_insert_with(|| json!({}));
        if let Some(strategy) = map_mut(spec, "strategy") {
            default_to(strategy, "type", "RollingUpdate");
            if strategy.get("type") == Some(&json!("RollingUpdate")) {
                default_to(strategy, "rollingUpdate", Value::Object(Map::new()));
                if let Some(rolling) = map_mut(strategy, "rollingUpdate") {
                    default_absent(rolling, "maxUnavailable", "25%");
                    default_absent(rolling, "maxSurge", "25%");
                }
            }
        }
        default_to(spec, "revisionHistoryLimit", 10);
        default_to(spec, "progressDeadlineSeconds", 600);
        default_template(spec);
    }

    /// Annotations move the generation too.
    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        if context.subresource == "status" {
            common::keep(object, old, "spec");
            let labels = object::labels(old).clone();
            object::metadata_mut(object).insert("labels".into(), labels.into());
            return;
        }
        common::keep(object, old, "status");
        let changed = object.get("spec") != old.get("spec") || object::annotations(object) != object::annotations(old);
        common::set_generation(object, common::generation(old) + i64::from(changed));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let spec = Cursor::root(object).get("spec");
        counts(&mut errors, &spec, &["replicas"]);
        selector(&mut errors, &spec, "deployment");
        replica_template(&mut errors, &spec);
        update_strategy(&mut errors, &spec.get("strategy"));
        counts(&mut errors, &spec, &["minReadySeconds", "revisionHistoryLimit"]);
        if let Some(seconds) = spec.int("progressDeadlineSeconds") {
            errors.non_negative(spec.at("progressDeadlineSeconds"), seconds);
            if seconds <= spec.number("minReadySeconds") {
                errors.invalid(spec.at("progressDeadlineSeconds"), seconds, "must be greater than minReadySeconds");
            }
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let (new, was) = (Cursor::root(object), Cursor::root(old));
        if context.subresource == "status" {
            return status(&new.get("status"), &was.get("status"));
        }
        let mut errors = self.validate_create(context, object);
        let spec = new.get("spec");
        check::same_selector(&mut errors, &spec.get("selector"), &was.get("spec").get("selector"));
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let name = name_warning(object).filter(|_| old.is_none());
        name.into_iter().chain(template_warnings(object, old)).collect()
    }

    fn reset_fields(&self, subresource: &str) -> Vec<&'static str> {
        match subresource {
            "" => vec!["status"],
            "status" => vec!["spec", "metadata.labels"],
            _ => Vec::new(),
        }
    }
}

fn update_strategy(errors: &mut FieldErrors, strategy: &Cursor<'_>) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.text("type") {
        "Recreate" => {
            if rolling.exists() {
                errors.forbidden(rolling.path, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => {
            let (unavailable, surge) = (rolling.get("maxUnavailable"), rolling.get("maxSurge"));
            check::int_or_percent(errors, &unavailable);
            check::int_or_percent(errors, &surge);
            if amount(unavailable.value) == 0 && amount(surge.value) == 0 {
                let value = unavailable.value.clone();
                errors.invalid(unavailable.path.clone(), value, "may not be 0 when `maxSurge` is 0");
            }
            check::at_most_hundred_percent(errors, &unavailable);
        }
        _ => {
            let error =
                FieldError::not_supported(&strategy.path, strategy.value.clone(), &["Recreate", "RollingUpdate"]);
            errors.push(error.shown_as(crate::internal::show("DeploymentStrategy", strategy.value)));
        }
    }
}

fn status(status: &Cursor<'_>, old: &Cursor<'_>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let keys = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    counts(&mut errors, status, &keys);
    let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    parts_of_replicas(&mut errors, status, &parts, "readyReplicas");
    super::never_less(&mut errors, status, old, "collisionCount");
    errors
}
