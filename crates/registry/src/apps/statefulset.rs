//! StatefulSets.

use ferry_meta::{FieldError, FieldErrors, names};
use serde_json::{Map, Value, json};

use super::{counts, default_template, long_running, parts_of_replicas, template_warnings};
use crate::check;
use crate::core::{persistent_volume_claim, pod};
use crate::cursor::{Cursor, Report, default_absent, default_to, map_mut, maps_mut, object_at};
use crate::internal;
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, label_name};

pub struct StatefulSet(pub Plain);

impl Strategy for StatefulSet {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "podManagementPolicy", "OrderedReady");
        spec.entry("updateStrategy").or_insert_with(|| json!({}));
        if let Some(strategy) = map_mut(spec, "updateStrategy") {
            if strategy.get("type").and_then(Value::as_str).unwrap_or_default().is_empty() {
                strategy.insert("type".into(), "RollingUpdate".into());
                default_to(strategy, "rollingUpdate", Value::Object(Map::new()));
            }
            if strategy.get("type") == Some(&json!("RollingUpdate"))
                && let Some(rolling) = map_mut(strategy, "rollingUpdate")
            {
                default_to(rolling, "partition", 0);
                default_absent(rolling, "maxUnavailable", 1);
            }
        }
        default_to(spec, "persistentVolumeClaimRetentionPolicy", Value::Object(Map::new()));
        if let Some(policy) = map_mut(spec, "persistentVolumeClaimRetentionPolicy") {
            default_to(policy, "whenDeleted", "Retain");
            default_to(policy, "whenScaled", "Retain");
        }
        default_to(spec, "replicas", 1);
        default_to(spec, "revisionHistoryLimit", 10);
        default_template(spec);
        for claim in maps_mut(spec, "volumeClaimTemplates") {
            claim.insert("kind".into(), "PersistentVolumeClaim".into());
            claim.insert("apiVersion".into(), "v1".into());
            claim.entry("status").or_insert_with(|| json!({}));
            if let Some(status) = map_mut(claim, "status") {
                default_to(status, "phase", "Pending");
            }
            if let Some(spec) = map_mut(claim, "spec") {
                persistent_volume_claim::default_spec(spec);
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        validate_spec(&mut errors, &Cursor::root(object).get("spec"), true);
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let new = Cursor::root(object);
        if context.subresource == "status" {
            let status = new.get("status");
            let keys = [
                "replicas",
                "readyReplicas",
                "currentReplicas",
                "updatedReplicas",
                "availableReplicas",
                "observedGeneration",
                "collisionCount",
            ];
            counts(&mut errors, &status, &keys);
            let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
            parts_of_replicas(&mut errors, &status, &parts, "status.readyReplicas");
            super::never_less(&mut errors, &status, &Cursor::root(old).get("status"), "collisionCount");
            return errors;
        }
        let (spec, was) = (new.get("spec"), Cursor::root(old).get("spec"));
        validate_spec(&mut errors, &spec, false);
        check::same_selector(&mut errors, &spec.get("selector"), &was.get("selector"));
        let claims = spec.raw("volumeClaimTemplates");
        if claims != was.raw("volumeClaimTemplates") {
            let error = FieldError::invalid(&spec.at("volumeClaimTemplates"), claims.clone(), crate::cursor::IMMUTABLE);
            errors.push(error.shown_as(internal::show_list("PersistentVolumeClaim", claims)));
        }
        for key in ["serviceName", "podManagementPolicy"] {
            if spec.text(key) != was.text(key) {
                errors.invalid(spec.at(key), spec.text(key), crate::cursor::IMMUTABLE);
            }
        }
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let mut found = template_warnings(object, old);
        let claims = Cursor::root(object).get("spec").items("volumeClaimTemplates");
        // The path to a claim's spec lacks a step on create, and has it in Go's spelling on update.
        for claim in claims {
            let path = if old.is_some() { claim.at("Spec") } else { claim.path.clone() };
            found.extend(persistent_volume_claim::spec_warnings(&Cursor::new(claim.raw("spec"), path)));
        }
        if Cursor::root(object).get("spec").number("revisionHistoryLimit") < 0 {
            found.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".into());
        }
        found
    }

    fn validate_name(&self, name: &str, prefix: bool) -> Vec<String> {
        label_name(name, prefix)
    }
}

fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>, creating: bool) {
    match spec.text("podManagementPolicy") {
        "" => errors.required(spec.at("podManagementPolicy"), ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(spec.at("podManagementPolicy"), other, "must be 'OrderedReady' or 'Parallel'"),
    }
    update_strategy(errors, &spec.get("updateStrategy"));
    let policy = spec.get("persistentVolumeClaimRetentionPolicy");
    for key in ["whenDeleted", "whenScaled"] {
        if policy.exists() && !["Retain", "Delete"].contains(&policy.text(key)) {
            errors.unsupported(policy.at(key), policy.text(key), &["Retain", "Delete"]);
        }
    }
    if creating {
        for claim in spec.items("volumeClaimTemplates") {
            persistent_volume_claim::validate_spec(errors, &claim.get("spec"));
        }
    }
    counts(errors, spec, &["replicas", "minReadySeconds"]);
    let ordinals = spec.get("ordinals");
    if ordinals.exists() {
        errors.non_negative(spec.at("ordinals.start"), ordinals.number("start"));
    }
    let service = spec.text("serviceName");
    if creating && !service.is_empty() {
        errors.reasons(spec.at("serviceName"), service, names::dns1123_label(service));
    }
    let selector = spec.get("selector");
    if selector.exists() {
        check::label_selector(errors, &selector);
        if check::is_empty_selector(&selector) {
            check::bad_selector(errors, &selector, "empty selector is invalid for statefulset");
        }
    } else {
        errors.required(selector.path.clone(), "");
    }
    if !check::is_sound_selector(&selector) {
        return check::bad_selector(errors, &selector, "");
    }
    super::matches_template(errors, spec);
    let template = with_claimed_volumes(spec);
    pod::validate_template(errors, &Cursor::new(&template, spec.at("template")));
    long_running(errors, spec, "StatefulSet");
}

fn update_strategy(errors: &mut FieldErrors, strategy: &Cursor<'_>) {
    let rolling = strategy.get("rollingUpdate");
    match strategy.text("type") {
        "" => errors.required(strategy.path.clone(), ""),
        "OnDelete" if rolling.exists() => {
            let error = FieldError::invalid(
                &rolling.path,
                rolling.value.clone(),
                "only allowed for updateStrategy 'RollingUpdate'",
            );
            errors.push(error.shown_as(internal::show("RollingUpdateStatefulSetStrategy", rolling.value)));
        }
        "OnDelete" => {}
        "RollingUpdate" if rolling.exists() => {
            errors.non_negative(rolling.at("partition"), rolling.number("partition"));
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.exists() {
                check::int_or_percent(errors, &unavailable);
                if super::amount(unavailable.value) == 0 {
                    errors.invalid(unavailable.path.clone(), unavailable.value.clone(), "cannot be 0");
                }
                check::at_most_hundred_percent(errors, &unavailable);
            }
        }
        "RollingUpdate" => {}
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            let error = FieldError::invalid(&strategy.path, strategy.value.clone(), detail);
            errors.push(error.shown_as(internal::show("StatefulSetUpdateStrategy", strategy.value)));
        }
    }
}

/// The template as its pods will be: with a volume for each claim, and without the names the controller sets.
fn with_claimed_volumes(spec: &Cursor<'_>) -> Value {
    let mut template = spec.raw("template").clone();
    let name = |claim: &Value| claim.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut claims: Vec<String> = spec.array("volumeClaimTemplates").iter().map(name).collect();
    claims.sort_unstable();
    claims.dedup();
    let Some(pod) = template.get_mut("spec").and_then(Value::as_object_mut) else { return template };
    pod.remove("subdomain");
    pod.remove("hostname");
    if claims.is_empty() {
        return template;
    }
    let mut volumes: Vec<Value> =
        claims.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})).collect();
    let own = pod.get("volumes").and_then(Value::as_array).cloned().unwrap_or_default();
    let taken = |volume: &Value| claims.iter().any(|claim| volume["name"].as_str().unwrap_or_default() == claim);
    volumes.extend(own.into_iter().filter(|volume| !taken(volume)));
    pod.insert("volumes".into(), volumes.into());
    template
}
