//! Resources and ports of a node, against what the pods there have taken.

use ferry_meta::object;
use ferry_meta::quantity::Quantity;
use ferry_semantics::quota::amounts::{amounts, total_with_overhead};
use serde_json::Value;

use super::{Checked, Obstacle, Taken};
use crate::gather::ALL_PODS;
use crate::world::{World, title};

pub(super) fn obstacles(world: &World, taken: &Taken<'_>, pod: &Value, node: &Value) -> Vec<Obstacle> {
    let mut found = Vec::new();
    let allocatable = amounts(node, "/status/allocatable");
    let capacity = amounts(node, "/status/capacity");
    let zero = || Quantity::from_units(0, ferry_meta::quantity::Format::DecimalSi);
    let name = object::name(node);
    let there: Option<&[&Value]> = taken.on.as_ref().map(|on| on.get(name).map(Vec::as_slice).unwrap_or_default());
    for (resource, wanted) in total_with_overhead(&pod["spec"], "requests") {
        if wanted.is_zero() {
            continue;
        }
        let total = allocatable.get(&resource).cloned().unwrap_or_else(zero);
        let used = there
            .unwrap_or_default()
            .iter()
            .filter_map(|other| total_with_overhead(&other["spec"], "requests").remove(&resource));
        let free = used.fold(total.clone(), |free, used| free.sub(&used));
        let (fits, ever) = (free.as_f64() >= wanted.as_f64(), total.as_f64() >= wanted.as_f64());
        // Devices stand in for it: whether some are free, the scheduler knows.
        let by_devices = total.is_zero() && is_of_devices(world, &resource);
        if !fits && !by_devices {
            let free = if free.is_negative() { zero() } else { free };
            let capacity = capacity.get(&resource).cloned().unwrap_or_else(zero).to_string();
            found.push(Obstacle::Room {
                resource,
                wanted: wanted.to_string(),
                free: free.to_string(),
                total: total.to_string(),
                capacity,
                ever,
            });
        }
    }
    let Some(there) = there else { return found };
    if let Some(most) = allocatable.get("pods").filter(|most| there.len() as i64 >= most.value()) {
        found.push(Obstacle::PodCount { most: most.to_string() });
    }
    for wanted in host_ports(pod) {
        if let Some(by) = there.iter().find(|other| host_ports(other).iter().any(|taken| clash(&wanted, taken))) {
            let by = format!("{} in {}", title_of(by), object::namespace(by));
            found.push(Obstacle::Ports { port: format!("{}/{}", wanted.number, wanted.protocol), by });
            break;
        }
    }
    found
}

/// Whether a class of devices is offered as this resource.
fn is_of_devices(world: &World, resource: &str) -> bool {
    let mut classes = world.all("deviceclasses").iter();
    classes.any(|class| object::text(class, "/spec/extendedResourceName") == resource)
}

/// The pods that ask for most of what a node has too little of, where nothing else is in the way there.
pub(in super::super) fn takers(world: &World, checked: &[Checked<'_>]) -> Option<String> {
    let short = |one: &Checked<'_>| match one.obstacles.as_slice() {
        [Obstacle::Room { resource, ever: true, .. }] => Some((one.node.to_owned(), resource.clone())),
        _ => None,
    };
    let (node, resource) = checked.iter().find_map(short)?;
    let is_there = |pod: &&Value| {
        let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
        object::text(pod, "/spec/nodeName") == node && !over
    };
    let asks = |pod: &Value| total_with_overhead(&pod["spec"], "requests").remove(&resource);
    let all = world.seen(ALL_PODS)?.iter().filter(is_there);
    let mut all: Vec<(&Value, Quantity)> = all.filter_map(|pod| Some((pod, asks(pod)?))).collect();
    all.sort_by(|(_, one), (_, other)| other.as_f64().total_cmp(&one.as_f64()));
    let most = all.iter().take(3).filter(|(_, amount)| !amount.is_zero());
    let most = most.map(|(pod, amount)| format!("{} in {} ({amount})", title_of(pod), object::namespace(pod)));
    let most: Vec<String> = most.collect();
    (!most.is_empty()).then(|| format!("most {resource} of node {node} is asked for by {}", most.join(", ")))
}

/// The init container because of which the pod asks for as much of a resource as it does: one alone may ask for more than
/// all containers together.
pub(in super::super) fn init_that_asks<'a>(pod: &'a Value, checked: &[Checked<'_>]) -> Option<(&'a str, String)> {
    let mut obstacles = checked.iter().flat_map(|one| &one.obstacles);
    let resource = obstacles.find_map(|one| match one {
        Obstacle::Room { resource, .. } => Some(resource.clone()),
        _ => None,
    })?;
    let asks = |spec: &Value| total_with_overhead(spec, "requests").remove(&resource).map_or(0.0, |all| all.as_f64());
    let all = asks(&pod["spec"]);
    let inits = object::items(pod, "/spec/initContainers").iter().enumerate();
    inits
        .filter(|(_, one)| object::text(one, "/restartPolicy") != "Always")
        .find(|(place, _)| {
            let mut spec = pod["spec"].clone();
            if let Some(list) = spec["initContainers"].as_array_mut() {
                list.remove(*place);
            }
            asks(&spec) < all
        })
        .map(|(_, one)| (object::text(one, "/name"), resource.clone()))
}

fn title_of(pod: &Value) -> String {
    match object::text(pod, "/kind") {
        "" => format!("pod/{}", object::name(pod)),
        _ => title(pod),
    }
}

struct HostPort {
    number: i64,
    protocol: String,
    address: String,
}

fn host_ports(pod: &Value) -> Vec<HostPort> {
    let containers = object::items(pod, "/spec/containers").iter();
    let sidecars = object::items(pod, "/spec/initContainers").iter();
    let sidecars = sidecars.filter(|one| object::text(one, "/restartPolicy") == "Always");
    let ports = containers.chain(sidecars).flat_map(|container| object::items(container, "/ports"));
    ports
        .filter_map(|port| {
            let number = port.get("hostPort")?.as_i64().filter(|number| *number > 0)?;
            let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
            Some(HostPort {
                number,
                protocol: or(object::text(port, "/protocol"), "TCP"),
                address: or(object::text(port, "/hostIP"), "0.0.0.0"),
            })
        })
        .collect()
}

fn clash(one: &HostPort, other: &HostPort) -> bool {
    let any = |address: &str| matches!(address, "0.0.0.0" | "::");
    one.number == other.number
        && one.protocol == other.protocol
        && (one.address == other.address || any(&one.address) || any(&other.address))
}
