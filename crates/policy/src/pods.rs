//! What of a pod matters to policies.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, Pod};

use crate::policy::Protocol;

/// Leaves nothing else: a node holds every pod of the cluster.
pub fn trim(pod: &mut Pod) {
    pod.metadata.annotations = None;
    pod.metadata.managed_fields = None;
    pod.metadata.owner_references = None;
    if let Some(spec) = &mut pod.spec {
        let keep = |containers: &mut Vec<Container>| {
            containers.retain(|one| one.ports.iter().flatten().any(|port| port.name.is_some()));
            for one in containers.iter_mut() {
                let (ports, restart) = (one.ports.take(), one.restart_policy.take());
                *one = Container { ports, restart_policy: restart, ..Container::default() };
            }
            containers.shrink_to_fit();
        };
        let (mut containers, mut init) = (std::mem::take(&mut spec.containers), spec.init_containers.take());
        keep(&mut containers);
        init.iter_mut().for_each(keep);
        *spec = k8s_openapi::api::core::v1::PodSpec {
            containers,
            init_containers: init,
            node_name: spec.node_name.take(),
            host_network: spec.host_network,
            ..Default::default()
        };
    }
    if let Some(status) = &mut pod.status {
        *status = k8s_openapi::api::core::v1::PodStatus {
            phase: status.phase.take(),
            pod_ip: status.pod_ip.take(),
            pod_ips: status.pod_ips.take(),
            ..Default::default()
        };
    }
}

/// A pod of the host's network has the node's address, which is not its own.
pub(crate) fn is_on_host_network(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true))
}

/// Its address may be another pod's by now.
pub(crate) fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The addresses that the API server knows of.
pub(crate) fn addresses(pod: &Pod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    let mut all: Vec<IpAddr> = status.pod_ips.iter().flatten().filter_map(|one| one.ip.parse().ok()).collect();
    if all.is_empty() {
        all.extend(status.pod_ip.as_ref().and_then(|one| one.parse::<IpAddr>().ok()));
    }
    all
}

/// The numbers of the ports with this name.
pub(crate) fn ports_named(pod: &Pod, protocol: Protocol, name: &str) -> Vec<u16> {
    let Some(spec) = &pod.spec else { return Vec::new() };
    let sidecars = spec.init_containers.iter().flatten().filter(|one| one.restart_policy.as_deref() == Some("Always"));
    let ports = spec.containers.iter().chain(sidecars).flat_map(|one| one.ports.iter().flatten());
    let wanted = ports.filter(|port| {
        port.name.as_deref() == Some(name) && Protocol::parse(port.protocol.as_deref()) == Some(protocol)
    });
    wanted.filter_map(|port| u16::try_from(port.container_port).ok()).collect()
}
