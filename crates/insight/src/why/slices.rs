//! Services without a selector: somebody writes their EndpointSlices.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, named, plural};
use crate::world::World;

const LABEL: &str = "kubernetes.io/service-name";

/// The slices of a Service.
pub(super) fn of<'a>(world: &'a World, service: &Value) -> impl Iterator<Item = &'a Value> {
    let name = object::name(service).to_owned();
    let is_of = move |slice: &&Value| object::labels(slice).get(LABEL).and_then(Value::as_str) == Some(&name);
    world.all("endpointslices").iter().filter(is_of)
}

/// No endpoint is ready: there is no slice, an empty one, or none of its endpoints is.
pub(super) fn without_selector(world: &World, service: &Value, edit: &str) -> Finding {
    let name = object::name(service);
    let (slices, endpoints) = of(world, service).fold((Vec::new(), 0), |(mut names, count), slice| {
        names.push(object::name(slice));
        (names, count + object::items(slice, "/endpoints").len())
    });
    if let Some(first) = slices.first() {
        let change = format!("kubectl edit {}endpointslice/{first}", in_namespace(service));
        let cause = match endpoints {
            0 => format!("it has no selector, and its EndpointSlice {} lists no address", named(&slices)),
            _ => format!(
                "it has no selector, and none of the {} in its EndpointSlice {} is ready",
                plural(endpoints, "address"),
                named(&slices)
            ),
        };
        return Finding::new(Reason::SliceNotReady, service, cause)
            .detail("whoever writes the slice says which addresses are ready (conditions.ready)")
            .advise(format!("see that this controller runs, or correct the slice: {change}"));
    }
    let finding =
        Finding::new(Reason::NoSelector, service, "it has no selector, and nobody has written an EndpointSlice for it");
    // A slice that is called like it and names no Service is one that was meant for it.
    let meant = world.all("endpointslices").iter().find(|slice| {
        let starts = object::name(slice).starts_with(name);
        starts && !object::labels(slice).contains_key(LABEL)
    });
    match meant.map(object::name) {
        Some(slice) => finding
            .detail(format!("there is the EndpointSlice {slice}, which does not have the label {LABEL}"))
            .advise(format!(
                "if that is its own: kubectl label {}endpointslice/{slice} {LABEL}={name}",
                in_namespace(service)
            )),
        None => finding
            .advise(format!("give it spec.selector: {edit}"))
            .advise(format!("or write an EndpointSlice with the label {LABEL}={name}")),
    }
}

/// A port of the Service that no slice has under the same name.
pub(super) fn unserved_port(world: &World, service: &Value) -> Option<Finding> {
    let slices: Vec<&Value> = of(world, service).collect();
    let name_of = |port: &Value| object::text(port, "/name").to_owned();
    let mut served: Vec<String> = slices.iter().flat_map(|slice| object::items(slice, "/ports")).map(name_of).collect();
    served.sort();
    served.dedup();
    let missing = object::items(service, "/spec/ports").iter().map(name_of).find(|name| !served.contains(name))?;
    let first = slices.first().map(|slice| object::name(slice))?;
    let quoted: Vec<String> = served.iter().map(|name| format!("{name:?}")).collect();
    let has = if served.is_empty() { "names none".to_owned() } else { format!("has {}", named(&quoted)) };
    let cause = format!("nothing is behind its port {missing:?}: its EndpointSlice {first} {has}");
    Some(
        Finding::new(Reason::SlicePort, service, cause)
            .detail("a port of the Service and one of the slice belong together by their name")
            .advise(format!("correct the names: kubectl edit {}endpointslice/{first}", in_namespace(service))),
    )
}
