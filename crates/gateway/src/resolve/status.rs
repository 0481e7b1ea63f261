//! Statuses as the Gateway API's specification has them.

use std::collections::BTreeMap;

use ferry_client::ObjectKey;
use k8s_openapi::api::networking::v1::Ingress;
use serde_json::{Value, json};

use super::attach::Told;
use super::conditions::{Condition, Problem, merged};
use super::listeners::Listening;
use super::objects::key;
use super::{GatewayState, Place, Resolved, Settings};
use crate::api::GROUP;
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

/// All statuses that differ from what is there.
pub fn updates(resolved: &Resolved, bound: &Bound, settings: &Settings, now: &str) -> Vec<Update> {
    let mut updates = Vec::new();
    let mut put = |kind, key: ObjectKey, version: &Option<String>, old: &Value, status: Value| {
        if *old != status {
            updates.push(Update { kind, key, resource_version: version.clone(), status });
        }
    };
    for class in &resolved.classes {
        let problem = class
            .spec
            .parameters_ref
            .as_ref()
            .map(|_| Problem::new("InvalidParameters", "parametersRef is not supported"));
        let conditions = [Condition::of("Accepted", "Accepted", problem.as_ref())];
        let generation = class.metadata.generation.unwrap_or_default();
        let mut status = class.status.clone();
        status["conditions"] = merged(&class.status["conditions"], &conditions, generation, now);
        status["supportedFeatures"] = SUPPORTED_FEATURES.iter().map(|name| json!({ "name": name })).collect();
        put("GatewayClass", key(&class.metadata), &class.metadata.resource_version, &class.status, status);
    }
    for state in &resolved.gateways.list {
        let meta = &state.gateway.metadata;
        put("Gateway", state.key.clone(), &meta.resource_version, &state.gateway.status, gateway(state, bound, now));
        for (place, set) in state.frontend.sets.iter().enumerate() {
            let meta = &set.set.metadata;
            put(
                "ListenerSet",
                key(meta),
                &meta.resource_version,
                &set.set.status,
                listener_set(state, place, bound, now),
            );
        }
    }
    for told in &resolved.routes {
        put(told.kind, told.key.clone(), &told.resource_version, &told.status, route(told, now));
    }
    for judged in &resolved.policies {
        let meta = &judged.policy.metadata;
        let key = key(meta);
        let ancestors = resolved.ancestors.get(&key);
        let old = judged.policy.status["ancestors"].as_array().cloned().unwrap_or_default();
        let mut list: Vec<Value> = Vec::new();
        for gateway in ancestors.into_iter().flatten() {
            let reference =
                json!({ "group": GROUP, "kind": "Gateway", "namespace": gateway.namespace, "name": gateway.name });
            let before = old.iter().find(|one| is_ours(one) && one["ancestorRef"] == reference);
            let before = before.map_or(&Value::Null, |one| &one["conditions"]);
            let conditions = merged(before, &judged.conditions, meta.generation.unwrap_or_default(), now);
            list.push(json!({ "ancestorRef": reference, "controllerName": CONTROLLER, "conditions": conditions }));
        }
        list.extend(old.iter().filter(|one| !is_ours(one)).cloned());
        list.truncate(16);
        let status =
            if list.is_empty() && judged.policy.status.is_null() { Value::Null } else { json!({ "ancestors": list }) };
        put("BackendTLSPolicy", key, &meta.resource_version, &judged.policy.status, status);
    }
    for ingress in &resolved.ingress.ingresses {
        let old = serde_json::to_value(&ingress.status).unwrap_or_default();
        let status = ingress_status(ingress, &old, bound, settings);
        put("Ingress", key(&ingress.metadata), &ingress.metadata.resource_version, &old, status);
    }
    updates
}

fn ingress_status(ingress: &Ingress, old: &Value, bound: &Bound, settings: &Settings) -> Value {
    let has_tls = ingress.spec.as_ref().is_some_and(|spec| spec.tls.as_ref().is_some_and(|tls| !tls.is_empty()));
    let ports = [Some(super::ingress::HTTP), has_tls.then_some(super::ingress::HTTPS)];
    let mut status = if old.is_null() { json!({}) } else { old.clone() };
    let address = settings
        .addresses
        .first()
        .filter(|first| bound.get(&(**first, super::ingress::HTTP, false)).is_some_and(Result::is_ok));
    let Some(address) = address else {
        status["loadBalancer"] = json!({});
        return status;
    };
    let ports = ports.into_iter().flatten().map(|port| match bound.get(&(*address, port, false)) {
        Some(Ok(real)) => json!({ "port": real, "protocol": "TCP" }),
        _ => json!({ "port": port, "protocol": "TCP", "error": "NotServed" }),
    });
    status["loadBalancer"] = json!({ "ingress": [{ "ip": address.to_string(), "ports": ports.collect::<Vec<_>>() }] });
    status
}

/// Why a listener that could be served is not, and what its owner should know although it is.
fn served(state: &GatewayState, listening: &Listening, bound: &Bound) -> (Option<Problem>, String) {
    let Some(transport) = listening.transport else { return (None, String::new()) };
    if let Some(problem) = state.accepted.as_ref().or(state.unusable.as_ref()) {
        return (Some(Problem::new("Invalid", problem.message.clone())), String::new());
    }
    let mut notes = Vec::new();
    for address in &state.addresses {
        match bound.get(&(*address, listening.spec.port, transport.is_datagram())) {
            Some(Ok(port)) if *port == listening.spec.port => {}
            Some(Ok(port)) => {
                notes.push(format!(
                    "port {} of {address} is in use by another program: served at port {port} instead",
                    listening.spec.port
                ));
            }
            Some(Err(why)) => return (Some(Problem::new("PortUnavailable", why.clone())), String::new()),
            None => return (Some(Problem::new("Pending", "it is not served yet")), String::new()),
        }
    }
    (None, notes.join("; "))
}

/// Whether it is in force.
fn is_programmed(state: &GatewayState, listening: &Listening, bound: &Bound) -> bool {
    listening.is_valid() && served(state, listening, bound).0.is_none()
}

fn listener(
    state: &GatewayState,
    listening: &Listening,
    bound: &Bound,
    old: &Value,
    generation: i64,
    now: &str,
) -> Value {
    let refused = listening.conflict.as_ref().or(listening.accepted.as_ref());
    let (unserved, note) = served(state, listening, bound);
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
        "attachedRoutes": listening.attached,
        "conditions": merged(before, &conditions, generation, now),
    })
}

fn gateway(state: &GatewayState, bound: &Bound, now: &str) -> Value {
    let old = &state.gateway.status;
    let generation = state.gateway.metadata.generation.unwrap_or_default();
    let own: Vec<_> = state.frontend.listeners.iter().filter(|one| one.set.is_none()).collect();
    let is_fine = |one: &&&Listening| one.accepted.is_none() && one.conflict.is_none();
    let fine = own.iter().filter(is_fine).count();
    let accepted = match &state.accepted {
        Some(problem) => Condition::of("Accepted", "Accepted", Some(problem)),
        None if fine == own.len() => Condition::is("Accepted", "Accepted", ""),
        None if fine > 0 => Condition::is("Accepted", "ListenersNotValid", "some listeners are not valid"),
        None => Condition::is_not("Accepted", "ListenersNotValid", "no listener is valid"),
    };
    let any = state.frontend.listeners.iter().any(|one| is_programmed(state, one, bound));
    let programmed = match &state.unusable {
        Some(problem) => Condition::of("Programmed", "Programmed", Some(problem)),
        None if any => Condition::is("Programmed", "Programmed", ""),
        None => Condition::is_not("Programmed", "Invalid", "no listener is served"),
    };
    let unresolved = own.iter().find(|one| one.resolved.is_some());
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
    let listeners = own.iter().map(|one| listener(state, one, bound, &old["listeners"], generation, now));
    let addresses = state.addresses.iter().map(|address| json!({ "type": "IPAddress", "value": address.to_string() }));
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

fn of_set(state: &GatewayState, place: usize) -> impl Iterator<Item = &Listening> {
    state.frontend.listeners.iter().filter(move |one| one.set == Some(place))
}

fn is_set_accepted(state: &GatewayState, place: usize) -> bool {
    of_set(state, place).any(Listening::is_valid)
}

fn listener_set(state: &GatewayState, place: usize, bound: &Bound, now: &str) -> Value {
    let Some(set) = state.frontend.sets.get(place) else { return Value::Null };
    let (old, generation) = (&set.set.status, set.set.metadata.generation.unwrap_or_default());
    let all = of_set(state, place).count();
    // Unlike a Gateway, a set is refused when none of its listeners has a certificate that it may use.
    let fine = of_set(state, place).filter(|one| one.is_valid()).count();
    let served = of_set(state, place).any(|one| is_programmed(state, one, bound));
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
    let listeners = of_set(state, place).map(|one| listener(state, one, bound, &old["listeners"], generation, now));
    let mut status = json!({ "conditions": merged(&old["conditions"], &conditions, generation, now) });
    let listeners: Vec<_> = listeners.collect();
    if !listeners.is_empty() {
        status["listeners"] = Value::Array(listeners);
    }
    status
}

fn route(told: &Told, now: &str) -> Value {
    let old = parents_of(&told.status);
    let mut parents: Vec<Value> = told
        .parents
        .iter()
        .map(|attached| {
            let reference = serde_json::to_value(&attached.parent).unwrap_or_default();
            let before = old.iter().find(|one| is_ours(one) && one["parentRef"] == reference);
            let before = before.map_or(&Value::Null, |one| &one["conditions"]);
            let conditions = merged(before, &attached.conditions, told.generation, now);
            json!({ "parentRef": reference, "controllerName": CONTROLLER, "conditions": conditions })
        })
        .collect();
    parents.extend(old.iter().filter(|one| !is_ours(one)).cloned());
    json!({ "parents": parents })
}

/// What is worth an Event.
pub fn warnings(resolved: &Resolved, bound: &Bound) -> Vec<Warning> {
    let mut warnings = Vec::new();
    for state in &resolved.gateways.list {
        for listening in state.frontend.listeners.iter().filter(|one| one.is_valid()) {
            let (problem, note) = served(state, listening, bound);
            let message = match problem {
                Some(problem) if problem.reason == "PortUnavailable" => problem.message,
                _ if !note.is_empty() => note,
                _ => continue,
            };
            warnings.push(Warning {
                kind: "Gateway",
                key: state.key.clone(),
                uid: state.gateway.metadata.uid.clone(),
                reason: "PortUnavailable",
                message: format!("listener {}: {message}", listening.spec.name),
            });
        }
    }
    let of_ingresses = resolved.ingress.warnings.iter().map(|(ingress, reason, message)| Warning {
        kind: "Ingress",
        key: key(&ingress.metadata),
        uid: ingress.metadata.uid.clone(),
        reason,
        message: message.clone(),
    });
    warnings.extend(of_ingresses);
    warnings
}
