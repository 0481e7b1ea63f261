//! Devices that pods claim: the claim, its template and its class, who offers such devices, and who has them.

use ferry_meta::object;
use ferry_semantics::taints;
use serde_json::Value;

use super::containers::edit;
use super::{Finding, Reason, named};
use crate::world::{World, time_at};

/// Whether what a pod asks for may be devices: by a claim, or by a resource that is not of Kubernetes.
pub(crate) fn may_have(pod: &Value) -> bool {
    let asks = |container: &Value| object::map(container, "/resources/requests").keys().any(|name| name.contains('/'));
    let containers = ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|list| object::items(pod, list));
    !object::items(pod, "/spec/resourceClaims").is_empty() || containers.into_iter().any(asks)
}

/// All devices of the classes that a pod asks for are allocated to the claims of others.
pub(super) fn taken(world: &World, pod: &Value) -> Option<Finding> {
    let own: Vec<&str> = object::items(pod, "/spec/resourceClaims")
        .iter()
        .chain(object::items(pod, "/status/resourceClaimStatuses"))
        .map(|one| object::text(one, "/resourceClaimName"))
        .filter(|name| !name.is_empty())
        .collect();
    let claims = world.seen("resourceclaims")?;
    let waits = claims
        .iter()
        .find(|claim| own.contains(&object::name(claim)) && claim.pointer("/status/allocation").is_none())?;
    // (driver, pool, device) of every device that somebody has.
    let results = |claim: &'_ Value| {
        let results = object::items(claim, "/status/allocation/devices/results").iter();
        results.map(place).collect::<Vec<_>>()
    };
    let offered: Vec<[String; 3]> = world
        .seen("resourceslices")?
        .iter()
        .flat_map(|slice| {
            object::items(slice, "/spec/devices").iter().map(move |device| {
                let text = |pointer: &str| object::text(slice, pointer).to_owned();
                [text("/spec/driver"), text("/spec/pool/name"), object::text(device, "/name").to_owned()]
            })
        })
        .collect();
    let taken: Vec<[String; 3]> = claims.iter().flat_map(results).collect();
    let tainted = tainted(world, waits);
    let is_kept = |one: &[String; 3]| tainted.iter().any(|(place, _)| place == one);
    if offered.is_empty() || !offered.iter().all(|one| taken.contains(one) || is_kept(one)) {
        return None;
    }
    if let Some(([_, pool, device], taint)) = tainted.iter().find(|(place, _)| !taken.contains(place)) {
        let free = offered.iter().filter(|one| !taken.contains(one)).count();
        let cause = format!(
            "its claim {} gets no devices: {free} of {} that are offered are free, and what is free has taints that it does not tolerate: {device} of pool {pool} has {taint}",
            object::name(waits),
            offered.len(),
        );
        return Some(
            Finding::new(Reason::DeviceClaim, pod, cause)
                .advise("whoever set the taint takes it away when the device is well: see its driver, and kubectl get devicetaintrules")
                .advise("or tolerate it in the claim's request (exactly.tolerations), which is to be made anew for that"),
        );
    }
    let holders: Vec<String> = claims.iter().filter(|claim| !results(claim).is_empty()).map(holder).collect();
    let cause = format!(
        "its claim {} gets no devices: all that are offered ({}) are allocated, to {}",
        object::name(waits),
        offered.len(),
        named(&holders)
    );
    let finding = Finding::new(Reason::DeviceClaim, pod, cause);
    Some(
        finding
            .advise(format!("see who has them: kubectl get resourceclaims -n {}", object::namespace(pod)))
            .advise("end a pod that has one, or add a node with such devices"),
    )
}

/// A device as driver, pool and name, and a taint of it.
type Tainted = ([String; 3], String);

/// The devices whose taints a claim does not tolerate.
fn tainted(world: &World, claim: &Value) -> Vec<Tainted> {
    let requests = object::items(claim, "/spec/devices/requests").iter();
    let requests = requests.flat_map(|one| {
        let several = object::items(one, "/firstAvailable").iter();
        std::iter::once(&one["exactly"]).chain(several)
    });
    let tolerations: Vec<&Value> = requests.flat_map(|one| object::items(one, "/tolerations")).collect();
    let mut found = Vec::new();
    for slice in world.all("resourceslices") {
        let text = |pointer: &str| object::text(slice, pointer).to_owned();
        for device in object::items(slice, "/spec/devices") {
            let keeps = |taint: &&Value| {
                let effect = object::text(taint, "/effect");
                effect != "None" && !taints::tolerated(tolerations.iter().copied(), *taint)
            };
            let Some(taint) = object::items(device, "/taints").iter().find(keeps) else { continue };
            let (key, value) = (object::text(taint, "/key"), object::text(taint, "/value"));
            let value = if value.is_empty() { String::new() } else { format!("={value}") };
            found.push((
                [text("/spec/driver"), text("/spec/pool/name"), object::text(device, "/name").to_owned()],
                format!("{key}{value}:{}", object::text(taint, "/effect")),
            ));
        }
    }
    found
}

fn place(result: &Value) -> [String; 3] {
    ["/driver", "/pool", "/device"].map(|pointer| object::text(result, pointer).to_owned())
}

/// `the claim a (pod/b)`
fn holder(claim: &Value) -> String {
    let users = object::items(claim, "/status/reservedFor").iter();
    let users: Vec<String> = users.map(|user| format!("pod/{}", object::text(user, "/name"))).collect();
    match users.is_empty() {
        true => format!("the claim {}", object::name(claim)),
        false => format!("the claim {} ({})", object::name(claim), named(&users)),
    }
}

/// Devices that it claims: the ResourceClaim, its template or the class of its devices is not there.
pub(super) fn of_pod(world: &World, pod: &Value) -> Option<Finding> {
    if !object::text(pod, "/spec/nodeName").is_empty() {
        return None;
    }
    let namespace = object::namespace(pod);
    for entry in object::items(pod, "/spec/resourceClaims") {
        for (field, list, kind) in [
            ("/resourceClaimName", "resourceclaims", "ResourceClaim"),
            ("/resourceClaimTemplateName", "resourceclaimtemplates", "ResourceClaimTemplate"),
        ] {
            let name = object::text(entry, field);
            let Some(items) = world.seen(list).filter(|_| !name.is_empty()) else { continue };
            let Some(found) = items.iter().find(|item| object::name(item) == name) else {
                let cause = format!(
                    "its resource {:?} needs the {kind} {name:?}, and there is none in namespace {namespace}",
                    object::text(entry, "/name")
                );
                return Some(
                    Finding::new(Reason::DeviceClaim, pod, cause)
                        .advise(format!("create the {kind} {name}, or correct its name: {}", edit(world, pod))),
                );
            };
            let place = if kind == "ResourceClaim" { "/spec/devices" } else { "/spec/spec/devices" };
            if let Some(missing) = missing_class(world, found, place) {
                return Some(missing.detail(format!("{} waits for the {kind} {name}", crate::world::title(pod))));
            }
            let allocated = found.pointer("/status/allocation").is_some();
            if world.seen("resourceslices").is_some_and(<[Value]>::is_empty) && !allocated {
                let cause = format!(
                    "its resource {:?} ({kind} {name}) asks for devices, and no node offers any: the cluster has no ResourceSlice",
                    object::text(entry, "/name")
                );
                return Some(
                    Finding::new(Reason::DeviceClaim, pod, cause)
                        .advise("see that the driver of these devices runs on a node: it writes the ResourceSlices"),
                );
            }
        }
    }
    None
}

/// A ResourceClaim of its own: devices are chosen for it together with the node of its first pod.
pub(super) fn device_claim(world: &World, claim: &Value) -> Option<Finding> {
    if let Some(missing) = missing_class(world, claim, "/spec/devices") {
        return Some(missing);
    }
    if claim.pointer("/status/allocation").is_some() {
        return None;
    }
    let name = object::name(claim);
    let uses = |pod: &&Value| {
        let named = object::items(pod, "/spec/resourceClaims").iter();
        let made = object::items(pod, "/status/resourceClaimStatuses").iter();
        named.chain(made).any(|one| object::text(one, "/resourceClaimName") == name)
    };
    let Some(user) = world.seen("pods")?.iter().find(uses) else {
        let cause = "no devices are allocated: that happens when a pod uses it, and none does so far";
        return Some(Finding::new(Reason::DeviceClaim, claim, cause).note().advise("start a pod that uses it"));
    };
    let (pod, namespace) = (object::name(user), object::namespace(claim));
    let finding = |cause: String| Finding::new(Reason::DeviceClaim, claim, cause);
    let ask = format!("ferry why -n {namespace} pod/{pod}");
    if world.seen("resourceslices").is_some_and(<[Value]>::is_empty) {
        let cause =
            format!("pod/{pod} waits for its devices, and no node offers any: the cluster has no ResourceSlice");
        return Some(
            finding(cause).advise("see that the driver of these devices runs on a node: it writes the ResourceSlices"),
        );
    }
    let early = time_at(user, "/metadata/creationTimestamp").is_some_and(|made| super::is_soon(world, made));
    Some(finding(format!("pod/{pod} uses it, and has no node yet")).underway_if(early).advise(ask))
}

/// A DeviceClass that a claim asks for and that does not exist.
pub(super) fn missing_class(world: &World, claim: &Value, place: &str) -> Option<Finding> {
    let classes = world.seen("deviceclasses")?;
    let requests = object::items(claim, &format!("{place}/requests"));
    let asked = requests.iter().flat_map(|request| {
        let several = object::items(request, "/firstAvailable").iter();
        std::iter::once(&request["exactly"]).chain(several).map(|one| object::text(one, "/deviceClassName"))
    });
    let known = |name: &str| classes.iter().any(|class| object::name(class) == name);
    let name = asked.into_iter().find(|name| !name.is_empty() && !known(name))?;
    let names: Vec<&str> = classes.iter().map(object::name).collect();
    let there = match names.is_empty() {
        true => "the cluster has no DeviceClass at all: the driver of the devices brings it".to_owned(),
        false => format!("there are {}", named(&names)),
    };
    let cause = format!("it asks for devices of the DeviceClass {name:?}, which does not exist");
    Some(
        Finding::new(Reason::DeviceClaim, claim, cause)
            .detail(there)
            .advise(format!("install the driver that brings {name}, or create the claim with a class that exists")),
    )
}
