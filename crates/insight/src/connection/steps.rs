//! The steps of a packet's way, each a pure function. None: the step is not part of this way.

use std::net::IpAddr;

use ferry_meta::object;
use serde_json::Value;

use super::policies::{egress, ingress};
use super::ports::{cluster_addresses, is_external, is_headless, own_port, protocol_of, service_port};
use super::{Outcome, Scene};
use crate::why::{Finding, PACKETS_DROPPED, Reason, held, in_namespace, named, plural, service_meant};
use crate::world::{is_true, title};

type Step = fn(&Scene) -> Option<Outcome>;

pub(super) const ALL: &[(&str, Step)] = &[
    ("source", source),
    ("target", target),
    ("DNS", dns),
    ("port", port),
    ("endpoints", endpoints),
    ("egress", egress),
    ("ingress", ingress),
    ("nodes", nodes),
    ("listener", listener),
];

pub(super) fn stop(finding: Finding) -> Option<Outcome> {
    Some(Outcome::Stopped(Box::new(finding)))
}

pub(super) fn passes(evidence: impl Into<String>) -> Option<Outcome> {
    Some(Outcome::Passes(evidence.into()))
}

pub(super) fn unknown(why: impl Into<String>) -> Option<Outcome> {
    Some(Outcome::Unknown(why.into()))
}

pub(super) fn addresses(pod: &Value) -> Vec<IpAddr> {
    let all = object::items(pod, "/status/podIPs").iter().map(|one| object::text(one, "/ip"));
    let mut all: Vec<IpAddr> = all.filter_map(|text| text.parse().ok()).collect();
    if all.is_empty() {
        all.extend(object::text(pod, "/status/podIP").parse::<IpAddr>());
    }
    all
}

fn is_on_host(pod: &Value) -> bool {
    pod.pointer("/spec/hostNetwork").and_then(Value::as_bool) == Some(true)
}

fn why(item: &Value) -> String {
    format!("ferry why {}{}", in_namespace(item), title(item))
}

fn source(scene: &Scene) -> Option<Outcome> {
    let pod = &scene.source;
    let phase = object::text(pod, "/status/phase");
    let own = addresses(pod);
    if phase != "Running" || own.is_empty() {
        let phase = if phase.is_empty() { "not started" } else { phase };
        let cause = format!("the pod is {phase} and opens no connection");
        return stop(Finding::new(Reason::SourceNotRunning, pod, cause).advise(why(pod)));
    }
    let list: Vec<String> = own.iter().map(ToString::to_string).collect();
    passes(format!("it runs on {} as {}", object::text(pod, "/spec/nodeName"), list.join(", ")))
}

fn target(scene: &Scene) -> Option<Outcome> {
    let (kind, name, there) = (&scene.target, &scene.target.name, &scene.target.namespace);
    let word = if kind.is_service { "Service" } else { "pod" };
    let Some(object) = &scene.object else {
        let cause = format!("there is no {word} {name} in namespace {there}");
        let list = if kind.is_service { "services" } else { "pods" };
        let finding = Finding::new(Reason::TargetMissing, &scene.source, cause);
        let finding = match scene.elsewhere.first() {
            Some(place) => {
                let called = if kind.is_service { format!("{name}.{place}") } else { name.clone() };
                let own = object::namespace(&scene.source);
                finding.detail(format!("there is one in namespace {}", named(&scene.elsewhere))).advise(format!(
                    "if that is meant, ask for {called}: ferry why -n {own} {} --to {} --to-namespace {place}",
                    title(&scene.source),
                    kind.title()
                ))
            }
            None => finding,
        };
        return stop(finding.advise(format!("see which there are: kubectl get {list} -n {there}")));
    };
    match (kind.is_service, object::text(object, "/spec/type")) {
        (true, "ExternalName") => {
            let name = object::text(object, "/spec/externalName");
            if let Some(cause) = held(&scene.of_service).filter(|cause| !cause.underway && !cause.probably) {
                let finding = Finding::new(Reason::ServiceLeadsNowhere, object, "its name leads nowhere");
                return stop(finding.because_of(cause.clone()));
            }
            if let Some((place, meant)) = service_meant(object) {
                let port = scene.target.port.as_ref().map(|port| format!(":{port}")).unwrap_or_default();
                return unknown(format!(
                    "its name leads to the Service {meant} of namespace {place}; the way to that: ferry why -n {} {} --to service/{meant}{port} --to-namespace {place}",
                    object::namespace(&scene.source),
                    title(&scene.source)
                ));
            }
            unknown(format!("its name leads out of the cluster, to {name}: what is there is not known here"))
        }
        (true, _) => {
            let addresses: Vec<&str> = cluster_addresses(object);
            match addresses.is_empty() {
                true => passes("a headless Service: its name leads to the pods themselves"),
                false => passes(format!("a Service at {}", addresses.join(", "))),
            }
        }
        (false, _) => {
            let phase = object::text(object, "/status/phase");
            if phase != "Running" || addresses(object).is_empty() {
                let finding = Finding::new(Reason::TargetNotRunning, object, "the pod does not run");
                return stop(finding.detail(format!("its phase is {phase}")).advise(why(object)));
            }
            passes(format!("it runs on {}", object::text(object, "/spec/nodeName")))
        }
    }
}

fn dns(scene: &Scene) -> Option<Outcome> {
    if !scene.target.is_service {
        return None;
    }
    let pod = &scene.source;
    let policy = object::text(pod, "/spec/dnsPolicy");
    let name = format!("{}.{}.svc", scene.target.name, scene.target.namespace);
    // Without its own word for it, a pod in the network of its node asks what the node asks.
    let asks_node = policy == "Default" || (is_on_host(pod) && matches!(policy, "" | "ClusterFirst"));
    if asks_node {
        let wanted = if is_on_host(pod) { "ClusterFirstWithHostNet" } else { "ClusterFirst" };
        let cause = format!("the pod asks the resolvers of its node, which do not know {name}");
        let finding = Finding::new(Reason::DnsPolicy, pod, cause).detail(format!(
            "its dnsPolicy is {}{}",
            if policy.is_empty() { "ClusterFirst" } else { policy },
            if is_on_host(pod) { ", which means Default in the network of its node" } else { "" }
        ));
        return stop(finding.advise(format!("give the pod dnsPolicy: {wanted}, or connect to the Service's address")));
    }
    if policy == "None" {
        let own: Vec<&str> =
            object::items(pod, "/spec/dnsConfig/nameservers").iter().filter_map(Value::as_str).collect();
        return unknown(format!(
            "the pod names resolvers of its own (dnsPolicy: None): {}; whether they know {name} is not known here",
            named(&own)
        ));
    }
    let Some(slices) = &scene.dns else { return unknown("the endpoints of kube-dns could not be read") };
    let node = object::text(pod, "/spec/nodeName");
    let ready: Vec<&Value> =
        slices.iter().flat_map(|slice| object::items(slice, "/endpoints")).filter(is_ready).collect();
    let here = ready.iter().find(|endpoint| object::text(endpoint, "/nodeName") == node);
    match (here, ready.first()) {
        (Some(endpoint), _) => {
            let address = object::items(endpoint, "/addresses").first().and_then(Value::as_str).unwrap_or_default();
            passes(format!("{name} is answered on its own node, at {address}"))
        }
        (None, Some(_)) => passes(format!("{name} is answered by {}", plural(ready.len(), "endpoint"))),
        (None, None) => {
            let finding = Finding::new(
                Reason::DnsNotServed,
                pod,
                format!("nobody answers for {name}: kube-dns has no ready endpoint"),
            );
            stop(finding.advise("ferry why -n kube-system service/kube-dns"))
        }
    }
}

fn is_ready(endpoint: &&Value) -> bool {
    endpoint.pointer("/conditions/ready").and_then(Value::as_bool) != Some(false)
}

fn port(scene: &Scene) -> Option<Outcome> {
    if !scene.target.is_service || is_external(scene) {
        return None;
    }
    let service = scene.object.as_ref()?;
    if is_headless(scene)
        && let Ok((number, _)) = own_port(scene)
    {
        let target = service_port(scene).ok().and_then(|port| port.get("targetPort"));
        let own = format!("the Service is headless: its pods are asked at their own port {number}");
        return match target.filter(|target| target.as_u64() != Some(number.into())) {
            Some(other) => unknown(format!("{own}; the Service's targetPort {other} does not count")),
            None => passes(own),
        };
    }
    match service_port(scene) {
        Err(problem) => {
            let cause = match &scene.target.port {
                Some(wanted) => {
                    let protocol = scene.target.protocol.as_ref().map(|one| format!("/{one}")).unwrap_or_default();
                    format!("the Service has no port {wanted}{protocol}")
                }
                None if object::items(service, "/spec/ports").is_empty() => "the Service has no ports".to_owned(),
                None => "the Service has several ports, and none was named".to_owned(),
            };
            let finding = Finding::new(Reason::ServicePort, service, cause).detail(problem);
            let edit = format!("kubectl edit {}service/{}", in_namespace(service), scene.target.name);
            stop(finding.advise(format!("connect to a port that it has, or add one: {edit}")))
        }
        Ok(port) => {
            let target = match port.get("targetPort") {
                Some(Value::String(name)) => format!("the port named {name}"),
                Some(number) => format!("port {number}"),
                None => "the same port".into(),
            };
            passes(format!("{} leads to {target} of the pods", port.get("port").unwrap_or(&Value::Null)))
        }
    }
}

/// Where the connection ends: an address, a port, and the pod that has it where it is known.
pub(super) struct End<'a> {
    pub address: IpAddr,
    pub port: u16,
    pub protocol: &'a str,
    pub node: String,
    pub pod: Option<&'a Value>,
}

/// All ends that are ready.
fn ends(scene: &Scene) -> Vec<End<'_>> {
    let pods = scene.pods.as_deref().unwrap_or_default();
    let known = |address: IpAddr| {
        pods.iter().find(|pod| {
            let over = matches!(object::text(pod, "/status/phase"), "Succeeded" | "Failed");
            !over && addresses(pod).contains(&address)
        })
    };
    if !scene.target.is_service {
        let Some(pod) = &scene.object else { return Vec::new() };
        let port = scene.target.port.as_ref().and_then(|port| port.parse().ok()).unwrap_or(0);
        let protocol = scene.target.protocol.as_deref().unwrap_or("TCP");
        let node = object::text(pod, "/spec/nodeName");
        let end = |address| End { address, port, protocol, node: node.to_owned(), pod: Some(pod) };
        return addresses(pod).into_iter().map(end).collect();
    }
    let own = own_port(scene).ok().filter(|_| is_headless(scene));
    let wanted = service_port(scene);
    if own.is_none() && wanted.is_err() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for slice in scene.slices.iter().flatten() {
        let of = object::labels(slice).get("kubernetes.io/service-name").and_then(Value::as_str);
        if of != Some(scene.target.name.as_str()) {
            continue;
        }
        let (number, protocol) = match (own, &wanted) {
            (Some(own), _) => own,
            (None, Ok(wanted)) => {
                let same = |port: &&Value| object::text(port, "/name") == object::text(wanted, "/name");
                let Some(port) = object::items(slice, "/ports").iter().find(same) else { continue };
                let number = port.get("port").and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok());
                let Some(number) = number else { continue };
                (number, protocol_of(port))
            }
            (None, Err(_)) => continue,
        };
        for endpoint in object::items(slice, "/endpoints").iter().filter(is_ready) {
            let first = object::items(endpoint, "/addresses").first().and_then(Value::as_str);
            let Some(address) = first.and_then(|text| text.parse().ok()) else { continue };
            let node = object::text(endpoint, "/nodeName").to_owned();
            found.push(End { address, port: number, protocol, node, pod: known(address) });
        }
    }
    found
}

/// Those that the packet may be sent to: of a family that both ends have, and of the node where the Service wants that.
pub(super) fn reachable(scene: &Scene) -> Vec<End<'_>> {
    let own = addresses(&scene.source);
    let mut all = ends(scene);
    all.retain(|end| own.iter().any(|address| address.is_ipv4() == end.address.is_ipv4()));
    if wants_local(scene) {
        let node = object::text(&scene.source, "/spec/nodeName");
        all.retain(|end| end.node == node);
    }
    all
}

fn wants_local(scene: &Scene) -> bool {
    let service = scene.object.as_ref().filter(|_| scene.target.is_service);
    service.is_some_and(|service| {
        object::text(service, "/spec/internalTrafficPolicy") == "Local" && !cluster_addresses(service).is_empty()
    })
}

fn endpoints(scene: &Scene) -> Option<Outcome> {
    if is_external(scene) {
        return None;
    }
    let object = scene.object.as_ref()?;
    if scene.target.is_service && scene.slices.is_none() {
        return unknown("the endpoints could not be read");
    }
    let all = ends(scene);
    if all.is_empty() {
        let finding = Finding::new(Reason::ServiceLeadsNowhere, object, "no endpoint of the Service is ready");
        return stop(match held(&scene.of_service) {
            Some(cause) => finding.because_of(cause.clone()),
            None => finding.advise(why(object)),
        });
    }
    if !reachable(scene).is_empty() {
        let shown: Vec<String> = reachable(scene).iter().map(End::title).collect();
        return passes(named(&shown));
    }
    let own = addresses(&scene.source);
    let same_family = all.iter().any(|end| own.iter().any(|address| address.is_ipv4() == end.address.is_ipv4()));
    if !same_family {
        let family = if own.iter().any(IpAddr::is_ipv4) { "IPv4" } else { "IPv6" };
        let cause = format!("the pod has addresses of {family} only, and the target has none");
        let finding = Finding::new(Reason::AddressFamily, object, cause);
        return stop(finding.advise("give the Service ipFamilyPolicy: PreferDualStack, in a cluster of both families"));
    }
    let node = object::text(&scene.source, "/spec/nodeName");
    let cause = format!("the Service has internalTrafficPolicy: Local, and no ready endpoint is on {node}");
    let shown: Vec<String> = all.iter().map(End::title).collect();
    let finding = Finding::new(Reason::NoLocalEndpoint, object, cause).detail(format!("there are {}", named(&shown)));
    stop(finding.advise(format!(
        "run an endpoint on every node, or: kubectl patch {}service/{} -p '{{\"spec\":{{\"internalTrafficPolicy\":\"Cluster\"}}}}'",
        in_namespace(object),
        scene.target.name
    )))
}

impl End<'_> {
    pub(super) fn title(&self) -> String {
        let port = match self.address {
            IpAddr::V4(address) => format!("{address}:{}", self.port),
            IpAddr::V6(address) => format!("[{address}]:{}", self.port),
        };
        match self.pod {
            Some(pod) => format!("{} at {port}", title(pod)),
            None => port,
        }
    }
}

fn nodes(scene: &Scene) -> Option<Outcome> {
    if is_external(scene) {
        return None;
    }
    let Some(all) = &scene.nodes else { return unknown("the nodes could not be read") };
    let own = object::text(&scene.source, "/spec/nodeName");
    let ends = reachable(scene);
    let find = |name: &str| all.iter().find(|node| object::name(node) == name);
    let trouble = |name: &str| -> Option<(&Value, String)> {
        let node = find(name)?;
        if let Some(dropped) = object::annotations(node).get(PACKETS_DROPPED).and_then(Value::as_str) {
            return Some((node, format!("rules of other software on {name} drop packets of pods: {dropped}")));
        }
        (!is_true(node, "Ready")).then(|| (node, format!("the node {name} is not ready")))
    };
    let stopped = |(node, cause): (&Value, String)| {
        stop(Finding::new(Reason::NodeOnTheWay, node, cause).advise(format!("ferry why node/{}", object::name(node))))
    };
    if let Some(found) = trouble(own) {
        return stopped(found);
    }
    let known: Vec<&End<'_>> = ends.iter().filter(|end| !end.node.is_empty()).collect();
    let good = known.iter().find(|end| trouble(&end.node).is_none());
    match (good, known.first()) {
        (Some(end), _) if end.node == own => passes(format!("both are on {own}")),
        (Some(end), _) => passes(format!("from {own} to {}, which are both ready", end.node)),
        (None, Some(end)) => stopped(trouble(&end.node)?),
        (None, None) => unknown("on which node the target is, is not known"),
    }
}

/// A probe that reaches the port proves that somebody listens.
fn listener(scene: &Scene) -> Option<Outcome> {
    if is_external(scene) {
        return None;
    }
    for end in reachable(scene) {
        let Some(pod) = end.pod.filter(|pod| is_true(pod, "Ready")) else { continue };
        let probed = object::items(pod, "/spec/containers").iter().any(|container| {
            ["/readinessProbe/httpGet/port", "/readinessProbe/tcpSocket/port", "/readinessProbe/grpc/port"]
                .iter()
                .filter_map(|pointer| container.pointer(pointer))
                .any(|port| match port {
                    Value::String(name) => object::items(container, "/ports").iter().any(|known| {
                        object::text(known, "/name") == name
                            && known.get("containerPort").and_then(Value::as_u64) == Some(end.port.into())
                    }),
                    number => number.as_u64() == Some(end.port.into()),
                })
        });
        if probed && end.protocol == "TCP" {
            return passes(format!("the readiness probe of {} reaches port {}", title(pod), end.port));
        }
    }
    let unnamed = reachable(scene).into_iter().find_map(|end| Some((ports_but(end.pod?, end.port)?, end)));
    match unnamed {
        Some((ports, end)) => unknown(format!(
            "no readiness probe tells whether anybody listens on port {}; the containers of the pod name {ports}",
            end.port
        )),
        None => unknown("no readiness probe tells whether anybody listens on the port"),
    }
}

/// The ports that a pod's containers name, where they name some, and not this one.
fn ports_but(pod: &Value, port: u16) -> Option<String> {
    let containers = object::items(pod, "/spec/containers").iter();
    let ports = containers.flat_map(|container| object::items(container, "/ports"));
    let numbers: Vec<u64> = ports.filter_map(|port| port.get("containerPort")?.as_u64()).collect();
    let shown: Vec<String> = numbers.iter().map(|number| number.to_string()).collect();
    (!numbers.is_empty() && !numbers.contains(&port.into())).then(|| named(&shown))
}
