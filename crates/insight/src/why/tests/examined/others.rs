//! Kinds that are not of Kubernetes, which say themselves how they are.

use serde_json::json;

use super::*;

#[test]
fn kinds_of_others() {
    let of = |version: &str, kind: &str, parts: Value| with(made(kind, "x", json!({ "apiVersion": version })), &parts);
    let says = |list: &[(&str, &str, &str)]| {
        let all = list.iter().map(|(kind, status, reason)| json!({ "type": kind, "status": status, "reason": reason, "message": "told", "lastTransitionTime": "2026-01-01T11:58:00Z" }));
        json!({ "status": { "conditions": all.collect::<Vec<Value>>() } })
    };
    let written = |time: &str| json!({ "metadata": { "generation": 5, "managedFields": [{ "manager": "kubectl", "operation": "Update", "time": time }, { "manager": "widget-operator", "operation": "Update", "subresource": "status", "time": "2026-01-01T11:00:00Z" }] }, "status": { "observedGeneration": 4 } });
    let cases: Vec<Case<'_>> = vec![
        (
            "its controller is behind",
            "widget/x",
            json!([of(
                "example.com/v1",
                "Widget",
                with(says(&[("Ready", "True", "Done")]), &written("2026-01-01T11:10:00Z"))
            )]),
            Stuck(Reason::ControllerBehind),
            &["generation 4", "generation 5", "widget-operator"],
        ),
        (
            "its controller has not had the time",
            "widget/x",
            json!([of(
                "example.com/v1",
                "Widget",
                with(says(&[("Ready", "True", "Done")]), &written("2026-01-01T11:59:55Z"))
            )]),
            Way(Reason::ControllerBehind),
            &[],
        ),
        (
            "a challenge that failed",
            "challenge/x",
            json!([of(
                "acme.cert-manager.io/v1",
                "Challenge",
                json!({ "status": { "state": "invalid", "reason": "Error accepting authorization: acme: 403" } })
            )]),
            Stuck(Reason::Condition),
            &["invalid", "403"],
        ),
        (
            "a challenge that waits",
            "challenge/x",
            json!([of("acme.cert-manager.io/v1", "Challenge", json!({ "status": { "state": "pending" } }))]),
            Way(Reason::Condition),
            &["pending"],
        ),
        (
            "a backup that failed in part",
            "backup/x",
            json!([of("velero.io/v1", "Backup", json!({ "status": { "phase": "PartiallyFailed" } }))]),
            Stuck(Reason::Condition),
            &["PartiallyFailed"],
        ),
        (
            "a backup that is done",
            "backup/x",
            json!([of("velero.io/v1", "Backup", json!({ "status": { "phase": "Completed", "errors": 0 } }))]),
            Well,
            &[],
        ),
        (
            "no error",
            "machine/x",
            json!([of("example.com/v1", "Machine", json!({ "status": { "state": "NoError" } }))]),
            Well,
            &[],
        ),
        (
            "an application that is not well",
            "application/x",
            json!([of(
                "argoproj.io/v1alpha1",
                "Application",
                json!({ "status": { "health": { "status": "Degraded", "message": "Deployment web exceeded its progress deadline" }, "sync": { "status": "Synced" } } })
            )]),
            Stuck(Reason::Condition),
            &["Degraded", "exceeded its progress deadline"],
        ),
        (
            "an application that is on its way",
            "application/x",
            json!([of(
                "argoproj.io/v1alpha1",
                "Application",
                json!({ "status": { "health": { "status": "Progressing" } } })
            )]),
            Way(Reason::Condition),
            &[],
        ),
        (
            "an application that is well",
            "application/x",
            json!([of(
                "argoproj.io/v1alpha1",
                "Application",
                json!({ "status": { "health": { "status": "Healthy" }, "sync": { "status": "Synced" } } })
            )]),
            Well,
            &[],
        ),
        (
            "a pipeline that failed",
            "pipelinerun/x",
            json!([of("tekton.dev/v1", "PipelineRun", says(&[("Succeeded", "False", "Failed")]))]),
            Stuck(Reason::Condition),
            &["Succeeded=False"],
        ),
        (
            "a pipeline that runs",
            "pipelinerun/x",
            json!([of("tekton.dev/v1", "PipelineRun", says(&[("Succeeded", "Unknown", "Running")]))]),
            Way(Reason::Condition),
            &[],
        ),
        (
            "a pipeline that is done",
            "pipelinerun/x",
            json!([of("tekton.dev/v1", "PipelineRun", says(&[("Succeeded", "True", "Completed")]))]),
            Well,
            &[],
        ),
        (
            "a service of Knative that starts",
            "service.serving.knative.dev/x",
            json!([of("serving.knative.dev/v1", "Service", says(&[("Ready", "Unknown", "RevisionMissing")]))]),
            Way(Reason::Condition),
            &["RevisionMissing"],
        ),
        (
            "a service of Knative that does not",
            "service.serving.knative.dev/x",
            json!([of("serving.knative.dev/v1", "Service", says(&[("Ready", "False", "RevisionFailed")]))]),
            Stuck(Reason::Condition),
            &["kubectl describe -n d service.serving.knative.dev/x"],
        ),
        (
            "not ready, said the other way round",
            "kafka/x",
            json!([of("kafka.strimzi.io/v1beta2", "Kafka", says(&[("NotReady", "True", "UnforceableProblem")]))]),
            Stuck(Reason::Condition),
            &["NotReady=True"],
        ),
        (
            "a certificate that was denied",
            "certificaterequest/x",
            json!([of(
                "cert-manager.io/v1",
                "CertificateRequest",
                says(&[("Approved", "False", "x"), ("Denied", "True", "policy")])
            )]),
            Stuck(Reason::Condition),
            &["Denied=True"],
        ),
        (
            "a scaler without its trigger",
            "scaledobject/x",
            json!([of(
                "keda.sh/v1alpha1",
                "ScaledObject",
                says(&[("Ready", "False", "TriggerError"), ("Active", "Unknown", "x")])
            )]),
            Stuck(Reason::Condition),
            &["TriggerError"],
        ),
        (
            "a scaler that has nothing to do",
            "scaledobject/x",
            json!([of(
                "keda.sh/v1alpha1",
                "ScaledObject",
                says(&[
                    ("Ready", "True", "Ready"),
                    ("Active", "False", "ScalerNotActive"),
                    ("Fallback", "False", "NoFallbackFound"),
                    ("Paused", "Unknown", "x")
                ])
            )]),
            Well,
            &[],
        ),
        (
            "paused by hand",
            "cluster/x",
            json!([of(
                "cluster.x-k8s.io/v1beta2",
                "Cluster",
                says(&[
                    ("Available", "True", "Available"),
                    ("Paused", "False", "NotPaused"),
                    ("Deleting", "False", "NotDeleting")
                ])
            )]),
            Well,
            &[],
        ),
        (
            "a secret that cannot be fetched",
            "externalsecret/x",
            json!([
                of("external-secrets.io/v1", "ExternalSecret", says(&[("Ready", "False", "SecretSyncedError")])),
                warned("ExternalSecret/x", "UpdateFailed", "could not get secret data from provider")
            ]),
            Stuck(Reason::Condition),
            &["SecretSyncedError", "could not get secret data"],
        ),
    ];
    examine(&cases);
}
