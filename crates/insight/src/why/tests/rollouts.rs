//! Rollouts that stand still, Jobs and claims that are refused, namespaces that wait for a finalizer of their own.

use serde_json::{Value, json};

use super::{FINE, Reason, Situation, check_all, event, merge, owned, ready_pod, waiting, world};

fn revision(mut pod: Value, revision: &str) -> Value {
    merge(&mut pod, &json!({ "metadata": { "labels": { "controller-revision-hash": revision } } }));
    pod
}

#[test]
fn rollouts() {
    let status = json!({ "observedGeneration": 1, "replicas": 2, "updatedReplicas": 0, "currentRevision": "x-1", "updateRevision": "x-2" });
    let parts = |spec: Value| json!({ "apiVersion": "apps/v1", "spec": spec, "status": status });
    let held = json!({ "replicas": 2, "updateStrategy": { "rollingUpdate": { "partition": 2 } } });
    let broken = revision(waiting("ErrImagePull", "img: not found"), "x-1");
    let rows: Vec<Situation<'_>> = vec![
        (
            "partition",
            owned("StatefulSet", parts(held), &[revision(ready_pod(), "x-1"), revision(ready_pod(), "x-1")], &[]),
            Reason::Partition,
            &[FINE, "an ordinal below 2 keep it", "kubectl patch -n d statefulset/x --type=merge"],
        ),
        (
            "a broken pod of the old template",
            owned("StatefulSet", parts(json!({ "replicas": 1 })), std::slice::from_ref(&broken), &[]),
            Reason::OldTemplate,
            &["no such image", "x-0 still has the old template", "kubectl delete -n d pod/x-0"],
        ),
        (
            "in parallel",
            owned("StatefulSet", parts(json!({ "replicas": 1, "podManagementPolicy": "Parallel" })), &[broken], &[]),
            Reason::ImageNotFound,
            &["no such image"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn refused() {
    let cron = json!({
        "kind": "CronJob", "apiVersion": "batch/v1", "metadata": { "name": "c", "namespace": "d", "uid": "c", "creationTimestamp": "2026-01-01T11:00:00Z" },
        "spec": { "schedule": "* * * * *" }, "status": { "lastScheduleTime": "2026-01-01T11:30:00Z" },
    });
    let told = "Error creating job: jobs.batch \"c-1\" is forbidden: exceeded quota: tight, requested: count/jobs.batch=1, used: count/jobs.batch=0, limited: count/jobs.batch=0";
    let mut refused = world(cron.clone(), &[("jobs", json!([]))]);
    refused.put("events", vec![event(&cron, "FailedCreate", told)]);
    let mut replacing = cron.clone();
    merge(
        &mut replacing,
        &json!({ "spec": { "concurrencyPolicy": "Replace" }, "status": { "lastScheduleTime": "2026-01-01T12:00:00Z" } }),
    );
    let mut replaced = world(replacing.clone(), &[("jobs", json!([]))]);
    replaced.put(
        "events",
        vec![
            event(&replacing, "SuccessfulDelete", "Deleted job c-1"),
            event(&replacing, "SuccessfulDelete", "Deleted job c-2"),
        ],
    );
    let mut claims = owned(
        "StatefulSet",
        json!({ "apiVersion": "apps/v1", "status": { "replicas": 0, "currentNumberScheduled": 0, "observedGeneration": 1 } }),
        &[],
        &[],
    );
    let told = "create Claim d-x-0 for Pod x-0 in StatefulSet x failed error: persistentvolumeclaims \"d-x-0\" is forbidden: exceeded quota: tight, requested: persistentvolumeclaims=1, used: persistentvolumeclaims=0, limited: persistentvolumeclaims=0";
    claims.put("events", vec![event(&claims.target, "FailedCreate", told)]);
    let refusing = |message: &str| {
        let mut set = owned(
            "ReplicaSet",
            json!({ "apiVersion": "apps/v1", "status": { "replicas": 0, "currentNumberScheduled": 0, "observedGeneration": 1 } }),
            &[],
            &[],
        );
        set.put("events", vec![event(&set.target, "FailedCreate", message)]);
        set
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "quota of Jobs",
            refused,
            Reason::CronRefused,
            &["its Jobs are refused: the ResourceQuota \"tight\"", "kubectl edit -n d resourcequota/tight"],
        ),
        ("replaced", replaced, Reason::CronReplaces, &["none of its Jobs has ever ended well"]),
        ("quota of claims", claims, Reason::ClaimRefused, &["its claim d-x-0 is refused", "resourcequota/tight"]),
        (
            "namespace goes",
            refusing(
                "Error creating: pods \"x-abc\" is forbidden: unable to create new content in namespace d because it is being terminated",
            ),
            Reason::NamespaceGoing,
            &["namespace d is being deleted", "ferry why namespace/d"],
        ),
        (
            "long name",
            refusing(
                "Error creating: Pod \"x-0\" is invalid: metadata.labels: Invalid value: \"x-5d4\": must be no more than 63 bytes",
            ),
            Reason::NameTooLong,
            &["becomes too long (metadata.labels)", "kubectl delete -n d replicaset/x"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn namespaces_with_a_finalizer_of_their_own() {
    let going = |metadata: Value, spec: Value| {
        let mut target = json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": { "name": "t", "deletionTimestamp": "2026-01-01T11:00:00Z" },
            "spec": spec, "status": { "phase": "Terminating", "conditions": [
                { "type": "NamespaceContentRemaining", "status": "False" }, { "type": "NamespaceFinalizersRemaining", "status": "False" },
            ] },
        });
        merge(&mut target, &json!({ "metadata": metadata }));
        world(target, &[(crate::gather::REMAINING, json!([]))])
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "in metadata",
            going(json!({ "finalizers": ["example.com/billing"] }), json!({})),
            Reason::NamespaceTerminating,
            &["a finalizer on the namespace itself: example.com/billing", "kubectl patch namespace t --type=merge"],
        ),
        (
            "in spec",
            going(json!({}), json!({ "finalizers": ["example.com/billing"] })),
            Reason::NamespaceTerminating,
            &["the namespace itself: example.com/billing", "kubectl replace --raw /api/v1/namespaces/t/finalize -f -"],
        ),
    ];
    check_all(&rows);
}
