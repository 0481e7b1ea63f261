//! Autoscalers that do not scale.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, is_failing, is_young, pod, rollout, said, workload};
use crate::world::{World, number, standing, time_at, title, word};

/// After so long there are figures of what a pod uses.
const MEASURED_SECONDS: i64 = 90;

pub(super) fn findings(world: &World, target: &Value) -> Vec<Finding> {
    let (kind, name) =
        (object::text(target, "/spec/scaleTargetRef/kind"), object::text(target, "/spec/scaleTargetRef/name"));
    let scaled = word(&format!("{}/{name}", kind.to_lowercase())).into_owned();
    let namespace = object::namespace(target);
    let finding = |reason: Reason, cause: String| Finding::new(reason, target, cause);
    let list = format!("{}s", kind.to_lowercase());
    // Looked at, not believed: the condition may be from before. Kinds of others may have the same name.
    let of_apps =
        matches!(object::text(target, "/spec/scaleTargetRef/apiVersion").split('/').next(), Some("" | "apps"));
    if let Some(items) = world.seen(&list).filter(|_| of_apps) {
        match items.iter().find(|item| object::name(item) == name) {
            None => {
                let names = super::near::sorted(name, items.iter().map(object::name).collect());
                let there = if names.is_empty() {
                    format!("the namespace has no {list}")
                } else {
                    format!("the namespace has {}", super::named(&names))
                };
                let cause = format!("its target {scaled} does not exist in namespace {namespace}");
                return vec![finding(Reason::HpaTarget, cause).detail(there).advise(format!(
                    "correct spec.scaleTargetRef: kubectl edit -n {namespace} hpa/{}",
                    object::name(target)
                ))];
            }
            Some(item) if item.pointer("/spec/replicas").and_then(Value::as_i64) == Some(0) => {
                let cause = format!("its target {scaled} is scaled to zero, and so it does nothing");
                return vec![
                    finding(Reason::HpaTargetZero, cause)
                        .note()
                        .advise(format!("kubectl scale -n {namespace} {scaled} --replicas=1")),
                ];
            }
            Some(_) => {}
        }
    }
    if let Some(unable) = standing(target, "AbleToScale", "False") {
        // These kinds of Kubernetes have no scale.
        if matches!(kind, "DaemonSet" | "Job" | "CronJob" | "Pod") {
            let cause = format!("its target {scaled} cannot be scaled: a {kind} has no number of replicas");
            return vec![finding(Reason::HpaTarget, cause).detail(said(unable)).advise(format!(
                "name a Deployment, StatefulSet or ReplicaSet in spec.scaleTargetRef: kubectl edit -n {namespace} hpa/{}",
                object::name(target)
            ))];
        }
        let version = object::text(target, "/spec/scaleTargetRef/apiVersion");
        if matches!(kind, "Deployment" | "ReplicaSet" | "StatefulSet") && version != "apps/v1" {
            let cause = format!("its target is a {kind} of {version:?}, and these are of apps/v1");
            return vec![finding(Reason::HpaTarget, cause).detail(said(unable)).advise(format!(
                "set apiVersion: apps/v1 in spec.scaleTargetRef: kubectl edit -n {namespace} hpa/{}",
                object::name(target)
            ))];
        }
        let cause = format!("it cannot change the scale of its target {scaled}");
        return vec![
            finding(Reason::HpaTarget, cause)
                .detail(said(unable))
                .advise(format!("see that {scaled} exists and has a scale subresource")),
        ];
    }
    if let Some(inactive) = standing(target, "ScalingActive", "False") {
        return vec![inactive_because(world, target, inactive, &scaled)];
    }
    if object::items(target, "/status/conditions").is_empty() {
        let cause = "the autoscaling controller has not looked at it yet";
        return vec![
            finding(Reason::ControllerBehind, cause.into())
                .underway_if(is_young(world, target))
                .advise(rollout::CONTROLLERS),
        ];
    }
    match standing(target, "ScalingLimited", "True") {
        Some(limited) if object::text(limited, "/reason") == "TooManyReplicas" => {
            let most = number(target, "/spec/maxReplicas");
            let cause = format!("it wants more replicas than maxReplicas={most} allows");
            vec![
                finding(Reason::HpaAtMost, cause)
                    .note()
                    .detail(said(limited))
                    .advise(format!("raise maxReplicas: kubectl edit -n {namespace} hpa/{}", object::name(target))),
            ]
        }
        Some(limited) if forbidden(target, limited).is_some() => {
            let direction = forbidden(target, limited).unwrap_or_default();
            let cause = format!(
                "it wants another number of replicas, and its behavior forbids that (spec.behavior.{direction}.selectPolicy: Disabled)"
            );
            let edit = format!("kubectl edit -n {namespace} hpa/{}", object::name(target));
            vec![finding(Reason::HpaBehavior, cause).note().detail(said(limited)).advise(edit)]
        }
        _ => behind(world, target).or_else(|| fixed(target)).into_iter().collect(),
    }
}

/// The direction in which it is to scale and may not.
fn forbidden(target: &Value, limited: &Value) -> Option<&'static str> {
    let direction = match object::text(limited, "/reason") {
        "ScaleUpLimit" => "scaleUp",
        "ScaleDownLimit" => "scaleDown",
        _ => return None,
    };
    let policy = object::text(target, &format!("/spec/behavior/{direction}/selectPolicy")).to_owned();
    (policy == "Disabled").then_some(direction)
}

/// One that has no choice.
fn fixed(target: &Value) -> Option<Finding> {
    let most = target.pointer("/spec/maxReplicas").and_then(Value::as_i64)?;
    let least = target.pointer("/spec/minReplicas").and_then(Value::as_i64).unwrap_or(1);
    let cause = format!("it always wants {most} replicas: minReplicas and maxReplicas are the same");
    (least == most).then(|| {
        Finding::new(Reason::HpaFixed, target, cause).note().advise(format!(
            "raise maxReplicas: kubectl edit -n {} hpa/{}",
            object::namespace(target),
            object::name(target)
        ))
    })
}

fn inactive_because(world: &World, target: &Value, inactive: &Value, scaled: &str) -> Finding {
    let namespace = object::namespace(target);
    let found = |reason: Reason, cause: &str| Finding::new(reason, target, cause).detail(said(inactive));
    let none = "it gets no metrics, and so cannot say how many replicas are needed";
    let reason = object::text(inactive, "/reason");
    if reason == "ScalingDisabled" {
        let advice = format!("kubectl scale -n {namespace} {scaled} --replicas=1");
        return found(Reason::HpaTargetZero, "its target is scaled to 0").note().advise(advice);
    }
    if reason == "AmbiguousSelector" {
        let others = world.seen("horizontalpodautoscalers").unwrap_or_default().iter();
        let same = |other: &&Value| {
            other.pointer("/spec/scaleTargetRef/name") == target.pointer("/spec/scaleTargetRef/name")
                && object::name(other) != object::name(target)
        };
        let other = others.into_iter().find(same).map(object::name);
        let by = other.map(|name| format!(", {name}")).unwrap_or_default();
        let remedy = match other {
            Some(name) => {
                format!("keep one of the two, with all metrics in it: kubectl delete -n {namespace} hpa/{name}")
            }
            None => "let only one autoscaler have these pods".to_owned(),
        };
        return found(Reason::HpaTarget, &format!("it does nothing: another autoscaler has the same pods{by}"))
            .advise(remedy);
    }
    if reason == "InvalidSelector" {
        return found(Reason::HpaTarget, "its target names no selector for its pods");
    }
    // The API that the metrics come from: is it there, and does it answer?
    let group = match reason {
        "FailedGetResourceMetric" | "FailedGetContainerResourceMetric" => "metrics.k8s.io",
        "FailedGetExternalMetric" => "external.metrics.k8s.io",
        _ => "custom.metrics.k8s.io",
    };
    let service = world
        .seen("apiservices")
        .map(|services| services.iter().find(|service| object::text(service, "/spec/group") == group));
    // Ferry serves this one itself, without an APIService.
    let absent = ["could not find the requested resource", "404 page not found"];
    let unserved = group != "metrics.k8s.io" || absent.iter().any(|text| said(inactive).contains(text));
    match service {
        Some(None) if unserved => {
            let cause = format!("{none}: no server in the cluster serves the API {group}");
            return found(Reason::HpaMetrics, &cause).advise(match group {
                "metrics.k8s.io" => {
                    "start the servers without --resource-metrics=false, or install metrics-server".to_owned()
                }
                other => format!("install an adapter that serves {other}"),
            });
        }
        Some(Some(service)) if is_failing(service, "Available").is_some() => {
            let name = object::name(service);
            let cause = format!("{none}: the API {group} is not available");
            return found(Reason::HpaMetrics, &cause).advise(format!("ferry why apiservice/{name}"));
        }
        _ => {}
    }
    if let Some(missing) = no_such_container(world, target) {
        return found(Reason::HpaMetrics, &format!("{none}: {missing}")).advise(format!(
            "name a container that it has in spec.metrics: kubectl edit -n {namespace} hpa/{}",
            object::name(target)
        ));
    }
    // Utilization is a share of what the containers ask for.
    if let Some(missing) = without_requests(world, target) {
        let cause = format!("{none}: {missing}");
        return found(Reason::HpaRequests, &cause).advise(format!(
            "name resources.requests in every container of the template: kubectl edit -n {namespace} {scaled}"
        ));
    }
    // Pods that do not run use nothing.
    let plural = format!("{}s", object::text(target, "/spec/scaleTargetRef/kind").to_lowercase());
    let owner = world.find(&plural, object::text(target, "/spec/scaleTargetRef/name"));
    let pods = owner.map(|owner| workload::current_pods(world, owner)).unwrap_or_default();
    if !pods.is_empty() && !pods.iter().any(|pod| pod::is_serving(pod)) {
        let cause = format!("{none}: no pod of its target {scaled} is ready");
        let about = found(Reason::HpaMetrics, &cause);
        if let Some(inner) = pods.iter().find_map(|pod| pod::first(world, pod)) {
            return about.because_of(inner);
        }
    }
    // What pods use is measured for a while before anybody can tell it.
    let ready = |pod: &&&Value| time_at(standing(pod, "Ready", "True")?, "/lastTransitionTime");
    let since = pods.iter().filter_map(|pod| ready(&pod)).min();
    let early = group == "metrics.k8s.io"
        && (is_young(world, target)
            || since.is_some_and(|at| world.now.as_second() - at.as_second() < MEASURED_SECONDS));
    found(Reason::HpaMetrics, none).underway_if(early).advise(format!(
        "the resource metrics must be there for its pods: kubectl top pods -n {namespace} (served by {group})"
    ))
}

/// The workload that is to be scaled, where it is of a kind that is read.
fn scaled<'a>(world: &'a World, target: &Value) -> Option<&'a Value> {
    let kind = object::text(target, "/spec/scaleTargetRef/kind").to_lowercase();
    world.find(&format!("{kind}s"), object::text(target, "/spec/scaleTargetRef/name"))
}

/// A metric of a container that the target does not have.
fn no_such_container(world: &World, target: &Value) -> Option<String> {
    let containers = object::items(scaled(world, target)?, "/spec/template/spec/containers");
    let names: Vec<&str> = containers.iter().map(|one| object::text(one, "/name")).collect();
    let wanted =
        object::items(target, "/spec/metrics").iter().map(|one| object::text(one, "/containerResource/container"));
    let missing = wanted.into_iter().find(|name| !name.is_empty() && !names.contains(name))?;
    Some(format!("it measures the container {missing:?}, and its target has {}", super::named(&names)))
}

/// The container of the target's pods that names no request for a resource which is measured by utilization. What the
/// template does not name, a LimitRange may have given to the pods.
fn without_requests(world: &World, target: &Value) -> Option<String> {
    let scaled = scaled(world, target)?;
    let pods = workload::current_pods(world, scaled);
    let made: Vec<&Value> = pods.iter().flat_map(|pod| object::items(pod, "/spec/containers")).collect();
    let containers = match made.is_empty() {
        true => object::items(scaled, "/spec/template/spec/containers").iter().collect(),
        false => made,
    };
    object::items(target, "/spec/metrics").iter().find_map(|metric| {
        let resource =
            metric.get("resource").filter(|resource| object::text(resource, "/target/type") == "Utilization")?;
        let name = object::text(resource, "/name");
        let has = |container: &Value, field: &str| object::map(container, field).contains_key(name);
        let container = containers
            .iter()
            .find(|container| !has(container, "/resources/requests") && !has(container, "/resources/limits"))?;
        Some(format!("container {} of its target names no request for {name}", object::text(container, "/name")))
    })
}

/// It has said how many there should be, and its target does not get there.
fn behind(world: &World, target: &Value) -> Option<Finding> {
    let scaled = scaled(world, target)?;
    let number = |item: &Value, pointer: &str| item.pointer(pointer).and_then(Value::as_i64);
    let desired = number(target, "/status/desiredReplicas")?;
    let ready = workload::current_pods(world, scaled).iter().filter(|pod| pod::is_serving(pod)).count() as i64;
    if world.seen("pods").is_none() || ready >= desired || number(scaled, "/spec/replicas") != Some(desired) {
        return None;
    }
    let title = title(scaled);
    let cause = format!("it wants {desired} replicas, and {ready} of the pods of its target {title} are ready");
    Some(
        Finding::new(Reason::HpaTarget, target, cause)
            .note()
            .detail("the autoscaler itself does its work")
            .advise(format!("ferry why -n {} {title}", object::namespace(target))),
    )
}
