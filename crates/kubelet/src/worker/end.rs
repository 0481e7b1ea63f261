//! The end of a pod: stop what runs, say how it ended, give back what it held.

use std::convert::Infallible;
use std::time::Duration;

use ferry_client::write;
use ferry_client::{Api, EventType};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::api::{DeleteParams, Preconditions};
use tokio::sync::watch;

use super::{EndReason, Next, Worker};
use crate::runtime::PodState;
use crate::spec::sandbox::log_folder;
use crate::{logs, plan, pod, status};

fn is_ready(status: &PodStatus) -> bool {
    status.conditions.iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Before the API server is asked again to let a stopped pod go.
const RETRY: Duration = Duration::from_secs(2);

impl Worker {
    /// Stops everything of the pod.
    pub(super) async fn terminate(&mut self, state: &PodState) -> Next {
        if self.end_reason.is_none() {
            let late = status::verdict_of_deadline(&self.pod, self.context.clock.now());
            self.end_reason = late.map(|why| EndReason { why, disrupts: None });
        }
        self.report(state, false);
        // A kubelet that was started again asks again.
        self.probes.follow(&self.pod, state, self.context.host_address());
        self.probes.stop_restarting();
        let grace = self.mailbox.grace().unwrap_or_else(|| pod::grace_seconds(&self.pod));
        let mailbox = self.mailbox.clone();
        let stopped = tokio::select! {
            biased;
            // Someone wants it gone sooner: begin again with less time.
            () = mailbox.ends_before(Some(grace)) => false,
            () = self.stop_all(state, grace) => true,
            never = self.tell_readiness(state) => match never {},
        };
        if !stopped {
            return Next::Look;
        }
        self.probes.stop();
        match self.context.runtime.pod(&self.uid).await {
            Ok(after) if after.running().next().is_none() && !after.sandboxes.iter().any(|s| s.ready) => {
                self.report_end(&after).await;
                self.ended = true;
                Next::Look
            }
            // Something could not be stopped; try again rather than spin.
            _ => Next::Wait(self.later(RETRY)),
        }
    }

    /// A pod that ends serves the connections that it has. As soon as it is not ready any more, new ones go elsewhere.
    async fn tell_readiness(&self, state: &PodState) -> Infallible {
        let mut findings = self.probes.findings();
        while findings.changed().await.is_ok() {
            self.reporter.report(&self.make_status(state, false));
        }
        std::future::pending().await
    }

    async fn stop_all(&self, state: &PodState, grace: i64) {
        let started = std::time::Instant::now();
        if grace > 1 && pod::is_being_deleted(&self.pod) && is_ready(&self.status) {
            tokio::time::sleep(self.context.config.drain).await;
        }
        let used = i64::try_from(started.elapsed().as_secs()).unwrap_or(i64::MAX);
        let left = grace.saturating_sub(used).max(0);
        // All hooks run at once. Before its signal, a sidecar waits until those before it have ended.
        let ended = watch::Sender::new(0);
        let groups = plan::termination_order(&self.pod, state);
        let groups = groups.iter().enumerate().map(|(place, group)| {
            let kills = group.iter().map(|record| {
                let (message, mut before) = (format!("Stopping container {}", record.name), ended.subscribe());
                let turn = async move {
                    let _ = before.wait_for(|ended| *ended >= place).await;
                };
                self.kill(state, record, left, message, turn)
            });
            let kills = futures::future::join_all(kills);
            let ended = &ended;
            async move {
                kills.await;
                ended.send_modify(|ended| *ended = (*ended).max(place + 1));
            }
        });
        futures::future::join_all(groups).await;
        for sandbox in &state.sandboxes {
            if let Err(error) = self.context.runtime.stop_sandbox(&sandbox.id).await {
                tracing::debug!(sandbox = sandbox.id, "not stopped: {error}");
            }
        }
    }

    /// Tells how the pod ended. Devices are free before that is known: the scheduler gives them to the next pod at once.
    async fn report_end(&mut self, state: &PodState) {
        self.context.hardware.give_back(&self.uid).await;
        self.report(state, true);
    }

    /// Everything is stopped. A deleted pod is given up; one that merely ended stays for its logs.
    pub(super) async fn finish(&mut self, state: &PodState) -> Next {
        self.report_end(state).await;
        if let Err(why) = self.context.volumes.remove(&self.uid).await {
            tracing::warn!(pod = pod::name(&self.pod), "volumes not removed: {why}");
            return Next::Wait(self.later(RETRY));
        }
        if let Err(why) = self.context.give_devices_back(&self.uid).await {
            self.events().pod(EventType::Warning, "FailedUnprepareDynamicResources", why);
            return Next::Wait(self.later(RETRY));
        }
        self.context.hardware.groups.remove(&self.uid).await;
        self.context.sources.release(&self.uid);
        self.mailbox.set_finished();
        if !pod::is_being_deleted(&self.pod) {
            return Next::Wait(None);
        }
        self.reporter.flush().await;
        let api: Api<Pod> = Api::namespaced(self.context.client.clone(), pod::namespace(&self.pod));
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: Some(self.uid.clone()), resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(pod::name(&self.pod), &params).await {
            // The watch will say that it is gone, unless a finalizer holds it.
            Ok(_) => Next::Wait(None),
            Err(error) if write::is_not_found(&error) || write::is_conflict(&error) => {
                self.mailbox.put_gone();
                Next::Look
            }
            Err(error) => {
                tracing::debug!(pod = pod::name(&self.pod), "not deleted: {}", write::short(&error));
                Next::Wait(self.later(RETRY))
            }
        }
    }

    /// The API server has forgotten the pod; so does the node.
    pub(super) async fn clean_up(&mut self, state: &PodState) -> Next {
        self.probes.stop();
        if state.running().next().is_some() || state.sandboxes.iter().any(|s| s.ready) {
            self.stop_all(state, self.mailbox.grace().unwrap_or(0)).await;
        }
        if let Err(why) = self.context.remove_remains(&self.uid, state).await {
            tracing::warn!(pod = pod::name(&self.pod), "not cleaned up: {why}");
            return Next::Wait(self.later(RETRY));
        }
        logs::remove(log_folder(&self.context.config.log_dir, &self.pod)).await;
        Next::Done
    }
}
