//! Statuses as the Gateway API's specification has them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ferry_client::ObjectKey;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::addresses::Port;
use super::attach::{self, Attached, Route};
use super::conditions::{Condition, Problem, merged};
use super::listeners::Listening;
use super::machines::{Fleet, MOST_LISTED};
use super::objects::{Id, Objects, key};
use super::policies::Policies;
use super::{GatewayState, Place, Resolved, Settings};
use crate::api::{GROUP, GatewayClass};
use crate::{CONTROLLER, SUPPORTED_FEATURES};

/// What became of the sockets: the port at which a place is really served, or why it is not.
pub type Bound = BTreeMap<Place, Result<u16, String>>;

/// A status that is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    pub kind: &'static str,
    pub key: ObjectKey,
    pub resource_version: Option<String>,
    pub status: Value,
}

/// Something that an owner should know beyond the status.
pub struct Warning {
    pub kind: &'static str,
    pub key: ObjectKey,
    pub uid: Option<String>,
    pub reason: &'static str,
    pub message: String,
}

pub fn parents_of(status: &Value) -> &[Value] {
    status["parents"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub fn is_ours(entry: &Value) -> bool {
    entry["controllerName"] == CONTROLLER
}

/// The objects whose status is ours to write.
pub fn told(objects: &Objects, resolved: &Resolved) -> Vec<Id> {
    let id = |kind, key: &ObjectKey| Id { kind, key: key.clone() };
    let mut all: Vec<Id> =
        resolved.classes.iter().map(|class| Id { kind: "GatewayClass", key: key(&class.metadata) }).collect();
    for state in &resolved.gateways.list {
        all.push(id("Gateway", &state.key));
        all.extend(state.frontend.sets.iter().map(|set| id("ListenerSet", &set.key)));
    }
    all.extend(attach::keys(objects));
    all.extend(resolved.policies.judged.keys().map(|key| id("BackendTLSPolicy", key)));
    all.extend(resolved.ingress.all().map(|one| Id { kind: "Ingress", key: key(&one.metadata) }));
    all
}

/// All statuses that differ from what is there.
#[cfg(test)]
pub fn updates(objects: &Objects, resolved: &Resolved, bound: &Bound, settings: &Settings, now: &str) -> Vec<Update> {
    let all = told(objects, resolved);
    all.iter().filter_map(|id| update(objects, resolved, bound, settings, id, now)).collect()
}

/// The status of an object as it is to be, if it is ours and not so already.
pub fn update(
    objects: &Objects,
    resolved: &Resolved,
    bound: &Bound,
    settings: &Settings,
    id: &Id,
    now: &str,
) -> Option<Update> {
    let (meta, old, status) = match id.kind {
        "GatewayClass" => {
            let class = objects.classes.get(&id.key).filter(|class| class.spec.controller_name == CONTROLLER)?;
            let old = class.status.value();
            (&class.metadata, old.clone(), class_status(class, old, now))
        }
        "Gateway" => {
            let (object, state) = (objects.gateways.get(&id.key)?, resolved.gateways.get(&id.key)?);
            let old = object.status.value();
            let attached = |place| resolved.attached(&id.key, place);
            let seen = Seen { state, bound, fleet: &resolved.gateways.fleet, attached: &attached };
            let status = gateway(&seen, &object.metadata, &old, now);
            (&object.metadata, old, status)
        }
        "ListenerSet" => {
            let (gateway, place) = resolved.gateways.find_set(&id.key)?;
            let (object, state) = (objects.listener_sets.get(&id.key)?, resolved.gateways.list.get(gateway)?);
            let old = object.status.value();
            let attached = |place| resolved.attached(&state.key, place);
            let seen = Seen { state, bound, fleet: &resolved.gateways.fleet, attached: &attached };
            let status = listener_set(&seen, place, &object.metadata, &old, now);
            (&object.metadata, old, status)
        }
        "BackendTLSPolicy" => {
            let object = objects.policies.get(&id.key)?;
            let conditions = resolved.policies.judged.get(&id.key)?;
            let old = object.status.value();
            let services = Policies::targets(object).filter_map(|(service, _)| resolved.ancestors.get(&service));
            let ancestors: BTreeSet<_> = services.flat_map(|counts| counts.keys()).collect();
            let generation = object.metadata.generation.unwrap_or_default();
            let status = policy(conditions, ancestors.into_iter(), &old, generation, now);
            (&object.metadata, old, status)
        }
        "Ingress" => {
            let object = objects.ingresses.get(&id.key).filter(|one| super::ingress::is_ours(objects, one))?;
            let old = serde_json::to_value(&object.status).unwrap_or_default();
            let status = ingress_status(object, &old, bound, settings, &resolved.gateways.fleet);
            (&object.metadata, old, status)
        }
        _ => {
            let object = attach::find(objects, id)?;
            let attachment = resolved.routes.get(id);
            if attachment.is_none() && object.status.is_empty() {
                return None;
            }
            let old = object.status.value();
            // What is nobody's here by now is taken back where it was.
            if attachment.is_none() && !parents_of(&old).iter().any(is_ours) {
                return None;
            }
            let parents = attachment.map(|attachment| &*attachment.parents).unwrap_or_default();
            let status = route(object, parents, &old, now);
            (object.metadata, old, status)
        }
    };
    let resource_version = meta.resource_version.clone();
    (old != status).then(|| Update { kind: id.kind, key: id.key.clone(), resource_version, status })
}

fn class_status(class: &GatewayClass, mut status: Value, now: &str) -> Value {
    let parameters = class.spec.parameters_ref.as_ref();
    let problem = parameters.map(|_| Problem::new("InvalidParameters", "parametersRef is not supported"));
    let conditions = [Condition::of("Accepted", "Accepted", problem.as_ref())];
    let generation = class.metadata.generation.unwrap_or_default();
    status["conditions"] = merged(&status["conditions"], &conditions, generation, now);
    status["supportedFeatures"] = SUPPORTED_FEATURES.iter().map(|name| json!({ "name": name })).collect();
    status
}

fn policy<'a>(
    conditions: &[Condition],
    ancestors: impl Iterator<Item = &'a ObjectKey>,
    status: &Value,
    generation: i64,
    now: &str,
) -> Value {
    let old = status["ancestors"].as_array().cloned().unwrap_or_default();
    let mut list: Vec<Value> = Vec::new();
    for gateway in ancestors {
        let reference =
            json!({ "group": GROUP, "kind": "Gateway", "namespace": gateway.namespace, "name": gateway.name });
        let before = old.iter().find(|one| is_ours(one) && one["ancestorRef"] == reference);
        let before = before.map_or(&Value::Null, |one| &one["conditions"]);
        let conditions = merged(before, conditions, generation, now);
        list.push(json!({ "ancestorRef": reference, "controllerName": CONTROLLER, "conditions": conditions }));
    }
    list.extend(old.iter().filter(|one| !is_ours(one)).cloned());
    list.truncate(16);
    if list.is_empty() && status.is_null() { Value::Null } else { json!({ "ancestors": list }) }
}

fn ingress_status(ingress: &Ingress, old: &Value, bound: &Bound, settings: &Settings, fleet: &Fleet) -> Value {
    let has_tls = ingress.spec.as_ref().is_some_and(|spec| spec.tls.as_ref().is_some_and(|tls| !tls.is_empty()));
    let place = |address: IpAddr, served_at: &dyn Fn(u16) -> Option<u16>| {
        served_at(super::ingress::HTTP)?;
        let ports = [Some(super::ingress::HTTP), has_tls.then_some(super::ingress::HTTPS)];
        let ports = ports.into_iter().flatten().map(|port| match served_at(port) {
            Some(real) => json!({ "port": real, "protocol": "TCP" }),
            None => json!({ "port": port, "protocol": "TCP", "error": "NotServed" }),
        });
        Some(json!({ "ip": address.to_string(), "ports": ports.collect::<Vec<_>>() }))
    };
    let here = |port: u16| bound.get(&(*settings.addresses.first()?, port, false));
    let own = settings.addresses.first().and_then(|first| place(*first, &|port| here(port)?.as_ref().ok().copied()));
    let others = fleet.machines.iter().filter_map(|machine| {
        let first = *machine.report.addresses.first()?;
        // Where nothing is served here, nobody serves anything.
        place(first, &|port| here(port).and_then(|_| machine.report.served_at(first, (port, false))))
    });
    let all: Vec<_> = own.into_iter().chain(others).collect();
    let mut status = if old.is_null() { json!({}) } else { old.clone() };
    status["loadBalancer"] = if all.is_empty() { json!({}) } else { json!({ "ingress": all }) };
    status
}

/// Why a listener that could be served is not, and what its owner should know although it is.
fn served(state: &GatewayState, listening: &Listening, bound: &Bound, fleet: &Fleet) -> (Option<Problem>, String) {
    let Some(transport) = listening.transport else { return (None, String::new()) };
    let port = (listening.spec.port, transport.is_datagram());
    let (problem, mut notes) = served_here(state, port, bound);
    let mut is_served = false;
    for (machine, address) in fleet.of(&state.key) {
        match machine.report.served_at(address, port) {
            Some(at) if at == port.0 => is_served = true,
            Some(at) => {
                is_served = true;
                notes.push(format!(
                    "port {} of {address}, of node {}, is in use by another program: served at port {at} instead",
                    port.0, machine.name
                ));
            }
            None => {
                notes.push(format!("port {} of {address}, of node {}, cannot be had", port.0, machine.name));
            }
        }
    }
    match problem {
        // One machine does not stop the others.
        Some(problem) if is_served && problem.reason == "PortUnavailable" => {
            notes.insert(0, problem.message);
            (None, notes.join("; "))
        }
        Some(problem) => (Some(problem), String::new()),
        None => (None, notes.join("; ")),
    }
}

/// The same for this machine alone.
fn served_here(state: &GatewayState, port: Port, bound: &Bound) -> (Option<Problem>, Vec<String>) {
    if let Some(problem) = state.accepted.as_ref().or(state.unusable.as_ref()) {
        return (Some(Problem::new("Invalid", problem.message.clone())), Vec::new());
    }
    let mut notes = Vec::new();
    for address in &state.addresses {
        match bound.get(&(*address, port.0, port.1)) {
            Some(Ok(real)) if *real == port.0 => {}
            Some(Ok(real)) => {
                notes.push(format!(
                    "port {} of {address} is in use by another program: served at port {real} instead",
                    port.0
                ));
            }
            Some(Err(why)) => return (Some(Problem::new("PortUnavailable", why.clone())), notes),
            None => return (Some(Problem::new("Pending", "it is not served yet")), notes),
        }
    }
    (None, notes)
}

/// Whether it is in force.
fn is_programmed(seen: &Seen<'_>, listening: &Listening) -> bool {
    listening.is_valid() && served(seen.state, listening, seen.bound, seen.fleet).0.is_none()
}

/// A Gateway as it is served.
struct Seen<'a> {
    state: &'a GatewayState,
    bound: &'a Bound,
    fleet: &'a Fleet,
    /// How many routes a listener has, by its place.
    attached: &'a dyn Fn(usize) -> usize,
}

fn listener(
    seen: &Seen<'_>,
    (place, listening): (usize, &Listening),
    old: &Value,
    generation: i64,
    now: &str,
) -> Value {
    let refused = listening.conflict.as_ref().or(listening.accepted.as_ref());
    let (unserved, note) = served(seen.state, listening, seen.bound, seen.fleet);
    let programmed = match (refused, &listening.resolved) {
        (Some(problem), _) if listening.conflict.is_some() => Some(problem.clone()),
        (Some(problem), _) => Some(Problem::new("Invalid", problem.message.clone())),
        (None, Some(problem)) if listening.tls.is_none() => Some(Problem::new("Invalid", problem.message.clone())),
        _ => unserved,
    };
    let mut conditions = vec![
        Condition::of("Accepted", "Accepted", refused),
        Condition { message: note, ..Condition::of("Programmed", "Programmed", None) },
        Condition::of("ResolvedRefs", "ResolvedRefs", listening.resolved.as_ref()),
        match &listening.conflict {
            Some(conflict) => Condition::is("Conflicted", conflict.reason, &conflict.message),
            None => Condition::is_not("Conflicted", "NoConflicts", ""),
        },
    ];
    if let Some(problem) = programmed {
        conditions[1] = Condition::of("Programmed", "Programmed", Some(&problem));
    }
    if listening.overlaps {
        let message = "another listener of this port has an overlapping hostname: a connection for one may not be used for the other";
        conditions.push(Condition::is("OverlappingTLSConfig", "OverlappingHostnames", message));
    }
    let before = old.as_array().and_then(|list| list.iter().find(|one| one["name"] == *listening.spec.name));
    let before = before.map_or(&Value::Null, |one| &one["conditions"]);
    let kinds = listening.kinds.iter().map(|kind| json!({ "group": GROUP, "kind": kind }));
    json!({
        "name": listening.spec.name,
        "supportedKinds": kinds.collect::<Vec<_>>(),
        "attachedRoutes": (seen.attached)(place),
        "conditions": merged(before, &conditions, generation, now),
    })
}

fn gateway(seen: &Seen<'_>, meta: &ObjectMeta, old: &Value, now: &str) -> Value {
    let state = seen.state;
    let generation = meta.generation.unwrap_or_default();
    let own: Vec<_> = state.frontend.listeners.iter().enumerate().filter(|(_, one)| one.set.is_none()).collect();
    let is_fine = |(_, one): &&(usize, &Listening)| one.accepted.is_none() && one.conflict.is_none();
    let fine = own.iter().filter(is_fine).count();
    let accepted = match &state.accepted {
        Some(problem) => Condition::of("Accepted", "Accepted", Some(problem)),
        None if fine == own.len() => Condition::is("Accepted", "Accepted", ""),
        None if fine > 0 => Condition::is("Accepted", "ListenersNotValid", "some listeners are not valid"),
        None => Condition::is_not("Accepted", "ListenersNotValid", "no listener is valid"),
    };
    let any = state.frontend.listeners.iter().any(|one| is_programmed(seen, one));
    let programmed = match &state.unusable {
        Some(problem) => Condition::of("Programmed", "Programmed", Some(problem)),
        None if any => Condition::is("Programmed", "Programmed", ""),
        None => Condition::is_not("Programmed", "Invalid", "no listener is served"),
    };
    let unresolved = own.iter().map(|(_, one)| one).find(|one| one.resolved.is_some());
    let resolved = match (&state.resolved, unresolved) {
        (Some(problem), _) => Condition::of("ResolvedRefs", "ResolvedRefs", Some(problem)),
        (None, Some(one)) => Condition::is_not(
            "ResolvedRefs",
            "ListenersNotResolved",
            format!("references of listener {} lead nowhere", one.spec.name),
        ),
        (None, None) => Condition::is("ResolvedRefs", "ResolvedRefs", ""),
    };
    let mut conditions = vec![accepted, programmed, resolved];
    if state.frontend.insecure_validation {
        let message = "clients without a valid certificate are let in";
        conditions.push(Condition::is("InsecureFrontendValidationMode", "ConfigurationChanged", message));
    }
    let sets = state.frontend.sets.iter().enumerate().filter(|(place, _)| is_set_accepted(state, *place));
    let listeners = own.iter().map(|one| listener(seen, *one, &old["listeners"], generation, now));
    let addresses = addresses(seen).into_iter().take(MOST_LISTED);
    let addresses = addresses.map(|address| json!({ "type": "IPAddress", "value": address.to_string() }));
    let mut status = json!({
        "addresses": addresses.collect::<Vec<_>>(),
        "conditions": merged(&old["conditions"], &conditions, generation, now),
        "listeners": listeners.collect::<Vec<_>>(),
    });
    let count = sets.count();
    if count > 0 || !old["attachedListenerSets"].is_null() {
        status["attachedListenerSets"] = json!(count);
    }
    status
}

/// Where it is served: those of this machine, then those of others at which some port can be had as it was asked for.
fn addresses(seen: &Seen<'_>) -> Vec<IpAddr> {
    let mut all = seen.state.addresses.clone();
    let listeners = seen.state.frontend.listeners.iter().filter(|one| one.takes_routes());
    let ports: Vec<Port> = listeners.filter_map(|one| Some((one.spec.port, one.transport?.is_datagram()))).collect();
    for (machine, address) in seen.fleet.of(&seen.state.key) {
        let is_there = ports.iter().any(|port| machine.report.served_at(address, *port) == Some(port.0));
        if is_there && !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

fn of_set(state: &GatewayState, place: usize) -> impl Iterator<Item = (usize, &Listening)> {
    let range = state.frontend.sets.get(place).map(|set| set.listeners.clone()).unwrap_or_default();
    range.clone().zip(state.frontend.listeners.get(range).unwrap_or_default())
}

fn is_set_accepted(state: &GatewayState, place: usize) -> bool {
    of_set(state, place).any(|(_, one)| one.is_valid())
}

fn listener_set(seen: &Seen<'_>, place: usize, meta: &ObjectMeta, old: &Value, now: &str) -> Value {
    let state = seen.state;
    let Some(set) = state.frontend.sets.get(place) else { return Value::Null };
    let generation = meta.generation.unwrap_or_default();
    let all = of_set(state, place).count();
    // Unlike a Gateway, a set is refused when none of its listeners has a certificate that it may use.
    let fine = of_set(state, place).filter(|(_, one)| one.is_valid()).count();
    let served = of_set(state, place).any(|(_, one)| is_programmed(seen, one));
    let conditions = match &set.refused {
        Some(problem) => {
            vec![
                Condition::of("Accepted", "Accepted", Some(problem)),
                Condition::of("Programmed", "Programmed", Some(problem)),
            ]
        }
        None if fine == 0 => vec![
            Condition::is_not("Accepted", "ListenersNotValid", "no listener is valid"),
            Condition::is_not("Programmed", "ListenersNotValid", "no listener is valid"),
        ],
        None => {
            let reason = if fine == all { "Accepted" } else { "ListenersNotValid" };
            let programmed = match served {
                true => Condition::is("Programmed", "Programmed", ""),
                false => Condition::is_not("Programmed", "Invalid", "no listener is served"),
            };
            vec![Condition::is("Accepted", reason, ""), programmed]
        }
    };
    let listeners = of_set(state, place).map(|one| listener(seen, one, &old["listeners"], generation, now));
    let mut status = json!({ "conditions": merged(&old["conditions"], &conditions, generation, now) });
    let listeners: Vec<_> = listeners.collect();
    if !listeners.is_empty() {
        status["listeners"] = Value::Array(listeners);
    }
    status
}

fn route(route: Route<'_>, parents: &[Attached], status: &Value, now: &str) -> Value {
    let old = parents_of(status);
    let generation = route.metadata.generation.unwrap_or_default();
    let told = parents.iter().filter_map(|attached| Some((attached, route.parents.get(attached.parent)?)));
    let mut parents: Vec<Value> = told
        .map(|(attached, parent)| {
            let reference = serde_json::to_value(parent).unwrap_or_default();
            let before = old.iter().find(|one| is_ours(one) && one["parentRef"] == reference);
            let before = before.map_or(&Value::Null, |one| &one["conditions"]);
            let conditions = merged(before, &attached.conditions(), generation, now);
            json!({ "parentRef": reference, "controllerName": CONTROLLER, "conditions": conditions })
        })
        .collect();
    parents.extend(old.iter().filter(|one| !is_ours(one)).cloned());
    json!({ "parents": parents })
}

/// What is worth an Event.
pub fn warnings(objects: &Objects, resolved: &Resolved, bound: &Bound) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for state in &resolved.gateways.list {
        for listening in state.frontend.listeners.iter().filter(|one| one.is_valid()) {
            let (problem, note) = served(state, listening, bound, &resolved.gateways.fleet);
            let message = match problem {
                Some(problem) if problem.reason == "PortUnavailable" => problem.message,
                _ if !note.is_empty() => note,
                _ => continue,
            };
            warnings.push(Warning {
                kind: "Gateway",
                key: (*state.key).clone(),
                uid: objects.gateways.get(&state.key).and_then(|gateway| gateway.metadata.uid.clone()),
                reason: "PortUnavailable",
                message: format!("listener {}: {message}", listening.spec.name),
            });
        }
    }
    let own = resolved.ingress.warnings();
    let of_ports = resolved
        .conflicts
        .iter()
        .flat_map(|message| resolved.ingress.all().map(move |ingress| (ingress, "PortUnavailable", message)));
    let of_ingresses = own.chain(of_ports).map(|(ingress, reason, message)| Warning {
        kind: "Ingress",
        key: key(&ingress.metadata),
        uid: ingress.metadata.uid.clone(),
        reason,
        message: message.clone(),
    });
    warnings.extend(of_ingresses);
    warnings
}
