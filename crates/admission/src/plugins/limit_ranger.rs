//! LimitRanges of a namespace: defaults for containers that name no amounts, and bounds for pods and claims.

use std::sync::Arc;

use ferry_meta::object::{child_mut, is_being_deleted, items, text};
use ferry_meta::quantity::Quantity;
use ferry_meta::{ApiError, ObjectReader};
use serde_json::{Map, Value, json};

use crate::resources::LIMIT_RANGES;
use crate::{Operation, Plugin, Request};
use ferry_semantics::quota::amounts::{Amounts, amounts, total};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

pub(crate) struct LimitRanger {
    reader: Arc<dyn ObjectReader>,
}

impl LimitRanger {
    pub(crate) fn new(reader: Arc<dyn ObjectReader>) -> Self {
        Self { reader }
    }

    /// The ranges that concern the request; containers cannot change after creation, except by a resize.
    fn ranges(&self, request: &Request<'_>) -> Vec<Arc<Value>> {
        let concerned = matches!(
            (request.resource.resource.as_str(), request.subresource, request.operation),
            ("pods", "", Operation::Create) | ("pods", "resize", Operation::Update) | ("persistentvolumeclaims", "", _)
        );
        let leaving = request.object.as_deref().is_none_or(is_being_deleted);
        if !concerned || leaving || !request.resource.group.is_empty() {
            return Vec::new();
        }
        self.reader.list(&LIMIT_RANGES, request.namespace)
    }
}

#[async_trait::async_trait]
impl Plugin for LimitRanger {
    fn name(&self) -> &'static str {
        "LimitRanger"
    }

    fn handles(&self, operation: Operation) -> bool {
        matches!(operation, Operation::Create | Operation::Update)
    }

    async fn mutate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        if !request.is("", "pods") {
            return Ok(());
        }
        for range in self.ranges(request) {
            if let Some(pod) = request.object.as_deref_mut() {
                set_defaults(pod, &range);
            }
        }
        Ok(())
    }

    async fn validate(&self, request: &mut Request<'_>) -> Result<(), ApiError> {
        for range in self.ranges(request) {
            let Some(object) = request.object.as_deref() else { return Ok(()) };
            let mut errors = if request.resource.resource == "pods" {
                pod_errors(object, &range)
            } else {
                claim_errors(object, &range)
            };
            let mut seen = std::collections::HashSet::new();
            errors.retain(|error| seen.insert(error.clone()));
            match errors.as_slice() {
                [] => {}
                [one] => return Err(request.forbidden(one)),
                many => return Err(request.forbidden(format_args!("[{}]", many.join(", ")))),
            }
        }
        Ok(())
    }
}

fn limits<'a>(range: &'a Value, kind: &'a str) -> impl Iterator<Item = &'a Value> {
    items(range, "/spec/limits").iter().filter(move |limit| text(limit, "/type") == kind)
}

fn set_defaults(pod: &mut Value, range: &Value) {
    let mut requests = Map::new();
    let mut maximums = Map::new();
    for limit in limits(range, "Container") {
        requests.extend(ferry_meta::object::map(limit, "/defaultRequest").clone());
        maximums.extend(ferry_meta::object::map(limit, "/default").clone());
    }
    let mut notes = Vec::new();
    for (list, title) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let container_name = text(container, "/name").to_owned();
            for (field, defaults, what) in [("requests", &requests, "request"), ("limits", &maximums, "limit")] {
                let set = fill(container, field, defaults);
                if !set.is_empty() {
                    notes.push(format!("{} {what} for {title} {container_name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let metadata = ferry_meta::object::metadata_mut(pod);
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if !annotations.is_object() {
            *annotations = json!({});
        }
        annotations[ANNOTATION] = json!(format!("LimitRanger plugin set: {}", notes.join("; ")));
    }
}

/// The names of the amounts that were missing and are set now, sorted.
fn fill(container: &mut Value, field: &str, defaults: &Map<String, Value>) -> Vec<String> {
    let present = ferry_meta::object::map(container, &format!("/resources/{field}"));
    let mut missing: Vec<String> = defaults.keys().filter(|key| !present.contains_key(*key)).cloned().collect();
    missing.sort();
    if !missing.is_empty() {
        child_mut(container, "resources");
        let target = child_mut(&mut container["resources"], field);
        for key in &missing {
            if let Some(value) = defaults.get(key) {
                target.insert(key.clone(), value.clone());
            }
        }
    }
    missing
}

fn pod_errors(pod: &Value, range: &Value) -> Vec<String> {
    let Some(spec) = pod.get("spec") else { return Vec::new() };
    let mut errors = Vec::new();
    for limit in items(range, "/spec/limits") {
        match text(limit, "/type") {
            "Container" => {
                for container in items(spec, "/containers").iter().chain(items(spec, "/initContainers")) {
                    let own = |kind: &str| amounts(container, &format!("/resources/{kind}"));
                    errors.extend(bounds(limit, &own("requests"), &own("limits")));
                }
            }
            "Pod" => errors.extend(bounds(limit, &total(spec, "requests"), &total(spec, "limits"))),
            _ => {}
        }
    }
    errors
}

/// What a pod or container breaks of one limit.
fn bounds(limit: &Value, requests: &Amounts, limits: &Amounts) -> Vec<String> {
    let kind = text(limit, "/type");
    let mut errors = Vec::new();
    for (key, least) in amounts(limit, "/min") {
        errors.extend(minimum(kind, &key, &least, requests.get(&key), limits.get(&key)));
    }
    for (key, most) in amounts(limit, "/max") {
        let head = format!("maximum {key} usage per {kind} is {most}");
        match (requests.get(&key), limits.get(&key)) {
            (_, None) => errors.push(format!("{head}.  No limit is specified")),
            (_, Some(own)) if *own > most => errors.push(format!("{head}, but limit is {own}")),
            (Some(own), _) if *own > most => errors.push(format!("{head}, but request is {own}")),
            _ => {}
        }
    }
    for (key, most) in amounts(limit, "/maxLimitRequestRatio") {
        errors.extend(ratio(kind, &key, &most, requests.get(&key), limits.get(&key)));
    }
    errors
}

fn minimum(
    kind: &str,
    key: &str,
    least: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("minimum {key} usage per {kind} is {least}");
    match (request, limit) {
        (None, _) => Some(format!("{head}.  No request is specified")),
        (Some(own), _) if own < least => Some(format!("{head}, but request is {own}")),
        (_, Some(own)) if own < least => Some(format!("{head}, but limit is {own}")),
        _ => None,
    }
}

fn ratio(
    kind: &str,
    key: &str,
    most: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let head = format!("{key} max limit to request ratio per {kind} is {most}");
    let Some(request) = request.filter(|amount| !amount.is_zero()) else {
        return Some(format!("{head}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|amount| !amount.is_zero()) else {
        return Some(format!("{head}, but no limit is specified or limit is 0"));
    };
    // Thousandths as far as they fit, whole units beyond: as upstream compares.
    let number = |amount: &Quantity| match amount.milli_value() {
        i64::MAX | i64::MIN => amount.value() as f64 * 1000.0,
        milli => milli as f64,
    };
    let observed = number(limit) / number(request);
    (observed * 1000.0 > number(most)).then(|| format!("{head}, but provided ratio is {observed:.6}"))
}

fn claim_errors(claim: &Value, range: &Value) -> Vec<String> {
    let requests = amounts(claim, "/spec/resources/requests");
    let kind = "PersistentVolumeClaim";
    let mut errors = Vec::new();
    for limit in limits(range, kind) {
        for (key, least) in amounts(limit, "/min") {
            errors.extend(minimum(kind, &key, &least, requests.get(&key), None));
        }
        for (key, most) in amounts(limit, "/max") {
            let head = format!("maximum {key} usage per {kind} is {most}");
            match requests.get(&key) {
                None => errors.push(format!("{head}.  No request is specified")),
                Some(own) if *own > most => errors.push(format!("{head}, but request is {own}")),
                Some(_) => {}
            }
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Case, Objects};

    fn plugin(limits: Value) -> LimitRanger {
        let objects = Objects::default();
        let range = json!({"metadata": {"name": "l", "namespace": "a"}, "spec": {"limits": limits}});
        objects.put("", "limitranges", range);
        LimitRanger::new(Arc::new(objects))
    }

    #[tokio::test]
    async fn defaults_are_filled_in_and_noted() {
        let plugin = plugin(json!([{"type": "Container", "default": {"cpu": "500m", "memory": "64Mi"},
            "defaultRequest": {"cpu": "100m", "memory": "64Mi"}}]));
        let pod = json!({"spec": {"containers": [{"name": "x", "resources": {"requests": {"cpu": "200m"}}}],
            "initContainers": [{"name": "i"}]}});
        let pod = Case::create("", "pods", "a", pod).mutate(&plugin).await.expect("admitted");
        assert_eq!(
            pod["spec"]["containers"][0]["resources"],
            json!({"limits": {"cpu": "500m", "memory": "64Mi"}, "requests": {"cpu": "200m", "memory": "64Mi"}})
        );
        assert_eq!(
            pod["metadata"]["annotations"][ANNOTATION],
            "LimitRanger plugin set: memory request for container x; cpu, memory limit for container x; cpu, memory request for init container i; cpu, memory limit for init container i"
        );
    }

    #[tokio::test]
    async fn bounds_are_told_all_at_once() {
        let plugin = plugin(json!([
            {"type": "Container", "min": {"cpu": "100m", "memory": "10Mi"}, "max": {"cpu": "1"},
             "maxLimitRequestRatio": {"memory": "2"}},
            {"type": "Pod", "max": {"cpu": "1500m"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}, "min": {"storage": "1Mi"}},
        ]));
        let check = async |requests: Value, limits: Value, want: &str| {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [
                {"name": "c", "resources": {"requests": requests, "limits": limits}}]}});
            let error = Case::create("", "pods", "a", pod).validate(&plugin).await.expect_err("refused");
            assert_eq!(error.0.message, format!("pods \"p\" is forbidden: {want}"));
        };
        check(
            json!({"cpu": "50m", "memory": "20Mi"}),
            json!({"cpu": "100m", "memory": "20Mi"}),
            "minimum cpu usage per Container is 100m, but request is 50m",
        )
        .await;
        check(
            json!({"cpu": "200m", "memory": "10Mi"}),
            json!({"cpu": "200m", "memory": "100Mi"}),
            "memory max limit to request ratio per Container is 2, but provided ratio is 10.000000",
        )
        .await;
        check(
            json!({"cpu": "3", "memory": "1Mi"}),
            json!({"cpu": "3", "memory": "1Mi"}),
            "[minimum memory usage per Container is 10Mi, but request is 1Mi, maximum cpu usage per Container is 1, but limit is 3, maximum cpu usage per Pod is 1500m, but limit is 3]",
        )
        .await;
        let claim = json!({"metadata": {"name": "c"}, "spec": {"resources": {"requests": {"storage": "2Gi"}}}});
        let error =
            Case::create("", "persistentvolumeclaims", "a", claim).validate(&plugin).await.expect_err("refused");
        assert!(
            error.0.message.ends_with("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")
        );
    }
}
