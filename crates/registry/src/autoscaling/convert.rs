//! Autoscalers between v1 and v2: what v1 cannot say travels in annotations.

use ferry_meta::object;
use serde_json::{Map, Value, json};

use crate::cursor::{Cursor, map_mut, object_at};
use crate::internal;

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
/// Earlier releases carried these two as well.
const DOWN: &str = "autoscaling.alpha.kubernetes.io/scale-down-tolerance";
const UP: &str = "autoscaling.alpha.kubernetes.io/scale-up-tolerance";
pub(super) const CARRIERS: [&str; 6] = [METRICS, BEHAVIOR, CURRENT, CONDITIONS, DOWN, UP];
pub(super) const OF_SPEC: [&str; 2] = [METRICS, BEHAVIOR];
pub(super) const OF_STATUS: [&str; 2] = [CURRENT, CONDITIONS];

pub(super) fn cpu_metric(share: i64) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": share}}})
}

fn cpu_share(metric: &Value, side: &str) -> Option<i64> {
    let source = Cursor::root(metric).get("resource");
    (metric["type"] == "Resource" && source.text("name") == "cpu")
        .then(|| source.get(side).int("averageUtilization"))?
}

pub(super) fn to_v1(mut object: Value) -> Value {
    let at = Cursor::root(&object);
    let (spec, status) = (at.get("spec"), at.get("status"));
    let mut annotations = object::annotations(&object).clone();
    annotations.retain(|key, _| !CARRIERS.contains(&key.as_str()));
    let others: Vec<String> = spec
        .array("metrics")
        .iter()
        .filter(|m| cpu_share(m, "target").is_none())
        .map(|m| metric_v1(m, "target", "target"))
        .collect();
    if !others.is_empty() {
        annotations.insert(METRICS.into(), format!("[{}]", others.join(",")).into());
    }
    let current: Vec<String> =
        status.array("currentMetrics").iter().map(|m| metric_v1(m, "current", "current")).collect();
    if !current.is_empty() {
        annotations.insert(CURRENT.into(), format!("[{}]", current.join(",")).into());
    }
    if spec.has("behavior") {
        let text = internal::show("HorizontalPodAutoscalerBehavior", spec.raw("behavior"));
        annotations.insert(BEHAVIOR.into(), text.into());
    }
    if !status.array("conditions").is_empty() {
        let text = internal::show_list("AutoscalingConditionV1", status.raw("conditions"));
        annotations.insert(CONDITIONS.into(), text.into());
    }
    let share = spec.array("metrics").iter().find_map(|m| cpu_share(m, "target"));
    let now = status.array("currentMetrics").iter().find_map(|m| cpu_share(m, "current"));
    let metadata = object::metadata_mut(&mut object);
    if annotations.is_empty() {
        metadata.remove("annotations");
    } else {
        metadata.insert("annotations".into(), Value::Object(annotations));
    }
    let spec = object_at(&mut object, &["spec"]);
    spec.remove("metrics");
    spec.remove("behavior");
    if let Some(share) = share {
        spec.insert("targetCPUUtilizationPercentage".into(), share.into());
    }
    let status = object_at(&mut object, &["status"]);
    status.remove("currentMetrics");
    status.remove("conditions");
    for count in ["currentReplicas", "desiredReplicas"] {
        status.entry(count).or_insert_with(|| 0.into());
    }
    if let Some(now) = now {
        status.insert("currentCPUUtilizationPercentage".into(), now.into());
    }
    object["apiVersion"] = "autoscaling/v1".into();
    object
}

/// JSON with the fields in this order, those that are not there left out.
fn ordered<'a>(fields: impl Iterator<Item = (&'a str, Option<String>)>) -> String {
    let texts: Vec<String> = fields.filter_map(|(key, text)| text.map(|text| format!("\"{key}\":{text}"))).collect();
    format!("{{{}}}", texts.join(","))
}

/// A metric (or its current value) as v1's annotation writes it.
fn metric_v1(metric: &Value, side: &str, prefix: &str) -> String {
    let kind = metric["type"].as_str().unwrap_or_default();
    let key = lower_first(kind);
    let source = Cursor::root(metric).get(&key);
    let aim = source.get(side);
    let named = |suffix: &str| format!("{prefix}{suffix}");
    let (average, share, value) = (named("AverageValue"), named("AverageUtilization"), named("Value"));
    let get = |from: &Cursor<'_>, field: &str| {
        let value = from.raw(field);
        (!value.is_null()).then(|| internal::show_json(value))
    };
    let or_zero = |amount: Option<String>| amount.or_else(|| Some("\"0\"".to_owned()));
    // What is measured has a number always.
    let measured_amount = |field: &str| match get(&aim, field) {
        None if side == "current" => or_zero(None),
        amount => amount,
    };
    let measured = source.get("metric");
    let selector = || measured.has("selector").then(|| internal::show("LabelSelector", measured.raw("selector")));
    let fields: Vec<(&str, Option<String>)> = match key.as_str() {
        "pods" => vec![
            ("metricName", get(&measured, "name")),
            (&average, measured_amount("averageValue")),
            ("selector", selector()),
        ],
        "object" => vec![
            ("target", Some(internal::show("AutoscalingReferenceV1", source.raw("describedObject")))),
            ("metricName", get(&measured, "name")),
            (&value, or_zero(get(&aim, "value"))),
            ("selector", selector()),
            ("averageValue", get(&aim, "averageValue")),
        ],
        "external" => vec![
            ("metricName", get(&measured, "name")),
            ("metricSelector", selector()),
            (&value, measured_amount("value")),
            (&average, get(&aim, "averageValue")),
        ],
        _ => vec![
            ("name", get(&source, "name")),
            (&share, get(&aim, "averageUtilization")),
            (&average, measured_amount("averageValue")),
            ("container", get(&source, "container")),
        ],
    };
    format!("{{\"type\":\"{kind}\",\"{key}\":{}}}", ordered(fields.into_iter()))
}

pub(super) fn to_v2(mut object: Value) -> Value {
    let annotations = object::annotations(&object).clone();
    let read = |key: &str| {
        annotations.get(key).and_then(Value::as_str).and_then(|text| serde_json::from_str::<Value>(text).ok())
    };
    let mut metrics: Vec<Value> = read(METRICS)
        .and_then(|v| v.as_array().cloned())
        .into_iter()
        .flatten()
        .map(|m| metric_v2(&m, "target", "target"))
        .collect();
    let spec = object_at(&mut object, &["spec"]);
    if let Some(share) = spec.remove("targetCPUUtilizationPercentage").and_then(|v| v.as_i64()) {
        metrics.push(cpu_metric(share));
    }
    if metrics.is_empty() {
        metrics.push(cpu_metric(80));
    }
    spec.insert("metrics".into(), metrics.into());
    if let Some(behavior) = read(BEHAVIOR).map(lowered).filter(|b| b.as_object().is_some_and(|b| !b.is_empty())) {
        spec.insert("behavior".into(), behavior);
    }
    let status = object_at(&mut object, &["status"]);
    // v2 does not tell it where it is none.
    if status.get("currentReplicas").and_then(Value::as_i64) == Some(0) {
        status.remove("currentReplicas");
    }
    let mut current: Vec<Value> = read(CURRENT)
        .and_then(|v| v.as_array().cloned())
        .into_iter()
        .flatten()
        .map(|m| metric_v2(&m, "current", "current"))
        .collect();
    if let Some(share) = status.remove("currentCPUUtilizationPercentage").and_then(|v| v.as_i64())
        && current.is_empty()
    {
        current
            .push(json!({"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": share}}}));
    }
    if !current.is_empty() {
        status.insert("currentMetrics".into(), current.into());
    }
    if let Some(mut conditions) = read(CONDITIONS) {
        // A time that was never set stands there as null.
        for condition in conditions.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
            condition.retain(|_, value| !value.is_null());
        }
        status.insert("conditions".into(), conditions);
    }
    drop_carriers(&mut object);
    object["apiVersion"] = "autoscaling/v2".into();
    object
}

/// What carries fields of another version is no annotation of the object itself.
pub(super) fn drop_carriers(object: &mut Value) {
    if let Some(map) = map_mut(object::metadata_mut(object), "annotations")
        && CARRIERS.iter().any(|key| map.contains_key(*key))
    {
        map.retain(|key, _| !CARRIERS.contains(&key.as_str()));
        if map.is_empty() {
            object::metadata_mut(object).remove("annotations");
        }
    }
}

fn metric_v2(metric: &Value, side: &str, prefix: &str) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let key = lower_first(kind);
    let source = Cursor::root(metric).get(&key);
    let get = |suffix: &str| source.raw(&format!("{prefix}{suffix}")).clone();
    let (mut average, share, value) = (get("AverageValue"), get("AverageUtilization"), get("Value"));
    if key == "object" {
        average = source.raw("averageValue").clone();
    }
    let kind_of = if !share.is_null() {
        "Utilization"
    } else if !average.is_null() {
        "AverageValue"
    } else {
        "Value"
    };
    let mut aim = Map::new();
    if side == "target" {
        aim.insert("type".into(), kind_of.into());
    }
    for (field, found) in [("averageValue", average), ("averageUtilization", share), ("value", value)] {
        let zero = field == "value" && found == json!("0") && aim.contains_key("averageValue");
        if !found.is_null() && !zero {
            aim.insert(field.into(), found);
        }
    }
    let mut out = Map::new();
    let selector = if key == "external" { "metricSelector" } else { "selector" };
    for (from, to) in [("name", "name"), ("container", "container"), ("target", "describedObject")] {
        if source.has(from) {
            out.insert(to.into(), source.raw(from).clone());
        }
    }
    if source.has("metricName") {
        let mut measured = json!({"name": source.raw("metricName")});
        if source.has(selector) {
            measured["selector"] = source.raw(selector).clone();
        }
        out.insert("metric".into(), measured);
    }
    out.insert(side.into(), Value::Object(aim));
    json!({"type": kind, key: out})
}

fn lower_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_lowercase().to_string() + letters.as_str())
}

/// Names of Go's fields as JSON's, nulls dropped.
fn lowered(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            map.into_iter().filter(|(_, v)| !v.is_null()).map(|(k, v)| (lower_first(&k), lowered(v))).collect()
        }
        Value::Array(items) => items.into_iter().map(lowered).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_v1_cannot_say_survives_it() {
        let object = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {
                "maxReplicas": 3,
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "qps"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
                ],
                "behavior": {"scaleDown": {"selectPolicy": "Max", "policies": [{"type": "Pods", "value": 4, "periodSeconds": 60}]}},
            },
            "status": {"desiredReplicas": 0},
        });
        let old = to_v1(object.clone());
        assert_eq!(old["status"], json!({"currentReplicas": 0, "desiredReplicas": 0}));
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], json!(60));
        assert_eq!(
            old["metadata"]["annotations"][METRICS],
            json!(r#"[{"type":"Pods","pods":{"metricName":"qps","targetAverageValue":"1k"}}]"#)
        );
        assert_eq!(to_v2(old), object);
    }

    /// Annotations are compared as text, so the order in them is upstream's.
    #[test]
    fn carried_fields_stand_in_the_order_of_upstream() {
        let object = json!({
            "metadata": {"name": "a", "annotations": {"mine": "1", DOWN: "0.1"}},
            "spec": {"maxReplicas": 3, "metrics": [
                {"type": "Object", "object": {
                    "describedObject": {"apiVersion": "v1", "kind": "Service", "name": "s"},
                    "metric": {"name": "m", "selector": {
                        "matchExpressions": [{"values": ["<"], "operator": "In", "key": "k"}], "matchLabels": {"a": "b"}}},
                    "target": {"type": "AverageValue", "averageValue": "2"},
                }},
            ]},
            "status": {"conditions": [{"type": "AbleToScale", "status": "True", "observedGeneration": 3}]},
        });
        let old = to_v1(object);
        let annotations = &old["metadata"]["annotations"];
        assert_eq!(
            annotations[METRICS],
            json!(
                r#"[{"type":"Object","object":{"target":{"kind":"Service","name":"s","apiVersion":"v1"},"metricName":"m","targetValue":"0","selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"k","operator":"In","values":["\u003c"]}]},"averageValue":"2"}}]"#
            )
        );
        assert_eq!(
            annotations[CONDITIONS],
            json!(r#"[{"type":"AbleToScale","status":"True","lastTransitionTime":null,"observedGeneration":3}]"#)
        );
        assert_eq!(annotations.get(DOWN), None, "carriers of earlier releases are nobody's annotations");
        assert_eq!(annotations["mine"], json!("1"));
    }
}
