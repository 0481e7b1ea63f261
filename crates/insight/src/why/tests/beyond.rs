//! What is looked up beyond the object itself: namespaces, certificates, what the servers serve, nodes.

use serde_json::{Value, json};

use super::super::Reason;
use super::super::roles::SERVED;
use super::{FINE, Situation, check_all, merge, node, one, ready_pod};
use crate::gather::{ALL_INGRESSES, ALL_PODS};
use crate::world::{Content, Presence, Serving};

fn with(mut pod: Value, parts: Value) -> Value {
    merge(&mut pod, &parts);
    pod
}

#[test]
fn networks() {
    let namespaces = (
        "namespaces",
        json!([
            { "metadata": { "name": "shop", "labels": { "kubernetes.io/metadata.name": "shop" } } },
            { "metadata": { "name": "d", "labels": { "kubernetes.io/metadata.name": "d", "team": "a" } } },
        ]),
    );
    let policy = |spec: Value| {
        one("NetworkPolicy", json!({ "spec": spec }), &[("pods", json!([ready_pod()])), namespaces.clone()])
    };
    let from = |peer: Value| policy(json!({ "podSelector": {}, "ingress": [{ "from": [peer] }] }));
    let selects = |labels: Value| json!({ "namespaceSelector": { "matchLabels": labels } });
    let elsewhere = one(
        "Service",
        json!({ "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
        &[
            ("pods", json!([])),
            ("endpointslices", json!([])),
            (ALL_PODS, json!([with(ready_pod(), json!({ "metadata": { "namespace": "shop" } }))])),
        ],
    );
    let tls = |certificate: Serving| {
        let mut world =
            one("Ingress", json!({ "spec": { "tls": [{ "secretName": "t", "hosts": ["shop.example"] }] } }), &[]);
        let keys = vec!["tls.crt".to_owned(), "tls.key".to_owned()];
        world.note("secrets", "t", Presence::Present(Content { keys, certificate, ..Content::default() }));
        world
    };
    let read = |from: &str, until: &str, name: &str| {
        let at = |text: &str| ferry_meta::time::parse(text).unwrap().as_second();
        Serving::Read(ferry_x509::Certificate {
            not_before: at(from),
            not_after: at(until),
            dns_names: vec![name.into()],
            addresses: Vec::new(),
            mails: Vec::new(),
        })
    };
    let (before, after, later) = ("2025-01-01T00:00:00Z", "2026-01-01T10:00:00Z", "2027-01-01T00:00:00Z");
    let rows: Vec<Situation<'_>> = vec![
        (
            "a label that namespaces do not have",
            from(selects(json!({ "name": "shop" }))),
            Reason::PolicyPeers,
            &[
                "its ingress rule 1 lets nobody in: no namespace has the labels name=shop",
                "use kubernetes.io/metadata.name: shop in from",
                "kubectl label namespace shop name=shop",
            ],
        ),
        (
            "namespaces to come",
            from(selects(json!({ "team": "b" }))),
            Reason::PolicyPeers,
            &[FINE, "no namespace has the labels team=b"],
        ),
        (
            "pods of here that are not there",
            from(json!({ "podSelector": { "matchLabels": { "app": "db" } } })),
            Reason::PolicyPeers,
            &[FINE, "no pod of namespace d has the labels app=db"],
        ),
        (
            "expressions",
            policy(
                json!({ "podSelector": { "matchExpressions": [{ "key": "app", "operator": "In", "values": ["db"] }] } }),
            ),
            Reason::PolicySelectsNothing,
            &["its podSelector app in (db) selects no pod"],
        ),
        (
            "pods of another namespace",
            elsewhere,
            Reason::SelectorMatchesNothing,
            &["pods with app=web are in namespace shop", "its own namespace alone"],
        ),
        (
            "expired",
            tls(read(before, after, "shop.example")),
            Reason::TlsCertificate,
            &["has expired 2 h 0 min ago", "kubectl create secret tls -n d t "],
        ),
        ("not yet", tls(read(later, later, "shop.example")), Reason::TlsCertificate, &["becomes valid in 364 days"]),
        (
            "another name",
            tls(read(before, later, "other.example")),
            Reason::TlsCertificate,
            &["for other.example, not for shop.example"],
        ),
        ("no certificate", tls(Serving::Unreadable), Reason::TlsCertificate, &["holds no certificate"]),
        (
            "a Secret of its own",
            one("Secret", json!({ "type": "kubernetes.io/tls", "data": { "tls.crt": "eA==" } }), &[]),
            Reason::TlsCertificate,
            &["holds no certificate"],
        ),
    ];
    check_all(&rows);
    for peer in [
        selects(json!({ "team": "a" })),
        selects(json!({})),
        json!({ "ipBlock": { "cidr": "0.0.0.0/0" } }),
        json!({ "podSelector": {} }),
    ] {
        assert_eq!(super::findings(&from(peer.clone())), [], "{peer}");
    }
    assert_eq!(super::findings(&tls(read(before, later, "*.example"))), []);
}

#[test]
fn ingresses_that_want_the_same() {
    let rules = |host: &str| json!({ "ingressClassName": "c", "rules": [{ "host": host, "http": { "paths": [{ "path": "/", "pathType": "Prefix" }] } }] });
    let other = |made: &str, host: &str| json!({ "metadata": { "name": "first", "namespace": "shop", "uid": "first", "creationTimestamp": made }, "spec": rules(host) });
    let world = |controller: &str, other: Value| {
        let classes = json!([{ "metadata": { "name": "c" }, "spec": { "controller": controller } }]);
        let taken_up = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } });
        one(
            "Ingress",
            json!({ "spec": rules("a"), "status": taken_up }),
            &[("ingressclasses", classes), (ALL_INGRESSES, json!([other]))],
        )
    };
    let (older, newer) = ("2026-01-01T10:00:00Z", "2026-01-01T11:30:00Z");
    let rows: Vec<Situation<'_>> = vec![
        (
            "of Ferry",
            world("ferry.dev/ingress-controller", other(older, "a")),
            Reason::IngressTaken,
            &[
                "it is stuck",
                "requests for a/ go to the Ingress first of namespace shop",
                "kubectl delete -n shop ingress/first",
            ],
        ),
        ("of others", world("k8s.io/ingress-nginx", other(older, "a")), Reason::IngressTaken, &["probably"]),
    ];
    check_all(&rows);
    let canary = with(
        other(older, "a"),
        json!({ "metadata": { "annotations": { "nginx.ingress.kubernetes.io/canary": "true" } } }),
    );
    for other in [other(newer, "a"), other(older, "b"), canary] {
        assert_eq!(super::findings(&world("k8s.io/ingress-nginx", other)), []);
    }
}

#[test]
fn metrics_of_containers() {
    let spec = json!({ "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "w" }, "metrics": [{ "containerResource": { "container": "app", "name": "cpu" } }] });
    let failed = json!([{ "type": "ScalingActive", "status": "False", "reason": "FailedGetContainerResourceMetric" }]);
    let deployment = json!([{ "metadata": { "name": "w", "uid": "w" }, "spec": { "replicas": 1, "template": { "spec": { "containers": [{ "name": "web" }] } } } }]);
    let world = one(
        "HorizontalPodAutoscaler",
        json!({ "spec": spec, "status": { "conditions": failed } }),
        &[("deployments", deployment)],
    );
    check_all(&[(
        "a container that is not there",
        world,
        Reason::HpaMetrics,
        &["it measures the container \"app\", and its target has web", "kubectl edit -n d hpa/x"],
    )]);
}

#[test]
fn roles() {
    let served = |group: &str, plural: &str, kind: &str| json!({ "metadata": { "name": group }, "versions": [{ "version": "v1", "resources": [{ "resource": plural, "singularResource": kind.to_lowercase(), "responseKind": { "kind": kind } }] }] });
    let groups = json!([served("", "pods", "Pod"), served("apps", "deployments", "Deployment")]);
    let version = "rbac.authorization.k8s.io/v1";
    let role = |group: &str, resource: &str| {
        let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": ["get"] }]);
        one("Role", json!({ "apiVersion": version, "rules": rules }), &[(SERVED, groups.clone())])
    };
    let rows: Vec<Situation<'_>> = vec![
        (
            "another group",
            role("", "deployments/scale"),
            Reason::RoleRule,
            &[
                "its rule 1 grants nothing for deployments: apiGroups has the core group (\"\"), and deployments are of \"apps\"",
                "kubectl edit -n d role.rbac.authorization.k8s.io/x",
            ],
        ),
        ("singular", role("", "pod"), Reason::RoleRule, &["named in the plural", "write pods instead"]),
        ("the kind", role("apps", "Deployment"), Reason::RoleRule, &["write deployments instead"]),
    ];
    check_all(&rows);
    for (group, resource) in
        [("apps", "deployments"), ("", "pods/log"), ("*", "deployments"), ("", "*"), ("", "users"), ("acme.io", "pods")]
    {
        assert_eq!(super::findings(&role(group, resource)), [], "{group}/{resource}");
    }
    let mut of_others = role("", "deployments");
    merge(
        &mut of_others.target,
        &json!({ "metadata": { "labels": { "kubernetes.io/bootstrapping": "rbac-defaults" } } }),
    );
    assert_eq!(super::findings(&of_others), []);
}

#[test]
fn storage() {
    let class = |drivers: Value| {
        one(
            "StorageClass",
            json!({ "apiVersion": "storage.k8s.io/v1", "provisioner": "a.csi" }),
            &[("csidrivers", drivers)],
        )
    };
    let affinity = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": ["gone"] }] }] } });
    let volume = |affinity: Value| {
        one(
            "PersistentVolume",
            json!({ "spec": { "nodeAffinity": affinity }, "status": { "phase": "Available" } }),
            &[("nodes", json!([node("n", "True")]))],
        )
    };
    let rows: Vec<Situation<'_>> = vec![
        ("a class", class(json!([])), Reason::ProvisionerMissing, &["probably", "its provisioner a.csi is not there"]),
        (
            "a volume for no node",
            volume(affinity),
            Reason::VolumeNode,
            &["kubernetes.io/hostname=gone", "the nodes are n", "kubectl delete pv x"],
        ),
    ];
    check_all(&rows);
    assert_eq!(super::findings(&class(json!([{ "metadata": { "name": "a.csi" } }]))), []);
    assert_eq!(super::findings(&volume(Value::Null)), []);
}
