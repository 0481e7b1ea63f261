//! Claims, deletions and requests of which something false was said once, or too little.

use serde_json::json;

use super::*;

#[test]
fn what_was_told_of_storage_and_others() {
    let cases: Vec<Case<'_>> = vec![
        (
            "a source in another namespace without leave",
            "persistentvolumeclaim/data",
            json!([
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "dataSourceRef": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s", "namespace": "prod" } }, "status": { "phase": "Pending" } })
                ),
                made(
                    "StorageClass",
                    "fast",
                    json!({ "provisioner": "csi.example.com", "volumeBindingMode": "Immediate" })
                ),
                made("CSIDriver", "csi.example.com", json!({ "spec": {} })),
                made("CSINode", "n", json!({ "spec": { "drivers": [{ "name": "csi.example.com", "nodeID": "n" }] } })),
                made(
                    "VolumeSnapshot",
                    "s",
                    json!({ "metadata": { "namespace": "prod" }, "status": { "readyToUse": true } })
                ),
                warned(
                    "PersistentVolumeClaim/data",
                    "ProvisioningFailed",
                    "failed to provision volume with StorageClass \"fast\": error getting handle for DataSource Type VolumeSnapshot by Name s: accessing prod/s of VolumeSnapshot dataSource from d/data isn't allowed"
                )
            ]),
            Stuck(Reason::ProvisioningFailed),
            &["isn't allowed", "ReferenceGrant"],
        ),
        (
            "its driver cannot delete it",
            "persistentvolume/pv",
            json!([
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"] }, "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": "csi.example.com", "volumeHandle": "1" }, "claimRef": { "name": "data", "namespace": "d", "uid": "x" } }, "status": { "phase": "Failed", "message": "volume still attached" } })
                ),
                with(
                    warned(
                        "PersistentVolume/pv",
                        "VolumeFailedDelete",
                        "rpc error: code = FailedPrecondition desc = volume still attached to i-123"
                    ),
                    &json!({ "metadata": { "namespace": "default" } })
                )
            ]),
            Stuck(Reason::Finalizer),
            &["volume still attached"],
        ),
        (
            "no class for snapshots",
            "volumesnapshot/s",
            json!([
                made(
                    "VolumeSnapshot",
                    "s",
                    json!({ "spec": { "source": { "persistentVolumeClaimName": "data" } }, "status": { "error": { "message": "failed to get default snapshot class: cannot find default snapshot class" } } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Snapshot),
            &["default snapshot class"],
        ),
        (
            "its content was not made by its driver",
            "volumesnapshot/s",
            json!([
                made(
                    "VolumeSnapshot",
                    "s",
                    json!({ "spec": { "source": { "persistentVolumeClaimName": "data" }, "volumeSnapshotClassName": "snap" }, "status": { "readyToUse": false, "boundVolumeSnapshotContentName": "sc-1" } })
                ),
                made(
                    "VolumeSnapshotContent",
                    "sc-1",
                    json!({ "status": { "readyToUse": false, "error": { "message": "rpc error: code = Unavailable desc = backend away" } } })
                ),
                made("VolumeSnapshotClass", "snap", json!({ "driver": "csi.example.com" })),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Snapshot),
            &["backend away"],
        ),
        (
            "a load balancer that is not given back",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] }, "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] } })
                ),
                warned(
                    "Service/web",
                    "SyncLoadBalancerFailed",
                    "Error syncing load balancer: failed to delete load balancer: AccessDenied"
                )
            ]),
            Stuck(Reason::Finalizer),
            &["service.kubernetes.io/load-balancer-cleanup", "AccessDenied"],
        ),
        (
            "a protected group without approval",
            "customresourcedefinition/ws.example.k8s.io",
            json!([made(
                "CustomResourceDefinition",
                "ws.example.k8s.io",
                json!({ "spec": { "group": "example.k8s.io", "names": { "plural": "ws", "kind": "W" }, "versions": [{ "name": "v1", "served": true, "storage": true }] }, "status": { "conditions": [{ "type": "NamesAccepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Established", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "KubernetesAPIApprovalPolicyConformant", "status": "False", "reason": "MissingAnnotation", "message": "protected groups must have approval annotation \"api-approved.kubernetes.io\"", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Note(Reason::Condition),
            &["api-approved.kubernetes.io"],
        ),
        (
            "a webhook that is away and may be",
            "validatingwebhookconfiguration/w",
            json!([
                made(
                    "ValidatingWebhookConfiguration",
                    "w",
                    json!({ "webhooks": [{ "clientConfig": { "service": { "name": "hook", "namespace": "op", "port": 443 } }, "name": "w.example.com", "failurePolicy": "Ignore", "sideEffects": "None", "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"] }] }] })
                ),
                made(
                    "Service",
                    "hook",
                    json!({ "metadata": { "namespace": "op" }, "spec": { "clusterIP": "10.96.1.2", "selector": { "app": "hook" }, "ports": [{ "port": 443 }] } })
                )
            ]),
            Stuck(Reason::WebhookUnreachable),
            &["Ignore"],
        ),
        (
            "a webhook outside of the cluster",
            "validatingwebhookconfiguration/w",
            json!([made(
                "ValidatingWebhookConfiguration",
                "w",
                json!({ "webhooks": [{ "clientConfig": { "url": "https://hooks.example.com/v" }, "name": "w.example.com", "failurePolicy": "Fail", "sideEffects": "None", "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"] }] }] })
            )]),
            Well,
            &[],
        ),
        (
            "an API served by nobody's pods",
            "apiservice/v1beta1.metrics.k8s.io",
            json!([
                made(
                    "APIService",
                    "v1beta1.metrics.k8s.io",
                    json!({ "spec": { "group": "metrics.k8s.io", "version": "v1beta1", "service": { "name": "metrics-server", "namespace": "kube-system", "port": 443 } }, "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "MissingEndpoints", "message": "endpoints for service/metrics-server in \"kube-system\" have no addresses with port name \"https\"", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "Service",
                    "metrics-server",
                    json!({ "metadata": { "namespace": "kube-system" }, "spec": { "selector": { "k8s-app": "metrics-server" }, "ports": [{ "name": "https", "port": 443, "targetPort": "https" }] } })
                )
            ]),
            Stuck(Reason::ApiServiceUnavailable),
            &["metrics-server", "ferry why -n kube-system svc/metrics-server"],
        ),
        (
            "it was denied",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "username": "jane", "usages": ["client auth"] }, "status": { "conditions": [{ "type": "Denied", "status": "True", "reason": "NotYou", "message": "no", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::CertificateRequest),
            &["NotYou"],
        ),
        (
            "its signer could not",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "username": "jane", "usages": ["client auth"] }, "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Failed", "status": "True", "reason": "SignerValidationFailure", "message": "usages not allowed", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::CertificateRequest),
            &["usages not allowed"],
        ),
        (
            "approved for an hour, and not signed",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "username": "jane", "usages": ["client auth"] }, "status": { "conditions": [{ "type": "Approved", "status": "True", "reason": "KubectlApprove", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::CertificateRequest),
            &["controller"],
        ),
    ];
    examine(&cases);
}
