//! What was tried at last, of all kinds.

use serde_json::json;

use super::*;

#[test]
fn what_was_tried_at_last() {
    let cases: Vec<Case<'_>> = vec![
        (
            "a controller without rights",
            "mydb/x",
            json!([made(
                "MyDB",
                "x",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "False", "reason": "Forbidden", "message": "statefulsets.apps is forbidden: User \"system:serviceaccount:op:db\" cannot create resource \"statefulsets\"", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::Condition),
            &["cannot create resource"],
        ),
        (
            "a role that lets everything",
            "clusterrole/admin2",
            json!([made(
                "ClusterRole",
                "admin2",
                json!({ "rules": [{ "apiGroups": ["*"], "resources": ["*"], "verbs": ["*"] }] })
            )]),
            Well,
            &[],
        ),
        (
            "a webhook whose certificate has another name",
            "deployment/web",
            json!([
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 0, "conditions": [{ "type": "Available", "status": "False", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "Internal error occurred: failed calling webhook \"w.example.com\": failed to call webhook: Post \"https://hook.op.svc:443/v?timeout=10s\": tls: failed to verify certificate: x509: certificate is valid for hook, not hook.op.svc", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 1 }, "status": { "replicas": 0, "observedGeneration": 1 } })
                ),
                made(
                    "ValidatingWebhookConfiguration",
                    "w",
                    json!({ "webhooks": [{ "clientConfig": { "service": { "name": "hook", "namespace": "op", "port": 443 } }, "name": "w.example.com", "failurePolicy": "Fail", "sideEffects": "None", "rules": [{ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["pods"] }] }] })
                ),
                made(
                    "Service",
                    "hook",
                    json!({ "metadata": { "namespace": "op" }, "spec": { "clusterIP": "10.96.1.2", "selector": { "app": "hook" }, "ports": [{ "port": 443 }] } })
                ),
                made(
                    "EndpointSlice",
                    "hook-1",
                    json!({ "metadata": { "namespace": "op", "labels": { "kubernetes.io/service-name": "hook" } }, "addressType": "IPv4", "ports": [{ "port": 8443 }], "endpoints": [{ "addresses": ["10.0.0.3"], "conditions": { "ready": true } }] })
                )
            ]),
            Stuck(Reason::WebhookFails),
            &["w.example.com", "certificate"],
        ),
        (
            "its volume is of a claim of another namespace",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: persistentvolumeclaim \"data\" not found.",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "metadata": { "namespace": "prod" }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::ClaimMissing),
            &["prod"],
        ),
        (
            "one image of three cannot be had",
            "pod/p",
            json!([pod(
                json!({ "spec": { "containers": [{ "name": "a", "image": "a:1" }, { "name": "b", "image": "r.example/b:9" }] }, "status": { "phase": "Pending", "containerStatuses": [{ "name": "a", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }, { "name": "b", "image": "r.example/b:9", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "ImagePullBackOff", "message": "Back-off pulling image \"r.example/b:9\": ErrImagePull: r.example/b:9: not found" } } }] } })
            )]),
            Stuck(Reason::ImageNotFound),
            &["container b", "r.example/b:9"],
        ),
        (
            "it takes its time to end, too long",
            "pod/p",
            json!([serving(
                json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:40:00Z", "deletionGracePeriodSeconds": 30 } })
            )]),
            Stuck(Reason::KubeletEndsNot),
            &["node n"],
        ),
        (
            "two gates of readiness, one is open",
            "pod/p",
            json!([pod(
                json!({ "spec": { "readinessGates": [{ "conditionType": "lb/a" }, { "conditionType": "lb/b" }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "ContainersReady", "status": "True", "lastTransitionTime": "2026-01-01T11:10:00Z" }, { "type": "lb/a", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ReadinessGatesNotReady" }], "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } })
            )]),
            Stuck(Reason::ReadinessGate),
            &["lb/b", "!lb/a,"],
        ),
        (
            "an init container that waits for a Service without pods",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "initContainers": [{ "name": "wait", "image": "busybox", "command": ["sh", "-c", "until nc -z db 5432; do sleep 1; done"] }] }, "status": { "phase": "Pending", "initContainerStatuses": [{ "name": "wait", "ready": false, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }], "containerStatuses": [{ "name": "c", "ready": false, "restartCount": 0, "state": { "waiting": { "reason": "PodInitializing" } } }] } })
                ),
                made(
                    "Service",
                    "db",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "db" }, "ports": [{ "port": 5432 }] } })
                )
            ]),
            Stuck(Reason::InitRunning),
            &["db", "ferry why -n d service/db"],
        ),
        (
            "done, though a helper was killed",
            "pod/p",
            json!([pod(
                json!({ "spec": { "restartPolicy": "Never", "initContainers": [{ "name": "proxy", "image": "i", "restartPolicy": "Always" }] }, "status": { "phase": "Succeeded", "initContainerStatuses": [{ "name": "proxy", "state": { "terminated": { "exitCode": 137, "reason": "Error" } } }], "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": 0, "reason": "Completed" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a pod that nobody owns has its name",
            "statefulset/db",
            json!([
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 0 } })
                ),
                with(serving(json!({})), &json!({ "metadata": { "name": "db-0", "uid": "zzz" } }))
            ]),
            Stuck(Reason::NotOwned),
            &["db-0"],
        ),
        (
            "a DaemonSet for a label that no node has",
            "daemonset/agent",
            json!([made(
                "DaemonSet",
                "agent",
                json!({ "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }], "nodeSelector": { "gpu": "yes" } } } }, "status": { "observedGeneration": 1, "desiredNumberScheduled": 0, "currentNumberScheduled": 0, "numberReady": 0 } })
            )]),
            Stuck(Reason::NoNodeForDaemon),
            &["gpu=yes", "kubectl label node n gpu=yes"],
        ),
        (
            "a Job whose pods run out of memory",
            "job/j",
            json!([
                made(
                    "Job",
                    "j",
                    json!({ "spec": { "backoffLimit": 0, "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "failed": 1, "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "Job has reached the specified backoff limit", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                with(
                    pod(
                        json!({ "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i", "resources": { "limits": { "memory": "128Mi" } } }] }, "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": 137, "reason": "OOMKilled" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-j", "controller": true }] } })
                )
            ]),
            Stuck(Reason::BackoffLimit),
            &["128Mi"],
        ),
        (
            "an autoscaler at its most",
            "horizontalpodautoscaler/web",
            json!([
                made(
                    "HorizontalPodAutoscaler",
                    "web",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1, "maxReplicas": 5, "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } }] }, "status": { "currentReplicas": 5, "desiredReplicas": 5, "conditions": [{ "type": "AbleToScale", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ScalingActive", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ScalingLimited", "status": "True", "reason": "TooManyReplicas", "message": "the desired replica count is more than the maximum replica count", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 5, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 5, "readyReplicas": 5, "availableReplicas": 5, "updatedReplicas": 5 } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 5 }, "status": { "replicas": 1, "observedGeneration": 1 } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "w0", "uid": "w0" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "10m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "w1", "uid": "w1" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "10m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "w2", "uid": "w2" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "10m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "w3", "uid": "w3" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "10m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "w4", "uid": "w4" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "10m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                )
            ]),
            Note(Reason::HpaAtMost),
            &["maxReplicas=5"],
        ),
        (
            "a budget whose pods are broken",
            "poddisruptionbudget/b",
            json!([
                made(
                    "PodDisruptionBudget",
                    "b",
                    json!({ "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": "web" } } }, "status": { "observedGeneration": 1, "disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 1, "expectedPods": 1 } })
                ),
                crashing(json!({}), json!({}))
            ]),
            Stuck(Reason::BudgetBlocks),
            &["pod/p"],
        ),
        (
            "the endpoints are of another family",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "fd00::1", "clusterIPs": ["fd00::1"], "ipFamilies": ["IPv6"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv6", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [] })
                )
            ]),
            Stuck(Reason::SliceFamily),
            &["IPv6 alone"],
        ),
        (
            "two Services, one selector",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                made(
                    "Service",
                    "other",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                ),
                made(
                    "EndpointSlice",
                    "other-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "other" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a Service of a StatefulSet that crashes",
            "service/db",
            json!([
                made(
                    "Service",
                    "db",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "db" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                with(
                    with(
                        crashing(json!({}), json!({})),
                        &json!({ "metadata": { "name": "db-0", "uid": "db-0", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                ),
                log("db-0/c", "FATAL: could not open lock file\n")
            ]),
            Stuck(Reason::PodsNotReady),
            &["could not open lock file"],
        ),
        (
            "an Ingress of a class that is misspelt",
            "ingress/web",
            json!([
                with(
                    made(
                        "Ingress",
                        "web",
                        json!({ "spec": { "ingressClassName": "ngnix", "rules": [{ "host": "shop.example", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] } }] }, "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } })
                    ),
                    &json!({ "status": { "loadBalancer": { "ingress": [] } } })
                ),
                made("IngressClass", "nginx", json!({ "spec": { "controller": "k8s.io/ingress-nginx" } })),
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Stuck(Reason::IngressClassMissing),
            &["ngnix", "nginx"],
        ),
        (
            "an Ingress to an outside name",
            "ingress/web",
            json!([
                made(
                    "Ingress",
                    "web",
                    json!({ "spec": { "ingressClassName": "nginx", "rules": [{ "host": "a.example", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "ext", "port": { "number": 443 } } } }] } }] }, "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } })
                ),
                made("IngressClass", "nginx", json!({ "spec": { "controller": "k8s.io/ingress-nginx" } })),
                made(
                    "Service",
                    "ext",
                    json!({ "spec": { "type": "ExternalName", "externalName": "x.example.com", "ports": [{ "port": 443 }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a route whose backend crashes",
            "httproute/r",
            json!([
                made(
                    "HTTPRoute",
                    "r",
                    json!({ "spec": { "parentRefs": [{ "name": "gw" }], "rules": [{ "backendRefs": [{ "name": "web", "port": 80 }] }] }, "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "ferry.dev/gateway", "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "True", "reason": "ResolvedRefs", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
                ),
                made(
                    "Gateway",
                    "gw",
                    json!({ "spec": { "gatewayClassName": "eg", "listeners": [{ "name": "web", "port": 80, "protocol": "HTTP" }] }, "status": { "addresses": [{ "value": "192.0.2.1" }], "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "True", "reason": "Programmed", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }], "listeners": [{ "name": "web", "attachedRoutes": 1, "conditions": [{ "type": "Accepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
                ),
                made(
                    "GatewayClass",
                    "eg",
                    json!({ "spec": { "controllerName": "ferry.dev/gateway" }, "status": { "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                crashing(json!({}), json!({})),
                log("p/c", "panic: nil map\n")
            ]),
            Stuck(Reason::RouteBackend),
            &["web"],
        ),
        (
            "an attachment that fails",
            "volumeattachment/va",
            json!([
                made(
                    "VolumeAttachment",
                    "va",
                    json!({ "spec": { "attacher": "csi.example.com", "nodeName": "n", "source": { "persistentVolumeName": "pv" } }, "status": { "attached": false, "attachError": { "message": "rpc error: code = Internal desc = instance not found" } } })
                ),
                made("PersistentVolume", "pv", json!({ "spec": {}, "status": { "phase": "Bound" } })),
                made("CSIDriver", "csi.example.com", json!({ "spec": {} })),
                made("CSINode", "n", json!({ "spec": { "drivers": [{ "name": "csi.example.com", "nodeID": "n" }] } }))
            ]),
            Stuck(Reason::NotAttached),
            &["instance not found"],
        ),
        (
            "two architectures",
            "pod/p",
            json!([
                unscheduled(
                    "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector.",
                    json!({ "spec": { "nodeSelector": { "kubernetes.io/arch": "riscv64" } } })
                ),
                with(node("a", "True"), &json!({ "metadata": { "labels": { "kubernetes.io/arch": "amd64" } } })),
                with(node("b", "True"), &json!({ "metadata": { "labels": { "kubernetes.io/arch": "arm64" } } }))
            ]),
            Stuck(Reason::NoNodeFits),
            &["kubernetes.io/arch=riscv64", "!kubectl label node", "amd64, arm64"],
        ),
        (
            "it lacks a library",
            "pod/p",
            json!([
                crashing(json!({ "exitCode": 127 }), json!({})),
                log(
                    "p/c",
                    "/app/server: error while loading shared libraries: libssl.so.1.1: cannot open shared object file: No such file or directory\n"
                )
            ]),
            Stuck(Reason::Crash),
            &["libssl.so.1.1", "a library that it is linked with is not in the image", "!correct command and args"],
        ),
        (
            "a probe by gRPC for nobody",
            "pod/p",
            json!([
                pod(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "containerPort": 8080 }], "readinessProbe": { "grpc": { "port": 8080 } } }] }, "status": { "conditions": [{ "type": "PodScheduled", "status": "True" }, { "type": "Initialized", "status": "True" }, { "type": "Ready", "status": "False", "reason": "ContainersNotReady" }], "containerStatuses": [{ "name": "c", "ready": false, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } })
                ),
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Readiness probe failed: timeout: failed to connect service \"10.0.0.1:8080\" within 1s: context deadline exceeded"
                )
            ]),
            Stuck(Reason::ProbeFails),
            &["8080", "grpc.health.v1.Health", "!takes longer"],
        ),
        (
            "a pod waits for a claim that goes, held by another namespace's namesake",
            "pod/p",
            json!([
                unscheduled(
                    "0/1 nodes are available: persistentvolumeclaim \"data\" is being deleted.",
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound" }, "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "same", "uid": "same" }, "spec": { "nodeName": "n", "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                    ),
                    &json!({ "metadata": { "namespace": "other" } })
                )
            ]),
            Stuck(Reason::ClaimMissing),
            &["no pod that has a node uses it", "!pod/same"],
        ),
    ];
    examine(&cases);
}
