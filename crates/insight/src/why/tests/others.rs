//! Services, claims, nodes, budgets, autoscalers, namespaces.

use serde_json::{Value, json};

use super::super::PACKETS_DROPPED;
use super::{Hop, NOW, Row, World, check, conditions, event, merge, node, pod, ready_pod, waiting, world};

#[test]
fn services() {
    let service = |spec: Value, pods: Value, endpoints: Value| {
        let target =
            json!({ "kind": "Service", "metadata": { "name": "s", "namespace": "d", "uid": "s" }, "spec": spec });
        let slice = json!({ "kind": "EndpointSlice", "metadata": { "labels": { "kubernetes.io/service-name": "s" } }, "endpoints": endpoints });
        let nodes = json!([node("n", "True")]);
        world(target, &[("pods", pods), ("endpointslices", json!([slice])), ("nodes", nodes)])
    };
    let web = json!({ "selector": { "app": "web" } });
    let named = json!({ "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": "http" }] });
    let listed = json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }]);
    let none = json!([]);
    let rows: Vec<Row<'_>> = vec![
        ("fine", service(web.clone(), json!([ready_pod()]), listed.clone()), None),
        (
            "external",
            service(json!({ "type": "ExternalName", "externalName": "db.example.com" }), none.clone(), none.clone()),
            None,
        ),
        ("no selector", service(json!({}), none.clone(), none.clone()), Some((Hop::Endpoints, &["no selector"]))),
        (
            "no pod",
            service(json!({ "selector": { "app": "wbe" } }), json!([ready_pod()]), none.clone()),
            Some((Hop::Endpoints, &["app=wbe matches no pod in d", "pods there have app=web"])),
        ),
        (
            "other label",
            service(json!({ "selector": { "name": "web" } }), json!([ready_pod()]), none.clone()),
            Some((Hop::Endpoints, &["some have app=web"])),
        ),
        (
            "unready",
            service(web.clone(), json!([waiting("ErrImagePull", "img: not found")]), none.clone()),
            Some((Hop::Endpoints, &["selects 1 pod (app=web), and none of them is ready", "no such image"])),
        ),
        (
            "port name",
            service(named, json!([ready_pod()]), none.clone()),
            Some((Hop::Endpoints, &["targetPort \"http\"", "they name none"])),
        ),
        (
            "slices late",
            service(web, json!([ready_pod()]), none.clone()),
            Some((Hop::Endpoints, &["do not list them yet"])),
        ),
        (
            "balancer",
            service(json!({ "type": "LoadBalancer", "selector": { "app": "web" } }), json!([ready_pod()]), listed),
            Some((Hop::Endpoints, &["load balancer"])),
        ),
    ];
    for (what, world, want) in &rows {
        check(what, world, *want);
    }
    let mut refused = service(
        json!({ "type": "LoadBalancer", "selector": { "app": "web" } }),
        json!([ready_pod()]),
        json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }]),
    );
    let why = "tcp/22 of node n is in use by the node itself";
    refused.put("events", vec![event(&refused.target, "PortNotAvailable", why)]);
    check("port in use", &refused, Some((Hop::Endpoints, &["no address of a load balancer", why, "another port"])));
    let mut scaled_down = service(json!({ "selector": { "app": "web" } }), json!([]), json!([]));
    let template = json!({ "metadata": { "labels": { "app": "web" } } });
    let maker = json!({ "kind": "Deployment", "metadata": { "name": "web" }, "spec": { "template": template } });
    scaled_down.put("deployments", vec![maker]);
    check(
        "no replicas",
        &scaled_down,
        Some((Hop::Endpoints, &["deployment/web makes the pods", "ferry why -n d deployment/web"])),
    );
    // A pod that is ready and in no slice of a Service that selects it.
    let target = json!({ "kind": "Service", "metadata": { "name": "s" }, "spec": { "selector": { "app": "web" } } });
    let unlisted = world(
        ready_pod(),
        &[("services", json!([target])), ("endpointslices", none), ("nodes", json!([node("n", "True")]))],
    );
    check("unlisted", &unlisted, Some((Hop::Endpoints, &["service s selects it", "10.0.0.1"])));
}

#[test]
fn claims_nodes_budgets_autoscalers_namespaces() {
    let claim = |spec: Value, classes: Value| {
        let target = json!({ "kind": "PersistentVolumeClaim", "metadata": { "name": "c", "uid": "c" }, "spec": spec, "status": { "phase": "Pending" } });
        world(target, &[("storageclasses", classes)])
    };
    let class = |mode: &str, provisioner: &str| json!([{ "metadata": { "name": "fast" }, "volumeBindingMode": mode, "provisioner": provisioner }]);
    let fast = json!({ "storageClassName": "fast" });
    let with = |kind: &str, parts: Value| {
        let mut target = json!({ "kind": kind, "metadata": { "name": "x", "uid": "x" } });
        merge(&mut target, &parts);
        world(target, &[("pods", json!([pod(json!({}))]))])
    };
    let said = |name: &str, status: &str, reason: &str, message: &str| json!({ "status": { "conditions": [{ "type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW, "lastHeartbeatTime": NOW }] } });
    let with_range = |mut world: World| {
        merge(&mut world.target, &json!({ "spec": { "podCIDR": "10.0.0.0/24" } }));
        world
    };
    let mut terminating =
        said("NamespaceFinalizersRemaining", "True", "SomeFinalizersRemain", "example.com/x in 1 resource instances");
    merge(&mut terminating, &json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:59:00Z" } }));
    let mut cordoned = node("x", "True");
    merge(&mut cordoned, &json!({ "spec": { "unschedulable": true } }));
    let rows: Vec<Row<'_>> = vec![
        ("no class", claim(json!({}), json!([])), Some((Hop::Storage, &["no default class"]))),
        (
            "absent class",
            claim(fast.clone(), json!([])),
            Some((Hop::Storage, &["\"fast\" does not exist", "no StorageClass at all"])),
        ),
        (
            "consumer",
            claim(fast.clone(), class("WaitForFirstConsumer", "p")),
            Some((Hop::Storage, &["on its way", "first pod"])),
        ),
        (
            "by hand",
            claim(fast.clone(), class("Immediate", "kubernetes.io/no-provisioner")),
            Some((Hop::Storage, &["nobody makes them"])),
        ),
        (
            "provisioner",
            claim(fast, class("Immediate", "csi.example.com")),
            Some((Hop::Storage, &["csi.example.com has not made its volume"])),
        ),
        ("bound", with("PersistentVolumeClaim", json!({ "status": { "phase": "Bound" } })), None),
        ("node fine", world(node("x", "True"), &[]), None),
        ("node lost", world(node("x", "Unknown"), &[]), Some((Hop::Node, &["lost since 5 min"]))),
        (
            "foreign rules",
            with(
                "Node",
                json!({ "metadata": { "annotations": { PACKETS_DROPPED: "chain f of table bridge b drops frames of pods" } },
                    "status": { "conditions": conditions(&[("Ready", "True")]) } }),
            ),
            Some((Hop::Node, &["dropped on node", "chain f of table bridge b"])),
        ),
        (
            "node cut off",
            world(
                node("x", "Unknown"),
                &[
                    ("leases", json!([{ "spec": { "renewTime": "2026-01-01T11:54:20.000000Z" } }])),
                    ("kubelet", json!([{ "answers": false, "why": "no answer within 3 s" }])),
                    ("nodes", json!([node("x", "Unknown"), node("y", "Unknown"), node("z", "True")])),
                ],
            ),
            Some((
                Hop::Node,
                &[
                    "heartbeats stopped",
                    "cut off",
                    "no answer within 3 s",
                    "2 nodes of 3 are lost",
                    "ferry node remove x --force",
                ],
            )),
        ),
        (
            "node that runs",
            world(node("x", "Unknown"), &[("kubelet", json!([{ "answers": true }]))]),
            Some((Hop::Node, &["the machine runs", "does not reach the API server"])),
        ),
        (
            "no range",
            with("Node", said("Ready", "False", "KubeletNotReady", "network is not ready")),
            Some((Hop::Node, &["spec.podCIDR"])),
        ),
        ("cordoned", world(cordoned, &[]), Some((Hop::Node, &["nothing holds it up", "kubectl uncordon x"]))),
        (
            "no network",
            with_range(with(
                "Node",
                said(
                    "Ready",
                    "False",
                    "KubeletNotReady",
                    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:cni",
                ),
            )),
            Some((Hop::Node, &["network plug-in"])),
        ),
        (
            "pressure",
            with(
                "Node",
                json!({ "status": { "conditions": conditions(&[("Ready", "True"), ("DiskPressure", "True")]) } }),
            ),
            Some((Hop::Node, &["short of disk"])),
        ),
        (
            "budget",
            with(
                "PodDisruptionBudget",
                json!({ "spec": { "selector": { "matchLabels": { "app": "web" } } }, "status": { "disruptionsAllowed": 0, "expectedPods": 1, "currentHealthy": 0, "desiredHealthy": 1 } }),
            ),
            Some((Hop::Controller, &["0 of 1 pods are healthy, and 1 must be", "1 pod not healthy: p"])),
        ),
        ("room", with("PodDisruptionBudget", json!({ "status": { "disruptionsAllowed": 1 } })), None),
        (
            "metrics",
            with("HorizontalPodAutoscaler", said("ScalingActive", "False", "FailedGetResourceMetric", "no metrics")),
            Some((Hop::Autoscaler, &["gets no metrics", "metrics.k8s.io"])),
        ),
        (
            "requests",
            with(
                "HorizontalPodAutoscaler",
                said("ScalingActive", "False", "FailedGetResourceMetric", "missing request for cpu"),
            ),
            Some((Hop::Autoscaler, &["missing request for cpu"])),
        ),
        (
            "at most",
            with("HorizontalPodAutoscaler", said("ScalingLimited", "True", "TooManyReplicas", "")),
            Some((Hop::Autoscaler, &["nothing holds it up", "maxReplicas"])),
        ),
        (
            "namespace",
            with("Namespace", terminating),
            Some((Hop::Deletion, &["cannot be emptied", "example.com/x in 1 resource instances"])),
        ),
        (
            "custom",
            with("Certificate", said("Ready", "False", "Pending", "waiting for the issuer")),
            Some((Hop::Controller, &["Ready=False: Pending: waiting for the issuer"])),
        ),
        ("unknown kind", with("ConfigMap", json!({})), None),
    ];
    for (what, world, want) in &rows {
        check(what, world, *want);
    }
}

#[test]
fn nodes_on_their_way_into_the_cluster() {
    let request = |signer: &str, status: Value| {
        json!({
            "kind": "CertificateSigningRequest",
            "metadata": { "name": "csr-1", "creationTimestamp": "2026-01-01T11:58:00Z" },
            "spec": { "signerName": signer }, "status": status,
        })
    };
    let client = "kubernetes.io/kube-apiserver-client-kubelet";
    let absent = |requests: Value, removals: Value| {
        let target = json!({ "kind": "Node", "metadata": { "name": "x" } });
        world(target, &[("certificatesigningrequests", requests), ("removals", removals)])
    };
    let judged =
        |kind: &str| json!({ "conditions": [{ "type": kind, "status": "True", "reason": "R", "message": "M" }] });
    let serving = json!([request("kubernetes.io/kubelet-serving", json!({}))]);
    let rows: Vec<Row<'_>> = vec![
        (
            "waits",
            absent(json!([request(client, json!({}))]), json!([])),
            Some((Hop::Node, &["waits for its certificate since 2 min", "kubectl certificate approve csr-1"])),
        ),
        (
            "denied",
            absent(json!([request(client, judged("Denied"))]), json!([])),
            Some((Hop::Node, &["was denied (csr-1)", "R: M"])),
        ),
        (
            "unsigned",
            absent(json!([request(client, judged("Approved"))]), json!([])),
            Some((Hop::Node, &["approved and not signed"])),
        ),
        (
            "unregistered",
            absent(json!([request(client, json!({ "certificate": "x" }))]), json!([])),
            Some((Hop::Node, &["has not registered", "ferry node run"])),
        ),
        (
            "removed",
            absent(json!([request(client, json!({}))]), json!([{ "x": "2026-01-01T11:59:00Z" }])),
            Some((Hop::Node, &["was removed from the cluster 1 min", "ferry join"])),
        ),
        (
            "removed and joining again",
            absent(json!([request(client, json!({}))]), json!([{ "x": "2026-01-01T11:57:00Z" }])),
            Some((Hop::Node, &["waits for its certificate"])),
        ),
        (
            "serving certificate",
            world(node("x", "True"), &[("certificatesigningrequests", serving)]),
            Some((Hop::Node, &["logs, exec and port-forward", "kubectl certificate approve csr-1"])),
        ),
    ];
    for (what, world, want) in rows {
        check(what, &world, want);
    }
}
