//! A Service that an Ingress or a route sends requests to.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, ingress, named, near, service};
use crate::world::{World, title};

/// The port that a backend names.
#[derive(Clone, Copy)]
pub(super) enum Port<'a> {
    Number(i64),
    Name(&'a str),
}

/// How the causes are called for the kind that has the backend.
pub(super) struct Reasons {
    pub missing: Reason,
    pub port: Reason,
    pub dark: Reason,
}

/// So many backends are told of.
const TOLD: usize = 4;

/// The same is said once.
pub(super) fn add(found: &mut Vec<Finding>, new: Option<Finding>) {
    if let Some(new) = new
        && found.len() < TOLD
        && !found.iter().any(|known| known.cause == new.cause)
    {
        found.push(new);
    }
}

/// What is wrong with the Service `name` in the namespace of `user`, which sends there what comes for `place`.
pub(super) fn finding(
    world: &World,
    user: &Value,
    reasons: &Reasons,
    place: &str,
    name: &str,
    port: Port<'_>,
) -> Option<Finding> {
    let namespace = object::namespace(user);
    let services = world.seen("services")?;
    let edit = format!("kubectl edit {}{}", in_namespace(user), title(user));
    let Some(found) = services.iter().find(|service| object::name(service) == name) else {
        let names = near::sorted(name, services.iter().map(object::name).collect());
        let cause = format!("its backend for {place}, the Service {name:?}, does not exist in namespace {namespace}");
        let there = if names.is_empty() {
            "the namespace has no Services".to_owned()
        } else {
            format!("the namespace has {}", named(&names))
        };
        return Some(
            Finding::new(reasons.missing, user, cause)
                .detail(there)
                .advise(format!("correct the backend, or create the Service: {edit}")),
        );
    };
    if object::text(found, "/spec/type") == "ExternalName" && ingress::is_ferrys(world, user) {
        let cause = format!(
            "its backend for {place}, the Service {name:?}, is of type ExternalName, and Ferry's gateway sends requests to pods and addresses alone"
        );
        return Some(
            Finding::new(reasons.dark, user, cause)
                .advise(format!("name a Service with endpoints: {edit}"))
                .advise("or make it a Service without selector, and an EndpointSlice with the address that is meant"),
        );
    }
    let ports = object::items(found, "/spec/ports");
    let has = ports.iter().any(|known| match port {
        Port::Number(number) => known.get("port").and_then(Value::as_i64) == Some(number),
        Port::Name(name) => object::text(known, "/name") == name,
    });
    if !has {
        let wanted = match port {
            Port::Number(number) => number.to_string(),
            Port::Name(name) => format!("{name:?}"),
        };
        let known: Vec<String> = ports
            .iter()
            .map(|port| {
                let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
                match object::text(port, "/name") {
                    "" => number.to_string(),
                    name => format!("{number} ({name})"),
                }
            })
            .collect();
        let known = if known.is_empty() { "none at all".to_owned() } else { named(&known) };
        let cause = format!("its backend for {place}, the Service {name:?}, has no port {wanted}; it has {known}");
        return Some(Finding::new(reasons.port, user, cause).advise(format!("correct the port: {edit}")));
    }
    let dark = service::is_dark(world, found);
    let mut inner = service::findings(world, found);
    inner.sort_by_key(|inner| inner.note);
    let inner = inner.into_iter().find(|inner| dark || !inner.probably && !inner.note)?;
    let note = inner.note;
    let cause = format!("its backend for {place}, the Service {name:?}, leads nowhere");
    let waits =
        matches!(inner.reason, Reason::LoadBalancerPending | Reason::LoadBalancerClass | Reason::LoadBalancerPort);
    (!waits).then(|| Finding { note, ..Finding::new(reasons.dark, user, cause).because_of(inner) })
}
