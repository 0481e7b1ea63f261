//! What stands beside the situations of the other files: alike, and something else.

use serde_json::json;

use super::*;

#[test]
fn what_is_alike() {
    let pulling = |parts: &Value| with(waiting("ErrImagePull", "r.example/a:2: not found", json!({})), parts);
    let class = made("StorageClass", "fast", json!({ "provisioner": "csi.example.com" }));
    let registered =
        made("CSINode", "n", json!({ "spec": { "drivers": [{ "name": "csi.example.com", "nodeID": "n" }] } }));
    let claim = |parts: Value| {
        with(
            made(
                "PersistentVolumeClaim",
                "data",
                json!({ "spec": { "volumeAttributesClassName": "gold", "volumeName": "pv", "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } }),
            ),
            &parts,
        )
    };
    let gold = made("VolumeAttributesClass", "gold", json!({ "driverName": "csi.example.com" }));
    let set = made(
        "ReplicaSet",
        "web-1",
        with(owner("apps/v1", "Deployment", "web"), &json!({ "spec": { "replicas": 1 }, "status": { "replicas": 1 } })),
    );
    let deployment = made(
        "Deployment",
        "web",
        with(
            owner("apps.example.com/v1", "WebApp", "shop"),
            &json!({ "spec": { "replicas": 1 }, "status": { "observedGeneration": 1, "replicas": 1 } }),
        ),
    );
    let app = made("WebApp", "shop", json!({ "apiVersion": "apps.example.com/v1" }));
    let circle = |name: &str, of: &str| made("ReplicaSet", name, owner("apps/v1", "ReplicaSet", of));
    let dying =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T12:00:20Z", "deletionGracePeriodSeconds": 30 } });
    let mounts = json!({ "spec": { "volumes": [{ "name": "tmp", "emptyDir": {} }], "containers": [{ "name": "c", "image": "img", "securityContext": { "readOnlyRootFilesystem": true }, "volumeMounts": [{ "name": "tmp", "mountPath": "/tmp" }] }] } });
    let running = json!({ "status": { "containerStatuses": [{ "name": "c", "ready": true, "started": true, "restartCount": 0, "state": { "running": { "startedAt": "2026-01-01T11:00:05Z" } } }] } });
    let kill = with(
        warned("Pod/p", "Killing", "Container other failed liveness probe, will be restarted"),
        &json!({ "type": "Normal" }),
    );
    let liveness = json!({ "spec": { "containers": [{ "name": "c", "image": "img", "livenessProbe": { "tcpSocket": { "port": 80 } } }, { "name": "other", "image": "img" }] } });
    let token = |data: Value| {
        made(
            "Secret",
            "s",
            json!({ "type": "kubernetes.io/service-account-token", "metadata": { "annotations": { "kubernetes.io/service-account.name": "robot" } }, "data": data }),
        )
    };
    let robot = made("ServiceAccount", "robot", json!({}));
    let cases: Vec<Case<'_>> = vec![
        (
            "a token for nobody",
            "secret/s",
            json!([token(json!({}))]),
            Stuck(Reason::ServiceAccountMissing),
            &["the ServiceAccount \"robot\"", "kubectl create serviceaccount -n d robot"],
        ),
        (
            "a token that nobody writes",
            "secret/s",
            json!([token(json!({})), robot.clone()]),
            Stuck(Reason::ControllerBehind),
            &["see that the controllers run"],
        ),
        ("a token", "secret/s", json!([token(json!({ "token": "eA==" })), robot]), Well, &[]),
        (
            "a Deployment that somebody's controller makes",
            "deployment/web",
            json!([deployment.clone(), set.clone(), app.clone(), pulling(&owner("apps/v1", "ReplicaSet", "web-1"))]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d webapp.apps.example.com/shop"],
        ),
        (
            "its pod",
            "pod/p",
            json!([deployment, set, app, pulling(&owner("apps/v1", "ReplicaSet", "web-1"))]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d webapp.apps.example.com/shop"],
        ),
        (
            "owners in a circle",
            "pod/p",
            json!([circle("a", "b"), circle("b", "a"), pulling(&owner("apps/v1", "ReplicaSet", "a"))]),
            Stuck(Reason::ImageNotFound),
            &["kubectl edit -n d replicaset/"],
        ),
        ("a driver that a node has registered", "storageclass/fast", json!([class, registered]), Well, &[]),
        (
            "attributes that it has",
            "persistentvolumeclaim/data",
            json!([claim(json!({ "status": { "currentVolumeAttributesClassName": "gold" } })), gold.clone()]),
            Well,
            &[],
        ),
        (
            "attributes since a moment",
            "persistentvolumeclaim/data",
            json!([claim(json!({ "metadata": { "creationTimestamp": "2026-01-01T11:59:50Z" } })), gold]),
            Way(Reason::ClaimModifying),
            &[],
        ),
        (
            "a read-only file system elsewhere than in a volume",
            "pod/p",
            json!([crashing(json!({}), mounts), log("p/c", "open /var/run/app.pid: read-only file system\n")]),
            Stuck(Reason::Crash),
            &["readOnlyRootFilesystem", "!is its volume"],
        ),
        (
            "another container was killed for its probe",
            "pod/p",
            json!([
                crashing(json!({ "exitCode": 3 }), liveness),
                kill,
                warned(
                    "Pod/p",
                    "Unhealthy",
                    "Liveness probe failed: dial tcp 10.0.0.1:80: connect: connection refused"
                )
            ]),
            Stuck(Reason::Crash),
            &["exit code 3"],
        ),
        (
            "a pod that is ready, and named for a disruption",
            "pod/p",
            json!([serving(
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler" }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a pod that ends in order",
            "pod/p",
            json!([with(with(serving(dying), &running), &json!({}))]),
            Way(Reason::GracePeriod),
            &[],
        ),
        (
            "a word for what is over",
            "machine/x",
            json!([made("Machine", "x", json!({ "status": { "phase": "Recovered", "message": "failed before" } }))]),
            Well,
            &[],
        ),
        (
            "somebody's kind that is asked to be something new each minute",
            "widget/x",
            json!([made(
                "Widget",
                "x",
                json!({ "metadata": { "generation": 3 }, "status": { "conditions": [{ "type": "Ready", "status": "True", "observedGeneration": 3 }] } })
            )]),
            Well,
            &[],
        ),
        (
            "a condition that is written otherwise",
            "machine/x",
            json!([made(
                "Machine",
                "x",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "true" }, { "type": "Synced", "status": true }, { "type": "Failed", "status": false }] } })
            )]),
            Well,
            &[],
        ),
        (
            "one that failed beside one that is not known",
            "machine/x",
            json!([made(
                "Machine",
                "x",
                json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "lastTransitionTime": "2026-01-01T11:59:00Z" }, { "type": "Synced", "status": "False", "reason": "ReconcileError", "message": "no such role" }] } })
            )]),
            Stuck(Reason::Condition),
            &["Synced=False: ReconcileError: no such role"],
        ),
        (
            "a slice of names",
            "endpointslice/ext-1",
            json!([
                made(
                    "EndpointSlice",
                    "ext-1",
                    json!({ "metadata": { "labels": { "kubernetes.io/service-name": "ext" } }, "addressType": "FQDN", "endpoints": [{ "addresses": ["a.example"] }] })
                ),
                made("Service", "ext", json!({ "spec": { "clusterIP": "None", "ports": [{ "port": 80 }] } }))
            ]),
            Well,
            &[],
        ),
        (
            "a command with a path that has a space",
            "pod/p",
            json!([crashing(
                json!({ "exitCode": 128, "reason": "StartError", "message": "exec: \"/opt/my app/run\": stat /opt/my app/run: no such file or directory" }),
                json!({ "spec": { "containers": [{ "name": "c", "image": "img", "command": ["/opt/my app/run"] }] } })
            )]),
            Stuck(Reason::CommandMissing),
            &["!spaces and all"],
        ),
        (
            "a claim that waits for its first pod",
            "persistentvolumeclaim/data",
            json!([
                made(
                    "PersistentVolumeClaim",
                    "data",
                    json!({ "spec": { "storageClassName": "late", "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Pending" } })
                ),
                made(
                    "StorageClass",
                    "late",
                    json!({ "provisioner": "csi.example.com", "volumeBindingMode": "WaitForFirstConsumer" })
                )
            ]),
            Note(Reason::WaitForFirstConsumer),
            &["no pod uses it so far"],
        ),
    ];
    examine(&cases);
}
