//! The status of a pod as the API server shows it: a pure function of the pod, the runtime's state and the probes.

mod conditions;
mod containers;
mod patch;
mod phase;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{HostIP, Pod, PodIP, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub(crate) use patch::patch;

use crate::plan::{self, Health};
use crate::pod;
use crate::runtime::PodState;
use crate::spec::resources::Size;
use crate::worker::EndReason;

/// Why a container does not run, in the words of `state.waiting`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WaitReason {
    pub(crate) reason: String,
    pub(crate) message: String,
}

pub(crate) struct Observed<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) state: &'a PodState,
    pub(crate) health: &'a HashMap<String, Health>,
    /// By container name: why its last start failed or was put off.
    pub(crate) reasons: &'a BTreeMap<String, WaitReason>,
    /// The last status that this kubelet made, or the API server's.
    pub(crate) old: &'a PodStatus,
    /// Nothing will be started any more.
    pub(crate) over: bool,
    /// Why the kubelet itself ended the pod.
    pub(crate) end_reason: Option<&'a EndReason>,
    /// What running containers have been given, by container id.
    pub(crate) sizes: &'a HashMap<String, Size>,
    /// Some container is about to get other amounts: the newest generation is not in force yet.
    pub(crate) resizing: bool,
    /// Whether the pod's runtime makes mounts read-only all the way down.
    pub(crate) recursive_read_only: bool,
    /// `containerd` in `containerd://1234`.
    pub(crate) runtime_name: &'a str,
    pub(crate) host_addresses: &'a [String],
    pub(crate) now: Timestamp,
}

pub(crate) fn status(observed: &Observed<'_>) -> PodStatus {
    let Observed { pod, state, old, .. } = observed;
    let containers = containers::statuses(observed);
    let mut status = PodStatus {
        // What others wrote is theirs.
        resize: old.resize.clone(),
        resource_claim_statuses: old.resource_claim_statuses.clone(),
        extended_resource_claim_status: old.extended_resource_claim_status.clone(),
        node_allocatable_resource_claim_statuses: old.node_allocatable_resource_claim_statuses.clone(),
        nominated_node_name: old.nominated_node_name.clone(),
        qos_class: Some(pod::qos_class(pod).to_owned()),
        observed_generation: match old.observed_generation.filter(|_| observed.resizing) {
            Some(generation) => Some(generation),
            None => pod.metadata.generation,
        },
        start_time: Some(old.start_time.clone().unwrap_or(Time(seconds(observed.now)))),
        ..PodStatus::default()
    };
    status.phase = Some(phase::phase(observed, &containers).to_owned());
    if status.phase == old.phase {
        status.reason = old.reason.clone();
        status.message = old.message.clone();
    }
    // A pod has failed once nothing of it runs any more, not when it is told to end: others act upon that.
    if let Some(EndReason { why, .. }) = observed.end_reason
        && state.running().next().is_none()
    {
        status.phase = Some("Failed".to_owned());
        status.reason = Some(why.reason.clone());
        status.message = Some(why.message.clone());
    }
    // Whoever counts the pod, a Job above all, waits for an end: one that never began has failed.
    if observed.over && !pod::is_static(pod) && !pod::is_terminal(&status) {
        status.phase = Some("Failed".to_owned());
    }
    if pod::is_terminal(pod::status(pod)) {
        status.phase = pod::status(pod).phase.clone();
    }
    status.conditions =
        Some(conditions::conditions(observed, &containers, status.phase.as_deref().unwrap_or_default()));
    status.init_container_statuses = some(containers.init);
    status.container_statuses = some(containers.regular);
    status.ephemeral_container_statuses = some(containers.ephemeral);

    let hosts = observed.host_addresses;
    status.host_ip = hosts.first().cloned();
    status.host_ips = some(hosts.iter().map(|ip| HostIP { ip: ip.clone() }).collect());
    let addresses = if pod::host_network(pod) { hosts } else { state.addresses() };
    if addresses.is_empty() {
        // A stopped sandbox has no address; the one it had stays readable until the pod has another.
        status.pod_ip = old.pod_ip.clone();
        status.pod_ips = old.pod_ips.clone();
    } else {
        status.pod_ip = addresses.first().cloned();
        status.pod_ips = some(addresses.iter().map(|ip| PodIP { ip: ip.clone() }).collect());
    }
    status
}

/// Whether the pod's own work has ended: it goes no further than Succeeded or Failed.
pub(crate) fn verdict_of_deadline(pod: &Pod, now: Timestamp) -> Option<WaitReason> {
    plan::deadline(pod).filter(|deadline| *deadline <= now).map(|_| WaitReason {
        reason: "DeadlineExceeded".to_owned(),
        message: "Pod was active on the node longer than the specified deadline".to_owned(),
    })
}

fn some<T>(list: Vec<T>) -> Option<Vec<T>> {
    if list.is_empty() { None } else { Some(list) }
}

/// Times on the wire have whole seconds; kept so in memory too, so that a comparison finds no false change.
pub(crate) fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
