//! The group apps, and what its workloads share with ReplicationControllers.

pub mod controller_revision;
pub mod daemonset;
pub mod deployment;
pub mod replicaset;
pub mod statefulset;

use ferry_meta::{FieldErrors, names};
use serde_json::{Map, Value};

use crate::check;
use crate::core::pod;
use crate::cursor::{Cursor, Report, map_mut};

/// The defaults of `spec.template`.
pub fn default_template(spec: &mut Map<String, Value>) {
    spec.entry("template").or_insert_with(|| Value::Object(Map::new()));
    if let Some(template) = map_mut(spec, "template") {
        pod::default_template(template);
    }
}

/// A selector that must be there, select something, and select the template's pods.
pub fn selector(errors: &mut FieldErrors, spec: &Cursor<'_>, kind: &str) {
    let selector = spec.get("selector");
    if !selector.exists() {
        return errors.required(selector.path, "");
    }
    check::label_selector(errors, &selector);
    if check::is_empty_selector(&selector) {
        check::bad_selector(errors, &selector, format!("empty selector is invalid for {kind}"));
    }
}

pub fn matches_template(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let (selector, metadata) = (spec.get("selector"), spec.get("template").get("metadata"));
    let empty = selector.exists() && check::is_empty_selector(&selector);
    if !empty && !check::selects(selector.value, metadata.map("labels")) {
        let labels = metadata.raw("labels").clone();
        errors.invalid(metadata.at("labels"), labels, "`selector` does not match template `labels`");
    }
}

/// Pods that are replaced must restart for ever.
pub fn long_running(errors: &mut FieldErrors, spec: &Cursor<'_>, kind: &str) {
    let pod = spec.get("template").get("spec");
    if pod.text("restartPolicy") != "Always" {
        errors.unsupported(pod.at("restartPolicy"), pod.text("restartPolicy"), &["Always"]);
    }
    if pod.has("activeDeadlineSeconds") {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(pod.at("activeDeadlineSeconds"), detail);
    }
}

/// The template of a ReplicaSet or Deployment.
pub fn replica_template(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let selector = spec.get("selector");
    if !check::is_sound_selector(&selector) {
        return check::bad_selector(errors, &selector, "invalid label selector");
    }
    matches_template(errors, spec);
    pod::validate_template(errors, &spec.get("template"));
    long_running(errors, spec, "ReplicaSet");
}

/// Counts that may not be negative.
pub fn counts(errors: &mut FieldErrors, parent: &Cursor<'_>, keys: &[&str]) {
    for key in keys {
        errors.non_negative(parent.at(key), parent.number(key));
    }
}

/// A count that only grows: once told it is not left out either.
pub fn never_less(errors: &mut FieldErrors, status: &Cursor<'_>, old: &Cursor<'_>, key: &str) {
    if old.has(key) && (!status.has(key) || status.number(key) < old.number(key)) {
        errors.invalid(status.at(key), status.number(key), "cannot be decremented");
    }
}

/// Parts of `replicas` that cannot be more than the whole; available ones must be ready.
pub fn parts_of_replicas(errors: &mut FieldErrors, status: &Cursor<'_>, parts: &[&str], ready: &str) {
    for part in parts {
        if status.number(part) > status.number("replicas") {
            errors.invalid(status.at(part), status.number(part), "cannot be greater than status.replicas");
        }
    }
    let available = status.number("availableReplicas");
    if available > status.number("readyReplicas") {
        errors.invalid(status.at("availableReplicas"), available, format!("cannot be greater than {ready}"));
    }
}

/// Zero for an amount or share that is nothing.
pub fn amount(value: &Value) -> i64 {
    check::percent_of(value).or(value.as_i64()).unwrap_or_default()
}

/// The warning for names that make poor host names.
pub fn name_warning(object: &Value) -> Option<String> {
    let reasons = names::dns1123_label(ferry_meta::object::name(object));
    (!reasons.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            reasons.join(" ")
        )
    })
}

/// Warnings about the template, on create and whenever the spec changed.
pub fn template_warnings(object: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = crate::strategy::common::generation;
    if old.is_some_and(|old| generation(old) == generation(object)) {
        return Vec::new();
    }
    pod::warnings::of(&Cursor::root(object).get("spec").get("template"))
}
