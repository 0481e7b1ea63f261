//! What users meet: sources that are missing, rights that controllers lack, drains, leases, owners, local traffic.

use serde_json::{Value, json};

use super::super::Reason;
use super::{FINE, Situation, check_all, event, findings, merge, node, one, owned, pod, ready_pod, world};
use crate::gather::{ALL_BUDGETS, ALL_PODS};
use crate::named::{self, Named};
use crate::world::World;

/// What a server says of an object that is named: None for a kind that it does not have.
fn told(mut world: World, group: &str, kind: &str, name: &str, found: Option<Value>) -> World {
    let namespace = if kind == "Limits" { "" } else { "d" };
    let one = Named { group: group.into(), kind: kind.into(), namespace: namespace.into(), name: name.into() };
    let found = found.map(|item| Ok(Some(item).filter(|item| !item.is_null())));
    named::put(&mut world, &one, found);
    world
}

const ABSENT: Option<Value> = Some(Value::Null);

#[test]
fn sources_of_claims() {
    let class =
        json!([{ "metadata": { "name": "fast" }, "provisioner": "csi.example.com", "volumeBindingMode": "Immediate" }]);
    let drivers = json!([{ "metadata": { "name": "csi.example.com" } }]);
    let claim = |source: Value| {
        let spec = json!({ "storageClassName": "fast", "resources": { "requests": { "storage": "1Gi" } }, "dataSourceRef": source, "dataSource": source });
        let lists =
            [("storageclasses", class.clone()), ("csidrivers", drivers.clone()), ("persistentvolumes", json!([]))];
        one("PersistentVolumeClaim", json!({ "spec": spec, "status": { "phase": "Pending" } }), &lists)
    };
    let of_claim = || claim(json!({ "kind": "PersistentVolumeClaim", "name": "old" }));
    let group = "snapshot.storage.k8s.io";
    let of_snapshot = || claim(json!({ "apiGroup": group, "kind": "VolumeSnapshot", "name": "s" }));
    let failed = json!({ "status": { "readyToUse": false, "error": { "message": "the disk is gone" } } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "no such claim",
            told(of_claim(), "", "PersistentVolumeClaim", "old", ABSENT),
            Reason::DataSource,
            &[
                "to be filled from the PersistentVolumeClaim \"old\"",
                "there is none in namespace d",
                "kubectl delete pvc -n d x",
            ],
        ),
        (
            "a claim without a volume",
            told(of_claim(), "", "PersistentVolumeClaim", "old", Some(json!({ "status": { "phase": "Pending" } }))),
            Reason::DataSource,
            &[
                "which is not ready: no volume is bound to it (phase Pending)",
                "ferry why -n d persistentvolumeclaim/old",
            ],
        ),
        (
            "no such snapshot",
            told(of_snapshot(), group, "VolumeSnapshot", "s", ABSENT),
            Reason::DataSource,
            &["from the VolumeSnapshot \"s\"", "there is none in namespace d"],
        ),
        (
            "nobody serves snapshots",
            told(of_snapshot(), group, "VolumeSnapshot", "s", None),
            Reason::DataSource,
            &["no server of the cluster has the kind VolumeSnapshot of snapshot.storage.k8s.io"],
        ),
        (
            "a snapshot that failed",
            told(of_snapshot(), group, "VolumeSnapshot", "s", Some(failed)),
            Reason::DataSource,
            &["which is not ready: the disk is gone", "ferry why -n d volumesnapshot.snapshot.storage.k8s.io/s"],
        ),
        (
            "a snapshot that is there",
            told(of_snapshot(), group, "VolumeSnapshot", "s", Some(json!({ "status": { "readyToUse": true } }))),
            Reason::Provisioning,
            &["csi.example.com has not made its volume yet"],
        ),
        ("a source that may not be read", of_snapshot(), Reason::Provisioning, &["has not made its volume yet"]),
    ];
    check_all(&rows);
}

#[test]
fn backends_that_are_no_services() {
    let ingress = |class: &str| {
        let backend =
            json!({ "resource": { "apiGroup": "k8s.example.com", "kind": "StorageBucket", "name": "static" } });
        let rules = json!([{ "host": "a.example", "http": { "paths": [{ "path": "/icons", "pathType": "Prefix", "backend": backend }] } }]);
        let classes = json!([
            { "metadata": { "name": "ferry" }, "spec": { "controller": "ferry.dev/ingress-controller" } },
            { "metadata": { "name": "other" }, "spec": { "controller": "example.com/ingress" } },
        ]);
        let status = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } });
        one(
            "Ingress",
            json!({ "spec": { "ingressClassName": class, "rules": rules }, "status": status }),
            &[("ingressclasses", classes), ("services", json!([]))],
        )
    };
    let (group, kind) = ("k8s.example.com", "StorageBucket");
    let rows: Vec<Situation<'_>> = vec![
        (
            "of Ferry's class",
            told(ingress("ferry"), group, kind, "static", Some(json!({}))),
            Reason::IngressBackendResource,
            &["its backend for a.example/icons, the StorageBucket \"static\", is no Service", "to Services alone"],
        ),
        (
            "of somebody's class, and absent",
            told(ingress("other"), group, kind, "static", ABSENT),
            Reason::IngressBackendResource,
            &["the StorageBucket \"static\", does not exist in namespace d"],
        ),
        (
            "of a kind that nobody has",
            told(ingress("other"), group, kind, "static", None),
            Reason::IngressBackendResource,
            &["no server of the cluster has that kind"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&told(ingress("other"), group, kind, "static", Some(json!({})))), []);
    let old = json!({ "metadata": { "annotations": { "kubernetes.io/ingress.class": "nginx" } } });
    let old = one("Ingress", old, &[("ingressclasses", json!([])), ("services", json!([]))]);
    check_all(&[(
        "an annotation that nobody follows",
        old,
        Reason::IngressClassMissing,
        &["probably", "kubernetes.io/ingress.class names the class \"nginx\""],
    )]);
}

#[test]
fn drains_that_cannot_finish() {
    let cordoned = || {
        let mut one = node("n", "True");
        merge(&mut one, &json!({ "spec": { "unschedulable": true } }));
        one
    };
    let budget = |parts: Value| {
        let mut one = json!({ "metadata": { "name": "b", "namespace": "d" }, "spec": { "selector": { "matchLabels": { "app": "web" } } },
            "status": { "disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 2, "expectedPods": 2 } });
        merge(&mut one, &parts);
        (ALL_BUDGETS, json!([one]))
    };
    let all = |pod: Value, budget: (&'static str, Value)| {
        world(cordoned(), &[(ALL_PODS, json!([pod])), budget, ("nodes", json!([cordoned()]))])
    };
    let sick = || pod(json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } }));
    let always = json!({ "spec": { "unhealthyPodEvictionPolicy": "AlwaysAllow" } });
    let enough = json!({ "status": { "currentHealthy": 2 } });
    let going =
        pod(json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["acme.io/x"] } }));
    let rows: Vec<Situation<'_>> = vec![
        (
            "a pod that is ready",
            all(ready_pod(), budget(enough.clone())),
            Reason::DrainBlocked,
            &["PodDisruptionBudget b lets no pod like p in d go", "of its 2 pods 2 are healthy, and 2 must be"],
        ),
        (
            "a pod that is not ready, with too few others",
            all(sick(), budget(json!({}))),
            Reason::DrainBlocked,
            &["1 are healthy"],
        ),
        (
            "a pod that does not go",
            all(going, budget(json!({}))),
            Reason::DrainBlocked,
            &["a pod that is to go does not", "the finalizer acme.io/x"],
        ),
        ("one that is not ready, with enough others", all(sick(), budget(enough)), Reason::NodeCordoned, &[FINE]),
        ("one that is not ready, and may always go", all(sick(), budget(always)), Reason::NodeCordoned, &[FINE]),
        (
            "one that has not started",
            all(pod(json!({ "status": { "phase": "Pending" } })), budget(json!({}))),
            Reason::NodeCordoned,
            &[FINE],
        ),
    ];
    check_all(&rows);
}

#[test]
fn nodes_and_leases() {
    let tainted = |taint: Value| {
        let mut one = node("n", "True");
        merge(&mut one, &json!({ "spec": { "taints": [taint] } }));
        world(one, &[])
    };
    let lease = |parts: Value| {
        let mut spec = json!({ "holderIdentity": "scheduler-1", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T11:50:00.000000Z" });
        merge(&mut spec, &parts);
        one("Lease", json!({ "spec": spec }), &[])
    };
    let cloud = "node.cloudprovider.kubernetes.io/uninitialized";
    let rows: Vec<Situation<'_>> = vec![
        (
            "a taint",
            tainted(json!({ "key": "gpu", "value": "yes", "effect": "NoSchedule" })),
            Reason::NodeTaints,
            &[FINE, "its taint gpu=yes:NoSchedule", "kubectl taint nodes n gpu=yes:NoSchedule-"],
        ),
        (
            "no cloud controller",
            tainted(json!({ "key": cloud, "value": "true", "effect": "NoSchedule" })),
            Reason::NodeUninitialized,
            &["until the cloud's controller has looked at it"],
        ),
        (
            "a holder that is gone",
            lease(json!({})),
            Reason::LeaseExpired,
            &["\"scheduler-1\" has not renewed it for 10 min"],
        ),
        ("given back", lease(json!({ "holderIdentity": "" })), Reason::LeaseExpired, &[FINE, "nobody holds it"]),
    ];
    check_all(&rows);
    assert_eq!(findings(&lease(json!({ "renewTime": "2026-01-01T11:59:55.000000Z" }))), []);
    assert_eq!(findings(&tainted(json!({ "key": "slow", "effect": "PreferNoSchedule" }))), []);
}

#[test]
fn owners_that_are_gone() {
    let map = || {
        let owner = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "w", "uid": "u" });
        one("ConfigMap", json!({ "metadata": { "ownerReferences": [owner] } }), &[])
    };
    let there = |uid: &str| told(map(), "apps", "Deployment", "w", Some(json!({ "metadata": { "uid": uid } })));
    let rows: Vec<Situation<'_>> = vec![
        (
            "no owner",
            told(map(), "apps", "Deployment", "w", ABSENT),
            Reason::OwnerMissing,
            &["its owner deployment.apps/w does not exist", "kubectl patch -n d configmap/x --type=merge"],
        ),
        ("another of that name", there("v"), Reason::OwnerMissing, &["with another uid"]),
    ];
    check_all(&rows);
    for well in [there("u"), map(), told(map(), "apps", "Deployment", "w", None)] {
        assert_eq!(findings(&well), []);
    }
}

#[test]
fn running_pods() {
    let resized = |kind: &str, reason: &str| {
        let conditions = json!([{ "type": "Ready", "status": "True" }, { "type": kind, "status": "True", "reason": reason, "message": "why" }]);
        world(pod(json!({ "status": { "conditions": conditions } })), &[])
    };
    let debugged = {
        let state = json!({ "waiting": { "reason": "ErrImagePull", "message": "not found" } });
        let mut one = ready_pod();
        merge(
            &mut one,
            &json!({ "status": { "ephemeralContainerStatuses": [{ "name": "debugger-1", "image": "nope", "state": state }] } }),
        );
        world(one, &[])
    };
    let token = json!([{ "name": "kube-api-access", "projected": { "sources": [{ "serviceAccountToken": {} }] } }]);
    let without_account = {
        let one = pod(
            json!({ "spec": { "serviceAccountName": "gone", "volumes": token }, "status": { "phase": "Pending" } }),
        );
        let events = json!([event(&one, "FailedMount", "MountVolume.SetUp failed for volume \"kube-api-access\"")]);
        world(one, &[("events", events), ("serviceaccounts", json!([])), ("nodes", json!([node("n", "True")]))])
    };
    let elsewhere = world(
        pod(json!({ "spec": { "nodeName": "typo" }, "status": { "phase": "Pending" } })),
        &[("nodes", json!([node("n", "True")]))],
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "no room to grow",
            resized("PodResizePending", "Deferred"),
            Reason::PodResize,
            &["node n has no room for the new ones now"],
        ),
        (
            "never room to grow",
            resized("PodResizePending", "Infeasible"),
            Reason::PodResize,
            &["node n can never give it the new ones"],
        ),
        (
            "growing fails",
            resized("PodResizeInProgress", "Error"),
            Reason::PodResize,
            &["could not give it its new resources"],
        ),
        (
            "a debugger",
            debugged,
            Reason::EphemeralContainer,
            &[FINE, "ephemeral container debugger-1 (image nope) does not start"],
        ),
        (
            "an account that was deleted",
            without_account,
            Reason::ServiceAccountMissing,
            &["needs a token of the ServiceAccount \"gone\"", "kubectl create serviceaccount -n d gone"],
        ),
        (
            "a node of the manifest",
            elsewhere,
            Reason::PodNodeMissing,
            &["its node typo does not exist", "correct spec.nodeName"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn controllers_without_rights_and_webhooks_that_do_not_answer() {
    let refused = |message: &str, lists: &[(&str, Value)]| {
        let condition =
            json!([{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message }]);
        owned("ReplicaSet", json!({ "status": { "replicas": 0, "conditions": condition } }), &[], lists)
    };
    let hooks = json!([{ "metadata": { "name": "guard" }, "webhooks": [{ "name": "a.b", "failurePolicy": "Fail", "timeoutSeconds": 3, "clientConfig": { "url": "https://x" } }] }]);
    let call = "Internal error occurred: failed calling webhook \"a.b\": failed to call webhook: Post \"https://x?timeout=3s\": ";
    let lists = [("validatingwebhookconfigurations", hooks)];
    let (late, bad) = (
        format!("{call}context deadline exceeded"),
        format!("{call}tls: failed to verify certificate: x509: unknown authority"),
    );
    let forbidden = "pods is forbidden: User \"system:serviceaccount:kube-system:replicaset-controller\" cannot create resource \"pods\" in API group \"\" in the namespace \"d\"";
    let rows: Vec<Situation<'_>> = vec![
        (
            "no right",
            refused(forbidden, &[]),
            Reason::ControllerForbidden,
            &["may not create pods in namespace d", "--serviceaccount=kube-system:replicaset-controller"],
        ),
        ("too slow", refused(&late, &lists), Reason::WebhookFails, &["within its timeoutSeconds of 3 s"]),
        ("not trusted", refused(&bad, &lists), Reason::WebhookFails, &["clientConfig.caBundle"]),
    ];
    check_all(&rows);
}

#[test]
fn services_autoscalers_and_claims() {
    let slice = json!([{ "metadata": { "name": "x-1", "labels": { "kubernetes.io/service-name": "x" } }, "endpoints": [{ "addresses": ["10.0.0.1"], "nodeName": "n", "conditions": { "ready": true } }] }]);
    let local = |nodes: &[&str]| {
        let nodes: Value = nodes.iter().map(|name| node(name, "True")).collect();
        let lists = [("pods", json!([ready_pod()])), ("endpointslices", slice.clone()), ("nodes", nodes)];
        one(
            "Service",
            json!({ "spec": { "selector": { "app": "web" }, "internalTrafficPolicy": "Local", "ports": [{ "port": 80 }] } }),
            &lists,
        )
    };
    let hpa = one(
        "HorizontalPodAutoscaler",
        json!({ "spec": { "minReplicas": 3, "maxReplicas": 3, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "w" } }, "status": { "conditions": [{ "type": "AbleToScale", "status": "True" }] } }),
        &[],
    );
    let claim = |wanted: &str| {
        let class = json!([{ "metadata": { "name": "fast" }, "provisioner": "csi.example.com" }]);
        let spec = json!({ "storageClassName": "fast", "resources": { "requests": { "storage": wanted } } });
        one(
            "PersistentVolumeClaim",
            json!({ "spec": spec, "status": { "phase": "Bound", "capacity": { "storage": "10Gi" } } }),
            &[("storageclasses", class)],
        )
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "local",
            local(&["n", "m"]),
            Reason::LocalTraffic,
            &[FINE, "pods at m get no answer", "ready pods of it are on n"],
        ),
        ("no choice", hpa, Reason::HpaFixed, &[FINE, "always wants 3 replicas"]),
        (
            "growth that nobody begins",
            claim("20Gi"),
            Reason::ClaimResizing,
            &["it has 10Gi and is to grow to 20Gi", "the resizer of csi.example.com"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&local(&["n"])), []);
    assert_eq!(findings(&claim("10Gi")), []);
}

#[test]
fn parameters_devices_and_kinds_of_others() {
    let binding = |action: &str| {
        let policy = json!([{ "metadata": { "name": "p" }, "spec": { "paramKind": { "apiVersion": "rules.example.com/v1", "kind": "Limits" } } }]);
        let reference = json!({ "name": "small", "parameterNotFoundAction": action });
        let mut world = one(
            "ValidatingAdmissionPolicyBinding",
            json!({ "spec": { "policyName": "p", "paramRef": reference } }),
            &[("validatingadmissionpolicies", policy)],
        );
        world.target["metadata"]["namespace"] = Value::Null;
        told(world, "rules.example.com", "Limits", "small", ABSENT)
    };
    let requests = json!([{ "name": "r", "exactly": { "deviceClassName": "gpu" } }]);
    let devices = |pods: Value, slices: Value| {
        let lists =
            [("deviceclasses", json!([{ "metadata": { "name": "gpu" } }])), ("pods", pods), ("resourceslices", slices)];
        one("ResourceClaim", json!({ "spec": { "devices": { "requests": requests } } }), &lists)
    };
    let user = json!([pod(
        json!({ "spec": { "nodeName": "", "resourceClaims": [{ "name": "g", "resourceClaimName": "x" }] } })
    )]);
    let refused = json!({ "status": { "ancestors": [{ "conditions": [{ "type": "Accepted", "status": "False", "reason": "Conflicted", "message": "older" }] }] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "refused",
            binding("Deny"),
            Reason::PolicyParameters,
            &["the Limits \"small\", does not exist", "is refused (parameterNotFoundAction Deny)"],
        ),
        ("let pass", binding("Allow"), Reason::PolicyParameters, &["lets everything pass"]),
        ("no pod uses it", devices(json!([]), json!([])), Reason::DeviceClaim, &[FINE, "when a pod uses it"]),
        (
            "no devices",
            devices(user.clone(), json!([])),
            Reason::DeviceClaim,
            &["pod/p waits for its devices, and no node offers any"],
        ),
        (
            "not placed",
            devices(user, json!([{ "metadata": { "name": "s" } }])),
            Reason::DeviceClaim,
            &["ferry why -n d pod/p"],
        ),
        (
            "a policy that is refused",
            one("BackendTLSPolicy", refused, &[]),
            Reason::Condition,
            &["Accepted=False: Conflicted: older"],
        ),
        (
            "a kind with a phase",
            one("Backup", json!({ "status": { "phase": "Failed", "message": "no space" } }), &[]),
            Reason::Condition,
            &["it says that it is Failed: no space"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&one("Backup", json!({ "status": { "phase": "Completed" } }), &[])), []);
}
