//! Services without a selector: somebody writes their EndpointSlices.

use ferry_meta::object;
use serde_json::Value;

use super::{Finding, Reason, in_namespace, is_young, named, near, plural, service};
use crate::world::{World, title};

const LABEL: &str = "kubernetes.io/service-name";

/// The slices of a Service.
pub(super) fn of<'a>(world: &'a World, service: &Value) -> impl Iterator<Item = &'a Value> {
    let name = object::name(service).to_owned();
    let is_of = move |slice: &&Value| object::labels(slice).get(LABEL).and_then(Value::as_str) == Some(&name);
    world.all("endpointslices").iter().filter(is_of)
}

/// A slice by itself: whose it is, and if none of its endpoints is ready, why.
pub(super) fn slice(world: &World, slice: &Value) -> Vec<Finding> {
    let Some(services) = world.seen("services") else { return Vec::new() };
    let (namespace, name) = (object::namespace(slice), object::name(slice));
    let finding = |cause: String| Finding::new(Reason::SliceService, slice, cause);
    let is_there = |wanted: &str| services.iter().find(|one| object::name(one) == wanted);
    let Some(of) = object::labels(slice).get(LABEL).and_then(Value::as_str) else {
        let cause = format!("no Service has it: it has no label {LABEL}");
        // `web` or `web-1` is what somebody calls a slice of the Service web.
        let meant = services
            .iter()
            .map(object::name)
            .filter(|service| name.strip_prefix(service).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')));
        return vec![match meant.max_by_key(|service| service.len()) {
            Some(meant) => finding(cause).advise(format!(
                "if it is of the Service {meant}: kubectl label {}endpointslice/{name} {LABEL}={meant}",
                in_namespace(slice)
            )),
            None => finding(cause).advise(format!(
                "name its Service: kubectl label {}endpointslice/{name} {LABEL}=SERVICE",
                in_namespace(slice)
            )),
        }];
    };
    let Some(service) = is_there(of) else {
        let names = near::sorted(of, services.iter().map(object::name).collect());
        let there =
            if names.is_empty() { "the namespace has none".to_owned() } else { format!("there are {}", named(&names)) };
        return vec![
            finding(format!("nobody uses it: the Service {of:?} that its label {LABEL} names does not exist in namespace {namespace}"))
                .underway_if(is_young(world, slice))
                .detail(there)
                .advise(format!("create the Service {of}, or correct the label: kubectl edit {}endpointslice/{name}", in_namespace(slice))),
        ];
    };
    // Slices of several kinds of addresses belong to one Service: it is not well where none of them has an endpoint.
    match service::is_dark(world, service) {
        true => service::findings(world, service),
        false => Vec::new(),
    }
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
    let known: Vec<(String, String)> = slices
        .iter()
        .flat_map(|slice| object::items(slice, "/ports"))
        .map(|port| (name_of(port), protocol(port)))
        .collect();
    let has = |port: &&Value| known.contains(&(name_of(port), protocol(port)));
    let unserved = object::items(service, "/spec/ports").iter().find(|port| !has(port))?;
    let missing = name_of(unserved);
    let mut served: Vec<String> = known.iter().map(|(name, _)| name.clone()).collect();
    served.sort();
    served.dedup();
    let first = slices.first().map(|slice| object::name(slice))?;
    if let Some((_, other)) = known.iter().find(|(name, _)| *name == missing) {
        let wanted = protocol(unserved);
        let cause = format!(
            "nothing is behind its port {}/{wanted}: in its EndpointSlice {first} that port is {other}",
            unserved.get("port").and_then(Value::as_i64).unwrap_or(0)
        );
        let edit = format!("kubectl edit {}endpointslice/{first}", in_namespace(service));
        return Some(
            Finding::new(Reason::SlicePort, service, cause)
                .detail("a port of the Service and one of the slice belong together by name and protocol")
                .advise(format!("use protocol: {wanted} in the slice: {edit}"))
                .advise(format!(
                    "or protocol: {other} in the Service: kubectl edit {}{}",
                    in_namespace(service),
                    title(service)
                )),
        );
    }
    let quoted: Vec<String> = served.iter().map(|name| format!("{name:?}")).collect();
    let has = if served.is_empty() { "names none".to_owned() } else { format!("has {}", named(&quoted)) };
    let cause = format!("nothing is behind its port {missing:?}: its EndpointSlice {first} {has}");
    Some(
        Finding::new(Reason::SlicePort, service, cause)
            .detail("a port of the Service and one of the slice belong together by their name")
            .advise(format!("correct the names: kubectl edit {}endpointslice/{first}", in_namespace(service))),
    )
}

fn protocol(port: &Value) -> String {
    match object::text(port, "/protocol") {
        "" => "TCP".to_owned(),
        protocol => protocol.to_owned(),
    }
}

/// Pods that have no address of the families of a Service: none of them can be listed for it.
pub(super) fn pods_of_other_family(service: &Value, pods: &[&Value]) -> Option<Finding> {
    let families: Vec<&str> = object::items(service, "/spec/ipFamilies").iter().filter_map(Value::as_str).collect();
    let addresses = pods.iter().flat_map(|pod| {
        let all = object::items(pod, "/status/podIPs").iter().map(|one| object::text(one, "/ip"));
        all.chain([object::text(pod, "/status/podIP")])
    });
    let family = |address: &str| if address.contains(':') { "IPv6" } else { "IPv4" };
    let mut has: Vec<&str> = addresses.filter(|address| !address.is_empty()).map(family).collect();
    has.sort_unstable();
    has.dedup();
    let [only] = has.as_slice() else { return None };
    if families.is_empty() || families.contains(only) {
        return None;
    }
    let cause = format!("its pods have addresses of {only} alone, and the Service has {} alone", named(&families));
    Some(Finding::new(Reason::SliceFamily, service, cause).advise(format!(
        "the first of ipFamilies cannot be changed: delete it, and create it with ipFamilies: [{only}]: kubectl delete {}{}",
        in_namespace(service),
        title(service)
    )))
}

/// Slices whose addresses are of a kind that the Service does not have: packets go to none of them.
pub(super) fn other_family(world: &World, service: &Value) -> Option<Finding> {
    let families: Vec<&str> = object::items(service, "/spec/ipFamilies").iter().filter_map(Value::as_str).collect();
    let headless = object::text(service, "/spec/clusterIP") == "None";
    let slices: Vec<&Value> =
        of(world, service).filter(|slice| !object::items(slice, "/endpoints").is_empty()).collect();
    let kind = |slice: &Value| object::text(slice, "/addressType").to_owned();
    let serves = |slice: &&Value| {
        let kind = kind(slice);
        kind.is_empty() || families.is_empty() && kind != "FQDN" || families.contains(&kind.as_str())
    };
    let first = slices.first()?;
    if headless || slices.iter().any(serves) {
        return None;
    }
    let (name, kind) = (object::name(first), kind(first));
    let finding = |cause: String| Finding::new(Reason::SliceFamily, service, cause);
    let finding = match kind.as_str() {
        "FQDN" => finding(format!(
            "nothing is behind it: its EndpointSlice {name} lists names (addressType FQDN), and packets go to addresses alone"
        ))
        .advise("make it a Service of type ExternalName, which leads to a name"),
        kind => finding(format!(
            "nothing is behind it: its EndpointSlice {name} lists addresses of {kind}, and the Service has {} alone",
            named(&families)
        )),
    };
    // The kind of addresses of a slice cannot be changed.
    Some(finding.advise(format!(
        "create the slice anew with addressType: {}: kubectl delete {}endpointslice/{name}",
        families.first().copied().unwrap_or("IPv4"),
        in_namespace(service)
    )))
}
