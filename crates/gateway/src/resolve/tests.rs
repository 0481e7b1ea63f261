//! Tables and statuses of whole sets of objects.

use std::net::SocketAddr;

use ferry_client::ObjectKey;
use serde_json::{Value, json};

use super::objects::Objects;
use super::status::{Bound, updates};
use crate::testing::{add_certificate, add_service, gateway, objects, read, resolved, settings};

/// The status of one object as it is to be written, with all sockets open.
fn status(objects: &Objects, kind: &str, name: &str) -> Value {
    let settings = settings();
    let resolved = resolved(objects, &settings);
    let bound: Bound = resolved.ports.keys().map(|place| (*place, Ok(place.1))).collect();
    let all = updates(objects, &resolved, &bound, &settings, "now");
    all.into_iter().find(|one| one.kind == kind && one.key.name == name).map(|one| one.status).unwrap_or_default()
}

/// `Accepted=True/Accepted`, of each condition.
fn conditions(list: &Value) -> Vec<String> {
    let text = |one: &Value, field: &str| one[field].as_str().unwrap_or_default().to_owned();
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|one| format!("{}={}/{}", text(one, "type"), text(one, "status"), text(one, "reason"))).collect()
}

fn http_listener() -> Value {
    json!([{ "name": "http", "port": 80, "protocol": "HTTP" }])
}

fn route(parent: Value, namespace: &str, hostnames: &[&str], backend: Value) -> Value {
    json!({
        "metadata": { "name": "r", "namespace": namespace, "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z" },
        "spec": { "parentRefs": [parent], "hostnames": hostnames, "rules": [{ "backendRefs": [backend] }] },
    })
}

#[test]
fn routes_are_told_what_came_of_them() {
    let endpoint: SocketAddr = "10.0.0.1:80".parse().unwrap();
    let to_g = |extra: Value| {
        let mut parent = json!({ "name": "g", "namespace": "n" });
        for (key, value) in extra.as_object().unwrap() {
            parent[key] = value.clone();
        }
        parent
    };
    let service = json!({ "name": "s", "port": 80 });
    for (what, listeners, parent, namespace, hostnames, backend, want) in [
        (
            "all well",
            http_listener(),
            to_g(json!({})),
            "n",
            &[][..],
            service.clone(),
            ["Accepted=True/Accepted", "ResolvedRefs=True/ResolvedRefs"],
        ),
        (
            "no such section",
            http_listener(),
            to_g(json!({ "sectionName": "x" })),
            "n",
            &[],
            service.clone(),
            ["Accepted=False/NoMatchingParent", "ResolvedRefs=True/ResolvedRefs"],
        ),
        (
            "no such port",
            http_listener(),
            to_g(json!({ "port": 81 })),
            "n",
            &[],
            service.clone(),
            ["Accepted=False/NoMatchingParent", "ResolvedRefs=True/ResolvedRefs"],
        ),
        (
            "another namespace",
            http_listener(),
            to_g(json!({})),
            "m",
            &[],
            service.clone(),
            ["Accepted=False/NotAllowedByListeners", "ResolvedRefs=False/BackendNotFound"],
        ),
        (
            "another host",
            json!([{ "name": "http", "port": 80, "protocol": "HTTP", "hostname": "a.com" }]),
            to_g(json!({})),
            "n",
            &["b.com"],
            service.clone(),
            ["Accepted=False/NoMatchingListenerHostname", "ResolvedRefs=True/ResolvedRefs"],
        ),
        (
            "no such Service",
            http_listener(),
            to_g(json!({})),
            "n",
            &[],
            json!({ "name": "t", "port": 80 }),
            ["Accepted=True/Accepted", "ResolvedRefs=False/BackendNotFound"],
        ),
        (
            "no such kind",
            http_listener(),
            to_g(json!({})),
            "n",
            &[],
            json!({ "name": "s", "kind": "Other" }),
            ["Accepted=True/Accepted", "ResolvedRefs=False/InvalidKind"],
        ),
        (
            "not permitted",
            http_listener(),
            to_g(json!({})),
            "n",
            &[],
            json!({ "name": "s", "namespace": "m", "port": 80 }),
            ["Accepted=True/Accepted", "ResolvedRefs=False/RefNotPermitted"],
        ),
        (
            "a filter that is not known",
            http_listener(),
            to_g(json!({})),
            "n",
            &[],
            json!({ "name": "s", "port": 80, "filters": [{ "type": "Unheard" }] }),
            ["Accepted=False/UnsupportedValue", "ResolvedRefs=True/ResolvedRefs"],
        ),
    ] {
        let mut objects = objects();
        add_service(&mut objects, "s", &[endpoint], None);
        objects.gateways.push(read(gateway("g", listeners)));
        objects.http_routes.push(read(route(parent, namespace, hostnames, backend)));
        let status = status(&objects, "HTTPRoute", "r");
        assert_eq!(conditions(&status["parents"][0]["conditions"]), want, "{what}");
    }
}

#[test]
fn a_grant_lets_a_reference_cross_namespaces() {
    let mut objects = objects();
    add_service(&mut objects, "s", &["10.0.0.1:80".parse().unwrap()], None);
    let all = json!([{ "name": "http", "port": 80, "protocol": "HTTP", "allowedRoutes": { "namespaces": { "from": "All" } } }]);
    objects.gateways.push(read(gateway("g", all)));
    let backend = json!({ "name": "s", "namespace": "n", "port": 80 });
    objects.http_routes.push(read(route(json!({ "name": "g", "namespace": "n" }), "m", &[], backend)));
    let refs =
        |objects: &Objects| conditions(&status(objects, "HTTPRoute", "r")["parents"][0]["conditions"])[1].clone();
    assert_eq!(refs(&objects), "ResolvedRefs=False/RefNotPermitted");
    for (kind, name, want) in [
        ("HTTPRoute", None, "ResolvedRefs=True/ResolvedRefs"),
        ("HTTPRoute", Some("other"), "ResolvedRefs=False/RefNotPermitted"),
        ("GRPCRoute", None, "ResolvedRefs=False/RefNotPermitted"),
    ] {
        let grant = json!({
            "metadata": { "name": "grant", "namespace": "n" },
            "spec": {
                "from": [{ "group": "gateway.networking.k8s.io", "kind": kind, "namespace": "m" }],
                "to": [{ "group": "", "kind": "Service", "name": name }],
            },
        });
        objects.set_grant(&ObjectKey::new("n", "grant"), Some(read(grant)));
        assert_eq!(refs(&objects), want, "{kind} {name:?}");
    }
}

#[test]
fn listeners_say_what_is_wrong_with_them() {
    let https = |reference: Value| json!({ "name": "l", "port": 443, "protocol": "HTTPS", "tls": { "mode": "Terminate", "certificateRefs": [reference] } });
    let fine =
        "Accepted=True/Accepted Programmed=True/Programmed ResolvedRefs=True/ResolvedRefs Conflicted=False/NoConflicts";
    let unresolved = |reason: &str| {
        format!(
            "Accepted=True/Accepted Programmed=False/Invalid ResolvedRefs=False/{reason} Conflicted=False/NoConflicts"
        )
    };
    for (what, listeners, want) in [
        ("plain", json!([{ "name": "l", "port": 80, "protocol": "HTTP" }]), fine.to_owned()),
        ("with a certificate", json!([https(json!({ "name": "c" }))]), fine.to_owned()),
        ("without its Secret", json!([https(json!({ "name": "d" }))]), unresolved("InvalidCertificateRef")),
        ("of another namespace", json!([https(json!({ "name": "c", "namespace": "m" }))]), unresolved("RefNotPermitted")),
        (
            "a protocol that is not known",
            json!([{ "name": "l", "port": 80, "protocol": "example.com/x" }]),
            "Accepted=False/UnsupportedProtocol Programmed=False/Invalid ResolvedRefs=True/ResolvedRefs Conflicted=False/NoConflicts".to_owned(),
        ),
        (
            "a conflict",
            json!([{ "name": "k", "port": 80, "protocol": "TCP" }, { "name": "l", "port": 80, "protocol": "HTTP" }]),
            "Accepted=False/ProtocolConflict Programmed=False/ProtocolConflict ResolvedRefs=True/ResolvedRefs Conflicted=True/ProtocolConflict".to_owned(),
        ),
        (
            "a kind of route that it has not",
            json!([{ "name": "l", "port": 80, "protocol": "HTTP", "allowedRoutes": { "kinds": [{ "kind": "TCPRoute" }] } }]),
            "Accepted=True/Accepted Programmed=True/Programmed ResolvedRefs=False/InvalidRouteKinds Conflicted=False/NoConflicts".to_owned(),
        ),
    ] {
        let mut objects = objects();
        add_certificate(&mut objects, "c", &["a.com"]);
        objects.gateways.push(read(gateway("g", listeners)));
        let status = status(&objects, "Gateway", "g");
        let listener = status["listeners"].as_array().unwrap().iter().find(|one| one["name"] == "l").unwrap();
        assert_eq!(conditions(&listener["conditions"]).join(" "), want, "{what}");
    }
}

#[test]
fn a_port_that_is_in_use_is_told() {
    let mut objects = objects();
    objects.gateways.push(read(gateway("g", http_listener())));
    let settings = settings();
    let resolved = resolved(&objects, &settings);
    let place = *resolved.ports.keys().next().unwrap();
    for (outcome, want, text) in [
        (Ok(8080), "Programmed=True/Programmed", "served at port 8080 instead"),
        (Err("in use".to_owned()), "Programmed=False/PortUnavailable", "in use"),
    ] {
        let bound = Bound::from([(place, outcome)]);
        let all = updates(&objects, &resolved, &bound, &settings, "now");
        let status = &all.iter().find(|one| one.kind == "Gateway").unwrap().status;
        let list = &status["listeners"][0]["conditions"];
        assert_eq!(conditions(list)[1], want);
        assert!(list[1]["message"].as_str().unwrap().contains(text));
        assert_eq!(super::status::warnings(&objects, &resolved, &bound).len(), 1);
    }
}

#[test]
fn listener_sets_come_after_the_gateway_and_only_if_allowed() {
    let mut objects = objects();
    let mut parent = gateway("g", http_listener());
    let set = json!({
        "metadata": { "name": "s", "namespace": "n" },
        "spec": { "parentRef": { "name": "g" }, "listeners": [
            { "name": "taken", "port": 80, "protocol": "HTTP" }, { "name": "own", "port": 81, "protocol": "HTTP" },
        ] },
    });
    objects.listener_sets.push(read(set));
    objects.gateways.push(read(parent.clone()));
    let refused = status(&objects, "ListenerSet", "s");
    assert_eq!(conditions(&refused["conditions"]), ["Accepted=False/NotAllowed", "Programmed=False/NotAllowed"]);
    parent["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "Same" } });
    objects.gateways = [read(parent)].into();
    let taken = status(&objects, "ListenerSet", "s");
    assert_eq!(conditions(&taken["conditions"]), ["Accepted=True/ListenersNotValid", "Programmed=True/Programmed"]);
    assert_eq!(conditions(&taken["listeners"][0]["conditions"])[3], "Conflicted=True/HostnameConflict");
    assert_eq!(status(&objects, "Gateway", "g")["attachedListenerSets"], 1);
    // A set whose only listener has no certificate that it may use is refused as a whole.
    let secure = json!({
        "metadata": { "name": "s", "namespace": "n" },
        "spec": { "parentRef": { "name": "g" }, "listeners": [
            { "name": "own", "port": 443, "protocol": "HTTPS", "tls": { "certificateRefs": [{ "name": "c", "namespace": "m" }] } },
        ] },
    });
    objects.listener_sets = [read(secure)].into();
    let refused = status(&objects, "ListenerSet", "s");
    let none = ["Accepted=False/ListenersNotValid", "Programmed=False/ListenersNotValid"];
    assert_eq!(conditions(&refused["conditions"]), none);
    assert_eq!(conditions(&refused["listeners"][0]["conditions"])[2], "ResolvedRefs=False/RefNotPermitted");
}

#[test]
fn ingresses_share_the_first_address() {
    let mut objects = objects();
    add_service(&mut objects, "s", &["10.0.0.1:80".parse().unwrap()], None);
    let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": crate::INGRESS_CONTROLLER } });
    objects.ingress_classes.push(read(class));
    let ingress = |name: &str, class: &str| {
        json!({
            "metadata": { "name": name, "namespace": "n", "annotations": { "nginx.ingress.kubernetes.io/configuration-snippet": "x" } },
            "spec": { "ingressClassName": class, "rules": [{ "host": "a.com", "http": { "paths": [
                { "path": "/", "pathType": "Prefix", "backend": { "service": { "name": "s", "port": { "number": 80 } } } },
            ] } }] },
        })
    };
    objects.ingresses = [read(ingress("ours", "ferry")), read(ingress("theirs", "nginx"))].into();
    objects.gateways.push(read(gateway("g", http_listener())));
    let settings = settings();
    let resolved = resolved(&objects, &settings);
    assert_eq!(resolved.ports.len(), 1);
    assert!(resolved.ports.values().all(|table| table.fallback.is_some()));
    assert_eq!(resolved.ingress.warnings().count(), 1, "the annotation that is not followed");
    let bound: Bound = resolved.ports.keys().map(|place| (*place, Ok(place.1))).collect();
    let all = updates(&objects, &resolved, &bound, &settings, "now");
    let told: Vec<_> = all.iter().filter(|one| one.kind == "Ingress").collect();
    assert_eq!(told.len(), 1);
    assert_eq!(told[0].status["loadBalancer"]["ingress"][0]["ip"], settings.addresses[0].to_string());
}

#[test]
fn a_path_of_an_ingress_is_nobody_elses() {
    let mut objects = objects();
    add_service(&mut objects, "s", &["10.0.0.1:80".parse().unwrap()], None);
    let class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": crate::INGRESS_CONTROLLER } });
    objects.ingress_classes.push(read(class));
    let mut add = |name: &str, namespace: &str, year: u16, annotations: &[(&str, &str)]| {
        let annotations: Vec<_> =
            annotations.iter().map(|(name, text)| (format!("nginx.ingress.kubernetes.io/{name}"), *text)).collect();
        let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
        objects.ingresses.push(read(json!({
            "metadata": {
                "name": name, "namespace": namespace, "creationTimestamp": format!("{year}-01-01T00:00:00Z"),
                "annotations": annotations.into_iter().collect::<std::collections::BTreeMap<_, _>>(),
            },
            "spec": { "ingressClassName": "ferry", "rules": [{ "host": "a.com", "http": { "paths": [
                { "path": "/", "pathType": "Prefix", "backend": backend },
            ] } }] },
        })));
    };
    add("web", "n", 2026, &[]);
    add("late", "other", 2027, &[]);
    add("thief", "other", 2025, &[("canary", "true"), ("canary-weight", "100"), ("canary-by-header", "x-a")]);
    // Together more than a number holds.
    for name in ["one", "two"] {
        add(name, "n", 2026, &[("canary", "true"), ("canary-weight", "4294967295")]);
    }
    let resolved = resolved(&objects, &settings());
    let mut told: Vec<_> =
        resolved.ingress.warnings().map(|(of, why, _)| (super::objects::name(&of.metadata), why)).collect();
    told.retain(|(_, why)| *why != "InvalidBackend");
    told.sort();
    assert_eq!(told, [("other/late".to_owned(), "PathTaken"), ("other/thief".to_owned(), "CanaryWithoutMain")]);
}
