//! Probes: asking containers whether they have started, are ready and are alive.
//!
//! Each probe of each running container is a task. What they find is kept here; the pod's worker is woken when it
//! changes something.

mod action;
mod counts;
pub(crate) mod http;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::{Clock, EventType, Recorder};
use ferry_tasks::Tasks;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::context::Context;
use crate::events::PodEvents;
use crate::plan::Health;
use crate::pod::{self, Role};
use crate::runtime::{PodState, Record, RunState, Runtime};
use action::Outcome;
pub(crate) use counts::Counts;

/// A server needs a moment to listen after its process has started. A refused connection within this time is tried
/// again at once, instead of after a whole period.
const SETTLING: Duration = Duration::from_secs(1);
const SETTLING_PAUSE: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// One probed container.
struct Probed {
    health: Arc<watch::Sender<Health>>,
    stop: CancellationToken,
    /// For those alone that have a container started again.
    stop_restarting: CancellationToken,
}

/// The probes of one pod.
pub(crate) struct Probes {
    runtime: Arc<dyn Runtime>,
    recorder: Recorder,
    tasks: Tasks,
    clock: Clock,
    wake: Arc<Notify>,
    /// Counts what was found out.
    found: watch::Sender<u64>,
    counts: Arc<Counts>,
    running: Mutex<HashMap<String, Probed>>,
}

/// What a probe needs to know of its container.
#[derive(Clone)]
struct Target {
    pod: Arc<Pod>,
    container: Container,
    id: String,
    address: String,
    started_at: Timestamp,
}

impl Probes {
    pub(crate) fn new(context: &Context, tasks: &Tasks, wake: Arc<Notify>) -> Self {
        Self {
            runtime: context.runtime.clone(),
            recorder: context.recorder.clone(),
            counts: context.probe_counts.clone(),
            tasks: tasks.clone(),
            clock: context.clock.clone(),
            wake,
            found: watch::Sender::new(0),
            running: Mutex::default(),
        }
    }

    pub(crate) fn health(&self) -> HashMap<String, Health> {
        self.running.lock().iter().map(|(id, probed)| (id.clone(), *probed.health.borrow())).collect()
    }

    /// Starts the probes of containers that run and ends those of containers that do not.
    pub(crate) fn follow(&self, pod: &Arc<Pod>, state: &PodState, host_address: &str) {
        let mut running = self.running.lock();
        running.retain(|id, probed| {
            let runs = state.running().any(|r| r.id == *id);
            if !runs {
                probed.stop.cancel();
            }
            runs
        });
        for record in state.running() {
            if running.contains_key(&record.id) {
                continue;
            }
            let Some((role, container)) = pod::container(pod, &record.name) else { continue };
            let probed = matches!(role, Role::Regular | Role::Sidecar)
                && [&container.startup_probe, &container.readiness_probe, &container.liveness_probe]
                    .iter()
                    .any(|p| p.is_some());
            if !probed {
                continue;
            }
            let address =
                if pod::host_network(pod) { Some(host_address) } else { state.addresses().first().map(String::as_str) };
            let target = Target {
                pod: pod.clone(),
                container: container.into_owned(),
                id: record.id.clone(),
                address: address.unwrap_or_default().to_owned(),
                started_at: record.started_at.unwrap_or_else(|| self.clock.now()),
            };
            running.insert(record.id.clone(), self.start(target, first_health(pod, record)));
        }
    }

    /// Changes when a probe finds that something has changed.
    pub(crate) fn findings(&self) -> watch::Receiver<u64> {
        self.found.subscribe()
    }

    /// A container that is about to end is not started again; whether it is ready still counts.
    pub(crate) fn stop_restarting(&self) {
        for probed in self.running.lock().values() {
            probed.stop_restarting.cancel();
        }
    }

    pub(crate) fn stop(&self) {
        for probed in self.running.lock().values() {
            probed.stop.cancel();
        }
    }

    fn start(&self, target: Target, reported: Option<Health>) -> Probed {
        let container = &target.container;
        let initial = reported.unwrap_or(Health {
            started: container.startup_probe.is_none(),
            ready: container.readiness_probe.is_none(),
            startup_failed: false,
            liveness_failed: false,
        });
        let health = Arc::new(watch::Sender::new(initial));
        let stop = self.tasks.stopping().child_token();
        let stop_restarting = stop.child_token();
        let probes = [
            (Kind::Startup, container.startup_probe.clone()),
            (Kind::Readiness, container.readiness_probe.clone()),
            (Kind::Liveness, container.liveness_probe.clone()),
        ];
        for (kind, probe) in probes {
            let Some(probe) = probe else { continue };
            let run = Run {
                runtime: self.runtime.clone(),
                recorder: self.recorder.clone(),
                wake: self.wake.clone(),
                found: self.found.clone(),
                counts: self.counts.clone(),
                clock: self.clock.clone(),
                health: health.clone(),
                target: target.clone(),
                kind,
                probe,
            };
            let stop = if kind == Kind::Readiness { stop.clone() } else { stop_restarting.clone() };
            self.tasks.spawn_until_stopped("probe", async move {
                let _ = stop.run_until_cancelled(run.run()).await;
            });
        }
        Probed { health, stop, stop_restarting }
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What the API server already knows of a container that was found running: a restart of the kubelet does not make
/// a ready container unready.
fn first_health(pod: &Pod, record: &Record) -> Option<Health> {
    let known = pod::container_status(pod::status(pod), &record.name)?;
    let same = known.container_id.as_deref().is_some_and(|id| id.ends_with(&record.id));
    if !same || record.state != RunState::Running || known.started != Some(true) {
        return None;
    }
    Some(Health { started: true, ready: known.ready, startup_failed: false, liveness_failed: false })
}

/// One probe of one container.
struct Run {
    runtime: Arc<dyn Runtime>,
    recorder: Recorder,
    wake: Arc<Notify>,
    found: watch::Sender<u64>,
    counts: Arc<Counts>,
    clock: Clock,
    health: Arc<watch::Sender<Health>>,
    target: Target,
    kind: Kind,
    probe: Probe,
}

impl Run {
    async fn run(self) {
        if self.kind == Kind::Startup {
            if self.health.borrow().started {
                return;
            }
        } else {
            let mut started = self.health.subscribe();
            if started.wait_for(|h| h.started).await.is_err() {
                return;
            }
        }
        let period = Duration::from_secs(self.probe.period_seconds.unwrap_or(10).max(1).unsigned_abs().into());
        self.wait_initial_delay().await;
        let failures_needed = self.probe.failure_threshold.unwrap_or(3).max(1);
        let successes_needed = self.probe.success_threshold.unwrap_or(1).max(1);
        let (mut successes, mut failures) = (0, 0);
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            match self.ask().await {
                Outcome::Success | Outcome::Warning(_) => {
                    (successes, failures) = (successes + 1, 0);
                    if successes >= successes_needed && self.passed() {
                        return;
                    }
                }
                Outcome::Failure { .. } => {
                    (successes, failures) = (0, failures + 1);
                    if failures >= failures_needed && self.failed() {
                        return;
                    }
                }
                Outcome::Error(_) => {}
            }
        }
    }

    async fn wait_initial_delay(&self) {
        let delay = Duration::from_secs(self.probe.initial_delay_seconds.unwrap_or(0).max(0).unsigned_abs().into());
        let age = Duration::try_from(self.clock.now().duration_since(self.target.started_at)).unwrap_or(Duration::ZERO);
        tokio::time::sleep(delay.saturating_sub(age)).await;
    }

    /// Asks once and says what went wrong.
    async fn ask(&self) -> Outcome {
        let events = PodEvents { recorder: &self.recorder, pod: &self.target.pod };
        let name = &self.target.container.name;
        let outcome = self.ask_settled().await;
        self.counts.add(&self.target.pod, name, self.kind.name(), &outcome);
        let kind = self.kind.name();
        let (reason, message) = match &outcome {
            Outcome::Success => return outcome,
            Outcome::Warning(output) => ("ProbeWarning", format!("{kind} probe warning: {output}")),
            Outcome::Failure { output, .. } => ("Unhealthy", format!("{kind} probe failed: {output}")),
            Outcome::Error(why) => ("Unhealthy", format!("{kind} probe errored and resulted in unknown state: {why}")),
        };
        events.container(name, EventType::Warning, reason, message);
        outcome
    }

    async fn ask_settled(&self) -> Outcome {
        loop {
            let outcome = action::ask(&*self.runtime, &self.target, &self.probe).await;
            let age = self.clock.now().duration_since(self.target.started_at);
            let young = Duration::try_from(age).unwrap_or(Duration::ZERO) < SETTLING;
            match outcome {
                Outcome::Failure { refused: true, .. } if young => tokio::time::sleep(SETTLING_PAUSE).await,
                other => return other,
            }
        }
    }

    /// True when the probe has done its work.
    fn passed(&self) -> bool {
        self.change(|health| match self.kind {
            Kind::Startup => health.started = true,
            Kind::Readiness => health.ready = true,
            Kind::Liveness => {}
        });
        self.kind == Kind::Startup
    }

    fn failed(&self) -> bool {
        self.change(|health| match self.kind {
            Kind::Startup => health.startup_failed = true,
            Kind::Readiness => health.ready = false,
            Kind::Liveness => health.liveness_failed = true,
        });
        // The container will be killed; another probe of it would only get in the way.
        self.kind != Kind::Readiness
    }

    fn change(&self, change: impl FnOnce(&mut Health)) {
        let changed = self.health.send_if_modified(|health| {
            let before = *health;
            change(health);
            *health != before
        });
        if changed {
            self.found.send_modify(|count| *count += 1);
            self.wake.notify_one();
        }
    }
}
