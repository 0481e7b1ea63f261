//! The heart of the kubelet: from what a pod should be and what the runtime has, to what to do next.
//!
//! [`plan`] is a pure function. It may be called at any time, with any state of the runtime, and the worker carries
//! out what it says, looks again and calls it again until there is nothing to do.

mod init;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};

use crate::backoff::Backoff;
use crate::pod::{self, Role};
use crate::runtime::{PodState, Record, RunState};
use crate::spec::resources::{self, Size};

/// What probes say of one running container.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Health {
    /// The startup probe passed, or there is none.
    pub(crate) started: bool,
    /// The readiness probe passes, or there is none.
    pub(crate) ready: bool,
    pub(crate) startup_failed: bool,
    pub(crate) liveness_failed: bool,
}

impl Health {
    pub(crate) const UNPROBED: Self =
        Self { started: true, ready: true, startup_failed: false, liveness_failed: false };
}

/// Everything the decision depends on.
pub(crate) struct Observed<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) state: &'a PodState,
    /// By container id; containers without probes are absent.
    pub(crate) health: &'a HashMap<String, Health>,
    /// Restart delays by container name.
    pub(crate) restarts: &'a HashMap<String, Backoff>,
    /// When a container that could not be started (image, configuration) may be tried again.
    pub(crate) not_before: &'a BTreeMap<String, Timestamp>,
    pub(crate) sandbox_not_before: Option<Timestamp>,
    /// The last status that this kubelet made, or the API server's.
    pub(crate) reported: &'a PodStatus,
    /// What running containers have been given, by container id.
    pub(crate) sizes: &'a HashMap<String, Size>,
    pub(crate) now: Timestamp,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// Stops a sandbox that is not to be used any more, with all its containers.
    StopSandbox {
        id: String,
    },
    RemoveSandbox {
        id: String,
    },
    CreateSandbox {
        attempt: u32,
    },
    Start {
        name: String,
        role: Role,
        restart_count: u32,
    },
    Kill {
        id: String,
        name: String,
        why: KillReason,
    },
    Remove {
        id: String,
        name: String,
    },
    /// Removes a container whose log stays: everything of the pod starts anew.
    Forget {
        id: String,
        name: String,
    },
    /// Gives a running container the processor and memory that the pod now wants for it.
    Resize {
        id: String,
        name: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum KillReason {
    Liveness { restarts: bool },
    Startup { restarts: bool },
    Changed,
    Resized,
    RestartAll,
    UnknownState,
}

impl KillReason {
    /// The text of the Killing event.
    pub(crate) fn message(&self, container: &str, role: Role) -> String {
        let noun = if matches!(role, Role::Init | Role::Sidecar) { "Init container" } else { "Container" };
        let (what, restarts) = match self {
            Self::Liveness { restarts } => ("failed liveness probe", *restarts),
            Self::Startup { restarts } => ("failed startup probe", *restarts),
            Self::Changed => ("definition changed", true),
            Self::Resized => return format!("{noun} {container} resize requires restart"),
            Self::RestartAll => return format!("{noun} {container} is restarted with all others of its pod"),
            Self::UnknownState => return "Container is in \"unknown\" state, try killing it before restart".to_owned(),
        };
        let end = if restarts && role == Role::Regular { ", will be restarted" } else { "" };
        format!("{noun} {container} {what}{end}")
    }
}

/// A crashed container that waits for its turn.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Waiting {
    pub(crate) name: String,
    pub(crate) delay: Duration,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Do this; with no action, there is nothing to do before `wake_at` or a change.
    Run { actions: Vec<Action>, waiting: Vec<Waiting>, wake_at: Option<Timestamp> },
    /// The pod is over: stop what is left of it.
    Terminate,
}

/// The sandbox as the pod needs it, or why there is none. The texts are those of `PodReadyToStartContainers`.
pub(crate) fn sandbox_problem(pod: &Pod, state: &PodState) -> Option<&'static str> {
    let Some(newest) = state.sandboxes.first() else { return Some("no pod sandbox exists") };
    if state.sandboxes.iter().filter(|s| s.ready).count() > 1 {
        return Some("multiple pod sandboxes are ready and need to be reconciled");
    }
    if !newest.ready {
        return Some("pod sandbox is not ready");
    }
    if !pod::host_network(pod) && newest.addresses.is_empty() {
        return Some("pod sandbox has no IP address");
    }
    None
}

pub(crate) fn plan(observed: &Observed<'_>) -> Step {
    let Observed { pod, state, .. } = observed;
    if pod::is_being_deleted(pod) || pod::is_terminal(pod::status(pod)) || is_over(pod, state) {
        return Step::Terminate;
    }
    let mut work = Work::new(observed);
    if let Some(deadline) = deadline(pod) {
        if deadline <= observed.now {
            return Step::Terminate;
        }
        work.wake(deadline);
    }
    if sandbox_problem(pod, state).is_some() {
        work.renew_sandbox();
        return work.done();
    }
    if work.restart_all() {
        return work.done();
    }
    if work.initialise() {
        for container in pod::containers(pod) {
            work.keep(container, Role::Regular, state.latest(&container.name));
        }
    }
    for container in pod::ephemeral_containers(pod) {
        if state.latest(&container.name).is_none() {
            work.start(&container, Role::Ephemeral, None);
        }
    }
    work.collect_garbage();
    work.done()
}

/// When `activeDeadlineSeconds` ends.
pub(crate) fn deadline(pod: &Pod) -> Option<Timestamp> {
    let seconds = pod::spec(pod).active_deadline_seconds?;
    let start = pod::status(pod).start_time.as_ref()?.0;
    start.checked_add(Duration::from_secs(seconds.try_into().ok()?)).ok()
}

/// Whether nothing of the pod will ever run again by its restart policy.
pub(crate) fn is_over(pod: &Pod, state: &PodState) -> bool {
    let ended = |container: &Container, role: Role| {
        state.latest(&container.name).is_some_and(|record| {
            record.state == RunState::Exited && !pod::restarts_after(pod, role, container, record.exit_code)
        })
    };
    let init_failed = pod::init_containers(pod).iter().any(|container| {
        let role = pod::role_of_init(container);
        ended(container, role) && state.latest(&container.name).is_some_and(|r| r.exit_code != 0)
    });
    init_failed || (!pod::containers(pod).is_empty() && pod::containers(pod).iter().all(|c| ended(c, Role::Regular)))
}

/// The containers to stop, group after group: first all regular ones at once, then sidecars in reverse order.
pub(crate) fn termination_order(pod: &Pod, state: &PodState) -> Vec<Vec<Record>> {
    let sidecars: Vec<&Container> = pod::init_containers(pod).iter().filter(|c| pod::is_sidecar(c)).collect();
    let is_sidecar = |record: &Record| sidecars.iter().any(|c| c.name == record.name);
    let mut groups = vec![state.running().filter(|r| !is_sidecar(r)).cloned().collect::<Vec<_>>()];
    for sidecar in sidecars.iter().rev() {
        groups.push(state.running().filter(|r| r.name == sidecar.name).cloned().collect());
    }
    groups.retain(|group| !group.is_empty());
    groups
}

/// The plan while it is made.
struct Work<'a> {
    observed: &'a Observed<'a>,
    actions: Vec<Action>,
    waiting: Vec<Waiting>,
    wake_at: Option<Timestamp>,
}

impl<'a> Work<'a> {
    fn new(observed: &'a Observed<'a>) -> Self {
        Self { observed, actions: Vec::new(), waiting: Vec::new(), wake_at: None }
    }

    fn done(self) -> Step {
        Step::Run { actions: self.actions, waiting: self.waiting, wake_at: self.wake_at }
    }

    fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }

    fn renew_sandbox(&mut self) {
        let state = self.observed.state;
        for sandbox in state.sandboxes.iter().filter(|s| s.ready) {
            self.actions.push(Action::StopSandbox { id: sandbox.id.clone() });
        }
        // The containers of a dead sandbox may still run.
        for sandbox in state.sandboxes.iter().filter(|s| !s.ready) {
            if state.running().any(|r| r.sandbox == sandbox.id) {
                self.actions.push(Action::StopSandbox { id: sandbox.id.clone() });
            }
        }
        if !self.actions.is_empty() {
            return;
        }
        match self.observed.sandbox_not_before {
            Some(at) if at > self.observed.now => self.wake(at),
            _ => {
                let attempt = state.sandboxes.iter().map(|s| s.attempt + 1).max().unwrap_or(0);
                self.actions.push(Action::CreateSandbox { attempt });
            }
        }
    }

    /// Ends and forgets all containers when one of them ended so that its rules want that; those that wanted it go
    /// last, so that it is seen until it is done.
    fn restart_all(&mut self) -> bool {
        let (pod, state) = (self.observed.pod, self.observed.state);
        let all = || pod::containers(pod).iter().chain(pod::init_containers(pod));
        let wants = |container: &&Container| {
            let latest = state.latest(&container.name).filter(|record| record.state == RunState::Exited);
            latest.is_some_and(|record| pod::restarts_all(container, record.exit_code))
        };
        let causes: Vec<&str> = all().filter(wants).map(|c| c.name.as_str()).collect();
        if causes.is_empty() {
            return false;
        }
        for name in &causes {
            let ended = state.latest(name).and_then(|record| record.finished_at);
            if let (Some(ended), Some(backoff)) = (ended, self.observed.restarts.get(*name))
                && let Some(at) = backoff.not_before(ended).filter(|at| *at > self.observed.now)
            {
                self.waiting.push(Waiting { name: (*name).to_owned(), delay: backoff.delay() });
                self.wake(at);
                return true;
            }
        }
        let own = state.records.iter().filter(|record| all().any(|c| c.name == record.name));
        let (last, first): (Vec<&Record>, Vec<&Record>) = own.partition(|r| causes.contains(&r.name.as_str()));
        // First they end, and their status says how; then they are forgotten.
        for record in first.iter().filter(|record| record.state == RunState::Running) {
            self.kill(record, KillReason::RestartAll);
        }
        if !self.actions.is_empty() {
            return true;
        }
        for record in first.into_iter().chain(last) {
            self.actions.push(Action::Forget { id: record.id.clone(), name: record.name.clone() });
        }
        true
    }

    /// Looks after one container that is due to run.
    fn keep(&mut self, container: &Container, role: Role, record: Option<&Record>) {
        let pod = self.observed.pod;
        let Some(record) = record else { return self.start(container, role, None) };
        match record.state {
            RunState::Created => {
                self.actions.push(Action::Remove { id: record.id.clone(), name: record.name.clone() });
                self.start(container, role, Some(record));
            }
            RunState::Unknown => self.kill(record, KillReason::UnknownState),
            RunState::Running => {
                let health = self.observed.health.get(&record.id).copied().unwrap_or(Health::UNPROBED);
                // A killed container exits with a failure code, as far as the policy is concerned.
                let restarts = pod::restarts_after(pod, role, container, 137);
                if record.hash != pod::container_hash(container) && !record.hash.is_empty() {
                    self.kill(record, KillReason::Changed);
                } else if health.startup_failed {
                    self.kill(record, KillReason::Startup { restarts });
                } else if health.liveness_failed {
                    self.kill(record, KillReason::Liveness { restarts });
                } else {
                    self.resize(container, record);
                }
            }
            RunState::Exited => {
                if pod::restarts_after(pod, role, container, record.exit_code) {
                    self.start(container, role, Some(record));
                }
            }
        }
    }

    /// In place, unless the container wants to be started anew for one of the amounts that differ.
    fn resize(&mut self, container: &Container, record: &Record) {
        let (wanted, Some(given)) = (resources::size(container), self.observed.sizes.get(&record.id)) else { return };
        if wanted == *given {
            return;
        }
        let processor = wanted.shares != given.shares || wanted.quota != given.quota;
        let memory = (wanted.memory, wanted.memory_request) != (given.memory, given.memory_request);
        let restarts = container.resize_policy.iter().flatten().any(|policy| {
            policy.restart_policy == "RestartContainer"
                && match policy.resource_name.as_str() {
                    "cpu" => processor,
                    "memory" => memory,
                    _ => false,
                }
        });
        if restarts {
            self.kill(record, KillReason::Resized);
        } else {
            self.actions.push(Action::Resize { id: record.id.clone(), name: record.name.clone() });
        }
    }

    fn kill(&mut self, record: &Record, why: KillReason) {
        self.actions.push(Action::Kill { id: record.id.clone(), name: record.name.clone(), why });
    }

    /// Starts a container, unless a back-off says to wait.
    fn start(&mut self, container: &Container, role: Role, last: Option<&Record>) {
        let now = self.observed.now;
        let name = &container.name;
        if let Some(at) = self.observed.not_before.get(name).copied().filter(|at| *at > now) {
            return self.wake(at);
        }
        let ended = last.filter(|r| r.state == RunState::Exited).and_then(|r| r.finished_at);
        if let (Some(ended), Some(backoff)) = (ended, self.observed.restarts.get(name))
            && let Some(at) = backoff.not_before(ended).filter(|at| *at > now)
        {
            self.waiting.push(Waiting { name: name.clone(), delay: backoff.delay() });
            return self.wake(at);
        }
        let restart_count = match last {
            Some(record) if record.state == RunState::Created => record.restart_count,
            Some(record) => record.restart_count + 1,
            None => self.reported_restarts(name),
        };
        self.actions.push(Action::Start { name: name.clone(), role, restart_count });
    }

    /// The count to go on from when the runtime has forgotten a container that the API server remembers.
    fn reported_restarts(&self, name: &str) -> u32 {
        let Some(reported) = pod::container_status(self.observed.reported, name) else { return 0 };
        let ran = reported.container_id.as_deref().is_some_and(|id| !id.is_empty());
        u32::try_from(reported.restart_count).unwrap_or(0) + u32::from(ran)
    }

    /// Of each container the newest two records stay: the current one, and the one before for `logs --previous`.
    fn collect_garbage(&mut self) {
        let state = self.observed.state;
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for record in &state.records {
            let count = seen.entry(&record.name).or_default();
            *count += 1;
            if *count > 2 && record.state == RunState::Exited {
                self.actions.push(Action::Remove { id: record.id.clone(), name: record.name.clone() });
            }
        }
        for sandbox in state.sandboxes.iter().skip(1) {
            if !sandbox.ready && !state.records.iter().any(|r| r.sandbox == sandbox.id) {
                self.actions.push(Action::RemoveSandbox { id: sandbox.id.clone() });
            }
        }
    }
}
