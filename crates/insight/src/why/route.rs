//! Routes of the Gateway API: the parents they name, what those say of them, and the Services behind them.

use ferry_meta::object;
use serde_json::Value;

use super::backend::{self, Port, Reasons};
use super::{Finding, Reason, gateway, grant, in_namespace, is_young, named, said};
use crate::gather::ALL_GATEWAYS;
use crate::world::{World, title};

const REASONS: Reasons =
    Reasons { missing: Reason::RouteBackendMissing, port: Reason::RouteBackendPort, dark: Reason::RouteBackend };

pub(super) fn findings(world: &World, route: &Value) -> Vec<Finding> {
    let parents = object::items(route, "/spec/parentRefs");
    if parents.is_empty() {
        let cause = "it names no Gateway: no listener has it";
        return vec![Finding::new(Reason::RouteNoParent, route, cause).advise(edit(route))];
    }
    let mut found: Vec<Finding> = Vec::new();
    for reference in parents {
        backend::add(&mut found, parent(world, route, reference));
    }
    for (place, rule) in object::items(route, "/spec/rules").iter().enumerate() {
        let references = object::items(rule, "/backendRefs");
        if !references.is_empty() && references.iter().all(|one| one.get("weight").and_then(Value::as_i64) == Some(0)) {
            let cause = format!("rule {} sends requests nowhere: all its backendRefs have weight 0", place + 1);
            let finding = Finding::new(Reason::RouteBackend, route, cause).note();
            backend::add(&mut found, Some(finding.advise(format!("if requests are to arrive: {}", edit(route)))));
            continue;
        }
        for reference in references {
            backend::add(&mut found, service(world, route, place, rule, reference));
        }
    }
    // What was looked at says more than the condition that stands for it.
    if found.iter().any(|one| matches!(one.reason, Reason::RouteBackendMissing | Reason::RouteBackendPort)) {
        found.retain(|one| one.reason != Reason::RouteReferences);
    }
    found.sort_by_key(|finding| finding.probably);
    found
}

fn edit(route: &Value) -> String {
    format!("kubectl edit {}{}", in_namespace(route), title(route))
}

fn namespace_of<'a>(reference: &'a Value, user: &'a Value) -> &'a str {
    match object::text(reference, "/namespace") {
        "" => object::namespace(user),
        namespace => namespace,
    }
}

/// The place of a parent in a list of listeners: `gateway d/web, listener http, port 80`.
fn describe(reference: &Value, route: &Value) -> String {
    let kind = match object::text(reference, "/kind") {
        "" => "Gateway",
        kind => kind,
    };
    let mut text = format!("{kind} {}/{}", namespace_of(reference, route), object::text(reference, "/name"));
    let section = object::text(reference, "/sectionName");
    if !section.is_empty() {
        text = format!("{text}, listener {section}");
    }
    match reference.get("port").and_then(Value::as_i64) {
        Some(port) => format!("{text}, port {port}"),
        None => text,
    }
}

fn is_same(told: &Value, reference: &Value, route: &Value) -> bool {
    let text = |pointer: &str| object::text(told, pointer) == object::text(reference, pointer);
    text("/name")
        && text("/sectionName")
        && told.get("port") == reference.get("port")
        && namespace_of(told, route) == namespace_of(reference, route)
}

fn parent(world: &World, route: &Value, reference: &Value) -> Option<Finding> {
    let place = describe(reference, route);
    let is_gateway = matches!(object::text(reference, "/kind"), "" | "Gateway");
    let (namespace, name) = (namespace_of(reference, route), object::text(reference, "/name"));
    let known = world.seen(ALL_GATEWAYS).filter(|_| is_gateway);
    let is_meant = |one: &&Value| object::namespace(one) == namespace && object::name(one) == name;
    let found = known.and_then(|known| known.iter().find(is_meant));
    if let (Some(known), None) = (known, found) {
        let names: Vec<String> =
            known.iter().map(|one| format!("{}/{}", object::namespace(one), object::name(one))).collect();
        let there = if names.is_empty() {
            "the cluster has no Gateway".to_owned()
        } else {
            format!("there are {}", named(&names))
        };
        let cause = format!("its parent, the {place}, does not exist");
        return Some(
            Finding::new(Reason::RouteParentMissing, route, cause)
                .detail(there)
                .advise(format!("correct the parentRef, or create the Gateway: {}", edit(route))),
        );
    }
    // A Gateway that nobody serves says nothing of its routes either.
    let held = found.and_then(|found| {
        let mut found = found.clone();
        found["kind"] = "Gateway".into();
        let inner = gateway::findings(world, &found).into_iter().find(|inner| !inner.note)?;
        let cause = format!("its parent, the {place}, is not in force");
        Some(Finding { probably: inner.probably, ..Finding::new(Reason::RouteGateway, route, cause).because_of(inner) })
    });
    let is_told = |told: &&Value| told.get("parentRef").is_some_and(|of| is_same(of, reference, route));
    let told = object::items(route, "/status/parents").iter().rfind(is_told);
    let Some(told) = told else {
        return held.or_else(|| {
            let cause = format!("no controller has judged it for its parent, the {place}");
            Some(
                Finding::new(Reason::RouteController, route, cause)
                    .underway_if(is_young(world, route))
                    .advise("see that the controller of the Gateway runs"),
            )
        });
    };
    let failing = |kind: &str| {
        let conditions = object::items(told, "/conditions").iter();
        conditions.filter(|one| object::text(one, "/type") == kind).find(|one| object::text(one, "/status") != "True")
    };
    if let Some(refused) = failing("Accepted") {
        let cause = format!("its parent, the {place}, does not take it: {}", said(refused));
        let own = format!("kubectl edit -n {namespace} gateway/{name}");
        let finding = Finding::new(Reason::RouteNotAttached, route, cause);
        let finding = match object::text(refused, "/reason") {
            "NotAllowedByListeners" => finding.advise(format!(
                "allow it in allowedRoutes of a listener (namespaces.from: All, or a selector): {own}"
            )),
            "NoMatchingListenerHostname" => finding
                .advise(format!("correct spec.hostnames: {}", edit(route)))
                .advise(format!("or the hostname of a listener: {own}")),
            "NoMatchingParent" => finding
                .advise(format!("correct sectionName and port of the parentRef: {}", edit(route)))
                .advise(format!("or add that listener: {own}")),
            _ => finding.advise(edit(route)),
        };
        return Some(match found {
            Some(gateway) => finding.detail(listeners(gateway)),
            None => finding,
        });
    }
    let unresolved = failing("ResolvedRefs").map(|unresolved| {
        let cause = format!("what it names cannot be used: {}", said(unresolved));
        let finding = Finding::new(Reason::RouteReferences, route, cause);
        let finding = match object::text(unresolved, "/reason") {
            "RefNotPermitted" => {
                let rules = object::items(route, "/spec/rules").iter();
                let references = rules.flat_map(|rule| object::items(rule, "/backendRefs"));
                grant::advice(route, "Service", references).into_iter().fold(finding, Finding::advise)
            }
            _ => finding,
        };
        finding.advise(edit(route))
    });
    unresolved.or(held)
}

/// What a route could be attached to.
fn listeners(gateway: &Value) -> String {
    let texts: Vec<String> = object::items(gateway, "/spec/listeners")
        .iter()
        .map(|one| {
            let port = one.get("port").and_then(Value::as_i64).unwrap_or(0);
            let host = match object::text(one, "/hostname") {
                "" => "any host",
                host => host,
            };
            let from = match object::text(one, "/allowedRoutes/namespaces/from") {
                "" => "Same",
                from => from,
            };
            let (name, protocol) = (object::text(one, "/name"), object::text(one, "/protocol"));
            format!("{name} ({protocol}, port {port}, {host}, routes of namespaces: {from})")
        })
        .collect();
    format!("its listeners: {}", named(&texts))
}

/// A backend of the route's own namespace. Of other namespaces' Services the condition says what there is to say.
fn service(world: &World, route: &Value, place: usize, rule: &Value, reference: &Value) -> Option<Finding> {
    let is_service =
        object::text(reference, "/group").is_empty() && matches!(object::text(reference, "/kind"), "" | "Service");
    if !is_service || namespace_of(reference, route) != object::namespace(route) {
        return None;
    }
    let port = reference.get("port").and_then(Value::as_i64)?;
    let label = match object::text(rule, "/name") {
        "" => format!("rule {}", place + 1),
        name => format!("rule {name}"),
    };
    backend::finding(world, route, &REASONS, &label, object::text(reference, "/name"), Port::Number(port))
}
