//! Services that lead nowhere.

use ferry_meta::object;
use ferry_meta::selector::LabelSelector;
use serde_json::Value;

use super::network_policy::{self, Traffic};
use super::{
    Finding, Reason, external, in_namespace, is_soon, is_young, local, named, near, pairs, plural, pod, said, slices,
};
use crate::gather::ALL_PODS;
use crate::world::{World, ago, condition, time_at, title};

pub(super) fn findings(world: &World, service: &Value) -> Vec<Finding> {
    let kind = object::text(service, "/spec/type");
    if kind == "ExternalName" {
        return external::finding(world, service).into_iter().collect();
    }
    if is_dark(world, service)
        && let Some(finding) = dark(world, service)
    {
        return vec![finding];
    }
    if object::map(service, "/spec/selector").is_empty() {
        let wrong = slices::other_family(world, service).or_else(|| slices::unserved_port(world, service));
        return wrong.into_iter().collect();
    }
    let selected = selected(world, service).unwrap_or_default();
    let serving: Vec<&Value> = selected.into_iter().filter(|pod| pod::is_serving(pod)).collect();
    let mut found: Vec<Finding> = unnamed_port(service, &serving).into_iter().collect();
    if found.is_empty() {
        found.extend(other_port(service, &serving).or_else(|| left_out(service, &serving)));
    }
    if kind == "LoadBalancer" && object::items(service, "/status/loadBalancer/ingress").is_empty() {
        found.push(balancer(world, service));
    }
    found.extend(local::traffic(world, service));
    if found.is_empty() {
        let isolated = |pod: &&Value| network_policy::isolated(world, pod, Traffic::Ingress);
        found.extend(serving.iter().find_map(isolated));
    }
    found
}

fn balancer(world: &World, service: &Value) -> Finding {
    if let Some(event) = world.event(service, &["PortNotAvailable"]) {
        return Finding::new(
            Reason::LoadBalancerPort,
            service,
            "it gets no address of a load balancer: its port is taken",
        )
        .detail(object::text(event, "/message"))
        .advise("give it another port, or free the one that is in use");
    }
    if let Some(event) = world.event(service, &["SyncLoadBalancerFailed"]) {
        return Finding::new(Reason::LoadBalancerPending, service, "it gets no address of a load balancer")
            .detail(object::text(event, "/message"))
            .advise(
                "correct what the message names: whoever gives out load balancers tries again, and logs more of it",
            );
    }
    let class = object::text(service, "/spec/loadBalancerClass");
    if !class.is_empty() {
        let cause = format!("it waits for a load balancer of the class {class:?}, and nobody has taken it up");
        return Finding::new(Reason::LoadBalancerClass, service, cause)
            .underway_if(is_young(world, service))
            .detail("a Service with a loadBalancerClass is left alone by the cluster's own load balancer")
            .advise(format!(
                "install what serves the class {class:?}; or create the Service anew without loadBalancerClass"
            ));
    }
    let age = time_at(service, "/metadata/creationTimestamp").map(|then| ago(world.now, then)).unwrap_or_default();
    let finding = Finding::new(Reason::LoadBalancerPending, service, "it waits for an address of a load balancer");
    finding
        .underway_if(is_young(world, service))
        .detail(format!("it was made {age} ago"))
        .advise("something must give these out: Ferry's own (ferry up), a cloud's controller, or MetalLB and its like")
}

/// The pods that its selector means and that are not over; None where pods could not be looked at.
fn selected<'a>(world: &'a World, service: &Value) -> Option<Vec<&'a Value>> {
    let pods = world.seen("pods")?;
    let selector = object::map(service, "/spec/selector");
    let matcher = LabelSelector::from_map(selector);
    let over = |pod: &Value| matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
    let means = |pod: &&Value| matcher.matches(object::labels(pod)) && !over(pod);
    Some(if selector.is_empty() { Vec::new() } else { pods.iter().filter(means).collect() })
}

/// Whether nothing answers behind it, as far as that can be seen: no endpoint is ready, or no pod could be one.
pub(super) fn is_dark(world: &World, service: &Value) -> bool {
    match world.seen("endpointslices") {
        Some(_) => !listed(world, service).into_iter().any(is_ready),
        None => {
            let has_selector = !object::map(service, "/spec/selector").is_empty();
            has_selector && selected(world, service).is_some_and(|pods| !pods.into_iter().any(pod::is_serving))
        }
    }
}

/// The endpoints in all slices of a Service.
fn listed<'a>(world: &'a World, service: &Value) -> Vec<&'a Value> {
    slices::of(world, service).flat_map(|slice| object::items(slice, "/endpoints")).collect()
}

fn is_ready(endpoint: &Value) -> bool {
    endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false)
}

/// Why no endpoint of it is ready.
fn dark(world: &World, service: &Value) -> Option<Finding> {
    let selector = object::map(service, "/spec/selector");
    let edit = format!("kubectl edit {}{}", in_namespace(service), title(service));
    if selector.is_empty() {
        return Some(slices::without_selector(world, service, &edit));
    }
    let wanted = pairs(selector);
    let Some(selected) = selected(world, service) else {
        let cause = format!("none of its endpoints is ready; the pods of its selector {wanted} could not be looked at");
        return Some(Finding::new(Reason::NoReadyEndpoint, service, cause).advise("ask somebody who may list pods"));
    };
    let serving: Vec<&Value> = selected.iter().copied().filter(|pod| pod::is_serving(pod)).collect();
    let serving = serving.as_slice();
    if selected.is_empty() {
        return Some(no_pods(world, service, selector, &wanted, &edit));
    }
    if serving.is_empty() {
        let cause = format!("it selects {} ({wanted}), and none of them is ready", plural(selected.len(), "pod"));
        let finding = Finding::new(Reason::PodsNotReady, service, cause);
        return Some(match selected.iter().find_map(|pod| pod::first(world, pod)) {
            Some(inner) => finding.because_of(inner),
            None => finding,
        });
    }
    if let Some(finding) = unnamed_port(service, serving) {
        return Some(finding);
    }
    if let Some(finding) = slices::pods_of_other_family(service, serving) {
        return Some(finding);
    }
    let cause = format!("{} ready, but its EndpointSlices do not list them yet", plural(serving.len(), "pod"));
    let advice = "see that the controllers run: the EndpointSlice controller writes them";
    let told = world.event(service, &["FailedToUpdateEndpointSlices"]).map(said).unwrap_or_default();
    let since = serving.iter().filter_map(|pod| time_at(condition(pod, "Ready")?, "/lastTransitionTime")).max();
    let late = since.is_some_and(|at| world.now.as_second() - at.as_second() > 30);
    let mut finding = Finding::new(Reason::EndpointsLate, service, cause).detail(told).advise(advice);
    finding.underway = !late;
    Some(finding)
}

/// The selector means no pod: whether somebody makes them, or the labels are others.
fn no_pods(
    world: &World,
    service: &Value,
    selector: &serde_json::Map<String, Value>,
    wanted: &str,
    edit: &str,
) -> Finding {
    let namespace = object::namespace(service);
    let matcher = LabelSelector::from_map(selector);
    let makers = ["deployments", "statefulsets", "daemonsets"].into_iter().flat_map(|list| world.all(list));
    let made = |set: &&Value| matcher.matches(object::map(set, "/spec/template/metadata/labels"));
    if let Some(maker) = makers.clone().find(made) {
        let name = title(maker);
        let zero = maker.pointer("/spec/replicas").and_then(Value::as_i64) == Some(0);
        let why = if zero { "is scaled to zero" } else { "has none" };
        let cause = format!("{name} makes the pods that its selector {wanted} matches, and {why}");
        let finding = Finding::new(Reason::MakerHasNoPods, service, cause);
        return match zero {
            true => finding.note().advise(format!("kubectl scale -n {namespace} {name} --replicas=1")),
            false => finding.advise(format!("ferry why -n {namespace} {name}")),
        };
    }
    let over = world.all("pods").iter().find(|pod| matcher.matches(object::labels(pod)));
    if let Some(pod) = over {
        let (name, phase) = (object::name(pod), object::text(pod, "/status/phase"));
        let cause =
            format!("the pods that its selector {wanted} matches are over: {name} has {}", phase.to_lowercase());
        return Finding::new(Reason::PodsNotReady, service, cause)
            .detail("a pod that has ended answers nobody")
            .advise("what serves must not end: use a Deployment, or restartPolicy: Always");
    }
    let cause = format!("its selector {wanted} matches no pod in {namespace}");
    let finding = Finding::new(Reason::SelectorMatchesNothing, service, cause);
    let templates: Vec<&serde_json::Map<String, Value>> =
        makers.map(|maker| object::map(maker, "/spec/template/metadata/labels")).collect();
    let elsewhere = world.all(ALL_PODS).iter().find(|pod| matcher.matches(object::labels(pod)));
    let finding = match elsewhere.map(object::namespace) {
        Some(place) => finding
            .detail(format!(
                "pods with {wanted} are in namespace {place}: a Service means pods of its own namespace alone"
            ))
            .advise(format!("create the Service there, or call it {}.{place} once it is there", object::name(service))),
        None => finding,
    };
    let finding = finding.detail(near_miss(world, selector, &templates).unwrap_or_default());
    finding.advise(format!("correct spec.selector: {edit}")).advise("or the labels in the pods' template")
}

/// A targetPort that is a number which no container names: allowed, and worth a look where ports are named.
fn other_port(service: &Value, pods: &[&Value]) -> Option<Finding> {
    // The pods of a headless Service are asked at their own ports.
    if pods.is_empty() || object::text(service, "/spec/clusterIP") == "None" {
        return None;
    }
    for port in object::items(service, "/spec/ports") {
        let protocol = protocol(port);
        let target = port.get("targetPort").and_then(Value::as_i64).or_else(|| port.get("port")?.as_i64())?;
        if port.get("targetPort").is_some_and(Value::is_string) {
            continue;
        }
        let declared: Vec<(i64, String)> = container_ports(pods)
            .map(|port| (port.get("containerPort").and_then(Value::as_i64).unwrap_or(0), self::protocol(port)))
            .collect();
        if declared.is_empty() || declared.contains(&(target, protocol.clone())) {
            continue;
        }
        let mut known: Vec<String> = declared.iter().map(|(number, protocol)| format!("{number}/{protocol}")).collect();
        known.sort();
        known.dedup();
        let cause = format!(
            "no container names port {target}/{protocol}, which is its targetPort; its pods name {}",
            named(&known)
        );
        return Some(
            Finding::new(Reason::PortMismatch, service, cause)
                .note()
                .detail("containers may listen on ports that they do not name; then nothing is wrong")
                .advise(format!(
                    "if it is a mistake, correct targetPort: kubectl edit {}{}",
                    in_namespace(service),
                    title(service)
                )),
        );
    }
    None
}

fn protocol(port: &Value) -> String {
    match object::text(port, "/protocol") {
        "" => "TCP".to_owned(),
        protocol => protocol.to_owned(),
    }
}

fn container_ports<'a>(pods: &'a [&Value]) -> impl Iterator<Item = &'a Value> {
    pods.iter()
        .flat_map(|pod| {
            ["/spec/containers", "/spec/initContainers"].into_iter().flat_map(|list| object::items(pod, list))
        })
        .flat_map(|container| object::items(container, "/ports"))
}

/// A port that is named must be named in the pods too.
fn unnamed_port(service: &Value, pods: &[&Value]) -> Option<Finding> {
    if pods.is_empty() {
        return None;
    }
    for port in object::items(service, "/spec/ports") {
        let Some(name) = port.get("targetPort").and_then(Value::as_str) else { continue };
        let protocol = protocol(port);
        let is = |port: &Value| object::text(port, "/name") == name && self::protocol(port) == protocol;
        if container_ports(pods).any(is) {
            continue;
        }
        if let Some(other) = container_ports(pods).find(|port| object::text(port, "/name") == name) {
            let has = self::protocol(other);
            let cause = format!(
                "its port {}/{protocol} leads to the container port {name:?}, which is {has}: nothing is behind it",
                port.get("port").and_then(Value::as_i64).unwrap_or(0)
            );
            return Some(
                Finding::new(Reason::PortName, service, cause)
                    .advise(format!(
                        "use protocol: {has} in the Service: kubectl edit {}{}",
                        in_namespace(service),
                        title(service)
                    ))
                    .advise(format!("or protocol: {protocol} in the container's port")),
            );
        }
        let mut names: Vec<&str> =
            container_ports(pods).map(|port| object::text(port, "/name")).filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        let has = if names.is_empty() { "they name none".to_owned() } else { format!("they have {}", named(&names)) };
        let cause = format!(
            "its targetPort {name:?} (port {}/{protocol}) is the name of no container port of its pods; {has}",
            port.get("port").and_then(Value::as_i64).unwrap_or(0)
        );
        return Some(
            Finding::new(Reason::PortName, service, cause)
                .advise(format!(
                    "correct targetPort, or use a number: kubectl edit {}{}",
                    in_namespace(service),
                    title(service)
                ))
                .advise("or give a container's port that name"),
        );
    }
    None
}

/// Pods that do not have the named port that others of the Service have: no request goes to them.
fn left_out(service: &Value, pods: &[&Value]) -> Option<Finding> {
    let targets = object::items(service, "/spec/ports").iter();
    let mut targets = targets.filter_map(|port| Some((port, port.get("targetPort")?.as_str()?)));
    let lacks = |name: &str| {
        let mut without = pods
            .iter()
            .filter(|pod| !container_ports(std::slice::from_ref(*pod)).any(|port| object::text(port, "/name") == name));
        without.next().map(|first| (object::name(first).to_owned(), without.count()))
    };
    let (port, name, (first, more)) = targets.find_map(|(port, name)| Some((port, name, lacks(name)?)))?;
    let more = if more > 0 { format!(" and {}", plural(more, "more pod")) } else { String::new() };
    let cause = format!(
        "pod/{first}{more} {} no container port of the name {name:?}: nothing of port {}/{} goes there",
        if more.is_empty() { "has" } else { "have" },
        port.get("port").and_then(Value::as_i64).unwrap_or(0),
        protocol(port)
    );
    Some(Finding::new(Reason::PortName, service, cause).note().advise(format!(
        "if it is to serve too, give its container's port that name, or use a number as targetPort: kubectl edit {}{}",
        in_namespace(service),
        title(service)
    )))
}

/// Pods that have the label with another value, or the value under another label.
fn near_miss(
    world: &World,
    selector: &serde_json::Map<String, Value>,
    templates: &[&serde_json::Map<String, Value>],
) -> Option<String> {
    let labels: Vec<&serde_json::Map<String, Value>> =
        world.all("pods").iter().map(object::labels).chain(templates.iter().copied()).collect();
    for (key, value) in selector {
        let mut others: Vec<&str> = labels.iter().filter_map(|labels| labels.get(key)?.as_str()).collect();
        others.sort_unstable();
        others.dedup();
        let wanted = value.as_str().unwrap_or_default();
        if !others.is_empty() && !others.contains(&wanted) {
            return Some(format!("pods there have {key}={}", named(&near::sorted(wanted, others))));
        }
        let elsewhere = labels.iter().find_map(|labels| {
            labels.iter().find(|(other, have)| *have == value && *other != key).map(|(other, _)| other)
        });
        if let Some(other) = elsewhere.filter(|_| others.is_empty()) {
            return Some(format!(
                "no pod has the label {key}, but some have {other}={}",
                value.as_str().unwrap_or_default()
            ));
        }
    }
    partly(world, selector)
}

/// Each label is there, but no pod has them all: the pod that has most of them, and what it lacks.
fn partly(world: &World, selector: &serde_json::Map<String, Value>) -> Option<String> {
    let lacks = |pod: &Value| {
        let labels = object::labels(pod);
        selector.iter().filter(|(key, value)| labels.get(*key) != Some(value)).count()
    };
    let pod = world.all("pods").iter().min_by_key(|pod| lacks(pod)).filter(|pod| lacks(pod) < selector.len())?;
    let labels = object::labels(pod);
    let (has, missing): (Vec<_>, Vec<_>) = selector.iter().partition(|(key, value)| labels.get(*key) == Some(*value));
    let text = |list: Vec<(&String, &Value)>| pairs(&list.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect());
    Some(format!("pod/{} has {}, and not {}", object::name(pod), text(has), text(missing)))
}

/// A pod that is ready, selected by a Service, and not in its slices.
pub(super) fn unlisted(world: &World, pod: &Value) -> Option<Finding> {
    if !pod::is_serving(pod) {
        return None;
    }
    let listed_as = object::items(pod, "/status/podIPs").iter().map(|one| object::text(one, "/ip"));
    let address = object::text(pod, "/status/podIP");
    let addresses: Vec<&str> = listed_as.chain(std::iter::once(address)).collect();
    world.seen("endpointslices")?;
    for service in world.all("services") {
        let selector = object::map(service, "/spec/selector");
        let selects = !selector.is_empty() && LabelSelector::from_map(selector).matches(object::labels(pod));
        if !selects || object::text(service, "/spec/type") == "ExternalName" {
            continue;
        }
        let known = listed(world, service).iter().any(|endpoint| {
            let own = |listed: &Value| listed.as_str().is_some_and(|listed| addresses.contains(&listed));
            is_ready(endpoint) && object::items(endpoint, "/addresses").iter().any(own)
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
            let told = world.event(service, &["FailedToUpdateEndpointSlices"]).map(said).unwrap_or_default();
            let since = time_at(condition(pod, "Ready")?, "/lastTransitionTime");
            let early = since.is_none_or(|since| is_soon(world, since));
            return Some(
                Finding::new(Reason::EndpointsLate, pod, cause).detail(told).advise(advice).underway_if(early),
            );
        }
    }
    None
}
