//! Workloads, Services and Gateways of which something false was said once, or too little.

use serde_json::json;

use super::*;

#[test]
fn what_was_told_of_workloads_and_services() {
    let cases: Vec<Case<'_>> = vec![
        (
            "two copies share a disk of one node",
            "deployment/web",
            json!([
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "conditions": [{ "type": "Available", "status": "False", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Progressing", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 2 }, "status": { "replicas": 1, "observedGeneration": 1 } })
                ),
                with(
                    serving(
                        json!({ "metadata": { "name": "a", "uid": "a" }, "spec": { "nodeName": "n", "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    waiting(
                        "ContainerCreating",
                        "",
                        json!({ "metadata": { "name": "b", "uid": "b" }, "spec": { "nodeName": "m", "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                node("n", "True"),
                node("m", "True"),
                with(
                    warned(
                        "Pod/b",
                        "FailedAttachVolume",
                        "Multi-Attach error for volume \"pv\" Volume is already used by pod(s) a"
                    ),
                    &json!({})
                ),
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" }, "csi": { "driver": "x" }, "accessModes": ["ReadWriteOnce"] }, "status": { "phase": "Bound" } })
                )
            ]),
            Stuck(Reason::Volume),
            &["pod/a", "node n"],
        ),
        (
            "as many as wanted",
            "deployment/web",
            json!([
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 2, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "availableReplicas": 2, "updatedReplicas": 2, "conditions": [{ "type": "Available", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                ),
                made(
                    "ReplicaSet",
                    "web-1",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "2" } }, "spec": { "replicas": 2 }, "status": { "replicas": 1, "observedGeneration": 1 } })
                ),
                made(
                    "ReplicaSet",
                    "web-0",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "1" } }, "spec": { "replicas": 0 }, "status": { "replicas": 0, "observedGeneration": 1 } })
                ),
                with(
                    serving(json!({ "metadata": { "name": "a", "uid": "a" }, "spec": { "nodeName": "n" } })),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                ),
                with(
                    serving(json!({ "metadata": { "name": "b", "uid": "b" }, "spec": { "nodeName": "n" } })),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "replicaset-web-1", "controller": true }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "an old set that is kept",
            "replicaset/web-0",
            json!([
                made(
                    "Deployment",
                    "web",
                    json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "web" } }, "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } } }, "status": { "observedGeneration": 1 } })
                ),
                made(
                    "ReplicaSet",
                    "web-0",
                    json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "deployment-web", "controller": true }], "annotations": { "deployment.kubernetes.io/revision": "1" } }, "spec": { "replicas": 0 }, "status": { "replicas": 0, "observedGeneration": 1 } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "it waits until the old pod has ended",
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
            &[],
        ),
        (
            "every ten minutes and well",
            "cronjob/c",
            json!([made(
                "CronJob",
                "c",
                json!({ "metadata": { "creationTimestamp": "2025-12-01T00:00:00Z" }, "spec": { "schedule": "@yearly", "jobTemplate": { "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "img" }] } } } } }, "status": { "lastScheduleTime": "2026-01-01T00:00:00Z", "lastSuccessfulTime": "2026-01-01T00:00:20Z" } })
            )]),
            Well,
            &[],
        ),
        (
            "a name that half of the pods have",
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
                serving(
                    json!({ "metadata": { "name": "q", "uid": "q" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "web", "containerPort": 8080 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Note(Reason::PortName),
            &["http", "pod/q"],
        ),
        (
            "a balancer that gives an error",
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
                    "Error syncing load balancer: failed to ensure load balancer: subnet not found"
                )
            ]),
            Stuck(Reason::LoadBalancerPending),
            &["subnet not found"],
        ),
        (
            "two programs with one label",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 5432, "targetPort": 5432 }] } })
                ),
                serving(
                    json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                ),
                serving(
                    json!({ "metadata": { "name": "db", "uid": "db" }, "spec": { "nodeName": "n", "containers": [{ "name": "c", "image": "pg", "ports": [{ "containerPort": 5432 }] }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 5432, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }] })
                )
            ]),
            Well,
            &[],
        ),
        (
            "addresses by hand, and none is ready",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": null, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["192.0.2.5"], "conditions": { "ready": false } }] })
                )
            ]),
            Stuck(Reason::SliceNotReady),
            &[],
        ),
        (
            "a Secret of another namespace without leave",
            "gateway/gw",
            json!([
                made(
                    "Gateway",
                    "gw",
                    json!({ "spec": { "gatewayClassName": "eg", "listeners": [{ "name": "web", "port": 443, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "tls", "namespace": "certs" }] } }] }, "status": { "addresses": [{ "value": "192.0.2.1" }], "conditions": [{ "type": "Accepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "False", "reason": "Invalid", "message": "listener web is not valid", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }], "listeners": [{ "name": "web", "attachedRoutes": 0, "conditions": [{ "type": "Accepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "False", "reason": "Invalid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "False", "reason": "RefNotPermitted", "message": "the Secret certs/tls may not be referred to", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
                ),
                made(
                    "GatewayClass",
                    "eg",
                    json!({ "spec": { "controllerName": "ferry.dev/gateway" }, "status": { "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                )
            ]),
            Stuck(Reason::GatewayListener),
            &["ReferenceGrant", "certs"],
        ),
        (
            "a backend of another namespace without leave",
            "httproute/r",
            json!([
                made(
                    "HTTPRoute",
                    "r",
                    json!({ "spec": { "parentRefs": [{ "name": "gw" }], "rules": [{ "backendRefs": [{ "name": "api", "namespace": "back", "port": 80 }] }] }, "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "ferry.dev/gateway", "conditions": [{ "type": "Accepted", "status": "True", "reason": "", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "False", "reason": "RefNotPermitted", "message": "backendRef back/api is not permitted", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
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
                    "api",
                    json!({ "metadata": { "namespace": "back" }, "spec": { "ports": [{ "port": 80 }] } })
                )
            ]),
            Stuck(Reason::RouteReferences),
            &["ReferenceGrant", "back"],
        ),
        (
            "a route that nothing is sent to",
            "httproute/r",
            json!([
                made(
                    "HTTPRoute",
                    "r",
                    json!({ "spec": { "parentRefs": [{ "name": "gw" }], "rules": [{ "backendRefs": [{ "name": "web", "port": 80, "weight": 0 }] }] }, "status": { "parents": [{ "parentRef": { "name": "gw" }, "controllerName": "ferry.dev/gateway", "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ResolvedRefs", "status": "True", "reason": "ResolvedRefs", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
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
            Note(Reason::RouteBackend),
            &["weight"],
        ),
        (
            "its listener wants a port that is taken",
            "gateway/gw",
            json!([
                made(
                    "Gateway",
                    "gw",
                    json!({ "spec": { "gatewayClassName": "eg", "listeners": [{ "name": "web", "port": 80, "protocol": "HTTP" }] }, "status": { "addresses": [{ "value": "192.0.2.1" }], "conditions": [{ "type": "Accepted", "status": "True", "reason": "ListenersNotValid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "False", "reason": "Invalid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }], "listeners": [{ "name": "web", "attachedRoutes": 0, "conditions": [{ "type": "Accepted", "status": "False", "reason": "PortUnavailable", "message": "port 80 is in use", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Programmed", "status": "False", "reason": "Invalid", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] }] } })
                ),
                made(
                    "GatewayClass",
                    "eg",
                    json!({ "spec": { "controllerName": "ferry.dev/gateway" }, "status": { "conditions": [{ "type": "Accepted", "status": "True", "reason": "Accepted", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
                )
            ]),
            Stuck(Reason::GatewayListener),
            &["PortUnavailable", "80"],
        ),
    ];
    examine(&cases);
}
