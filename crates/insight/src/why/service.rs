//! Services that lead nowhere.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::{Finding, Hop, named, plural, pod};
use crate::world::World;

pub(super) fn findings(world: &World, service: &Value) -> Vec<Finding> {
    let kind = object::text(service, "/spec/type");
    let selector = object::map(service, "/spec/selector");
    if kind == "ExternalName" {
        return Vec::new();
    }
    let ready = listed(world, service).iter().filter(|endpoint| is_ready(endpoint)).count();
    let found = if ready == 0 { dark(world, service, selector) } else { None };
    if let Some(finding) = found {
        return vec![finding];
    }
    let pending = kind == "LoadBalancer" && object::items(service, "/status/loadBalancer/ingress").is_empty();
    if pending {
        let finding = Finding::new(Hop::Endpoints, service, "it waits for an address of a load balancer");
        return vec![finding.advise("something must give these out: a cloud's controller, or MetalLB and its like")];
    }
    Vec::new()
}

/// The endpoints in all slices of a Service.
fn listed<'a>(world: &'a World, service: &Value) -> Vec<&'a Value> {
    let is_of = |slice: &&Value| {
        object::labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str) == Some(object::name(service))
    };
    world.all("endpointslices").iter().filter(is_of).flat_map(|slice| object::items(slice, "/endpoints")).collect()
}

fn is_ready(endpoint: &Value) -> bool {
    endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false)
}

/// Why no endpoint of it is ready.
fn dark(world: &World, service: &Value, selector: &serde_json::Map<String, Value>) -> Option<Finding> {
    let namespace = object::namespace(service);
    if selector.is_empty() {
        let cause = "it has no selector, and nobody has written an EndpointSlice for it";
        let advice = "give it spec.selector, or write EndpointSlices with the label kubernetes.io/service-name";
        return Some(Finding::new(Hop::Endpoints, service, cause).advise(advice));
    }
    let wanted: Vec<String> =
        selector.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default())).collect();
    let wanted = wanted.join(",");
    let matcher = LabelSelector::from_map(selector);
    let selected: Vec<&Value> = world.all("pods").iter().filter(|pod| matcher.matches(object::labels(pod))).collect();
    if selected.is_empty() {
        let made = |set: &&Value| matcher.matches(object::map(set, "/spec/template/metadata/labels"));
        if let Some(maker) = world.all("deployments").iter().find(made) {
            let name = object::name(maker);
            let cause = format!("deployment {name} makes the pods that its selector {wanted} matches, and has none");
            return Some(
                Finding::new(Hop::Endpoints, service, cause).advise(format!("ferry why -n {namespace} deploy/{name}")),
            );
        }
        let finding =
            Finding::new(Hop::Endpoints, service, format!("its selector {wanted} matches no pod in {namespace}"));
        let finding = match near_miss(world, selector) {
            Some(near) => finding.detail(near),
            None => finding,
        };
        return Some(finding.advise("correct spec.selector, or the labels in the pods' template"));
    }
    let serving: Vec<&Value> = selected.iter().copied().filter(|pod| pod::is_serving(pod)).collect();
    if serving.is_empty() {
        let cause = format!("it selects {}, and none of them is ready", plural(selected.len(), "pod"));
        let mut finding = Finding::new(Hop::Endpoints, service, cause);
        if let Some(inner) = selected.iter().find_map(|pod| pod::first(world, pod)) {
            finding = finding.detail(format!("{} at the {}: {}", inner.about, inner.hop.name(), inner.cause));
            finding.details.extend(inner.details);
            finding.advice = inner.advice;
            finding.underway = inner.underway;
        }
        return Some(finding);
    }
    if let Some(finding) = unnamed_port(service, &serving) {
        return Some(finding);
    }
    let cause = format!("{} ready, but its EndpointSlices do not list them yet", plural(serving.len(), "pod"));
    let advice = "see that the controllers run: the EndpointSlice controller writes them";
    Some(Finding::new(Hop::Endpoints, service, cause).advise(advice).underway())
}

/// A port that is named must be named in the pods too.
fn unnamed_port(service: &Value, pods: &[&Value]) -> Option<Finding> {
    for port in object::items(service, "/spec/ports") {
        let Some(name) = port.get("targetPort").and_then(Value::as_str) else { continue };
        let has = |pod: &&Value| {
            object::items(pod, "/spec/containers")
                .iter()
                .chain(object::items(pod, "/spec/initContainers"))
                .flat_map(|container| object::items(container, "/ports"))
                .any(|port| object::text(port, "/name") == name)
        };
        if !pods.iter().any(has) {
            let named_ports: Vec<&str> = pods
                .iter()
                .flat_map(|pod| object::items(pod, "/spec/containers"))
                .flat_map(|container| object::items(container, "/ports"))
                .map(|port| object::text(port, "/name"))
                .filter(|name| !name.is_empty())
                .collect();
            let has = if named_ports.is_empty() {
                "they name none".to_owned()
            } else {
                format!("they have {}", named(&named_ports))
            };
            let cause = format!("its targetPort is called {name:?}, and no container port of its pods is; {has}");
            let advice = "use that name in the container's ports, or a number as targetPort";
            return Some(Finding::new(Hop::Endpoints, service, cause).advise(advice));
        }
    }
    None
}

/// Pods that have the label with another value, or the value under another label.
fn near_miss(world: &World, selector: &serde_json::Map<String, Value>) -> Option<String> {
    for (key, value) in selector {
        let mut others: Vec<&str> =
            world.all("pods").iter().filter_map(|pod| object::labels(pod).get(key)?.as_str()).collect();
        others.sort_unstable();
        others.dedup();
        if !others.is_empty() && !others.contains(&value.as_str().unwrap_or_default()) {
            return Some(format!("pods there have {key}={}", named(&others)));
        }
        let elsewhere = world.all("pods").iter().find_map(|pod| {
            object::labels(pod).iter().find(|(other, have)| *have == value && *other != key).map(|(other, _)| other)
        });
        if let Some(other) = elsewhere.filter(|_| others.is_empty()) {
            return Some(format!(
                "no pod has the label {key}, but some have {other}={}",
                value.as_str().unwrap_or_default()
            ));
        }
    }
    None
}

/// A pod that is ready, selected by a Service, and not in its slices.
pub(super) fn unlisted(world: &World, pod: &Value) -> Option<Finding> {
    if !pod::is_serving(pod) {
        return None;
    }
    let address = object::text(pod, "/status/podIP");
    world.seen("endpointslices")?;
    for service in world.all("services") {
        let selector = object::map(service, "/spec/selector");
        let selects = !selector.is_empty() && LabelSelector::from_map(selector).matches(object::labels(pod));
        if !selects || object::text(service, "/spec/type") == "ExternalName" {
            continue;
        }
        let known = listed(world, service).iter().any(|endpoint| {
            is_ready(endpoint) && object::items(endpoint, "/addresses").iter().any(|a| a.as_str() == Some(address))
        });
        if !known {
            if let Some(finding) = unnamed_port(service, &[pod]) {
                return Some(finding);
            }
            let cause = format!(
                "service {} selects it, but does not list its address {address} as ready",
                object::name(service)
            );
            let advice = "see that the controllers run: the EndpointSlice controller writes the slices";
            return Some(Finding::new(Hop::Endpoints, pod, cause).advise(advice).underway());
        }
    }
    None
}
