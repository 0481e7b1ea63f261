//! Gateways: their class, who serves it, and the listeners, by the conditions that the controller wrote and the Secrets they name.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, grant, in_namespace, is_failing, is_young, named, plural, said};
use crate::world::{Presence, World, condition, number, word};

/// What the class of Ferry's own gateway names.
pub(super) const OWN: &str = "ferry.dev/gateway-controller";

pub(super) fn findings(world: &World, gateway: &Value) -> Vec<Finding> {
    if let Some(finding) = class(world, gateway).or_else(|| controller(world, gateway)) {
        return vec![finding];
    }
    let refused = is_failing(gateway, "Accepted")
        .filter(|condition| object::text(condition, "/reason") != "ListenersNotValid")
        .map(|condition| {
            let cause = format!("its controller does not accept it: {}", said(condition));
            Finding::new(Reason::GatewayRefused, gateway, cause).advise(edit(gateway))
        });
    let mut found: Vec<Finding> = refused.into_iter().collect();
    for status in object::items(gateway, "/status/listeners") {
        if found.len() < 4 {
            found.extend(listener(world, gateway, status));
        }
    }
    if found.is_empty() {
        found.extend(programmed(gateway));
    }
    if found.is_empty() {
        found.extend(without_routes(gateway));
    }
    found
}

fn edit(gateway: &Value) -> String {
    format!("kubectl edit {}gateway/{}", in_namespace(gateway), object::name(gateway))
}

/// A class by itself: whether its controller is there.
pub(super) fn class_itself(world: &World, class: &Value) -> Option<Finding> {
    let failing = is_failing(class, "Accepted");
    let serves = object::text(class, "/spec/controllerName");
    // A new object says `Unknown`, or nothing at all.
    let judged = condition(class, "Accepted").is_some_and(|accepted| object::text(accepted, "/status") != "Unknown");
    if !judged {
        let cause = format!("no controller has taken it up: it is for one that calls itself {serves:?}");
        return Some(
            Finding::new(Reason::GatewayController, class, cause)
                .underway_if(is_young(world, class))
                .detail(failing.map(said).unwrap_or_default())
                .advise(start(serves)),
        );
    }
    let cause = format!("its controller {serves:?} does not accept it: {}", said(failing?));
    let name = object::name(class);
    Some(Finding::new(Reason::GatewayRefused, class, cause).advise(format!("kubectl edit gatewayclass/{name}")))
}

/// How a controller is started.
fn start(serves: &str) -> String {
    match serves {
        OWN => {
            "start the gateway: a server with --gateway=true, or `ferry gateway` on a machine of the cluster".to_owned()
        }
        _ => format!("see that the pods of {serves} run, or name the class of Ferry's own gateway: ferry"),
    }
}

fn class(world: &World, gateway: &Value) -> Option<Finding> {
    let classes = world.seen("gatewayclasses")?;
    let name = object::text(gateway, "/spec/gatewayClassName");
    if classes.iter().any(|class| object::name(class) == name) {
        return None;
    }
    let names: Vec<&str> = classes.iter().map(object::name).collect();
    let there = if names.is_empty() {
        "the cluster has no GatewayClass at all".to_owned()
    } else {
        format!("there are {}", named(&names))
    };
    let cause = format!("its GatewayClass {name:?} does not exist: no controller takes it up");
    Some(
        Finding::new(Reason::GatewayClassMissing, gateway, cause)
            .detail(there)
            .advise(format!("name a class that exists, or install the controller that brings it: {}", edit(gateway))),
    )
}

/// Whether any controller has judged it: a new object says `Unknown`.
fn is_judged(gateway: &Value) -> bool {
    condition(gateway, "Accepted").is_some_and(|accepted| object::text(accepted, "/status") != "Unknown")
}

fn controller(world: &World, gateway: &Value) -> Option<Finding> {
    if is_judged(gateway) {
        return None;
    }
    let name = object::text(gateway, "/spec/gatewayClassName");
    let class = world.find("gatewayclasses", name);
    let serves = class.map(|class| object::text(class, "/spec/controllerName")).unwrap_or_default();
    let cause = format!("no controller has judged it: nobody serves its class {name}");
    let finding = Finding::new(Reason::GatewayController, gateway, cause)
        .underway_if(is_young(world, gateway))
        .detail(format!("the class is served by a controller that calls itself {serves:?}"));
    // A class that is not accepted has no Gateways.
    let refused = class.and_then(|class| is_failing(class, "Accepted"));
    let finding = match refused {
        Some(why) => finding.detail(format!("the class: {}", said(why))),
        None => finding,
    };
    Some(finding.advise(start(serves)))
}

/// The Secrets of its own namespace that its listeners name, with the listener.
pub(crate) fn secrets(gateway: &Value) -> Vec<(&str, &str)> {
    let namespace = object::namespace(gateway);
    let of_listener = |listener| {
        object::items(listener, "/tls/certificateRefs")
            .iter()
            .filter(|reference| matches!(object::text(reference, "/kind"), "" | "Secret"))
            .filter(|reference| [namespace, ""].contains(&object::text(reference, "/namespace")))
            .map(|reference| (object::text(listener, "/name"), object::text(reference, "/name")))
    };
    object::items(gateway, "/spec/listeners").iter().flat_map(of_listener).collect()
}

/// What is wrong with a listener: the certificate that can be looked at before what is only said.
fn listener(world: &World, gateway: &Value, status: &Value) -> Option<Finding> {
    let name = object::text(status, "/name");
    let failing = |kind: &str| {
        let listed = object::items(status, "/conditions").iter().find(|one| object::text(one, "/type") == kind)?;
        (object::text(listed, "/status") == "False").then_some(listed)
    };
    if let Some(unresolved) = failing("ResolvedRefs") {
        let namespace = object::namespace(gateway);
        let absent = secrets(gateway)
            .into_iter()
            .find(|(listener, secret)| *listener == name && *world.presence("secrets", secret) == Presence::Absent);
        if let Some((_, secret)) = absent {
            let cause = format!(
                "the certificate of listener {name}, the Secret {secret:?}, does not exist in namespace {namespace}"
            );
            return Some(
                Finding::new(Reason::GatewayCertificate, gateway, cause).detail(said(unresolved)).advise(format!(
                    "kubectl create secret tls -n {namespace} {} --cert=FILE --key=FILE",
                    word(secret)
                )),
            );
        }
        let cause = format!("references of listener {name} lead nowhere: {}", said(unresolved));
        let finding = Finding::new(Reason::GatewayListener, gateway, cause);
        let finding = match object::text(unresolved, "/reason") {
            "RefNotPermitted" => {
                let listeners = object::items(gateway, "/spec/listeners").iter();
                let own = listeners.filter(|one| object::text(one, "/name") == name);
                let references = own.flat_map(|one| object::items(one, "/tls/certificateRefs"));
                grant::advice(gateway, "Secret", references).into_iter().fold(finding, Finding::advise)
            }
            _ => finding,
        };
        return Some(finding.advise(edit(gateway)));
    }
    let refused = failing("Accepted").or_else(|| {
        failing("Programmed").filter(|one| {
            // What holds up the whole Gateway is said of the Gateway.
            is_failing(gateway, "Programmed").is_none() || object::text(one, "/reason") == "PortUnavailable"
        })
    })?;
    let cause = format!("listener {name} is not served: {}", said(refused));
    // Not every controller says which generation it means.
    let seen = refused.get("observedGeneration").and_then(Value::as_i64);
    let behind = seen.is_some_and(|seen| seen < number(gateway, "/metadata/generation"));
    Some(Finding::new(Reason::GatewayListener, gateway, cause).underway_if(behind).advise(edit(gateway)))
}

fn programmed(gateway: &Value) -> Option<Finding> {
    let failing = is_failing(gateway, "Programmed")?;
    let cause = format!("it is not in force: {}", said(failing));
    Some(Finding::new(Reason::GatewayNotProgrammed, gateway, cause).advise(edit(gateway)))
}

/// Nothing is wrong with it, and every request gets 404.
fn without_routes(gateway: &Value) -> Option<Finding> {
    let listeners = object::items(gateway, "/status/listeners");
    let attached: i64 = listeners.iter().map(|listener| number(listener, "/attachedRoutes")).sum();
    if listeners.is_empty() || attached > 0 {
        return None;
    }
    let cause = format!(
        "no route is attached to its {}: every request is answered with 404",
        plural(listeners.len(), "listener")
    );
    Some(
        Finding::new(Reason::GatewayNoRoutes, gateway, cause)
            .note()
            .advise("kubectl get httproutes,grpcroutes -A, then `ferry why httproute/NAME` for one that names it"),
    )
}
