//! The phase of a pod, from the statuses of its containers.

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, ContainerStatus};

use super::Observed;
use super::containers::Statuses;
use crate::pod::{self, Role};
use crate::runtime::RunState;

enum Seen<'a> {
    Running,
    /// Ended; perhaps about to run again.
    Ended(&'a ContainerStateTerminated),
    NeverRan,
}

fn seen(status: Option<&ContainerStatus>) -> Seen<'_> {
    let Some(status) = status else { return Seen::NeverRan };
    let state = status.state.as_ref();
    if state.is_some_and(|s| s.running.is_some()) {
        return Seen::Running;
    }
    let last = status.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    match state.and_then(|s| s.terminated.as_ref()).or(last) {
        Some(terminated) => Seen::Ended(terminated),
        None => Seen::NeverRan,
    }
}

pub(super) fn phase(observed: &Observed<'_>, statuses: &Statuses) -> &'static str {
    let pod = observed.pod;
    let comes_back = |container: &Container, role: Role, end: &ContainerStateTerminated| {
        !observed.over && pod::restarts_after(pod, role, container, end.exit_code)
    };
    let started = pod::containers(pod).iter().any(|c| {
        let record = observed.state.current(&c.name);
        record.is_some_and(|r| matches!(r.state, RunState::Running | RunState::Exited))
    });
    let mut pending = false;
    for container in pod::init_containers(pod) {
        let status = statuses.get(&container.name);
        let role = pod::role_of_init(container);
        match (role, seen(status)) {
            (Role::Sidecar, Seen::Running) => {
                pending |= !started && status.is_none_or(|s| s.started != Some(true));
            }
            (Role::Sidecar, Seen::NeverRan) => pending |= !started,
            (Role::Sidecar, Seen::Ended(_)) => {}
            (_, Seen::Ended(end)) if end.exit_code == 0 => {}
            (_, Seen::Ended(end)) => {
                // The policy alone decides: a pod deleted while its init container is retried has not failed by it.
                if !pod::restarts_after(pod, role, container, end.exit_code) {
                    return "Failed";
                }
                pending = true;
            }
            _ => pending = true,
        }
    }
    let (mut running, mut ended, mut succeeded, mut returning, mut waiting) = (0, 0, 0, 0, 0);
    for container in pod::containers(pod) {
        match seen(statuses.get(&container.name)) {
            Seen::Running => running += 1,
            Seen::NeverRan => waiting += 1,
            Seen::Ended(end) => {
                ended += 1;
                succeeded += i32::from(end.exit_code == 0);
                returning += i32::from(comes_back(container, Role::Regular, end));
            }
        }
    }
    if pending || waiting > 0 {
        return "Pending";
    }
    if running > 0 || returning > 0 {
        return "Running";
    }
    match ended {
        0 => "Pending",
        _ if ended == succeeded => "Succeeded",
        _ => "Failed",
    }
}
