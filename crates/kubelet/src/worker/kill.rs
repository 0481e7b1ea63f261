//! Stopping containers: the hook, the grace period, and what is left of them.

use std::time::{Duration, Instant};

use ferry_client::EventType;
use k8s_openapi::api::core::v1::Container;

use super::Worker;
use crate::hooks;
use crate::plan::KillReason;
use crate::pod::{self, Role};
use crate::runtime::{PodState, Record};

/// A process gets this long to end after its signal, even when its time is up.
const SHORTEST_GRACE: i64 = 2;

impl Worker {
    /// Kills a container that the planner found unfit.
    pub(super) async fn kill_unhealthy(&mut self, state: &PodState, id: &str, name: &str, why: &KillReason) {
        let Some(record) = state.records.iter().find(|r| r.id == id) else { return };
        let found = pod::container(&self.pod, name).map(|(role, c)| (role, c.into_owned()));
        let role = found.as_ref().map_or(Role::Regular, |(role, _)| *role);
        let probe = found.as_ref().and_then(|(_, c)| match why {
            KillReason::Liveness { .. } => c.liveness_probe.as_ref(),
            KillReason::Startup { .. } => c.startup_probe.as_ref(),
            _ => None,
        });
        let own = probe.and_then(|p| p.termination_grace_period_seconds);
        let grace = match why {
            KillReason::RestartAll => 0,
            _ => own.unwrap_or_else(|| pod::grace_seconds(&self.pod)),
        };
        self.kill(state, record, grace, why.message(name, role), std::future::ready(())).await;
        if *why == KillReason::Changed {
            self.replaced.insert(name.to_owned());
        }
    }

    /// Runs the hook, waits for the container's turn, stops it, and returns when it is dead. All within its time.
    pub(super) async fn kill(
        &self,
        state: &PodState,
        record: &Record,
        grace: i64,
        message: String,
        turn: impl Future<Output = ()>,
    ) {
        self.events().container(&record.name, EventType::Normal, "Killing", message);
        let container = pod::container(&self.pod, &record.name).map(|(_, c)| c.into_owned());
        let mut left = grace;
        if let Some(container) = container.filter(|_| grace > 0) {
            let used = self.before_stop(state, &container, &record.id, grace).await;
            left = left.saturating_sub(i64::try_from(used.as_secs()).unwrap_or(i64::MAX));
        }
        if let Some(limit) = u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_secs) {
            let started = Instant::now();
            let _ = tokio::time::timeout(limit, turn).await;
            left = left.saturating_sub(i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX));
        }
        let stopped = self.context.runtime.stop_container(&record.id, left.max(SHORTEST_GRACE)).await;
        if let Err(error) = stopped {
            let message = format!("error killing pod: failed to \"KillContainer\" for {:?}: {error}", record.name);
            self.events().pod(EventType::Warning, "FailedKillPod", message);
        }
    }

    async fn before_stop(&self, state: &PodState, container: &Container, id: &str, grace: i64) -> Duration {
        let started = Instant::now();
        let Some(hook) = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref()) else { return Duration::ZERO };
        let address = self.surroundings(state).pod_addresses.first().cloned().unwrap_or_default();
        let limit = Duration::from_secs(u64::try_from(grace).unwrap_or(0));
        let run = hooks::run(&*self.context.runtime, hook, container, id, &address);
        if let Ok(Err(why)) = tokio::time::timeout(limit, run).await {
            tracing::debug!(container = container.name, "preStop hook failed: {why}");
            self.events().container(&container.name, EventType::Warning, "FailedPreStopHook", "PreStopHook failed");
        }
        started.elapsed()
    }

    /// Removes an ended container, as though the pod were new. Its log stays as long as the pod.
    pub(super) async fn forget_container(&mut self, state: &PodState, id: &str, name: &str) {
        let ended = state.records.iter().find(|r| r.id == id).and_then(|r| r.finished_at);
        if let Err(error) = self.context.runtime.remove_container(id).await {
            tracing::debug!(container = name, "not removed: {error}");
            return;
        }
        let is_latest = state.latest(name).is_some_and(|record| record.id == id);
        if let Some(ended) = ended.filter(|_| is_latest) {
            let backoff = self.next_restart(name, ended, self.context.clock.now());
            self.backoffs.restarts.insert(name.to_owned(), backoff);
        }
    }

    /// Removes an ended container and its log.
    pub(super) async fn remove_container(&self, state: &PodState, id: &str, name: &str) {
        if let Err(error) = self.context.runtime.remove_container(id).await {
            tracing::debug!(container = name, "not removed: {error}");
            return;
        }
        if let Some(record) = state.records.iter().find(|r| r.id == id && !r.log_path.is_empty()) {
            let _ = tokio::fs::remove_file(&record.log_path).await;
        }
    }
}
