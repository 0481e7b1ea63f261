//! Workloads whose pods are refused, or that wait for something else than their pods.

use serde_json::json;

use super::super::Reason;
use super::{Situation, check_all, merge, node, one, owned, pod, ready_pod, waiting};
use crate::gather::{BEHIND, BEHIND_SLICES, VALIDATING};

#[test]
fn workloads() {
    let failure = |message: &str| json!({ "status": { "replicas": 0, "conditions": [{ "type": "ReplicaFailure", "status": "True", "message": message }] } });
    let forbidden = |rest: &str| failure(&format!("pods \"x-1\" is forbidden: {rest}"));
    let quota = (
        "resourcequotas",
        json!([{ "metadata": { "name": "q" }, "status": { "hard": { "pods": "2" }, "used": { "pods": "2" } } }]),
    );
    let hook = (
        "webhooks",
        json!([{ "name": "a.b.c", "failurePolicy": "Fail", "clientConfig": { "service": { "namespace": "sys", "name": "hook" } } }]),
    );
    let hooks = (VALIDATING, json!([{ "metadata": { "name": "guard" }, "webhooks": hook.1 }]));
    let absent = (BEHIND, json!([{ "absent": true, "metadata": { "name": "hook", "namespace": "sys" } }]));
    let mut tainted = node("m", "True");
    merge(&mut tainted, &json!({ "spec": { "taints": [{ "key": "gpu", "effect": "NoSchedule" }] } }));
    let taken = pod(json!({ "metadata": { "name": "x-0", "uid": "else" } }));
    let mut young = ready_pod();
    merge(
        &mut young,
        &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T11:59:50Z" }] } }),
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "quota",
            owned(
                "ReplicaSet",
                forbidden("exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"),
                &[],
                &[quota],
            ),
            Reason::QuotaUsedUp,
            &["the ResourceQuota \"q\" of namespace d has no room for another one", "pods: 2 of 2 are used"],
        ),
        (
            "quota wants",
            owned("ReplicaSet", forbidden("failed quota: q: must specify limits.cpu for: c"), &[], &[]),
            Reason::QuotaWantsResources,
            &["wants limits.cpu"],
        ),
        (
            "limits",
            owned(
                "ReplicaSet",
                forbidden("maximum cpu usage per Container is 1, but limit is 2"),
                &[],
                &[("limitranges", json!([{ "metadata": { "name": "lr" } }]))],
            ),
            Reason::LimitRange,
            &["LimitRange lr"],
        ),
        (
            "security",
            owned("ReplicaSet", forbidden("violates PodSecurity \"restricted:latest\": x"), &[], &[]),
            Reason::PodSecurity,
            &["level \"restricted\""],
        ),
        (
            "webhook away",
            owned(
                "ReplicaSet",
                failure("Internal error occurred: failed calling webhook \"a.b.c\": no route"),
                &[],
                &[hooks.clone(), absent.clone()],
            ),
            Reason::WebhookFails,
            &["validatingwebhookconfiguration/guard", "its Service sys/hook does not exist"],
        ),
        (
            "webhook denies",
            owned("ReplicaSet", failure("admission webhook \"a.b.c\" denied the request: no latest tags"), &[], &[]),
            Reason::WebhookDenies,
            &["no latest tags"],
        ),
        (
            "policy",
            owned(
                "ReplicaSet",
                forbidden("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"),
                &[],
                &[],
            ),
            Reason::PolicyDenies,
            &["\"p\""],
        ),
        (
            "account",
            owned(
                "ReplicaSet",
                forbidden("error looking up service account d/sa: serviceaccount \"sa\" not found"),
                &[],
                &[],
            ),
            Reason::ServiceAccountMissing,
            &["kubectl create serviceaccount -n d sa"],
        ),
        (
            "priority",
            owned("ReplicaSet", forbidden("no PriorityClass with name high was found"), &[], &[]),
            Reason::PriorityClassMissing,
            &["\"high\""],
        ),
        (
            "zero",
            owned("Deployment", json!({ "spec": { "replicas": 0 } }), &[], &[]),
            Reason::ScaledToZero,
            &["nothing holds it up", "spec.replicas is 0", "kubectl scale -n d deployment/x --replicas=1"],
        ),
        (
            "min ready",
            owned(
                "StatefulSet",
                json!({ "spec": { "minReadySeconds": 60 }, "status": { "availableReplicas": 0 } }),
                &[young],
                &[],
            ),
            Reason::MinReadySeconds,
            &["on its way", "60 s (minReadySeconds)", "in 50 s"],
        ),
        (
            "name taken",
            owned("StatefulSet", json!({}), &[], &[("pods", json!([taken]))]),
            Reason::NotOwned,
            &["pod \"x-0\"", "kubectl delete -n d pod/x-0"],
        ),
        (
            "no service",
            owned(
                "StatefulSet",
                json!({ "spec": { "serviceName": "db" } }),
                &[ready_pod()],
                &[("services", json!([]))],
            ),
            Reason::ServiceMissing,
            &["its Service \"db\" (spec.serviceName) does not exist"],
        ),
        (
            "ordered",
            owned(
                "StatefulSet",
                json!({ "spec": { "replicas": 3 } }),
                &[waiting("ErrImagePull", "img: not found")],
                &[],
            ),
            Reason::ImageNotFound,
            &["1 of 3 pods are made"],
        ),
        (
            "by hand",
            owned(
                "StatefulSet",
                json!({ "spec": { "updateStrategy": { "type": "OnDelete" } }, "status": { "currentRevision": "a", "updateRevision": "b", "updatedReplicas": 0 } }),
                &[ready_pod()],
                &[],
            ),
            Reason::OnDelete,
            &["nothing holds it up", "OnDelete", "kubectl delete pod -n d x-0"],
        ),
        (
            "skips",
            owned(
                "DaemonSet",
                json!({ "spec": { "template": { "spec": { "containers": [] } } } }),
                &[ready_pod()],
                &[("nodes", json!([node("n", "True"), tainted]))],
            ),
            Reason::NodesSkipped,
            &["nothing holds it up", "leaves out 1 node (m)", "gpu:NoSchedule"],
        ),
        (
            "nowhere",
            owned(
                "DaemonSet",
                json!({ "spec": { "template": { "spec": { "containers": [], "nodeSelector": { "gpu": "yes" } } } }, "status": { "desiredNumberScheduled": 0 } }),
                &[],
                &[],
            ),
            Reason::NoNodeForDaemon,
            &["gpu=yes", "kubectl label node n gpu=yes"],
        ),
        (
            "webhook itself",
            one("ValidatingWebhookConfiguration", json!({ "webhooks": hook.1 }), &[absent]),
            Reason::WebhookUnreachable,
            &["its Service sys/hook does not exist", "are refused"],
        ),
        (
            "webhook's pods",
            one(
                "ValidatingWebhookConfiguration",
                json!({ "webhooks": hook.1 }),
                &[
                    (
                        BEHIND,
                        json!([{ "metadata": { "name": "hook", "namespace": "sys" }, "spec": { "ports": [{ "port": 443 }] } }]),
                    ),
                    (BEHIND_SLICES, json!([])),
                ],
            ),
            Reason::WebhookUnreachable,
            &["no pod is ready behind its Service", "ferry why -n sys svc/hook"],
        ),
    ];
    check_all(&rows);
}
