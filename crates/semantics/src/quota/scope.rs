//! Which pods and claims a quota is about.

use std::collections::BTreeSet;

use ferry_meta::object::{items, text};
use serde_json::Value;

use super::usage::Measure;
use crate::qos::QosClass;

/// Whether all scopes of the quota hold for the object.
pub fn matches(quota: &Value, measure: Measure, object: &Value) -> bool {
    let scopes = items(quota, "/spec/scopes").iter().filter_map(Value::as_str).map(|scope| (scope, "Exists", &[][..]));
    let selected = items(quota, "/spec/scopeSelector/matchExpressions").iter().map(|requirement| {
        (text(requirement, "/scopeName"), text(requirement, "/operator"), items(requirement, "/values"))
    });
    scopes.chain(selected).all(|(scope, operator, values)| match measure {
        Measure::Pod => pod_in_scope(object, scope, operator, values),
        Measure::Claim if scope == "VolumeAttributesClass" => {
            let classes = attributes_classes(object);
            match operator {
                _ if classes.is_empty() => compare("", operator, values),
                _ => classes.iter().any(|class| compare(class, operator, values)),
            }
        }
        _ => false,
    })
}

/// The class that a claim asks for, the one that its volume has, and the one on the way between them: the claim counts for each.
pub fn attributes_classes(claim: &Value) -> BTreeSet<&str> {
    let places = [
        "/spec/volumeAttributesClassName",
        "/status/currentVolumeAttributesClassName",
        "/status/modifyVolumeStatus/targetVolumeAttributesClassName",
    ];
    places.iter().map(|place| text(claim, place)).filter(|class| !class.is_empty()).collect()
}

/// Whether a pod is to end by itself: the scopes Terminating and NotTerminating.
pub fn is_terminating(pod: &Value) -> bool {
    pod.pointer("/spec/activeDeadlineSeconds").and_then(Value::as_i64).is_some_and(|seconds| seconds >= 0)
}

fn pod_in_scope(pod: &Value, scope: &str, operator: &str, values: &[Value]) -> bool {
    match scope {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => compare(text(pod, "/spec/priorityClassName"), operator, values),
        "CrossNamespacePodAffinity" => crosses_namespaces(pod),
        _ => false,
    }
}

fn compare(own: &str, operator: &str, values: &[Value]) -> bool {
    let listed = values.iter().any(|value| value.as_str() == Some(own));
    match operator {
        "In" => !own.is_empty() && listed,
        "NotIn" => !listed,
        "Exists" | "" => !own.is_empty(),
        "DoesNotExist" => own.is_empty(),
        _ => false,
    }
}

fn is_best_effort(pod: &Value) -> bool {
    pod.get("spec").is_none_or(|spec| QosClass::of_json(spec) == QosClass::BestEffort)
}

fn crosses_namespaces(pod: &Value) -> bool {
    ["podAffinity", "podAntiAffinity"].iter().any(|affinity| {
        let base = format!("/spec/affinity/{affinity}");
        let required = items(pod, &format!("{base}/requiredDuringSchedulingIgnoredDuringExecution")).iter();
        let preferred = items(pod, &format!("{base}/preferredDuringSchedulingIgnoredDuringExecution"))
            .iter()
            .filter_map(|term| term.get("podAffinityTerm"));
        required
            .chain(preferred)
            .any(|term| !items(term, "/namespaces").is_empty() || is_set(term, "/namespaceSelector"))
    })
}

fn is_set(object: &Value, pointer: &str) -> bool {
    object.pointer(pointer).is_some_and(|value| !value.is_null())
}
