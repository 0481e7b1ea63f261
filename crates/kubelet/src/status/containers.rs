//! The statuses of the containers: running, waiting or terminated, and what was before.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    Pod, VolumeMountStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Observed, seconds};
use crate::plan::Health;
use crate::pod::{self, Role};
use crate::runtime::{Record, RunState};
use crate::spec::resources;

pub(super) struct Statuses {
    pub(super) init: Vec<ContainerStatus>,
    pub(super) regular: Vec<ContainerStatus>,
    pub(super) ephemeral: Vec<ContainerStatus>,
}

impl Statuses {
    pub(super) fn get(&self, name: &str) -> Option<&ContainerStatus> {
        self.init.iter().chain(&self.regular).find(|s| s.name == name)
    }
}

pub(super) fn statuses(observed: &Observed<'_>) -> Statuses {
    let pod = observed.pod;
    let mut statuses = Statuses {
        init: pod::init_containers(pod).iter().map(|c| status(observed, c, pod::role_of_init(c))).collect(),
        regular: pod::containers(pod).iter().map(|c| status(observed, c, Role::Regular)).collect(),
        ephemeral: pod::ephemeral_containers(pod).iter().map(|c| status(observed, c, Role::Ephemeral)).collect(),
    };
    if observed.over {
        end(pod, &mut statuses);
    }
    statuses
}

/// Whether the container is known to have run.
fn has_run(status: &ContainerStatus) -> bool {
    let ran = |state: &Option<ContainerState>| {
        state.as_ref().is_some_and(|state| state.running.is_some() || state.terminated.is_some())
    };
    ran(&status.state) || ran(&status.last_state)
}

/// The pod has ended: a container without an end of its own has failed, if its turn had come.
fn end(pod: &Pod, statuses: &mut Statuses) {
    let completed = |status: &ContainerStatus| {
        let ended = status.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|end| end.exit_code == 0)
    };
    let done = pod::init_containers(pod).iter().zip(&statuses.init).all(|(container, status)| {
        if pod::role_of_init(container) == Role::Sidecar { has_run(status) } else { completed(status) }
    });
    let initialised = done || statuses.regular.iter().any(has_run);
    let reached = statuses.init.iter().rposition(has_run).map_or(0, |last| last + 1);
    let regular = statuses.regular.iter_mut().filter(|_| initialised);
    for status in statuses.init[..reached].iter_mut().chain(regular) {
        if status.state.as_ref().is_none_or(|state| state.terminated.is_none()) {
            let message = "The container could not be located when the pod was terminated";
            status.state = Some(lost(137, "ContainerStatusUnknown", message));
        }
    }
}

fn status(observed: &Observed<'_>, container: &Container, role: Role) -> ContainerStatus {
    let mut records = observed.state.records.iter().filter(|r| r.name == container.name);
    let (latest, before) = (records.next(), records.next());
    let old = pod::container_status(observed.old, &container.name);
    let mut status = match latest {
        Some(record) => {
            let mut status = of_record(observed, container, record);
            status.last_state = match before {
                Some(before) => Some(terminated(observed, before)),
                None => old.filter(|_| record.restart_count > 0).and_then(|old| {
                    // The runtime has forgotten the one before; the last status has not.
                    let other = old.container_id.as_deref().is_some_and(|known| !known.ends_with(&record.id));
                    let ended = old.state.clone().filter(|state| other && state.terminated.is_some());
                    ended.or_else(|| old.last_state.clone())
                }),
            };
            status
        }
        None => unseen(observed, container, role, old),
    };
    explain_waiting(observed, container, role, latest, &mut status);
    judge(observed, role, latest, &mut status);
    let mounts = container.volume_mounts.iter().flatten();
    let mounts = mounts.map(|mount| mount_status(mount, observed.recursive_read_only)).collect();
    status.volume_mounts = super::some(mounts);
    status
}

fn mount_status(mount: &k8s_openapi::api::core::v1::VolumeMount, able: bool) -> VolumeMountStatus {
    let read_only = mount.read_only == Some(true);
    let recursive = crate::volumes::recursive_read_only(mount, able) == Ok(true);
    VolumeMountStatus {
        name: mount.name.clone(),
        mount_path: mount.mount_path.clone(),
        read_only: read_only.then_some(true),
        recursive_read_only: read_only.then(|| if recursive { "Enabled" } else { "Disabled" }.to_owned()),
        volume_status: None,
    }
}

fn of_record(observed: &Observed<'_>, container: &Container, record: &Record) -> ContainerStatus {
    let state = match record.state {
        RunState::Running => ContainerState {
            running: Some(ContainerStateRunning { started_at: record.started_at.map(|at| Time(seconds(at))) }),
            ..ContainerState::default()
        },
        RunState::Exited => terminated(observed, record),
        RunState::Created | RunState::Unknown => {
            ContainerState { waiting: Some(ContainerStateWaiting::default()), ..ContainerState::default() }
        }
    };
    let resources = container.resources.clone().filter(|r| *r != Default::default());
    let old = pod::container_status(observed.old, &container.name);
    // Until new amounts are given, the old ones are what the container has.
    let pending = observed.sizes.get(&record.id).is_some_and(|given| *given != resources::size(container));
    let (allocated, resources) = match old.filter(|old| pending && old.resources.is_some()) {
        Some(old) => (old.allocated_resources.clone(), old.resources.clone()),
        None => (resources.as_ref().and_then(|r| r.requests.clone()), Some(resources.unwrap_or_default())),
    };
    ContainerStatus {
        name: container.name.clone(),
        container_id: Some(format!("{}://{}", observed.runtime_name, record.id)),
        image: record.image.clone(),
        image_id: record.image_ref.clone(),
        restart_count: record.restart_count.try_into().unwrap_or(i32::MAX),
        state: Some(state),
        allocated_resources: allocated,
        resources,
        ..ContainerStatus::default()
    }
}

fn terminated(observed: &Observed<'_>, record: &Record) -> ContainerState {
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(format!("{}://{}", observed.runtime_name, record.id)),
            exit_code: record.exit_code,
            started_at: record.started_at.map(|at| Time(seconds(at))),
            finished_at: record.finished_at.map(|at| Time(seconds(at))),
            reason: text(&record.reason),
            message: text(&record.message),
            signal: None,
        }),
        ..ContainerState::default()
    }
}

/// A container that the runtime does not have: not started yet, or lost.
fn unseen(
    observed: &Observed<'_>,
    container: &Container,
    role: Role,
    old: Option<&ContainerStatus>,
) -> ContainerStatus {
    if let Some(old) = old
        && old.state.as_ref().is_some_and(|s| s.terminated.is_some())
    {
        return old.clone();
    }
    let pod = observed.pod;
    let reason = if pod::init_containers(pod).is_empty() { "ContainerCreating" } else { "PodInitializing" };
    let mut status = ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        state: Some(waiting(reason, "")),
        ..ContainerStatus::default()
    };
    let Some(old) = old else { return status };
    status.restart_count = old.restart_count;
    status.last_state = old.last_state.clone();
    let ran = old.state.as_ref().is_some_and(|s| s.running.is_some());
    let initialised = pod::containers(pod).iter().any(|c| observed.state.current(&c.name).is_some());
    if ran && role == Role::Init && initialised {
        let message = "Unable to get init container status from container runtime and pod has been initialized, treat it as exited normally";
        status.state = Some(lost(0, "Completed", message));
    } else if ran && status.last_state.as_ref().is_none_or(|s| s.terminated.is_none()) {
        let message = "The container could not be located when the pod was deleted.  The container used to be Running";
        status.last_state = Some(lost(137, "ContainerStatusUnknown", message));
        if !pod::is_being_deleted(pod) {
            status.restart_count += 1;
        }
    }
    status
}

fn lost(exit_code: i32, reason: &str, message: &str) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code,
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()),
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    let text = |text: &str| if text.is_empty() { None } else { Some(text.to_owned()) };
    ContainerState {
        waiting: Some(ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..ContainerState::default()
    }
}

/// A container that is to be started again, and is not yet for a known reason, waits.
fn explain_waiting(
    observed: &Observed<'_>,
    container: &Container,
    role: Role,
    latest: Option<&Record>,
    status: &mut ContainerStatus,
) {
    if observed.over {
        return;
    }
    let due = match latest {
        None => true,
        Some(record) if record.state == RunState::Exited => {
            pod::restarts_after(observed.pod, role, container, record.exit_code)
        }
        Some(record) => record.state != RunState::Running,
    };
    let Some(why) = observed.reasons.get(&container.name).filter(|_| due) else { return };
    if status.state.as_ref().is_some_and(|s| s.terminated.is_some()) {
        status.last_state = status.state.take();
    }
    status.state = Some(waiting(&why.reason, &why.message));
}

/// Sets `started` and `ready`.
fn judge(observed: &Observed<'_>, role: Role, latest: Option<&Record>, status: &mut ContainerStatus) {
    let running = latest.filter(|r| r.state == RunState::Running);
    let health = running.map(|r| observed.health.get(&r.id).copied().unwrap_or(Health::UNPROBED));
    match role {
        Role::Init => {
            status.started = Some(running.is_some());
            let ended = status.state.as_ref().and_then(|s| s.terminated.as_ref());
            status.ready = ended.is_some_and(|t| t.exit_code == 0);
        }
        Role::Sidecar | Role::Regular => {
            status.started = Some(health.is_some_and(|h| h.started));
            status.ready = health.is_some_and(|h| h.started && h.ready);
        }
        Role::Ephemeral => {}
    }
}
