//! What does not go, and kinds of their own.

use serde_json::{Value, json};

use super::super::Reason;
use super::{NOW, Situation, check_all, conditions, merge, node, one, pod, ready_pod, waiting, world};
use crate::gather::{ALL_BUDGETS, ALL_PODS, REMAINING};

#[test]
fn deletion_and_the_rest() {
    let going = |finalizers: &[&str]| json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": finalizers } });
    let mut set_by = going(&["acme.io/cleanup"]);
    merge(
        &mut set_by,
        &json!({ "metadata": { "managedFields": [{ "manager": "acme-operator", "fieldsV1": { "f:metadata": { "f:finalizers": { "v:\"acme.io/cleanup\"": {} } } } }] } }),
    );
    let mut operator = waiting("ErrImagePull", "img: not found");
    merge(&mut operator, &json!({ "metadata": { "name": "acme-operator-1", "namespace": "acme" } }));
    let user = pod(json!({ "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }] } }));
    let left = (
        REMAINING,
        json!([{ "kind": "ConfigMap", "resource": "configmap", "metadata": { "name": "held", "namespace": "d", "finalizers": ["acme.io/x"] } }]),
    );
    let mut bound = going(&["kubernetes.io/pv-protection"]);
    merge(&mut bound, &json!({ "spec": { "claimRef": { "namespace": "d", "name": "c" } } }));
    let mut namespace = going(&[]);
    merge(
        &mut namespace,
        &json!({ "status": { "conditions": [{ "type": "NamespaceFinalizersRemaining", "status": "True", "message": "acme.io/x in 1 resource instances" }] } }),
    );
    let hpa = |parts: Value, lists: &[(&str, Value)]| {
        let mut all = json!({ "spec": { "scaleTargetRef": { "kind": "Deployment", "name": "w" } } });
        merge(&mut all, &parts);
        one("HorizontalPodAutoscaler", all, lists)
    };
    let inactive = json!({ "status": { "conditions": [{ "type": "ScalingActive", "status": "False", "reason": "FailedGetResourceMetric", "message": "the server could not find the requested resource (get pods.metrics.k8s.io)" }] } });
    let deployment = |spec: Value| ("deployments", json!([{ "metadata": { "name": "w" }, "spec": spec }]));
    let served = (
        "apiservices",
        json!([{ "metadata": { "name": "v1beta1.metrics.k8s.io" }, "spec": { "group": "metrics.k8s.io" }, "status": { "conditions": conditions(&[("Available", "True")]) } }]),
    );
    let mut utilization = inactive.clone();
    merge(
        &mut utilization,
        &json!({ "spec": { "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization" } } }] } }),
    );
    let template = json!({ "replicas": 1, "template": { "spec": { "containers": [{ "name": "app" }] } } });
    let budget = |status: Value| {
        one(
            "PodDisruptionBudget",
            json!({ "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }, "status": status }),
            &[("pods", json!([ready_pod()]))],
        )
    };
    let mut cordoned = node("n", "True");
    merge(&mut cordoned, &json!({ "spec": { "unschedulable": true } }));
    let full = json!({ "disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 1, "desiredHealthy": 1 });
    let budgets = (
        ALL_BUDGETS,
        json!([{ "metadata": { "name": "b", "namespace": "d" }, "spec": { "selector": { "matchLabels": { "app": "web" } } }, "status": full }]),
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "claim in use",
            one("PersistentVolumeClaim", going(&["kubernetes.io/pvc-protection"]), &[("pods", json!([user]))]),
            Reason::FinalizerClaimInUse,
            &["pod/p still uses it", "kubectl delete -n d pod/p"],
        ),
        (
            "volume bound",
            one("PersistentVolume", bound, &[]),
            Reason::FinalizerVolumeBound,
            &["the claim d/c is bound to it", "kept: kubectl patch pv x", "and with it what is on the volume"],
        ),
        (
            "foreground",
            one("Deployment", going(&["foregroundDeletion"]), std::slice::from_ref(&left)),
            Reason::FinalizerForeground,
            &["configmap/held is held itself, by acme.io/x", "ferry why -n d configmap/held"],
        ),
        (
            "custom resources",
            one(
                "CustomResourceDefinition",
                going(&["customresourcecleanup.apiextensions.k8s.io"]),
                std::slice::from_ref(&left),
            ),
            Reason::FinalizerCustomResources,
            &["d/held"],
        ),
        (
            "its controller",
            one("Widget", set_by.clone(), &[(ALL_PODS, json!([operator]))]),
            Reason::Finalizer,
            &[
                "was set by \"acme-operator\"",
                "pod/acme-operator-1 in acme, which is not ready",
                "ferry why -n acme pod/acme-operator-1",
            ],
        ),
        (
            "no controller",
            one("Widget", set_by, &[(ALL_PODS, json!([]))]),
            Reason::Finalizer,
            &["no pod in the cluster looks like a controller", "kubectl patch -n d widget/x --type=merge"],
        ),
        (
            "namespace",
            one("Namespace", namespace, &[left]),
            Reason::NamespaceTerminating,
            &["configmap/held is held by a finalizer", "ferry why -n x configmap/held"],
        ),
        (
            "no target",
            hpa(json!({}), &[("deployments", json!([]))]),
            Reason::HpaTarget,
            &["deployment/w does not exist"],
        ),
        (
            "target at zero",
            hpa(json!({}), &[deployment(json!({ "replicas": 0 }))]),
            Reason::HpaTargetZero,
            &["nothing holds it up", "kubectl scale -n d deployment/w --replicas=1"],
        ),
        (
            "no metrics API",
            hpa(inactive, &[deployment(template.clone()), ("apiservices", json!([]))]),
            Reason::HpaMetrics,
            &["no server in the cluster serves the API metrics.k8s.io", "metrics-server"],
        ),
        (
            "no requests",
            hpa(utilization, &[deployment(template), served]),
            Reason::HpaRequests,
            &["container app of its target names no request for cpu"],
        ),
        (
            "budget",
            budget(full.clone()),
            Reason::BudgetBlocks,
            &["nothing holds it up", "1 of 1 pods are healthy, and 1 must be (minAvailable is 1)"],
        ),
        (
            "budget for nothing",
            one(
                "PodDisruptionBudget",
                json!({ "spec": { "selector": { "matchLabels": { "app": "wbe" } } } }),
                &[("pods", json!([ready_pod()]))],
            ),
            Reason::BudgetSelectsNothing,
            &["app=wbe selects no pod"],
        ),
        (
            "quota",
            one("ResourceQuota", json!({ "status": { "hard": { "pods": "2" }, "used": { "pods": "2" } } }), &[]),
            Reason::QuotaFull,
            &["nothing holds it up", "pods: 2 of 2"],
        ),
        (
            "request",
            one(
                "CertificateSigningRequest",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client" } }),
                &[],
            ),
            Reason::CertificateRequest,
            &["kubectl certificate approve x"],
        ),
        (
            "foreign signer",
            one(
                "CertificateSigningRequest",
                json!({ "spec": { "signerName": "acme.io/s" }, "status": { "conditions": conditions(&[("Approved", "True")]) } }),
                &[],
            ),
            Reason::CertificateRequest,
            &["acme.io/s"],
        ),
        (
            "api",
            one(
                "APIService",
                json!({ "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "MissingEndpoints" }] } }),
                &[],
            ),
            Reason::ApiServiceUnavailable,
            &["MissingEndpoints"],
        ),
        (
            "drain",
            world(cordoned, &[(ALL_PODS, json!([ready_pod()])), budgets]),
            Reason::DrainBlocked,
            &["kubectl uncordon n", "PodDisruptionBudget b lets no pod like p in d go"],
        ),
        (
            "condition",
            one(
                "Widget",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "R", "message": NOW }] } }),
                &[],
            ),
            Reason::Condition,
            &["Ready=False: R"],
        ),
    ];
    check_all(&rows);
}
