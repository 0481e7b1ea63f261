//! One worker per pod: looks at the runtime, asks the planner what to do, does it, tells the API server, and again.

mod counted;
mod end;
mod kill;
mod mailbox;
mod report;
mod resize;
mod sandbox;
mod start;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ferry_client::EventType;
use ferry_tasks::Tasks;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

pub(crate) use mailbox::{EndReason, Mailbox};

use crate::backoff::{Backoff, go_duration};
use crate::cgroups::{self, Amounts};
use crate::context::Context;
use crate::events::PodEvents;
use crate::images::PullBackoffs;
use crate::metrics::Histogram;
use crate::plan::{self, Action, Step, Waiting};
use crate::pod;
use crate::probes::Probes;
use crate::runtime::PodState;
use crate::spec::fields::Surroundings;
use crate::status::{self, WaitReason};
use crate::volumes::{Mounted, Unmounted, VolumeError};
use report::Reporter;

/// After the runtime failed to answer.
const RUNTIME_RETRY: Duration = Duration::from_secs(1);
/// A volume that others are still at work on is looked at again after this.
const NOT_YET: Duration = Duration::from_millis(500);

pub(crate) struct Worker {
    context: Arc<Context>,
    mailbox: Arc<Mailbox>,
    uid: String,
    pod: Arc<Pod>,
    probes: Probes,
    reporter: Reporter,
    /// The last status made, the ground for the next.
    status: PodStatus,
    reasons: BTreeMap<String, WaitReason>,
    backoffs: Backoffs,
    mounted: Option<Arc<Mounted>>,
    /// What the pod's control group was last told.
    limits: Option<Amounts>,
    end_reason: Option<EndReason>,
    /// Everything of the pod has been stopped.
    ended: bool,
    sizes: resize::Sizes,
    /// Whether the pod's runtime makes mounts read-only all the way down, once somebody wanted to know.
    recursive_read_only: bool,
    /// The sandbox whose network has its rules.
    gated: Option<String>,
    /// Containers that were killed in the last look because their definition changed.
    replaced: HashSet<String>,
    /// When this kubelet first saw the pod; nothing once it has run.
    first_seen: Option<Instant>,
}

/// What failed before, and when it is tried again.
#[derive(Default)]
struct Backoffs {
    not_before: BTreeMap<String, Timestamp>,
    restarts: HashMap<String, Backoff>,
    /// Containers whose back-off has been told.
    told: HashMap<String, Duration>,
    pulls: PullBackoffs,
    sandbox_failures: u32,
    sandbox_not_before: Option<Timestamp>,
    volume_failures: u32,
    volumes_not_before: Option<Timestamp>,
}

/// What to do after one look.
enum Next {
    Look,
    Wait(Option<Timestamp>),
    Done,
}

impl Worker {
    pub(crate) fn new(context: Arc<Context>, mailbox: Arc<Mailbox>, tasks: &Tasks) -> Self {
        let pod = mailbox.pod();
        let probes = Probes::new(&context, tasks, mailbox.wake.clone());
        Self {
            reporter: Reporter::new(&context, &pod, tasks),
            probes,
            uid: pod::uid(&pod).to_owned(),
            status: pod::status(&pod).clone(),
            context,
            mailbox,
            pod,
            reasons: BTreeMap::new(),
            backoffs: Backoffs::default(),
            mounted: None,
            limits: None,
            end_reason: None,
            ended: false,
            sizes: resize::Sizes::default(),
            recursive_read_only: false,
            gated: None,
            replaced: HashSet::new(),
            first_seen: Some(Instant::now()),
        }
    }

    /// The delay of a container that ended and is to run again.
    fn next_restart(&self, name: &str, ended: Timestamp, now: Timestamp) -> Backoff {
        let delays = self.context.config.settings.restarts;
        Backoff::next(self.backoffs.restarts.get(name).copied(), ended, now, delays)
    }

    /// The time that is this far ahead; nothing where no calendar has it.
    fn later(&self, wait: Duration) -> Option<Timestamp> {
        self.context.clock.now().checked_add(wait).ok()
    }

    pub(crate) async fn run(mut self) {
        let containers = pod::containers(&self.pod).len() as f64;
        self.context.metrics.observe(Histogram::ContainersPerPod, &[], containers);
        let mut operation = "create";
        loop {
            let (since, version) = (Instant::now(), self.pod.metadata.resource_version.clone());
            let next = self.look().await;
            if operation != "create" && version != self.pod.metadata.resource_version {
                operation = "update";
            }
            self.context.metrics.took(Histogram::PodWorker, &[("operation_type", operation)], since.elapsed());
            operation = "sync";
            let wake = self.mailbox.wake.clone();
            match next {
                Next::Look => {}
                Next::Done => break,
                Next::Wait(None) => match self.context.config.settings.sync {
                    None => wake.notified().await,
                    Some(longest) => drop(tokio::time::timeout(longest, wake.notified()).await),
                },
                Next::Wait(Some(at)) => {
                    let wait =
                        Duration::try_from(at.duration_since(self.context.clock.now())).unwrap_or(Duration::ZERO);
                    let wait = self.context.config.settings.sync.map_or(wait, |longest| wait.min(longest));
                    let _ = tokio::time::timeout(wait, wake.notified()).await;
                }
            }
        }
        self.mailbox.set_finished();
        self.probes.stop();
        self.context.probe_counts.forget(&self.uid);
        self.context.log_files.set(&self.uid, Vec::new());
    }

    fn events(&self) -> PodEvents<'_> {
        PodEvents { recorder: &self.context.recorder, pod: &self.pod }
    }

    async fn look(&mut self) -> Next {
        let newest = self.mailbox.pod();
        if newest.metadata.resource_version != self.pod.metadata.resource_version {
            // Labels and annotations may stand in files.
            self.volumes_due(newest.metadata.labels != self.pod.metadata.labels);
            self.volumes_due(newest.metadata.annotations != self.pod.metadata.annotations);
            self.pod = newest;
        }
        self.volumes_due(self.mailbox.take_sources_changed());
        let state = match self.context.runtime.pod(&self.uid).await {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(pod = pod::name(&self.pod), "the runtime does not answer: {error}");
                return Next::Wait(self.later(RUNTIME_RETRY));
            }
        };
        let logs = state.running().filter(|r| !r.log_path.is_empty());
        let logs = logs.map(|r| (r.id.clone(), std::path::PathBuf::from(&r.log_path))).collect();
        self.context.log_files.set(&self.uid, logs);
        if self.mailbox.is_gone() {
            return self.clean_up(&state).await;
        }
        if self.ended {
            return self.finish(&state).await;
        }
        if let Some(end_reason) = self.mailbox.end_reason() {
            self.end_reason = Some(end_reason);
            return self.terminate(&state).await;
        }
        self.adopt_sizes(&state);
        self.probes.follow(&self.pod, &state, self.context.host_address());
        self.know_recursive_read_only().await;
        let health = self.probes.health();
        let step = plan::plan(&plan::Observed {
            pod: &self.pod,
            state: &state,
            health: &health,
            restarts: &self.backoffs.restarts,
            not_before: &self.backoffs.not_before,
            sandbox_not_before: self.backoffs.sandbox_not_before,
            sizes: &self.sizes.settled(),
            reported: &self.status,
            now: self.context.clock.now(),
        });
        match step {
            Step::Terminate => self.terminate(&state).await,
            Step::Run { actions, waiting, wake_at } => {
                self.tell_waiting(waiting);
                let replaced = std::mem::take(&mut self.replaced);
                let starts = |action: &Action| matches!(action, Action::Start { name, .. } if replaced.contains(name));
                if actions.iter().any(starts) {
                    self.report_after_start(&state);
                } else {
                    self.report(&state, false);
                }
                self.carry_out(&state, actions, wake_at).await
            }
        }
    }

    /// Remembers that the volumes have to be written again.
    fn volumes_due(&mut self, due: bool) {
        if due {
            self.mounted = None;
            self.backoffs.volumes_not_before = None;
            // What failed for want of an object may work now.
            self.backoffs.not_before.retain(|name, _| {
                let reason = self.reasons.get(name).map(|r| r.reason.as_str());
                reason != Some("CreateContainerConfigError")
            });
        }
    }

    fn report(&mut self, state: &PodState, over: bool) {
        let next = self.make_status(state, over);
        self.count_changes(&next);
        self.status = next;
        self.reporter.report(&self.status);
    }

    /// A container is about to be started again, for it was killed to get its new definition: its pod is not ready only when that takes long.
    fn report_after_start(&mut self, state: &PodState) {
        let absent = self.make_status(state, false);
        self.count_changes(&absent);
        self.status = absent.clone();
        self.reporter.report_after(self.context.config.settings.replaced_told_after, absent);
    }

    fn make_status(&self, state: &PodState, over: bool) -> PodStatus {
        let health = self.probes.health();
        let old = self.reporter.last();
        status::status(&status::Observed {
            pod: &self.pod,
            state,
            health: &health,
            reasons: &self.reasons,
            old: &old,
            over,
            end_reason: self.end_reason.as_ref(),
            sizes: self.sizes.given(),
            resizing: self.sizes.unsettled(&self.pod, state),
            recursive_read_only: self.recursive_read_only,
            runtime_name: self.context.runtime.identity().0,
            host_addresses: &self.context.machine.addresses,
            now: self.context.clock.now(),
        })
    }

    /// Says of crashed containers that they wait, once per delay.
    fn tell_waiting(&mut self, waiting: Vec<Waiting>) {
        for Waiting { name, delay } in waiting {
            let printed = pod::printed(&self.pod);
            let message = format!("back-off {} restarting failed container={name} pod={printed}", go_duration(delay));
            if self.backoffs.told.get(&name) != Some(&delay) {
                let text = format!("Back-off restarting failed container {name} in pod {printed}");
                self.events().container(&name, EventType::Warning, "BackOff", text);
                self.backoffs.told.insert(name.clone(), delay);
            }
            self.reasons.insert(name, WaitReason { reason: "CrashLoopBackOff".into(), message });
        }
    }

    async fn carry_out(&mut self, state: &PodState, actions: Vec<Action>, wake_at: Option<Timestamp>) -> Next {
        let starts = actions.iter().any(|a| matches!(a, Action::CreateSandbox { .. } | Action::Start { .. }));
        let runs = state.running().next().is_some();
        let mut wake_at = wake_at;
        if starts || runs {
            // A pod that shrinks cannot get less than its containers still have: they go first, and it is tried again.
            let shrinks = actions.iter().any(|a| matches!(a, Action::Resize { .. }));
            if self.cannot_be_resized(state).is_none() && !self.apply_limits(shrinks).await && starts {
                return Next::Wait(self.later(RUNTIME_RETRY));
            }
            match self.mount_volumes(state).await {
                Ok(refresh_at) => wake_at = [wake_at, refresh_at].into_iter().flatten().min(),
                Err(at) => {
                    wake_at = [wake_at, Some(at)].into_iter().flatten().min();
                    if starts {
                        return Next::Wait(wake_at);
                    }
                }
            }
        }
        if actions.is_empty() {
            return Next::Wait(wake_at);
        }
        for action in actions {
            let mailbox = self.mailbox.clone();
            let done = tokio::select! {
                biased;
                // Whatever is going on, a pod that has to end does not wait for a pull or a hook.
                () = mailbox.ends_before(None) => false,
                () = self.act(state, action) => true,
            };
            if !done {
                break;
            }
        }
        Next::Look
    }

    async fn act(&mut self, state: &PodState, action: Action) {
        match action {
            Action::CreateSandbox { attempt } => self.create_sandbox(attempt).await,
            Action::StopSandbox { id } => self.stop_changed_sandbox(state, &id).await,
            Action::RemoveSandbox { id } => {
                let _ = self.context.runtime.remove_sandbox(&id).await;
            }
            Action::Start { name, role, restart_count } => self.start(state, &name, role, restart_count).await,
            Action::Kill { id, name, why } => self.kill_unhealthy(state, &id, &name, &why).await,
            Action::Remove { id, name } => self.remove_container(state, &id, &name).await,
            Action::Forget { id, name } => self.forget_container(state, &id, &name).await,
            Action::Resize { id, name } => self.resize(state, &id, &name).await,
        }
    }

    fn surroundings(&self, state: &PodState) -> Surroundings {
        let hosts = &self.context.machine.addresses;
        let pods = if pod::host_network(&self.pod) { hosts.as_slice() } else { state.addresses() };
        Surroundings {
            host_addresses: hosts.clone(),
            pod_addresses: pods.to_vec(),
            allocatable: self.context.machine.allocatable.clone(),
        }
    }

    /// Makes the pod's control group, and writes its limits when they changed.
    async fn apply_limits(&mut self, again: bool) -> bool {
        let limits = cgroups::amounts_of(&self.pod, self.context.pod_quotas(&self.uid));
        if self.limits.as_ref() == Some(&limits) {
            return true;
        }
        match self.context.hardware.groups.apply(&self.pod, &limits).await {
            Ok(()) => {
                self.limits = Some(limits);
                true
            }
            Err(_) if again => false,
            Err(error) => {
                let message = format!("unable to ensure pod container exists: {error}");
                self.events().pod(EventType::Warning, "FailedCreatePodContainer", message);
                false
            }
        }
    }

    /// Makes or refreshes the volumes when they are due. Gives when to look at them again; on failure, when to retry.
    async fn mount_volumes(&mut self, state: &PodState) -> Result<Option<Timestamp>, Timestamp> {
        let now = self.context.clock.now();
        if let Some(mounted) = &self.mounted
            && mounted.refresh_at.is_none_or(|at| at > now)
        {
            return Ok(mounted.refresh_at);
        }
        if let Some(at) = self.backoffs.volumes_not_before.filter(|at| *at > now) {
            return Err(at);
        }
        let around = self.surroundings(state);
        match self.context.volumes.mount(&self.pod, &around).await {
            Ok(mounted) => {
                self.backoffs.volume_failures = 0;
                self.backoffs.volumes_not_before = None;
                let refresh_at = mounted.refresh_at;
                self.mounted = Some(Arc::new(mounted));
                Ok(refresh_at)
            }
            Err(VolumeError { why: Unmounted::NotYet(why), volume }) => {
                tracing::debug!(pod = pod::name(&self.pod), volume, "{why}");
                let at = now.checked_add(NOT_YET).unwrap_or(now);
                self.backoffs.volumes_not_before = Some(at);
                Err(at)
            }
            Err(error) => {
                self.events().pod(EventType::Warning, "FailedMount", error.to_string());
                // Half a second, doubled each time up to two minutes.
                let wait =
                    Duration::from_millis(500 << self.backoffs.volume_failures.min(8)).min(Duration::from_secs(120));
                self.backoffs.volume_failures += 1;
                let at = now.checked_add(wait).unwrap_or(now);
                self.backoffs.volumes_not_before = Some(at);
                Err(at)
            }
        }
    }
}
