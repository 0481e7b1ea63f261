//! Situations that were invented to prove `ferry why` wrong, and did: one row for each.

use serde_json::{Value, json};

use super::super::{Reason, Verdict, findings, render, verdict};
use super::{FINE, Situation, check_all, merge, node, object, one, owned, pod, ready_pod, world};
use crate::gather::{ALL_PODS, CRDS, REMAINING};
use crate::world::{Presence, World};

fn conditions(list: &[(&str, &str, &str, &str)]) -> Value {
    list.iter()
        .map(|(kind, status, reason, message)| json!({ "type": kind, "status": status, "reason": reason, "message": message }))
        .collect()
}

/// A Deployment whose ReplicaSet could not be made: its controller has acted on no generation of it.
fn refused(message: &str) -> World {
    let status = json!({ "observedGeneration": 0, "conditions": conditions(&[("Progressing", "False", "ReplicaSetCreateError", message)]) });
    let quota = json!([{ "metadata": { "name": "q", "namespace": "d" }, "status": { "hard": { "count/replicasets.apps": "2" }, "used": { "count/replicasets.apps": "2" } } }]);
    owned("Deployment", json!({ "status": status }), &[], &[("replicasets", json!([])), ("resourcequotas", quota)])
}

#[test]
fn sets_that_are_refused() {
    let start = "Failed to create new replica set \"x-1\": ";
    let rows: Vec<Situation<'_>> = vec![
        (
            "a quota",
            refused(&format!(
                "{start}replicasets.apps \"x-1\" is forbidden: exceeded quota: q, requested: count/replicasets.apps=1, used: count/replicasets.apps=2, limited: count/replicasets.apps=2"
            )),
            Reason::SetRefused,
            &[
                "its ReplicaSet is refused, and so its pods are not made: the ResourceQuota \"q\" of namespace d",
                "count/replicasets.apps: 2 of 2 are used",
                "kubectl edit -n d resourcequota/q",
            ],
        ),
        (
            "a webhook",
            refused(&format!("{start}admission webhook \"a.b.c\" denied the request: no")),
            Reason::SetRefused,
            &["refused by the admission webhook \"a.b.c\"", "kubectl edit -n d deployment/x"],
        ),
        (
            "a policy",
            refused(&format!(
                "{start}replicasets.apps \"x-1\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no"
            )),
            Reason::SetRefused,
            &["refused by the ValidatingAdmissionPolicy \"p\""],
        ),
        ("something else", refused(&format!("{start}the sky fell")), Reason::SetRefused, &["the sky fell"]),
    ];
    check_all(&rows);
}

/// A Deployment with an old pod that serves, and a new one that finds no node; `spec` is what both ask for.
fn rolled(spec: Value) -> World {
    let waits = json!({
        "metadata": { "name": "new", "uid": "new", "ownerReferences": [{ "uid": "s2", "controller": true, "kind": "ReplicaSet", "name": "x-2" }] },
        "spec": { "nodeName": "" },
        "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available" }] },
    });
    let mut new = pod(waits);
    let mut old = ready_pod();
    merge(
        &mut old,
        &json!({ "metadata": { "name": "old", "uid": "old", "ownerReferences": [{ "uid": "s1", "controller": true, "kind": "ReplicaSet", "name": "x-1" }] } }),
    );
    merge(&mut new, &json!({ "spec": spec }));
    merge(&mut old, &json!({ "spec": spec }));
    let set = |name: &str, revision: &str| json!({ "kind": "ReplicaSet", "metadata": { "name": name, "uid": name.replace("x-", "s"), "annotations": { "deployment.kubernetes.io/revision": revision }, "ownerReferences": [{ "uid": "x", "controller": true }] }, "spec": { "replicas": 1 }, "status": { "replicas": 1 } });
    let target = object("Deployment", json!({ "spec": { "replicas": 1 }, "status": { "replicas": 2 } }));
    let mut host = node("n", "True");
    merge(&mut host, &json!({ "metadata": { "labels": { "kubernetes.io/hostname": "n" } } }));
    let mut found = world(
        target,
        &[
            ("pods", json!([old, new])),
            ("replicasets", json!([set("x-1", "1"), set("x-2", "2")])),
            ("nodes", json!([host])),
        ],
    );
    found.put(ALL_PODS, vec![old, new]);
    found
}

const PATCH: &str = r#"kubectl patch -n d deployment/x --type=merge -p '{"spec":{"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":1}}}}'"#;

#[test]
fn rollouts_in_their_own_way() {
    let container = |parts: Value| {
        let mut container = json!({ "name": "c", "image": "img" });
        merge(&mut container, &parts);
        json!({ "containers": [container] })
    };
    let port = container(json!({ "ports": [{ "containerPort": 80, "hostPort": 80 }] }));
    let room = container(json!({ "resources": { "requests": { "cpu": "1500m" } } }));
    let away = json!({ "affinity": { "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "kubernetes.io/hostname", "labelSelector": { "matchLabels": { "app": "web" } } }] } } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "a port",
            rolled(port),
            Reason::OldPodsInTheWay,
            &["its old ones (old)", "the hostPort 80/TCP taken by pod/old", PATCH],
        ),
        ("room", rolled(room), Reason::OldPodsInTheWay, &["pod/new: no node can take it", PATCH]),
        ("anti-affinity", rolled(away), Reason::OldPodsInTheWay, &["podAntiAffinity keeps the pod away", PATCH]),
        // What the old ones have nothing to do with stays what it is.
        (
            "never",
            rolled(container(json!({ "resources": { "requests": { "cpu": "64" } } }))),
            Reason::NoNodeFits,
            &["it will never fit"],
        ),
        ("a label", rolled(json!({ "nodeSelector": { "disk": "ssd" } })), Reason::NoNodeFits, &["disk=ssd"]),
    ];
    check_all(&rows);
}

#[test]
fn names_of_pods_that_others_have() {
    let stranger = pod(json!({ "metadata": { "name": "x-0" } }));
    let failed = json!([{ "kind": "Event", "reason": "FailedCreate", "type": "Warning", "lastTimestamp": "2026-01-01T11:59:00Z",
        "message": "create Pod x-0 in StatefulSet x failed error: pods \"x-0\" already exists", "involvedObject": { "kind": "StatefulSet", "name": "x", "uid": "x" } }]);
    let target = object("StatefulSet", json!({ "spec": { "replicas": 1 }, "status": { "replicas": 0 } }));
    let taken = world(target, &[("pods", json!([stranger])), ("events", failed), ("services", json!([]))]);
    check_all(&[(
        "taken",
        taken,
        Reason::NotOwned,
        &["does not belong to it", "if it is not needed: kubectl delete -n d pod/x-0"],
    )]);
}

#[test]
fn deletions_are_followed_to_the_end() {
    let item = |kind: &str, name: &str, finalizers: Value| json!({ "kind": kind, "resource": kind.to_lowercase(), "metadata": { "name": name, "namespace": "d", "uid": name, "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": finalizers } });
    let left = json!([
        item("ReplicaSet", "x-1", json!(["foregroundDeletion"])),
        item("Pod", "x-1-a", json!(["example.com/volume"])),
    ]);
    let going =
        json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["foregroundDeletion"] } });
    let user = pod(json!({
        "metadata": { "ownerReferences": [{ "uid": "s", "controller": true, "kind": "ReplicaSet", "name": "web-1" }] },
        "spec": { "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "x" } }] },
    }));
    let set = json!([{ "metadata": { "name": "web-1", "uid": "s", "ownerReferences": [{ "uid": "w", "controller": true, "kind": "Deployment", "name": "web" }] } }]);
    let protected = json!({ "metadata": { "deletionTimestamp": "2026-01-01T11:00:00Z", "finalizers": ["kubernetes.io/pvc-protection"] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "through a ReplicaSet",
            one("Deployment", going, &[(REMAINING, left)]),
            Reason::FinalizerForeground,
            &["pod/x-1-a is held itself, by example.com/volume", "ferry why -n d pod/x-1-a"],
        ),
        (
            "a claim of a Deployment's pod",
            one("PersistentVolumeClaim", protected, &[("pods", json!([user])), ("replicasets", set)]),
            Reason::FinalizerClaimInUse,
            &["kubectl scale -n d deployment/web --replicas=0"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn kinds_of_others() {
    let says = |list: &[(&str, &str, &str, &str)]| {
        one("Widget", json!({ "apiVersion": "a.example/v1", "status": { "conditions": conditions(list) } }), &[])
    };
    let phase = |phase: &str| one("Widget", json!({ "apiVersion": "a.example/v1", "status": { "phase": phase } }), &[]);
    for (what, world, want) in [
        (
            "at work",
            says(&[("Reconciling", "True", "", ""), ("Ready", "Unknown", "Progressing", "")]),
            Verdict::OnItsWay,
        ),
        ("issuing", says(&[("Issuing", "True", "", ""), ("Ready", "False", "DoesNotExist", "")]), Verdict::OnItsWay),
        (
            "stalled",
            says(&[("Reconciling", "True", "", ""), ("Stalled", "True", "", ""), ("Ready", "False", "", "")]),
            Verdict::Stuck,
        ),
        ("not ready", says(&[("Ready", "False", "NoQuota", "")]), Verdict::Stuck),
        ("ready", says(&[("Ready", "True", "", ""), ("Reconciling", "True", "", "")]), Verdict::Fine),
        ("pending", phase("Pending"), Verdict::OnItsWay),
        ("failed", phase("Failed"), Verdict::Stuck),
        ("bound", phase("Bound"), Verdict::Fine),
    ] {
        let found = findings(&world);
        assert_eq!(verdict(&world, &found), want, "{what}: {}", render(&world, &found));
    }
}

#[test]
fn definitions_and_roles() {
    let names = json!({ "plural": "gizmos", "singular": "gizmo", "kind": "Widget", "listKind": "WidgetList" });
    let status = json!({ "conditions": conditions(&[("NamesAccepted", "False", "ListKindConflict", "\"WidgetList\" is already in use")]) });
    let gizmos = json!({ "spec": { "group": "a.example", "names": names, "versions": [{ "name": "v1", "served": true }] }, "status": status });
    let other = json!([{ "metadata": { "name": "widgets.a.example", "uid": "w" }, "spec": { "group": "a.example" }, "status": { "acceptedNames": { "kind": "Widget", "listKind": "WidgetList" } } }]);
    let unserved = json!({ "spec": { "versions": [{ "name": "v1", "served": false }] } });
    let resource = |plural: &str, scope: &str| json!({ "resource": plural, "scope": scope });
    let groups = json!([{ "metadata": {}, "versions": [{ "version": "v1", "resources": [resource("pods", "Namespaced"), resource("nodes", "Cluster"), resource("namespaces", "Cluster")] }] },
        { "metadata": { "name": "networking.k8s.io" }, "versions": [{ "version": "v1", "resources": [resource("ingresses", "Namespaced")] }] }]);
    let role = |kind: &str, group: &str, resource: &str, verbs: &[&str]| {
        let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": verbs }]);
        one(kind, json!({ "rules": rules }), &[(super::super::SERVED, groups.clone())])
    };
    let aggregated = json!({ "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "to": "view" } }] } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "names",
            one("CustomResourceDefinition", gizmos, &[(CRDS, other)]),
            Reason::NamesTaken,
            &["the CustomResourceDefinition widgets.a.example has them", "kubectl delete crd x"],
        ),
        (
            "no version",
            one("CustomResourceDefinition", unserved, &[]),
            Reason::NotServed,
            &[FINE, "none of its versions is served"],
        ),
        (
            "no verb",
            role("Role", "", "pods", &["read"]),
            Reason::RoleVerb,
            &["its rule 1 grants nothing: read is no verb", "write get,list,watch instead"],
        ),
        (
            "no namespace",
            role("Role", "", "nodes", &["get"]),
            Reason::RoleScope,
            &["grants nothing for nodes", "kubectl create clusterrole x --verb=get,list,watch --resource=nodes"],
        ),
        (
            "a group of before",
            role("Role", "extensions", "ingresses", &["get"]),
            Reason::RoleRule,
            &["ingresses are of \"networking.k8s.io\""],
        ),
        (
            "aggregates nothing",
            one("ClusterRole", aggregated, &[]),
            Reason::RoleAggregatesNothing,
            &[FINE, "no ClusterRole has the labels to=view"],
        ),
    ];
    check_all(&rows);
    for well in [
        role("Role", "", "namespaces", &["get"]),
        role("ClusterRole", "", "nodes", &["get"]),
        role("Role", "", "pods", &["get", "read"]),
        role("Role", "", "pods", &["use"]),
    ] {
        assert_eq!(findings(&well), []);
    }
}

#[test]
fn what_is_called_alike_is_named() {
    let reads = json!({ "spec": { "containers": [{ "name": "c", "envFrom": [{ "configMapRef": { "name": "app-confg" } }] }] },
        "status": { "phase": "Pending", "containerStatuses": [{ "name": "c", "state": { "waiting": { "reason": "CreateContainerConfigError", "message": "configmap not found" } } }] } });
    let mut similar = world(pod(reads), &[("nodes", json!([node("n", "True")]))]);
    similar.note("configmaps", "app-confg", Presence::Absent);
    similar.note_elsewhere("configmaps", "app-confg", vec!["shop".into()]);
    let names = ["zebra", "app-config"].map(|name| json!({ "metadata": { "name": name } }));
    similar.put(&super::super::names_of("configmaps"), names.to_vec());
    let claims = json!({ "spec": { "nodeName": "", "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }] }, "status": { "phase": "Pending" } });
    let mut unclaimed = world(pod(claims), &[("persistentvolumeclaims", json!([]))]);
    unclaimed.note_elsewhere("persistentvolumeclaims", "data", vec!["shop".into()]);
    let hpa = json!({ "spec": { "maxReplicas": 5, "scaleTargetRef": { "kind": "Widget", "apiVersion": "a/v1", "name": "w" }, "behavior": { "scaleUp": { "selectPolicy": "Disabled" } } },
        "status": { "conditions": conditions(&[("ScalingLimited", "True", "ScaleUpLimit", "faster than the maximum rate")]) } });
    let rows: Vec<Situation<'_>> = vec![
        (
            "a ConfigMap",
            similar,
            Reason::ConfigMapMissing,
            &["the namespace has app-config, zebra", "there is one in namespace shop"],
        ),
        ("a claim", unclaimed, Reason::ClaimMissing, &["there is one in namespace shop"]),
        (
            "scaling that is forbidden",
            one("HorizontalPodAutoscaler", hpa, &[]),
            Reason::HpaBehavior,
            &[FINE, "spec.behavior.scaleUp.selectPolicy: Disabled"],
        ),
    ];
    check_all(&rows);
}

#[test]
fn those_that_take_most_are_named() {
    let asks = |name: &str, on: &str, cpu: &str| {
        let parts = json!({ "metadata": { "name": name, "uid": name }, "spec": { "nodeName": on, "containers": [{ "name": "c", "resources": { "requests": { "cpu": cpu } } }] } });
        pod(parts)
    };
    let mut waits = asks("p", "", "1");
    merge(
        &mut waits,
        &json!({ "status": { "phase": "Pending", "conditions": conditions(&[("PodScheduled", "False", "Unschedulable", "0/1 nodes are available")]) } }),
    );
    let mut full = world(waits, &[("nodes", json!([node("n", "True")]))]);
    full.put(ALL_PODS, vec![asks("small", "n", "100m"), asks("large", "n", "1500m"), asks("none", "n", "0")]);
    check_all(&[(
        "full",
        full,
        Reason::NoNodeFits,
        &["most cpu of node n is asked for by pod/large in d (1500m), pod/small in d (100m)"],
    )]);
}

#[test]
fn nodes_without_a_kubelet() {
    let parts = json!({ "metadata": { "namespace": "", "name": "m" }, "status": { "conditions": [{ "type": "Ready", "status": "Unknown", "reason": "NodeStatusNeverUpdated", "lastTransitionTime": "2026-01-01T11:55:00Z" }] } });
    check_all(&[(
        "never heard of",
        one("Node", parts, &[]),
        Reason::NodeSilent,
        &["no kubelet has ever said anything for it: it was made 1 h 0 min ago", "kubectl delete node m"],
    )]);
}

#[test]
fn a_server_that_goes_away_proves_nothing() {
    let cut = |mut world: World| {
        world.is_cut = true;
        world.unseen.push("pods: the API server cannot be asked for /api/v1/pods".into());
        world
    };
    let service = json!({ "spec": { "selector": { "app": "web" } } });
    let broken = || one("Role", json!({}), &[]);
    for (what, world, want, words) in [
        ("all is well", cut(one("Service", service.clone(), &[])), Verdict::Unknown, "could not be found out"),
        (
            "no rights",
            {
                let mut world = one("Service", service, &[]);
                world.unseen.push("pods, which you may not list".into());
                world
            },
            Verdict::Fine,
            "nothing is known to hold it up",
        ),
        ("all was read", broken(), Verdict::Fine, "nothing holds it up"),
        ("on its way", cut(one("Job", json!({}), &[])), Verdict::Unknown, "could not be found out"),
        (
            "proved",
            cut(one("Service", json!({ "spec": { "type": "ExternalName", "externalName": "10.0.0.1" } }), &[])),
            Verdict::Stuck,
            "it is stuck",
        ),
    ] {
        let found = findings(&world);
        let shown = render(&world, &found);
        assert_eq!(verdict(&world, &found), want, "{what}: {shown}");
        assert!(shown.contains(words), "{what}: {shown}");
        let fine = super::to_json(&world, &found)["fine"] == true;
        assert_eq!(fine, want == Verdict::Fine, "{what}");
    }
}
