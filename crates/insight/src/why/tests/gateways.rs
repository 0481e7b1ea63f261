//! Gateways and the routes of the Gateway API.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, merge, one, ready_pod};
use crate::gather::ALL_GATEWAYS;
use crate::world::{Presence, World};

fn told(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({ "type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 1 })
}

/// A Gateway that is in force, with these parts over it.
fn gateway(parts: Value) -> Value {
    let mut gateway = json!({
        "kind": "Gateway", "apiVersion": "gateway.networking.k8s.io/v1",
        "metadata": { "name": "x", "namespace": "d", "generation": 1 },
        "spec": { "gatewayClassName": "ferry", "listeners": [
            { "name": "web", "port": 443, "protocol": "HTTPS", "hostname": "*.example", "tls": { "certificateRefs": [{ "name": "cert" }] } },
        ] },
        "status": {
            "conditions": [told("Accepted", "True", "Accepted", ""), told("Programmed", "True", "Programmed", "")],
            "listeners": [{ "name": "web", "attachedRoutes": 1, "conditions": [told("Accepted", "True", "Accepted", "")] }],
        },
    });
    merge(&mut gateway, &parts);
    gateway
}

fn classes() -> (&'static str, Value) {
    (
        "gatewayclasses",
        json!([{ "metadata": { "name": "ferry" }, "spec": { "controllerName": "ferry.dev/gateway-controller" } }]),
    )
}

fn listener(conditions: &[Value]) -> Value {
    json!({ "status": { "listeners": [{ "name": "web", "attachedRoutes": 1, "conditions": conditions }] } })
}

#[test]
fn gateways() {
    let of = |parts: Value| super::world(gateway(parts), &[classes()]);
    let unresolved =
        listener(&[told("ResolvedRefs", "False", "InvalidCertificateRef", "Secret d/cert does not exist")]);
    let mut no_secret = of(unresolved.clone());
    no_secret.note("secrets", "cert", Presence::Absent);
    let rows: Vec<Situation<'_>> = vec![
        (
            "class",
            of(json!({ "spec": { "gatewayClassName": "istio" } })),
            Reason::GatewayClassMissing,
            &["GatewayClass \"istio\" does not exist", "there are ferry"],
        ),
        (
            "nobody",
            of(json!({ "status": { "conditions": [told("Accepted", "Unknown", "Pending", "")] } })),
            Reason::GatewayController,
            &["nobody serves its class ferry", "ferry.dev/gateway-controller", "--gateway=true"],
        ),
        (
            "refused",
            of(json!({ "status": { "conditions": [told("Accepted", "False", "UnsupportedAddress", "by name")] } })),
            Reason::GatewayRefused,
            &["does not accept it: UnsupportedAddress: by name", "kubectl edit -n d gateway/x"],
        ),
        ("certificate", no_secret, Reason::GatewayCertificate, &["the Secret \"cert\", does not exist in namespace d"]),
        (
            "reference",
            of(unresolved),
            Reason::GatewayListener,
            &["references of listener web lead nowhere: InvalidCertificateRef"],
        ),
        (
            "conflict",
            of(listener(&[told("Accepted", "False", "HostnameConflict", "the same hostname")])),
            Reason::GatewayListener,
            &["listener web is not served: HostnameConflict: the same hostname"],
        ),
        (
            "not programmed",
            of(json!({ "status": { "conditions": [
                told("Accepted", "True", "Accepted", ""), told("Programmed", "False", "AddressNotUsable", "192.0.2.1"),
            ] } })),
            Reason::GatewayNotProgrammed,
            &["it is not in force: AddressNotUsable: 192.0.2.1"],
        ),
        (
            "no routes",
            of(json!({ "status": { "listeners": [{ "name": "web", "attachedRoutes": 0 }] } })),
            Reason::GatewayNoRoutes,
            &["nothing holds it up", "no route is attached to its 1 listener", "404"],
        ),
    ];
    check_all(&rows);
    assert_eq!(super::findings(&of(json!({}))), []);
}

/// A route to Service `x`, which has pods, with these parts over it.
fn route(parts: Value, service_ready: bool, of_gateway: Value) -> World {
    let mut spec = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "spec": { "parentRefs": [{ "name": "x" }], "rules": [{ "backendRefs": [{ "name": "x", "port": 80 }] }] },
        "status": { "parents": [{ "parentRef": { "name": "x", "kind": "Gateway" }, "conditions": [
            told("Accepted", "True", "Accepted", ""), told("ResolvedRefs", "True", "ResolvedRefs", ""),
        ] }] },
    });
    merge(&mut spec, &parts);
    let endpoints =
        if service_ready { json!([{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }]) } else { json!([]) };
    let pods = if service_ready { json!([ready_pod()]) } else { json!([]) };
    let service = json!({ "kind": "Service", "metadata": { "name": "x", "namespace": "d" },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] } });
    let slice = json!({ "metadata": { "labels": { "kubernetes.io/service-name": "x" }, "namespace": "d" }, "endpoints": endpoints });
    let lists = [
        classes(),
        (ALL_GATEWAYS, json!([gateway(of_gateway)])),
        ("services", json!([service])),
        ("pods", pods),
        ("endpointslices", json!([slice])),
    ];
    one("HTTPRoute", spec, &lists)
}

#[test]
fn routes() {
    let of = |parts: Value| route(parts, true, json!({}));
    let judged = |conditions: &[Value]| json!({ "status": { "parents": [{ "parentRef": { "name": "x" }, "conditions": conditions }] } });
    let missing = told("ResolvedRefs", "False", "BackendNotFound", "Service d/y does not exist");
    let mut to_nobody = judged(&[told("Accepted", "True", "Accepted", ""), missing]);
    merge(&mut to_nobody, &json!({ "spec": { "rules": [{ "backendRefs": [{ "name": "y", "port": 80 }] }] } }));
    let rows: Vec<Situation<'_>> = vec![
        ("no parent", of(json!({ "spec": { "parentRefs": [] } })), Reason::RouteNoParent, &["it names no Gateway"]),
        (
            "absent parent",
            of(json!({ "spec": { "parentRefs": [{ "name": "y", "namespace": "e", "sectionName": "web" }] } })),
            Reason::RouteParentMissing,
            &["the Gateway e/y, listener web, does not exist", "there are d/x"],
        ),
        (
            "not judged",
            of(json!({ "status": { "parents": [] } })),
            Reason::RouteController,
            &["no controller has judged it for its parent, the Gateway d/x"],
        ),
        (
            "not taken",
            of(judged(&[told("Accepted", "False", "NoMatchingListenerHostname", "no hostname fits")])),
            Reason::RouteNotAttached,
            &[
                "does not take it: NoMatchingListenerHostname",
                "web (HTTPS, port 443, *.example, routes of namespaces: Same)",
            ],
        ),
        (
            "reference",
            of(judged(&[
                told("Accepted", "True", "Accepted", ""),
                told("ResolvedRefs", "False", "RefNotPermitted", "no grant"),
            ])),
            Reason::RouteReferences,
            &["what it names cannot be used: RefNotPermitted: no grant"],
        ),
        (
            "backend",
            of(to_nobody),
            Reason::RouteBackendMissing,
            &["for rule 1, the Service \"y\", does not exist in namespace d", "kubectl edit -n d httproute/x"],
        ),
        (
            "port",
            of(json!({ "spec": { "rules": [{ "name": "api", "backendRefs": [{ "name": "x", "port": 81 }] }] } })),
            Reason::RouteBackendPort,
            &["for rule api, the Service \"x\", has no port 81; it has 80"],
        ),
        (
            "dark",
            route(json!({}), false, json!({})),
            Reason::RouteBackend,
            &["leads nowhere", "app=web matches no pod"],
        ),
        (
            "gateway",
            route(json!({}), true, json!({ "spec": { "gatewayClassName": "istio" } })),
            Reason::RouteGateway,
            &["its parent, the Gateway d/x, is not in force", "GatewayClass \"istio\" does not exist"],
        ),
    ];
    check_all(&rows);
    assert_eq!(super::findings(&of(json!({}))), []);
}
