//! What may not be read is not said to be absent.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, one, pod, ready_pod, world};
use crate::gather::BEHIND;
use crate::surroundings::UNLISTED;

const UNSEEN: &str = "could not be looked at";

#[test]
fn what_cannot_be_looked_at_is_said_so() {
    let going = |finalizer: &str| json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": [finalizer] } });
    let ended = pod(json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z" } }));
    let pending = |spec: Value| json!({ "spec": spec, "status": { "phase": "Pending" } });
    let volumes = ("persistentvolumes", json!([]));
    let service = json!({ "spec": { "selector": { "app": "web" } } });
    let blocked = json!({ "spec": { "selector": {} }, "status": { "expectedPods": 2, "currentHealthy": 1, "desiredHealthy": 2 } });
    let failed = json!({ "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] } });
    let rows: Vec<Situation<'_>> = vec![
        ("node of a pod that goes", world(ended, &[]), Reason::KubeletEndsNot, &["it is stuck", "node n", UNSEEN]),
        (
            "default class",
            one("PersistentVolumeClaim", pending(json!({})), std::slice::from_ref(&volumes)),
            Reason::ClassUnseen,
            &["a default one, if there is one", UNSEEN],
        ),
        (
            "class",
            one("PersistentVolumeClaim", pending(json!({ "storageClassName": "fast" })), &[volumes]),
            Reason::ClassUnseen,
            &["StorageClass (\"fast\")", UNSEEN],
        ),
        (
            "volumes",
            one("PersistentVolumeClaim", pending(json!({ "storageClassName": "" })), &[("storageclasses", json!([]))]),
            Reason::NoVolume,
            &["the PersistentVolumes", UNSEEN],
        ),
        (
            "pods of a Service",
            one("Service", service.clone(), &[("endpointslices", json!([]))]),
            Reason::NoReadyEndpoint,
            &["none of its endpoints is ready", UNSEEN],
        ),
        (
            "pods of a claim",
            one("PersistentVolumeClaim", going("kubernetes.io/pvc-protection"), &[]),
            Reason::FinalizerClaimInUse,
            &[UNSEEN],
        ),
        ("what it owns", one("Deployment", going("foregroundDeletion"), &[]), Reason::FinalizerForeground, &[UNSEEN]),
        (
            "pods of a set",
            one(
                "ReplicaSet",
                json!({ "spec": { "replicas": 2 }, "status": { "replicas": 2, "readyReplicas": 1 } }),
                &[],
            ),
            Reason::PodsMissing,
            &["1 of 2 pods are ready", UNSEEN],
        ),
        ("pods of a budget", one("PodDisruptionBudget", blocked, &[]), Reason::BudgetBlocks, &["1 of 2", UNSEEN]),
        ("pods of a Job", one("Job", failed, &[]), Reason::BackoffLimit, &["its pods could not be looked at"]),
    ];
    check_all(&rows);
    let hook = json!({ "webhooks": [{ "name": "a.b.c", "clientConfig": { "service": { "namespace": "sys", "name": "hook" } } }] });
    let behind = |unlisted: bool| {
        let service = json!({ "metadata": { "name": "hook", "namespace": "sys" }, "spec": { "ports": [{ "port": 443 }] }, UNLISTED: unlisted });
        super::findings(&one("ValidatingWebhookConfiguration", hook.clone(), &[(BEHIND, json!([service]))])).len()
    };
    assert_eq!((behind(true), behind(false)), (0, 1));
    // Nothing can be said of its endpoints, and its pods are well.
    let well = one("Service", service, &[("pods", json!([ready_pod()]))]);
    assert_eq!(super::findings(&well), []);
}
