//! Autoscalers.

use serde_json::json;

use super::workloads::{of, set};
use super::*;

#[test]
fn what_scales() {
    let scaler = |parts: Value| {
        with(
            made(
                "HorizontalPodAutoscaler",
                "web",
                json!({ "spec": { "minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 50 } } }] },
        "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "True", "reason": "ValidMetricFound" }, { "type": "ScalingLimited", "status": "False" }] } }),
            ),
            &parts,
        )
    };
    let inactive = json!({ "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "the HPA was unable to compute the replica count: failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API" }] } });
    let replicas =
        made("ReplicaSet", "web", with(owner("apps/v1", "Deployment", "web"), &json!({ "spec": { "replicas": 1 } })));
    let asks = |parts: Value| {
        of(
            "ReplicaSet",
            "web-1",
            serving(json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": parts }] } })),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "requests that a LimitRange gave",
            "horizontalpodautoscaler/web",
            json!([
                scaler(inactive.clone()),
                set("Deployment", json!({ "status": { "replicas": 1 } })),
                replicas,
                asks(json!({ "requests": { "cpu": "100m" } }))
            ]),
            Stuck(Reason::HpaMetrics),
            &["no metrics returned", "!names no request"],
        ),
        (
            "no requests",
            "horizontalpodautoscaler/web",
            json!([
                scaler(inactive),
                set("Deployment", json!({ "status": { "replicas": 1 } })),
                replicas,
                asks(json!({}))
            ]),
            Stuck(Reason::HpaRequests),
            &["container c of its target names no request for cpu"],
        ),
        (
            "at least so many",
            "horizontalpodautoscaler/web",
            json!([
                scaler(
                    json!({ "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }, { "type": "ScalingActive", "status": "True" }, { "type": "ScalingLimited", "status": "True", "reason": "TooFewReplicas", "message": "the desired replica count is less than the minimum replica count" }] } })
                ),
                set("Deployment", json!({}))
            ]),
            Well,
            &[],
        ),
        (
            "it wants more than there can be",
            "horizontalpodautoscaler/web",
            json!([
                scaler(json!({ "status": { "currentReplicas": 1, "desiredReplicas": 3 } })),
                set("Deployment", json!({ "spec": { "replicas": 3 }, "status": { "replicas": 1 } })),
                with(
                    replicas.clone(),
                    &json!({ "spec": { "replicas": 3 }, "status": { "replicas": 1, "conditions": [{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "pods \"web-2\" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1" }] } })
                ),
                asks(json!({ "requests": { "cpu": "1" } }))
            ]),
            Note(Reason::HpaTarget),
            &["wants 3 replicas", "ferry why -n d deployment/web"],
        ),
    ];
    examine(&cases);
}
