//! What a Service's pods mean to its endpoints: which count, at which ports, and which Services a change concerns.

use std::sync::Arc;

use ferry_client::{Change, Informer, ObjectKey, WorkQueue};
use k8s_openapi::api::core::v1::{Container, ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::pod;
use super::selector::Selector;

/// The selector of a Service whose endpoints are made from pods: one with a selector, and not an alias.
pub(crate) fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| Selector::of_labels(Some(labels)))
}

/// The pod behind an address.
pub(crate) fn target_ref(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: pod.metadata.namespace.clone(),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Waits for what it owns to go: what is made for it now would only keep it longer.
pub(crate) fn waits_for_its_end(service: &Service) -> bool {
    let finalizers = service.metadata.finalizers.as_deref().unwrap_or_default();
    service.metadata.deletion_timestamp.is_some() && finalizers.iter().any(|known| known == "foregroundDeletion")
}

/// Publishes pods before they are ready.
pub(crate) fn tolerates_unready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

pub(crate) fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

/// The pod's address of a family, by its form.
pub(crate) fn address(pod: &Pod, ipv6: bool) -> Option<&str> {
    let status = pod.status.as_ref()?;
    let several = status.pod_ips.iter().flatten().map(|ip| ip.ip.as_str());
    several.chain(status.pod_ip.as_deref()).find(|ip| !ip.is_empty() && ip.contains(':') == ipv6)
}

pub(crate) fn has_address(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    status.is_some_and(|status| {
        status.pod_ip.as_deref().is_some_and(|ip| !ip.is_empty())
            || status.pod_ips.as_ref().is_some_and(|ips| !ips.is_empty())
    })
}

/// The number a Service's port has in this pod: by number, or by the name of a container's port.
pub(crate) fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    let name = match port.target_port.as_ref() {
        None => return Some(port.port),
        Some(IntOrString::Int(0)) => return Some(port.port),
        Some(IntOrString::Int(number)) => return Some(*number),
        Some(IntOrString::String(name)) if name.is_empty() => return Some(port.port),
        Some(IntOrString::String(name)) => name,
    };
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    let spec = pod.spec.as_ref()?;
    let is_sidecar = |container: &&Container| container.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(is_sidecar);
    let ports = spec.containers.iter().chain(sidecars).flat_map(|container| container.ports.iter().flatten());
    let found = ports
        .into_iter()
        .find(|port| port.name.as_ref() == Some(name) && port.protocol.as_deref().unwrap_or("TCP") == protocol);
    found.map(|port| port.container_port)
}

/// The host name under which a headless Service knows the pod.
pub(crate) fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let hostname = spec.hostname.as_ref().filter(|name| !name.is_empty())?;
    (spec.subdomain.is_some() && spec.subdomain == service.metadata.name).then(|| hostname.clone())
}

/// Whether endpoints could look different after this change.
fn matters(old: &Pod, new: &Pod) -> bool {
    let facts = |pod: &Pod| {
        let status = pod.status.as_ref();
        (
            status.and_then(|status| status.pod_ip.clone()),
            status.and_then(|status| status.pod_ips.clone()),
            pod::is_ready(pod),
            pod::is_terminal(pod),
            pod::is_terminating(pod),
            pod::node(pod).to_owned(),
            pod.metadata.labels.clone(),
        )
    };
    facts(old) != facts(new)
}

/// Queues the Services that select the pod now or did before.
pub(crate) fn enqueue_services(services: &Informer<Service>, queue: &WorkQueue<ObjectKey>, change: &Change<Pod>) {
    if let Change::Modified { old, new } = change
        && !matters(old, new)
    {
        return;
    }
    let pod = change.object();
    let states: Vec<&Arc<Pod>> = change.old().into_iter().chain([pod]).collect();
    for service in services.list_in(pod.metadata.namespace.as_deref().unwrap_or_default()) {
        let Some(selector) = selector(&service) else { continue };
        if states.iter().any(|pod| selector.matches(pod.metadata.labels.as_ref())) {
            queue.add(ObjectKey::of(&*service));
        }
    }
}
