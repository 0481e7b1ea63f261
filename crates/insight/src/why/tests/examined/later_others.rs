//! Other objects that were tried when the rules for those of `told_services` were there.

use serde_json::json;

use super::*;

#[test]
fn others_that_came_later() {
    let cases: Vec<Case<'_>> = vec![
        (
            "an Ingress with two hosts",
            "ingress/web",
            json!([
                made(
                    "Ingress",
                    "web",
                    json!({ "spec": { "ingressClassName": "nginx", "rules": [{ "host": "a.example", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] } }, { "host": "b.example", "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "web", "port": { "number": 80 } } } }] } }] }, "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.1" }] } } })
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
            Well,
            &[],
        ),
        (
            "a gRPC route",
            "grpcroute/r",
            json!([
                made(
                    "GRPCRoute",
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
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a claim with a snapshot as its source",
            "persistentvolumeclaim/data",
            json!([
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv", "dataSource": { "apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s" } }, "status": { "phase": "Bound", "capacity": { "storage": "10Gi" } } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" } }, "status": { "phase": "Bound" } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "its account was never made",
            "statefulset/db",
            json!([
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 0 } })
                ),
                warned(
                    "StatefulSet/db",
                    "FailedCreate",
                    "create Pod db-0 in StatefulSet db failed error: pods \"db-0\" is forbidden: error looking up service account d/db: serviceaccount \"db\" not found"
                )
            ]),
            Stuck(Reason::ServiceAccountMissing),
            &["kubectl create serviceaccount -n d db"],
        ),
        (
            "a baseline that its volume breaks",
            "daemonset/agent",
            json!([
                made(
                    "DaemonSet",
                    "agent",
                    json!({ "spec": { "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "desiredNumberScheduled": 1, "currentNumberScheduled": 0, "numberReady": 0 } })
                ),
                warned(
                    "DaemonSet/agent",
                    "FailedCreate",
                    "Error creating: pods \"agent-x\" is forbidden: violates PodSecurity \"baseline:latest\": hostPath volumes (volume \"log\")"
                )
            ]),
            Stuck(Reason::PodSecurity),
            &["baseline", "hostPath"],
        ),
        (
            "every attempt ends alike",
            "job/j",
            json!([
                made(
                    "Job",
                    "j",
                    json!({ "spec": { "backoffLimit": 6, "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "failed": 2, "active": 1 } })
                ),
                with(
                    with(
                        pod(
                            json!({ "spec": { "restartPolicy": "Never" }, "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T11:40:00Z" } } }] } })
                        ),
                        &json!({ "metadata": { "name": "j-a", "uid": "j-a" } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-j", "controller": true }] } })
                ),
                with(
                    with(
                        pod(
                            json!({ "spec": { "restartPolicy": "Never" }, "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T11:45:00Z" } } }] } })
                        ),
                        &json!({ "metadata": { "name": "j-b", "uid": "j-b" } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-j", "controller": true }] } })
                ),
                log("j-a/c", "no such bucket\n"),
                log("j-b/c", "no such bucket\n")
            ]),
            Stuck(Reason::JobRunning),
            &["no such bucket"],
        ),
        (
            "it waits for the old attempt",
            "job/j",
            json!([
                made(
                    "Job",
                    "j",
                    json!({ "spec": { "backoffLimit": 6, "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "img" }] } }, "podReplacementPolicy": "Failed" }, "status": { "terminating": 1 } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "x", "uid": "x", "deletionTimestamp": "2026-01-01T12:00:10Z", "deletionGracePeriodSeconds": 30 }, "spec": { "nodeName": "n" } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "job-j", "controller": true }] } })
                )
            ]),
            Way(Reason::JobRunning),
            &["pod/x"],
        ),
        (
            "a figure of pods that nobody serves",
            "horizontalpodautoscaler/web",
            json!([
                made(
                    "HorizontalPodAutoscaler",
                    "web",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1, "maxReplicas": 5, "metrics": [{ "type": "Pods", "pods": { "metric": { "name": "http_requests" }, "target": { "type": "AverageValue", "averageValue": "10" } } }] }, "status": { "currentReplicas": 1, "desiredReplicas": 1, "conditions": [{ "type": "AbleToScale", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ScalingActive", "status": "False", "reason": "FailedGetPodsMetric", "message": "the HPA was unable to compute the replica count: unable to get metric http_requests: no custom metrics API (custom.metrics.k8s.io) registered", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1 } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 1 }, "status": { "replicas": 1, "observedGeneration": 1 } })
                ),
                with(
                    serving(
                        json!({ "spec": { "containers": [{ "name": "c", "image": "img", "resources": { "requests": { "cpu": "100m" } } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                )
            ]),
            Stuck(Reason::HpaMetrics),
            &["custom.metrics.k8s.io"],
        ),
        (
            "half of it has the port",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                serving(json!({ "metadata": { "name": "q", "uid": "q" }, "spec": { "nodeName": "n" } })),
                serving(json!({ "metadata": { "name": "r", "uid": "r" }, "spec": { "nodeName": "n" } })),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Note(Reason::PortName),
            &["1 more pod"],
        ),
        (
            "a balancer without permission",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                ),
                warned(
                    "Service/web",
                    "SyncLoadBalancerFailed",
                    "Error syncing load balancer: failed to ensure load balancer: quota exceeded for elastic IPs"
                )
            ]),
            Stuck(Reason::LoadBalancerPending),
            &["elastic IPs", "to do"],
        ),
        (
            "a headless Service of a set",
            "service/db",
            json!([
                made(
                    "Service",
                    "db",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"], "selector": { "app": "db" }, "ports": [{ "port": 5432 }] } })
                ),
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "availableReplicas": 3 } })
                ),
                with(
                    with(
                        serving(json!({})),
                        &json!({ "metadata": { "name": "db-0", "uid": "db-0", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                ),
                made(
                    "EndpointSlice",
                    "db-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "db" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 5432, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Well,
            &[],
        ),
        (
            "two other namespaces without leave",
            "httproute/r",
            json!([
                made(
                    "HTTPRoute",
                    "r",
                    json!({ "spec": { "parentRefs": [{ "name": "gw" }], "rules": [{ "backendRefs": [{ "name": "a", "namespace": "x", "port": 80 }, { "name": "b", "namespace": "y", "port": 80 }] }] }, "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "ferry.dev/gateway", "conditions": [{ "type": "Accepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "False", "reason": "RefNotPermitted", "message": "not permitted", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
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
                )
            ]),
            Stuck(Reason::RouteReferences),
            &["\"namespace\":\"x\"", "\"namespace\":\"y\"", "kubectl apply -f -"],
        ),
        (
            "a port in use, told without a generation",
            "gateway/gw",
            json!([
                made(
                    "Gateway",
                    "gw",
                    json!({ "spec": { "gatewayClassName": "eg", "listeners": [{ "name": "web", "port": 80, "protocol": "HTTP" }] }, "status": { "addresses": [{ "value": "192.0.2.1" }], "conditions": [{ "type": "Accepted", "status": "True", "reason": "ListenersNotValid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "False", "reason": "Invalid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }], "listeners": [{ "name": "web", "attachedRoutes": 0, "conditions": [{ "type": "Accepted", "status": "False", "reason": "PortUnavailable", "message": "port 80 is in use" }] }] } })
                ),
                made(
                    "GatewayClass",
                    "eg",
                    json!({ "spec": { "controllerName": "ferry.dev/gateway" }, "status": { "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                )
            ]),
            Stuck(Reason::GatewayListener),
            &["PortUnavailable"],
        ),
        (
            "no class of snapshots is there",
            "volumesnapshot/s",
            json!([
                made(
                    "VolumeSnapshot",
                    "s",
                    json!({ "spec": { "source": { "persistentVolumeClaimName": "data" }, "volumeSnapshotClassName": "fast" }, "status": { "error": { "message": "failed to get input parameters: volumesnapshotclass \"fast\" not found" } } })
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made("VolumeSnapshotClass", "slow", json!({ "driver": "csi.example.com" }))
            ]),
            Stuck(Reason::Snapshot),
            &["\"fast\"", "slow"],
        ),
        (
            "its size is above what a quota leaves",
            "statefulset/db",
            json!([
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 3, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } }, "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": { "resources": { "requests": { "storage": "100Gi" } } } }] }, "status": { "observedGeneration": 1, "replicas": 0 } })
                ),
                warned(
                    "StatefulSet/db",
                    "FailedCreate",
                    "create Claim data-db-0 for Pod db-0 in StatefulSet db failed error: persistentvolumeclaims \"data-db-0\" is forbidden: exceeded quota: disk, requested: requests.storage=100Gi, used: requests.storage=0, limited: requests.storage=50Gi"
                ),
                made(
                    "ResourceQuota",
                    "disk",
                    json!({ "spec": { "hard": { "requests.storage": "50Gi" } }, "status": { "hard": { "requests.storage": "50Gi" }, "used": { "requests.storage": "0" } } })
                )
            ]),
            Stuck(Reason::ClaimRefused),
            &["disk"],
        ),
        (
            "a volume that is deleted and still attached",
            "persistentvolume/pv",
            json!([made(
                "PersistentVolume",
                "pv",
                json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"] }, "spec": { "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": "csi.example.com", "volumeHandle": "1" } }, "status": { "phase": "Failed", "message": "disk is locked" } })
            )]),
            Stuck(Reason::Finalizer),
            &["disk is locked"],
        ),
        (
            "a certificate denied by a policy",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "username": "jane", "usages": ["client auth"] }, "status": { "conditions": [{ "type": "Denied", "status": "True", "reason": "AutoDenied", "message": "not for kubelets", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::CertificateRequest),
            &["kubectl delete csr r"],
        ),
        (
            "a certificate approved just now",
            "certificatesigningrequest/r",
            json!([made(
                "CertificateSigningRequest",
                "r",
                json!({ "spec": { "signerName": "kubernetes.io/kube-apiserver-client", "username": "jane", "usages": ["client auth"] }, "status": { "conditions": [{ "type": "Approved", "status": "True", "lastUpdateTime": "2026-01-01T11:59:55Z" }] } })
            )]),
            Way(Reason::CertificateRequest),
            &[],
        ),
        (
            "a balancer's finalizer, and the cloud says no",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "LoadBalancer", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] }, "metadata": { "deletionTimestamp": "2026-01-01T11:30:00Z", "finalizers": ["service.kubernetes.io/load-balancer-cleanup"] } })
                ),
                warned("Service/web", "DeleteLoadBalancerFailed", "Error deleting load balancer: throttled")
            ]),
            Stuck(Reason::Finalizer),
            &["throttled"],
        ),
        (
            "a definition of Kubernetes' own group that is refused",
            "customresourcedefinition/ws.x.k8s.io",
            json!([made(
                "CustomResourceDefinition",
                "ws.x.k8s.io",
                json!({ "spec": { "group": "x.k8s.io", "names": { "plural": "ws", "kind": "W" }, "versions": [{ "name": "v1", "served": true, "storage": true }] }, "status": { "conditions": [{ "type": "NamesAccepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Established", "status": "False", "reason": "NotAccepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "KubernetesAPIApprovalPolicyConformant", "status": "False", "reason": "MissingAnnotation", "message": "needs api-approved.kubernetes.io", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Stuck(Reason::Condition),
            &["api-approved.kubernetes.io"],
        ),
        (
            "a ready pod on a node that nobody has heard of for an hour",
            "pod/p",
            json!([
                serving(json!({})),
                with(
                    node("n", "Unknown"),
                    &json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "lastTransitionTime": "2026-01-01T11:00:00Z" }] } })
                )
            ]),
            Stuck(Reason::PodNodeNotReady),
            &["ferry why node/n"],
        ),
        (
            "an API whose CA is wrong",
            "apiservice/v1.x.example.com",
            json!([
                made(
                    "APIService",
                    "v1.x.example.com",
                    json!({ "spec": { "group": "x.example.com", "version": "v1", "service": { "name": "x", "namespace": "op" } }, "status": { "conditions": [{ "type": "Available", "status": "False", "reason": "FailedDiscoveryCheck", "message": "failing or missing response from https://10.0.0.3:443/apis: tls: failed to verify certificate: x509: certificate signed by unknown authority", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "Service",
                    "x",
                    json!({ "metadata": { "namespace": "op" }, "spec": { "ports": [{ "port": 443 }] } })
                ),
                made(
                    "EndpointSlice",
                    "x-1",
                    json!({ "metadata": { "namespace": "op", "labels": { "kubernetes.io/service-name": "x" } }, "endpoints": [{ "addresses": ["10.0.0.3"], "conditions": { "ready": true } }] })
                )
            ]),
            Stuck(Reason::ApiServiceUnavailable),
            &[
                "unknown authority",
                "spec.caBundle must be of the CA that signed it",
                "kubectl edit apiservice/v1.x.example.com",
                "!see what its server says",
            ],
        ),
    ];
    examine(&cases);
}
