//! The group autoscaling: HorizontalPodAutoscalers in two versions, stored as the second.

mod convert;

use ferry_meta::{FieldErrors, names, object};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::cells;
use crate::core::pod::resources;
use crate::cursor::{Cursor, NOT_NEGATIVE, Report, default_absent, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

/// Version v2.
pub struct HorizontalPodAutoscaler(pub Plain);

/// Version v1: one metric, the others in annotations.
pub struct HorizontalPodAutoscalerV1(pub Plain);

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn default_v2(object: &mut Value) {
    convert::drop_carriers(object);
    let spec = object_at(object, &["spec"]);
    default_to(spec, "minReplicas", 1);
    if spec.get("metrics").and_then(Value::as_array).is_none_or(Vec::is_empty) {
        spec.insert("metrics".into(), json!([convert::cpu_metric(80)]));
    }
    let Some(behavior) = map_mut(spec, "behavior") else { return };
    let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
    let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
    for (key, window, policies) in [("scaleUp", Some(0), json!([pods, percent])), ("scaleDown", None, json!([percent]))]
    {
        default_to(behavior, key, Value::Object(Map::new()));
        let Some(rules) = map_mut(behavior, key) else { continue };
        if let Some(seconds) = window {
            default_to(rules, "stabilizationWindowSeconds", seconds);
        }
        default_absent(rules, "selectPolicy", "Max");
        default_absent(rules, "policies", policies);
    }
}

fn validate_v2(autoscaler: &Cursor<'_>) -> FieldErrors {
    let mut found = FieldErrors::new();
    let errors = &mut found;
    let spec = autoscaler.get("spec");
    let (least, most) = (spec.int("minReplicas"), spec.number("maxReplicas"));
    // Bounds of single fields are found by a later pass.
    let mut later = FieldErrors::new();
    if let Some(least) = least.filter(|least| *least < 0) {
        later.invalid(spec.at("minReplicas"), least, NOT_NEGATIVE);
    }
    match most {
        0 => later.required(spec.at("maxReplicas"), ""),
        most if most < 0 => later.invalid(spec.at("maxReplicas"), most, "must be greater than or equal to 1"),
        _ => {}
    }
    if least.is_some_and(|least| most < least) {
        errors.invalid(spec.at("maxReplicas"), most, "must be greater than or equal to `minReplicas`");
    }
    scaled(errors, &spec.get("scaleTargetRef"));
    let metrics = spec.items("metrics");
    for metric in &metrics {
        one_metric(errors, metric);
    }
    let outside = metrics.iter().any(|m| ["Object", "External"].contains(&m.text("type")));
    if least == Some(0) && !outside {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.forbidden(spec.at("metrics"), detail);
    }
    for rules in ["scaleUp", "scaleDown"].map(|key| spec.get("behavior").get(key)) {
        if rules.exists() {
            scaling_rules(errors, &rules);
        }
    }
    found.extend(later);
    found
}

fn validate_status(object: &Value) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let status = Cursor::root(object).get("status");
    for condition in status.items("conditions") {
        crate::apps::counts(&mut errors, &condition, &["observedGeneration"]);
    }
    crate::apps::counts(&mut errors, &status, &["currentReplicas", "desiredReplicas"]);
    errors
}

/// The object that is scaled, or that a metric describes.
fn target(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    for key in ["kind", "name"] {
        errors.named(reference.at(key), reference.text(key), names::path_segment);
    }
}

/// What a metric describes may be of the core group.
fn described(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    target(errors, reference);
    let version = reference.text("apiVersion");
    if version.matches('/').count() > 1 {
        errors.invalid(reference.at("apiVersion"), version, format!("unexpected GroupVersion string: {version}"));
    }
}

/// What is scaled is of a named group, but for the one kind of the core group that can be.
fn scaled(errors: &mut FieldErrors, reference: &Cursor<'_>) {
    described(errors, reference);
    let version = reference.text("apiVersion");
    let core = reference.text("kind") == "ReplicationController";
    if (version.split_once('/').is_none_or(|(group, _)| group.is_empty())) && !core {
        errors.invalid(reference.at("apiVersion"), version, "apiVersion must specify API group");
    }
}

fn one_metric(errors: &mut FieldErrors, metric: &Cursor<'_>) {
    let kind = metric.text("type");
    let kinds: Vec<&str> = SOURCES.iter().map(|(kind, _)| *kind).collect();
    if kind.is_empty() {
        errors.required(metric.at("type"), "must specify a metric source type");
    }
    if !kinds.contains(&kind) {
        errors.unsupported(metric.at("type"), kind, &kinds);
    }
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|key| metric.has(key))
        .collect();
    if let Some(first) = present.first() {
        source(errors, first, &metric.get(first));
    }
    let expected = SOURCES.iter().find(|(name, _)| *name == kind).map(|(_, key)| *key);
    match expected {
        Some(key) if !metric.has(key) => {
            errors.required(metric.at(key), "must populate information for the given metric source");
        }
        Some(_) => {}
        // Upstream says this twice, once for each look at the type.
        None => errors.unsupported(metric.at("type"), kind, &kinds),
    }
    if present.len() != 1 {
        for key in present.iter().filter(|key| Some(**key) != expected) {
            errors.forbidden(metric.at(key), "must populate the given metric source only");
        }
    }
}

fn source(errors: &mut FieldErrors, key: &str, source: &Cursor<'_>) {
    let aim = source.get("target");
    if key == "object" {
        described(errors, &source.get("describedObject"));
    }
    if ["object", "external", "pods"].contains(&key) {
        let metric = source.get("metric");
        match metric.text("name") {
            "" => errors.required(metric.at("name"), "must specify a metric name"),
            name => errors.reasons(metric.at("name"), name, names::path_segment(name)),
        }
    } else {
        match source.text("name") {
            "" => errors.required(source.at("name"), "must specify a resource name"),
            name if key == "containerResource" => resources::container_name(errors, &source.at("name"), name),
            _ => {}
        }
    }
    if key == "containerResource" {
        match source.text("container") {
            "" => errors.required(source.at("container"), "must specify a container"),
            name => errors.reasons(source.at("container"), name, names::dns1123_label(name)),
        }
    }
    metric_target(errors, &aim);
    let (value, average, utilization) = (aim.has("value"), aim.has("averageValue"), aim.has("averageUtilization"));
    match key {
        "object" if !value && !average => {
            errors.required(aim.at("averageValue"), "must set either a target value or averageValue");
        }
        "pods" if !average => {
            errors.required(aim.at("averageValue"), "must specify a positive target averageValue");
        }
        "external" if !value && !average => {
            let detail = "must set either a target value for metric or a per-pod target";
            errors.required(aim.at("averageValue"), detail);
        }
        "external" if value && average => {
            let detail = "may not set both a target value for metric and a per-pod target";
            errors.forbidden(aim.at("value"), detail);
        }
        "resource" | "containerResource" if !utilization && !average => {
            let detail = "must set either a target raw value or a target utilization";
            errors.required(aim.at("averageUtilization"), detail);
        }
        "resource" | "containerResource" if utilization && average => {
            let detail = "may not set both a target raw value and a target utilization";
            errors.forbidden(aim.at("averageValue"), detail);
        }
        _ => {}
    }
}

fn metric_target(errors: &mut FieldErrors, aim: &Cursor<'_>) {
    let kind = aim.text("type");
    if kind.is_empty() {
        errors.required(aim.at("type"), "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        errors.invalid(aim.at("type"), kind, "must be either Utilization, Value, or AverageValue");
    }
    for key in ["value", "averageValue"] {
        if let Some(quantity) = aim.quantity(key).filter(|q| q.is_zero() || q.is_negative()) {
            errors.invalid(aim.at(key), quantity.to_string(), "must be positive");
        }
    }
    if let Some(share) = aim.int("averageUtilization").filter(|share| *share < 1) {
        errors.invalid(aim.at("averageUtilization"), share, "must be greater than 0");
    }
}

fn scaling_rules(errors: &mut FieldErrors, rules: &Cursor<'_>) {
    if let Some(seconds) = rules.int("stabilizationWindowSeconds") {
        let path = rules.at("stabilizationWindowSeconds");
        if seconds < 0 {
            errors.invalid(path, seconds, "must be greater than or equal to zero");
        } else if seconds > 3600 {
            errors.invalid(path, seconds, "must be less than or equal to 3600");
        }
    }
    let choices = ["Disabled", "Max", "Min"];
    if let Some(policy) = rules.raw("selectPolicy").as_str().filter(|p| !choices.contains(p)) {
        errors.unsupported(rules.at("selectPolicy"), policy, &choices);
    }
    let policies = rules.items("policies");
    if policies.is_empty() {
        errors.required(rules.at("policies"), "must specify at least one Policy");
    }
    for policy in policies {
        if !["Pods", "Percent"].contains(&policy.text("type")) {
            errors.unsupported(policy.at("type"), policy.text("type"), &["Percent", "Pods"]);
        }
        for (key, limit) in [("value", i64::MAX), ("periodSeconds", 1800)] {
            let number = policy.number(key);
            if number <= 0 {
                errors.invalid(policy.at(key), number, "must be greater than zero");
            } else if number > limit {
                errors.invalid(policy.at(key), number, format!("must be less than or equal to {limit}"));
            }
        }
    }
    if let Some(tolerance) = rules.quantity("tolerance").filter(ferry_meta::Quantity::is_negative) {
        errors.invalid(rules.at("tolerance"), tolerance.to_string(), NOT_NEGATIVE);
    }
}

fn row(autoscaler: &Cursor<'_>, now: Timestamp) -> Vec<Value> {
    let (spec, status) = (autoscaler.get("spec"), autoscaler.get("status"));
    let reference = spec.get("scaleTargetRef");
    vec![
        object::name(autoscaler.value).into(),
        format!("{}/{}", reference.text("kind"), reference.text("name")).into(),
        metrics_text(&spec.items("metrics"), &status.items("currentMetrics")).into(),
        spec.int("minReplicas").map_or("<unset>".to_owned(), |n| n.to_string()).into(),
        spec.number("maxReplicas").into(),
        status.number("currentReplicas").into(),
        cells::age(autoscaler.value, now).into(),
    ]
}

fn metrics_text(metrics: &[Cursor<'_>], current: &[Cursor<'_>]) -> String {
    if metrics.is_empty() {
        return "<none>".to_owned();
    }
    let all: Vec<String> =
        metrics.iter().enumerate().map(|(index, metric)| metric_text(metric, current.get(index))).collect();
    let shown = all.iter().take(2).cloned().collect::<Vec<_>>().join(", ");
    if all.len() > 2 { format!("{shown} + {} more...", all.len() - 2) } else { shown }
}

fn metric_text(metric: &Cursor<'_>, status: Option<&Cursor<'_>>) -> String {
    let Some((_, key)) = SOURCES.iter().find(|(kind, _)| *kind == metric.text("type")) else {
        return "<unknown type>".to_owned();
    };
    let source = metric.get(key);
    let aim = source.get("target");
    let now = |field: &str| {
        let current = status.map(|s| s.get(key).get("current"));
        let value = current.filter(|c| c.has(field)).map(|c| c.text(field).to_owned());
        value.unwrap_or_else(|| "<unknown>".to_owned())
    };
    let share = |at: Option<i64>, otherwise: &str| at.map_or(otherwise.to_owned(), |n| format!("{n}%"));
    match *key {
        "pods" => format!("{}/{}", now("averageValue"), aim.text("averageValue")),
        "object" | "external" if aim.has("averageValue") => {
            format!("{}/{} (avg)", now("averageValue"), aim.text("averageValue"))
        }
        "object" | "external" => format!("{}/{}", now("value"), aim.text("value")),
        _ if aim.has("averageValue") => {
            format!("{}: {}/{}", source.text("name"), now("averageValue"), aim.text("averageValue"))
        }
        _ => {
            let current = status.and_then(|s| s.get(key).get("current").int("averageUtilization"));
            let target = share(aim.int("averageUtilization"), "<auto>");
            format!("{}: {}/{target}", source.text("name"), share(current, "<unknown>"))
        }
    }
}

impl Strategy for HorizontalPodAutoscaler {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        default_v2(object);
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        validate_v2(&Cursor::root(object))
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() { self.validate_create(context, object) } else { validate_status(object) }
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        row(&Cursor::root(object), now)
    }
}

impl Strategy for HorizontalPodAutoscalerV1 {
    fn plain(&self) -> &Plain {
        &self.0
    }

    /// What is sent goes through the version that is stored: then a metric is there always, and the annotations that carry
    /// others have their form.
    fn default(&self, object: &mut Value) {
        default_to(object_at(object, &["spec"]), "minReplicas", 1);
        *object = convert::to_v1(convert::to_v2(std::mem::take(object)));
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        validate_v2(&Cursor::root(&convert::to_v2(object.clone())))
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, _old: &Value) -> FieldErrors {
        if context.subresource.is_empty() { self.validate_create(context, object) } else { validate_status(object) }
    }

    fn prepare_update(&self, context: &Context<'_>, object: &mut Value, old: &Value) {
        common::prepare_update(self.has_status(), self.has_generation(), context, object, old);
        // Half of what this version keeps in annotations is spec, half is status: a write changes its own half only. What
        // even the annotations lose, such as the order of metrics, is kept where the object is stored.
        let kept = if context.subresource == "status" { convert::OF_SPEC } else { convert::OF_STATUS };
        for carrier in kept {
            match object::annotations(old).get(carrier).cloned() {
                Some(value) => drop(object_at(object, &["metadata", "annotations"]).insert(carrier.into(), value)),
                None => {
                    if let Some(map) = map_mut(object::metadata_mut(object), "annotations") {
                        map.remove(carrier);
                    }
                }
            }
        }
        // What of the spec is carried counts like the spec.
        let carried = |of: &Value| convert::OF_SPEC.map(|key| object::annotations(of).get(key).cloned());
        let counted = common::generation(object) != common::generation(old);
        if context.subresource.is_empty() && !counted && carried(object) != carried(old) {
            common::set_generation(object, common::generation(old) + 1);
        }
    }

    fn to_storage(&self, object: Value) -> Value {
        let mut object = convert::to_v2(object);
        default_v2(&mut object);
        object
    }

    fn to_storage_bare(&self, object: Value) -> Value {
        convert::to_v2(object)
    }

    fn from_storage(&self, object: Value) -> Value {
        convert::to_v1(object)
    }

    fn loses_in_conversion(&self) -> bool {
        true
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let mut stored = convert::to_v2(object.clone());
        // This version keeps the aim for cpu apart, and so loses its place among the others: it is the first as a rule.
        if Cursor::root(object).get("spec").has("targetCPUUtilizationPercentage")
            && let Some(metrics) = stored.pointer_mut("/spec/metrics").and_then(Value::as_array_mut)
        {
            metrics.rotate_right(1);
        }
        row(&Cursor::root(&stored), now)
    }

    fn carrier_annotations(&self) -> &[&str] {
        &convert::CARRIERS
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;

    use super::*;

    /// A client of v1 that knows nothing of the annotations writes a status: the metrics and the behaviour are not its to lose.
    #[test]
    fn a_status_of_the_first_version_leaves_the_metrics_alone() {
        let strategy = HorizontalPodAutoscalerV1(<Plain as Default>::default());
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"},
            "spec": {"maxReplicas": 5, "minReplicas": 1, "metrics": [
                {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "1k"}}},
            ]},
            "status": {"desiredReplicas": 2, "conditions": [{"type": "AbleToScale", "status": "True"}]},
        });
        let old = strategy.from_storage(stored.clone());
        let user = UserInfo::new("u", &[]);
        let write = |subresource: &str, body: Value| {
            let context = Context { user: &user, subresource, dry_run: false, patch: false, reader: None };
            let mut object = body;
            strategy.prepare_update(&context, &mut object, &old);
            strategy.to_storage(object)
        };
        let bare = |spec: Value, status: Value| json!({"apiVersion": "autoscaling/v1", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "a"}, "spec": spec, "status": status});
        let after =
            write("status", bare(json!({"maxReplicas": 9}), json!({"currentReplicas": 1, "desiredReplicas": 3})));
        assert_eq!(after["spec"]["metrics"], stored["spec"]["metrics"]);
        assert_eq!(after["spec"]["maxReplicas"], json!(5));
        assert_eq!(after["status"]["desiredReplicas"], json!(3));
        assert!(after["status"].get("conditions").is_none(), "what the client left out of the status is gone");
        let after = write("", bare(json!({"maxReplicas": 9, "targetCPUUtilizationPercentage": 50}), json!({})));
        assert_eq!(after["status"]["conditions"], stored["status"]["conditions"]);
        assert_eq!(after["spec"]["metrics"], json!([convert::cpu_metric(50)]));
    }

    /// A metric is there always, whichever version it is sent in, and what is carried counts as the spec that it is.
    #[test]
    fn the_first_version_has_a_metric_and_counts_what_it_carries() {
        let strategy = HorizontalPodAutoscalerV1(Plain {
            has_status: true,
            has_generation: true,
            ..<Plain as Default>::default()
        });
        let sent = json!({"metadata": {"name": "a", "generation": 4}, "spec": {"maxReplicas": 2}});
        let mut old = sent;
        strategy.default(&mut old);
        assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], json!(80));
        let user = UserInfo::new("u", &[]);
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let metrics = r#"[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"1"}}]"#;
        for (annotations, generation) in
            [(json!({"mine": "1"}), 4), (json!({"autoscaling.alpha.kubernetes.io/metrics": metrics}), 5)]
        {
            let mut new = old.clone();
            new["metadata"]["annotations"] = annotations;
            strategy.default(&mut new);
            strategy.prepare_update(&context, &mut new, &old);
            assert_eq!(common::generation(&new), generation, "{new}");
        }
    }

    #[test]
    fn what_is_scaled_names_its_group() {
        for (reference, wanted) in [
            (json!({"kind": "ReplicationController", "name": "a"}), ""),
            (json!({"kind": "ReplicationController", "name": "a", "apiVersion": "v1"}), ""),
            (json!({"kind": "Pod", "name": "a", "apiVersion": "v1"}), "apiVersion must specify API group"),
            (json!({"kind": "Deployment", "name": "a", "apiVersion": "/v1"}), "apiVersion must specify API group"),
            (
                json!({"kind": "Deployment", "name": "a", "apiVersion": "a/b/c"}),
                "unexpected GroupVersion string: a/b/c",
            ),
        ] {
            let mut errors = FieldErrors::new();
            scaled(&mut errors, &Cursor::root(&reference));
            let details: Vec<&str> = errors.iter().map(|error| &*error.detail).collect();
            assert_eq!(details, [wanted].into_iter().filter(|w| !w.is_empty()).collect::<Vec<_>>(), "{reference}");
        }
    }
}
