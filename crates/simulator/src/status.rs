//! The status a simulated node reports of a pod.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStatus, HostIP, Pod, PodIP,
    PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::plan::{self, Step};

/// What a container that was told to stop ends with.
const TERMINATED: i32 = 143;

pub(crate) struct PodAddresses {
    pub(crate) host: Ipv4Addr,
    pub(crate) pod: Option<Ipv4Addr>,
}

/// A strategic merge patch for `pods/status`: the whole of what belongs to the node. The uid keeps it away from another
/// pod of the same name.
pub(crate) fn patch(pod: &Pod, step: Step, addresses: &PodAddresses, now: &Time) -> Value {
    let old = pod.status.clone().unwrap_or_default();
    let mut status = PodStatus {
        phase: Some(phase(step).into()),
        host_ip: Some(addresses.host.to_string()),
        host_ips: Some(vec![HostIP { ip: addresses.host.to_string() }]),
        start_time: old.start_time.clone().or_else(|| Some(now.clone())),
        observed_generation: pod.metadata.generation,
        container_statuses: Some(statuses(pod, step, now, main_containers(pod), false)),
        ..PodStatus::default()
    };
    let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    if !init.is_empty() {
        status.init_container_statuses = Some(statuses(pod, step, now, init, true));
    }
    if let Some(address) = addresses.pod {
        status.pod_ip = Some(address.to_string());
        status.pod_ips = Some(vec![PodIP { ip: address.to_string() }]);
    }
    let mut status = serde_json::to_value(status).unwrap_or_default();
    status["conditions"] = conditions(pod, step, &old, now);
    json!({ "metadata": { "uid": pod.metadata.uid }, "status": status })
}

fn phase(step: Step) -> &'static str {
    match step {
        Step::End { code: 0 } => "Succeeded",
        Step::End { .. } | Step::Stop => "Failed",
        _ => "Running",
    }
}

fn conditions(pod: &Pod, step: Step, old: &PodStatus, now: &Time) -> Value {
    let containers_ready = matches!(step, Step::Run { ready: true });
    let ready = containers_ready && plan::gates_hold(pod);
    let reason = match step {
        Step::End { code: 0 } => Some("PodCompleted"),
        Step::End { .. } | Step::Stop => Some("PodFailed"),
        _ if !containers_ready => Some("ContainersNotReady"),
        _ => None,
    };
    let gates = (containers_ready && !ready).then_some("ReadinessGatesNotReady");
    let running = phase(step) == "Running";
    let judged = [
        ("PodReadyToStartContainers", running, None),
        ("Initialized", true, None),
        ("Ready", ready, reason.or(gates)),
        ("ContainersReady", containers_ready, reason),
        ("PodScheduled", true, None),
    ];
    let list = judged.into_iter().map(|(kind, holds, reason)| {
        let status = if holds { "True" } else { "False" };
        let known = old.conditions.iter().flatten().find(|known| known.type_ == kind && known.status == status);
        let since = known.and_then(|known| known.last_transition_time.clone()).unwrap_or_else(|| now.clone());
        json!({
            "type": kind, "status": status, "reason": reason, "message": null, "lastTransitionTime": since,
            "observedGeneration": pod.metadata.generation,
        })
    });
    list.collect()
}

fn main_containers(pod: &Pod) -> &[Container] {
    pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default()
}

fn statuses(pod: &Pod, step: Step, now: &Time, containers: &[Container], init: bool) -> Vec<ContainerStatus> {
    let old = pod.status.as_ref().and_then(|status| {
        if init { status.init_container_statuses.as_ref() } else { status.container_statuses.as_ref() }
    });
    containers.iter().map(|container| one(pod, step, now, container, init, find(old, &container.name))).collect()
}

fn find<'a>(list: Option<&'a Vec<ContainerStatus>>, name: &str) -> Option<&'a ContainerStatus> {
    list?.iter().find(|status| status.name == name)
}

fn one(
    pod: &Pod,
    step: Step,
    now: &Time,
    container: &Container,
    init: bool,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    let uid = pod.uid().unwrap_or_default();
    let id = format!("simulated://{uid}/{}", container.name);
    let since = old.and_then(|old| old.state.as_ref()?.running.as_ref()?.started_at.clone());
    let terminated = |code: i32, reason: &str| ContainerStateTerminated {
        exit_code: code,
        reason: Some(reason.into()),
        started_at: since.clone().or_else(|| Some(now.clone())),
        finished_at: Some(now.clone()),
        container_id: Some(id.clone()),
        ..ContainerStateTerminated::default()
    };
    let reason = |code: i32| if code == 0 { "Completed" } else { "Error" };
    let ends_first = init && container.restart_policy.as_deref() != Some("Always");
    let mut state = ContainerState::default();
    match step {
        _ if ends_first => state.terminated = Some(terminated(0, "Completed")),
        // A sidecar is told to stop once the others have ended.
        Step::End { .. } if init => state.terminated = Some(terminated(0, "Completed")),
        Step::End { code } => state.terminated = Some(terminated(code, reason(code))),
        Step::Stop => state.terminated = Some(terminated(TERMINATED, "Error")),
        Step::Restart => state.running = Some(ContainerStateRunning { started_at: Some(now.clone()) }),
        _ => {
            let started_at = since.clone().or_else(|| Some(now.clone()));
            state.running = Some(ContainerStateRunning { started_at });
        }
    }
    let runs = state.running.is_some();
    let restarts = old.map_or(0, |old| old.restart_count);
    let again = matches!(step, Step::Restart) && !init;
    let last_state = match again {
        true => Some(ContainerState { terminated: Some(terminated(0, "Completed")), ..ContainerState::default() }),
        false => old.and_then(|old| old.last_state.clone()),
    };
    let image = container.image.clone().unwrap_or_default();
    ContainerStatus {
        name: container.name.clone(),
        image_id: image.clone(),
        image,
        container_id: Some(id.clone()),
        ready: if ends_first { true } else { runs && matches!(step, Step::Run { ready: true }) },
        started: Some(runs),
        restart_count: if again { restarts.saturating_add(1) } else { restarts },
        state: Some(state),
        last_state,
        allocated_resources: container.resources.as_ref().and_then(|resources| resources.requests.clone()),
        resources: container.resources.clone(),
        ..ContainerStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_whole() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": "p", "uid": "u", "generation": 3 },
            "spec": {
                "readinessGates": [{ "conditionType": "example.com/gate" }],
                "initContainers": [{ "name": "first", "image": "i" }, { "name": "side", "image": "s", "restartPolicy": "Always" }],
                "containers": [{ "name": "c", "image": "i", "resources": { "requests": { "cpu": "1" } } }],
            },
        }))
        .unwrap();
        let addresses = PodAddresses { host: Ipv4Addr::new(198, 18, 0, 1), pod: Some(Ipv4Addr::new(10, 0, 0, 9)) };
        let check = |step: Step| {
            let patch = patch(&pod, step, &addresses, &Time(jiff::Timestamp::UNIX_EPOCH));
            let status = &patch["status"];
            let states = ["initContainerStatuses", "containerStatuses"].map(|list| {
                let list = status[list].as_array().unwrap().iter();
                list.map(|c| c["state"].as_object().unwrap().keys().next().unwrap().clone())
                    .collect::<Vec<_>>()
                    .join(",")
            });
            let ready = status["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "Ready").unwrap();
            let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
            format!(
                "{} {} {} {}",
                text(&status["phase"]),
                text(&ready["reason"]),
                states.join(";"),
                text(&status["podIP"])
            )
        };
        assert_eq!(
            check(Step::Run { ready: true }),
            "Running ReadinessGatesNotReady terminated,running;running 10.0.0.9"
        );
        assert_eq!(check(Step::Run { ready: false }), "Running ContainersNotReady terminated,running;running 10.0.0.9");
        assert_eq!(check(Step::End { code: 0 }), "Succeeded PodCompleted terminated,terminated;terminated 10.0.0.9");
        assert_eq!(check(Step::End { code: 1 }), "Failed PodFailed terminated,terminated;terminated 10.0.0.9");
        assert_eq!(check(Step::Stop), "Failed PodFailed terminated,terminated;terminated 10.0.0.9");
    }
}
