//! The same of Services, policies, volumes, probes and what init containers wait for.

use serde_json::{Value, json};

use super::super::{Reason, findings};
use super::{FINE, Situation, check_all, event, merge, one, pod, ready_pod, world};
use crate::gather::ALL_PODS;
use crate::world::World;

fn service(spec: Value, slices: Value, lists: &[(&str, Value)]) -> World {
    let mut found = one("Service", json!({ "apiVersion": "v1", "spec": spec }), lists);
    found.put("endpointslices", slices.as_array().cloned().unwrap_or_default());
    found
}

fn slice(kind: &str, address: &str, protocol: &str) -> Value {
    json!([{ "kind": "EndpointSlice", "metadata": { "name": "x-1", "labels": { "kubernetes.io/service-name": "x" } }, "addressType": kind,
        "ports": [{ "name": "web", "port": 80, "protocol": protocol }], "endpoints": [{ "addresses": [address] }] }])
}

fn labelled(name: &str, labels: Value) -> Value {
    let mut found = ready_pod();
    merge(&mut found, &json!({ "metadata": { "name": name, "uid": name } }));
    found["metadata"]["labels"] = labels;
    found
}

#[test]
fn services() {
    let by_hand = |slices: Value| {
        service(
            json!({ "ipFamilies": ["IPv4"], "ports": [{ "name": "web", "port": 80, "protocol": "TCP" }] }),
            slices,
            &[("pods", json!([]))],
        )
    };
    let named = |name: &str, others: Value| {
        service(json!({ "type": "ExternalName", "externalName": name }), json!([]), &[("services", others)])
    };
    let selects = |selector: Value, pods: Value| {
        service(json!({ "selector": selector, "ports": [{ "port": 80 }] }), json!([]), &[("pods", pods)])
    };
    let mut elsewhere = selects(json!({ "app": "db" }), json!([labelled("a", json!({ "app": "web" }))]));
    let mut there = labelled("db", json!({ "app": "db" }));
    there["metadata"]["namespace"] = json!("shop");
    elsewhere.put(ALL_PODS, vec![there]);
    let many = json!([
        labelled("a", json!({ "app": "alpha" })),
        labelled("b", json!({ "app": "beta" })),
        labelled("c", json!({ "app": "cache" })),
        labelled("d", json!({ "app": "delta" })),
        labelled("e", json!({ "app": "web" })),
    ]);
    let rows: Vec<Situation<'_>> = vec![
        (
            "another family",
            by_hand(slice("IPv6", "fd00::1", "TCP")),
            Reason::SliceFamily,
            &[
                "its EndpointSlice x-1 lists addresses of IPv6, and the Service has IPv4 alone",
                "kubectl delete -n d endpointslice/x-1",
            ],
        ),
        (
            "names",
            by_hand(slice("FQDN", "db.example.com", "TCP")),
            Reason::SliceFamily,
            &["lists names (addressType FQDN)", "type ExternalName"],
        ),
        (
            "another protocol",
            by_hand(slice("IPv4", "192.0.2.1", "UDP")),
            Reason::SlicePort,
            &[
                "nothing is behind its port 80/TCP: in its EndpointSlice x-1 that port is UDP",
                "kubectl edit -n d endpointslice/x-1",
            ],
        ),
        ("itself", named("x.d.svc.cluster.local", json!([])), Reason::ExternalNameLoop, &["is its own name"]),
        (
            "short",
            named("db", json!([{ "metadata": { "name": "db" } }])),
            Reason::ExternalNameShort,
            &["there is a Service db in namespace d", "\"externalName\":\"db.d.svc.cluster.local\""],
        ),
        ("short, and unknown", named("db", json!([])), Reason::ExternalNameShort, &["probably", "is no whole name"]),
        (
            "pods elsewhere, and others here",
            elsewhere,
            Reason::SelectorMatchesNothing,
            &["pods with app=db are in namespace shop", "pods there have app=web"],
        ),
        (
            "one label of two",
            selects(json!({ "app": "web", "tier": "front" }), json!([labelled("a", json!({ "app": "web" }))])),
            Reason::SelectorMatchesNothing,
            &["pod/a has app=web, and not tier=front"],
        ),
        ("the nearest", selects(json!({ "app": "Web" }), many), Reason::SelectorMatchesNothing, &["app=web, "]),
    ];
    check_all(&rows);
    for well in
        [by_hand(slice("IPv4", "192.0.2.1", "TCP")), named("localhost", json!([])), named("db.example.com", json!([]))]
    {
        assert_eq!(findings(&well), []);
    }
    // The pods of a headless Service are asked at their own ports: its targetPort is no matter.
    let mut has_port = ready_pod();
    merge(&mut has_port, &json!({ "spec": { "containers": [{ "name": "c", "ports": [{ "containerPort": 80 }] }] } }));
    let headless = json!({ "clusterIP": "None", "selector": { "app": "web" }, "ports": [{ "name": "web", "port": 80, "targetPort": 8080 }] });
    let well = service(headless, slice("IPv4", "10.0.0.1", "TCP"), &[("pods", json!([has_port]))]);
    assert_eq!(findings(&well), []);
}

#[test]
fn ingresses_and_policies() {
    let classes =
        json!([{ "metadata": { "name": "ferry" }, "spec": { "controller": "ferry.dev/ingress-controller" } }]);
    let taken_up = json!({ "loadBalancer": { "ingress": [{ "ip": "10.0.0.1" }] } });
    let ingress = |spec: Value, services: Value| {
        let mut spec = spec;
        merge(&mut spec, &json!({ "ingressClassName": "ferry" }));
        one(
            "Ingress",
            json!({ "spec": spec, "status": taken_up }),
            &[("ingressclasses", classes.clone()), ("services", services)],
        )
    };
    let outside = json!([{ "kind": "Service", "metadata": { "name": "out", "namespace": "d" }, "spec": { "type": "ExternalName", "externalName": "a.example.com" } }]);
    let backend = json!({ "service": { "name": "out", "port": { "number": 80 } } });
    let port = |name: &str| json!({ "kind": "Pod", "metadata": { "name": "p", "namespace": "d", "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "ports": [{ "name": name, "containerPort": 80 }] }] } });
    let policy = |rules: Value, lists: &[(&str, Value)]| {
        let spec = json!({ "podSelector": { "matchLabels": { "app": "web" } }, "ingress": rules });
        let mut found = one("NetworkPolicy", json!({ "spec": spec }), &[("pods", json!([port("http")]))]);
        for (list, items) in lists {
            found.put(list, items.as_array().cloned().unwrap_or_default());
        }
        found
    };
    let both = json!([{ "from": [{ "namespaceSelector": { "matchLabels": { "team": "a" } }, "podSelector": { "matchLabels": { "app": "ghost" } } }] }]);
    let namespaces = ("namespaces", json!([{ "metadata": { "name": "shop", "labels": { "team": "a" } } }]));
    let client =
        |labels: Value| (ALL_PODS, json!([{ "metadata": { "name": "c", "namespace": "shop", "labels": labels } }]));
    let rows: Vec<Situation<'_>> = vec![
        (
            "no paths",
            ingress(json!({ "rules": [{ "host": "a.example" }] }), json!([])),
            Reason::IngressNoPaths,
            &["its rule for a.example has no paths"],
        ),
        (
            "a name outside",
            ingress(json!({ "rules": [{ "http": { "paths": [{ "path": "/", "backend": backend }] } }] }), outside),
            Reason::IngressBackend,
            &["is of type ExternalName, and Ferry's gateway"],
        ),
        (
            "a port that nobody has",
            policy(json!([{ "ports": [{ "port": "htp" }] }]), &[]),
            Reason::PolicyPorts,
            &["lets nobody in: no pod that it selects has a port with the name htp; they have http"],
        ),
        (
            "pods of other namespaces",
            policy(both.clone(), &[namespaces.clone(), client(json!({ "app": "web" }))]),
            Reason::PolicyPeers,
            &[FINE, "no pod of the namespaces that it means (shop) has the labels app=ghost"],
        ),
    ];
    check_all(&rows);
    for well in [
        policy(json!([{ "ports": [{ "port": "http" }] }]), &[]),
        policy(json!([{ "ports": [{ "port": "htp" }, { "port": 80 }] }]), &[]),
        policy(both.clone(), &[namespaces.clone(), client(json!({ "app": "ghost" }))]),
        policy(both, &[namespaces]),
    ] {
        assert_eq!(findings(&well), []);
    }
}

#[test]
fn volumes() {
    let claim = json!({ "spec": { "storageClassName": "hand", "volumeAttributesClassName": "gold", "resources": { "requests": { "storage": "1Gi" } } }, "status": { "phase": "Pending" } });
    let volume = json!([{ "kind": "PersistentVolume", "metadata": { "name": "v" }, "spec": { "storageClassName": "hand", "capacity": { "storage": "1Gi" } }, "status": { "phase": "Available" } }]);
    let drivers = |names: &[&str]| names.iter().map(|name| json!({ "metadata": { "name": name } })).collect::<Value>();
    let attachment = |status: Value, lists: &[(&str, Value)]| {
        let spec = json!({ "nodeName": "n", "attacher": "csi.example", "source": { "persistentVolumeName": "v" } });
        let base = [
            ("nodes", drivers(&["n"])),
            ("persistentvolumes", drivers(&["v"])),
            ("csidrivers", json!([])),
            ("csinodes", json!([])),
        ];
        let mut found = one("VolumeAttachment", json!({ "spec": spec, "status": status }), &base);
        for (list, items) in lists {
            found.put(list, items.as_array().cloned().unwrap_or_default());
        }
        found
    };
    let mut waits = pod(
        json!({ "status": { "phase": "Pending" }, "spec": { "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": "c" } }] } }),
    );
    waits["status"]["conditions"] = json!([]);
    let told =
        event(&waits, "FailedMount", "MountVolume.SetUp failed for volume \"data\" : /srv/data is not a directory");
    let local = world(
        waits,
        &[
            ("events", json!([told])),
            (
                "persistentvolumeclaims",
                json!([{ "metadata": { "name": "c", "namespace": "d" }, "spec": { "volumeName": "v" }, "status": { "phase": "Bound" } }]),
            ),
            (
                "persistentvolumes",
                json!([{ "metadata": { "name": "v" }, "spec": { "local": { "path": "/srv/data" } } }]),
            ),
        ],
    );
    let rows: Vec<Situation<'_>> = vec![
        (
            "attributes",
            one("PersistentVolumeClaim", claim, &[("persistentvolumes", volume), ("storageclasses", json!([]))]),
            Reason::VolumeAttributes,
            &["has no volumeAttributesClassName, and the claim wants \"gold\""],
        ),
        (
            "a path that is not there",
            local,
            Reason::Volume,
            &["is the PersistentVolume v, whose path /srv/data cannot be had on node n", "create /srv/data on n"],
        ),
        (
            "nobody attaches",
            attachment(json!({ "attached": false }), &[]),
            Reason::NotAttached,
            &["probably", "nobody in the cluster calls itself csi.example"],
        ),
        (
            "an error",
            attachment(json!({ "attached": false, "attachError": { "message": "no such disk" } }), &[]),
            Reason::NotAttached,
            &["cannot be attached to node n", "no such disk"],
        ),
        ("no node", attachment(json!({}), &[("nodes", json!([]))]), Reason::NotAttached, &["node n does not exist"]),
        (
            "no volume",
            attachment(json!({}), &[("persistentvolumes", json!([]))]),
            Reason::NotAttached,
            &["the PersistentVolume \"v\" does not exist"],
        ),
    ];
    check_all(&rows);
    assert_eq!(findings(&attachment(json!({ "attached": true }), &[])), []);
}

/// A pod whose init container runs this.
fn waits_with(script: &str) -> Value {
    let status = json!({ "phase": "Pending", "initContainerStatuses": [{ "name": "wait", "state": { "running": { "startedAt": "2026-01-01T11:51:00Z" } } }] });
    let mut found = pod(json!({ "status": status }));
    found["spec"]["initContainers"] = json!([{ "name": "wait", "command": ["sh", "-c", script] }]);
    found
}

const ABSENT: &str = "its command names the Service \"cache\", and there is none in namespace d";

#[test]
fn init_containers_that_wait() {
    let around = |script: &str| {
        let services = json!([{ "kind": "Service", "metadata": { "name": "db", "namespace": "d" }, "spec": {} }]);
        let ready = json!([{ "metadata": { "labels": { "kubernetes.io/service-name": "db" } }, "endpoints": [{ "addresses": ["10.0.0.9"] }] }]);
        world(
            waits_with(script),
            &[("services", services), ("endpointslices", ready), ("nodes", json!([super::node("n", "True")]))],
        )
    };
    let mut dark = around("until nc -z db 5432; do sleep 1; done");
    dark.put("endpointslices", Vec::new());
    let rows: Vec<Situation<'_>> = vec![
        (
            "by its whole name",
            around("until nslookup cache.d.svc.cluster.local; do sleep 2; done"),
            Reason::InitWaitsForService,
            &["probably", ABSENT],
        ),
        ("by a short one", around("until nc -z cache 6379; do sleep 2; done"), Reason::InitWaitsForService, &[ABSENT]),
        ("that is there", around("until nslookup db.d.svc; do sleep 2; done"), Reason::InitRunning, &["still runs"]),
        (
            "without an endpoint",
            dark,
            Reason::InitRunning,
            &["behind which nothing is ready", "ferry why -n d service/db"],
        ),
        ("in another namespace", around("nc -z cache.shop.svc 80"), Reason::InitRunning, &["still runs"]),
        ("a file", around("until [ -f /cache ]; do sleep 2; done"), Reason::InitRunning, &["still runs"]),
        ("this machine", around("until nc -z localhost 80; do sleep 2; done"), Reason::InitRunning, &["still runs"]),
    ];
    let mut wrong = Vec::new();
    for (what, world, reason, texts) in &rows {
        let found = findings(world);
        let shown = super::render(world, &found);
        if found.first().map(|one| one.reason) != Some(*reason) || !texts.iter().all(|text| shown.contains(text)) {
            wrong.push(format!("{what}: {shown}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn probes_that_nobody_tells_of() {
    let since = |began: &str, events: bool| {
        let mut found = pod(
            json!({ "status": { "containerStatuses": [{ "name": "c", "ready": false, "started": true, "state": { "running": { "startedAt": began } } }] } }),
        );
        found["spec"]["containers"] = json!([{ "name": "c", "readinessProbe": { "httpGet": { "port": 80 } } }]);
        let mut world = world(found, &[("nodes", json!([super::node("n", "True")]))]);
        if events {
            world.put("events", Vec::new());
        }
        findings(&world).into_iter().next().map(|one| (one.reason, one.underway))
    };
    assert_eq!(since("2026-01-01T11:59:30Z", true), Some((Reason::ProbePending, true)));
    assert_eq!(since("2026-01-01T11:59:30Z", false), Some((Reason::ProbePending, true)));
    assert_eq!(since("2026-01-01T11:00:00Z", true), Some((Reason::ProbeFails, false)));
    assert_eq!(since("2026-01-01T11:00:00Z", false), Some((Reason::ProbeFails, false)));
}
