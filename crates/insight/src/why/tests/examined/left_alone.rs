//! What is well, and looks at first sight as if it were not.

use serde_json::json;

use super::*;

#[test]
fn what_is_well_is_still_left_alone() {
    let cases: Vec<Case<'_>> = vec![
        (
            "done with its beginning and ready",
            "pod/p",
            json!([serving(
                json!({ "spec": { "initContainers": [{ "name": "setup", "image": "i" }] }, "status": { "initContainerStatuses": [{ "name": "setup", "ready": true, "restartCount": 1, "state": { "terminated": { "exitCode": 0, "reason": "Completed" } }, "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "restarted long ago",
            "pod/p",
            json!([serving(
                json!({ "status": { "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 3, "state": { "running": { "startedAt": "2025-12-28T11:58:00Z" } }, "lastState": { "terminated": { "exitCode": 1, "reason": "Error", "startedAt": "2025-12-28T11:00:00Z", "finishedAt": "2025-12-28T11:57:00Z" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a gate that is open",
            "pod/p",
            json!([serving(
                json!({ "spec": { "readinessGates": [{ "conditionType": "example.com/lb" }] }, "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "example.com/lb", "status": "True" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "with a helper beside it",
            "pod/p",
            json!([serving(
                json!({ "spec": { "initContainers": [{ "name": "proxy", "image": "i", "restartPolicy": "Always" }] }, "status": { "initContainerStatuses": [{ "name": "proxy", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:02Z" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "on a node under pressure and fine",
            "pod/p",
            json!([
                serving(json!({})),
                with(
                    node("n", "True"),
                    &json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "MemoryPressure", "status": "False" }, { "type": "DiskPressure", "status": "True", "reason": "KubeletHasDiskPressure" }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a task that is done",
            "pod/p",
            json!([pod(
                json!({ "spec": { "restartPolicy": "OnFailure" }, "status": { "phase": "Succeeded", "containerStatuses": [{ "name": "c", "restartCount": 2, "state": { "terminated": { "exitCode": 0, "reason": "Completed" } }, "lastState": { "terminated": { "exitCode": 1, "reason": "Error" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "resized a moment ago and done",
            "pod/p",
            json!([serving(
                json!({ "metadata": { "generation": 2 }, "status": { "observedGeneration": 2, "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } }, "allocatedResources": { "cpu": "1" }, "resources": { "requests": { "cpu": "1" } } }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a set that counts from five",
            "statefulset/db",
            json!([
                made(
                    "StatefulSet",
                    "db",
                    json!({ "spec": { "replicas": 1, "selector": { "matchLabels": { "app": "db" } }, "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "img" }] } }, "ordinals": { "start": 5 } }, "status": { "observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "currentRevision": "a", "updateRevision": "a" } })
                ),
                with(
                    with(
                        serving(json!({})),
                        &json!({ "metadata": { "name": "db-5", "uid": "db-5", "labels": { "app": "db" } } })
                    ),
                    &json!({ "metadata": { "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "statefulset-db", "controller": true }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "done at its success policy",
            "job/j",
            json!([made(
                "Job",
                "j",
                json!({ "spec": { "backoffLimit": 6, "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "img" }] } }, "completionMode": "Indexed", "completions": 3, "successPolicy": { "rules": [{ "succeededIndexes": "0" }] } }, "status": { "succeeded": 1, "conditions": [{ "type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "Complete", "status": "True", "reason": "SuccessPolicy", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "it waits before it goes down",
            "horizontalpodautoscaler/web",
            json!([
                made(
                    "HorizontalPodAutoscaler",
                    "web",
                    json!({ "spec": { "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "minReplicas": 1, "maxReplicas": 5, "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": { "type": "Utilization", "averageUtilization": 70 } } }] }, "status": { "currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [{ "type": "Resource", "resource": { "name": "cpu", "current": { "averageUtilization": 10 } } }], "conditions": [{ "type": "AbleToScale", "status": "True", "reason": "ScaleDownStabilized", "message": "recent recommendations were higher than current one, applying the highest recent recommendation", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ScalingActive", "status": "True", "reason": "ValidMetricFound", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }, { "type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
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
            Well,
            &[],
        ),
        (
            "a port by its name",
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
            "a headless one of other machines",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "None", "clusterIPs": ["None"], "ipFamilies": ["IPv4"], "selector": null, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }] } })
                ),
                made(
                    "EndpointSlice",
                    "web-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "web" } }, "addressType": "IPv4", "ports": [{ "name": "", "port": 8080, "protocol": "TCP" }], "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true }, "nodeName": "n", "targetRef": { "kind": "Pod", "name": "p", "namespace": "d" } }], "targetRef": null })
                )
            ]),
            Well,
            &[],
        ),
        (
            "both families, and a cluster of one",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }], "ipFamilyPolicy": "PreferDualStack" } })
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
            "sessions that stay",
            "service/web",
            json!([
                made(
                    "Service",
                    "web",
                    json!({ "spec": { "type": "ClusterIP", "clusterIP": "10.96.0.20", "clusterIPs": ["10.96.0.20"], "ipFamilies": ["IPv4"], "selector": { "app": "web" }, "ports": [{ "port": 80, "protocol": "TCP", "targetPort": 8080 }], "sessionAffinity": "ClientIP", "sessionAffinityConfig": { "clientIP": { "timeoutSeconds": 10800 } } } })
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
            "a name of the outside that is well",
            "service/ext",
            json!([made(
                "Service",
                "ext",
                json!({ "spec": { "type": "ExternalName", "externalName": "db.example.com" } })
            )]),
            Well,
            &[],
        ),
        (
            "a route as it should be",
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
            "a policy of peers that are there",
            "networkpolicy/np",
            json!([
                made(
                    "NetworkPolicy",
                    "np",
                    json!({ "spec": { "podSelector": { "matchLabels": { "app": "web" } }, "policyTypes": ["Ingress"], "ingress": [{ "from": [{ "podSelector": { "matchLabels": { "app": "client" } } }] }] } })
                ),
                with(
                    serving(json!({ "metadata": { "labels": { "app": "client" } } })),
                    &json!({ "metadata": { "name": "a", "uid": "a" }, "status": { "podIP": "10.0.0.9", "podIPs": [{ "ip": "10.0.0.9" }] } })
                ),
                with(
                    serving(
                        json!({ "spec": { "containers": [{ "name": "c", "image": "img", "ports": [{ "name": "http", "containerPort": 8080 }] }] } })
                    ),
                    &json!({ "metadata": { "name": "p" }, "status": { "podIP": "10.0.0.1", "podIPs": [{ "ip": "10.0.0.1" }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "two classes call themselves the default",
            "persistentvolumeclaim/data",
            json!([
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "a", "resources": { "requests": { "storage": "10Gi" } } }, "status": { "phase": "Bound" } })
                ),
                made(
                    "StorageClass",
                    "a",
                    json!({ "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "csi.example.com" })
                ),
                made(
                    "StorageClass",
                    "b",
                    json!({ "metadata": { "annotations": { "storageclass.kubernetes.io/is-default-class": "true" } }, "provisioner": "csi.example.com" })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a claim that is used and well",
            "persistentvolumeclaim/data",
            json!([
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": { "requests": { "storage": "10Gi" } }, "volumeName": "pv" }, "status": { "phase": "Bound", "capacity": { "storage": "10Gi" } } })
                ),
                made(
                    "PersistentVolume",
                    "pv",
                    json!({ "spec": { "claimRef": { "name": "data", "namespace": "d", "uid": "persistentvolumeclaim-data" } }, "status": { "phase": "Bound" } })
                ),
                serving(
                    json!({ "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "data" } }] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a class that is well",
            "storageclass/fast",
            json!([
                made(
                    "StorageClass",
                    "fast",
                    json!({ "provisioner": "csi.example.com", "volumeBindingMode": "Immediate" })
                ),
                made("CSIDriver", "csi.example.com", json!({ "spec": {} })),
                made("CSINode", "n", json!({ "spec": { "drivers": [{ "name": "csi.example.com", "nodeID": "n" }] } }))
            ]),
            Well,
            &[],
        ),
        (
            "an API of the server itself",
            "apiservice/v1.apps",
            json!([made(
                "APIService",
                "v1.apps",
                json!({ "spec": { "group": "apps", "version": "v1" }, "status": { "conditions": [{ "type": "Available", "status": "True", "reason": "Local", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a policy with its binding",
            "validatingadmissionpolicy/limit",
            json!([
                made(
                    "ValidatingAdmissionPolicy",
                    "limit",
                    json!({ "spec": { "validations": [{ "expression": "true" }] }, "status": { "observedGeneration": 1 } })
                ),
                made(
                    "ValidatingAdmissionPolicyBinding",
                    "b",
                    json!({ "spec": { "policyName": "limit", "validationActions": ["Deny"] } })
                )
            ]),
            Well,
            &[],
        ),
        (
            "a flow with its level",
            "flowschema/f",
            json!([made(
                "FlowSchema",
                "f",
                json!({ "spec": { "priorityLevelConfiguration": { "name": "global-default" } }, "status": { "conditions": [{ "type": "Dangling", "status": "False", "reason": "Found", "message": "", "observedGeneration": 1, "lastTransitionTime": "2026-01-01T11:30:00Z" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a right of a view",
            "rolebinding/b",
            json!([
                made(
                    "RoleBinding",
                    "b",
                    json!({ "roleRef": { "kind": "ClusterRole", "name": "view" }, "subjects": [{ "kind": "ServiceAccount", "name": "robot" }] })
                ),
                made("ClusterRole", "view", json!({ "rules": [] })),
                made("ServiceAccount", "robot", json!({}))
            ]),
            Well,
            &[],
        ),
        (
            "a quota for one class of priority",
            "resourcequota/q",
            json!([made(
                "ResourceQuota",
                "q",
                json!({ "spec": { "hard": { "pods": "10" }, "scopeSelector": { "matchExpressions": [{ "scopeName": "PriorityClass", "operator": "In", "values": ["high"] }] } }, "status": { "hard": { "pods": "10" }, "used": { "pods": "0" } } })
            )]),
            Well,
            &[],
        ),
    ];
    examine(&cases);
}
