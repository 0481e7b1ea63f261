//! The loop of DaemonSet.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{
    Api, Change, Clock, Error, EventType, Expectations, Index, Informer, ObjectKey, Recorder, WorkQueue, owner,
};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::PostParams;
use kube::{Client, ResourceExt};

use super::plan::{self, Observed, Plan};
use super::pod::{fit, pod_for};
use crate::Context;
use crate::common::backoff::Backoff;
use crate::common::history::{self, Settled};
use crate::common::pod_control::PodControl;
use crate::common::selector::Selector;
use crate::common::{claim, pod};

const NAME: &str = "daemon-set-controller";
/// As events name it, unlike the identity.
const COMPONENT: &str = "daemonset-controller";
const WORKERS: usize = 2;
const BURST: usize = 250;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    sets: Informer<DaemonSet>,
    nodes: Informer<Node>,
    pods: Index<Pod>,
    revisions: Index<ControllerRevision>,
    control: PodControl,
    expectations: Expectations,
    /// Of pods that fail again and again on the same node.
    backoff: Backoff<Attempt>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

/// A set as it was specified, and a node: one that was corrected or made anew begins without a wait.
type Attempt = (Option<String>, Option<i64>, String);

fn attempt(set: &DaemonSet, pod: &Pod) -> Attempt {
    (set.metadata.uid.clone(), set.metadata.generation, pod::node(pod).to_owned())
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let recorder = Recorder::new(client.clone(), COMPONENT, &context.tasks);
    let (sets, nodes) = (context.informers.of::<DaemonSet>(), context.informers.of::<Node>());
    let (pods, revisions) = (context.informers.of::<Pod>(), context.informers.of::<ControllerRevision>());
    let this = Arc::new(Reconciler {
        client: client.clone(),
        recorder: recorder.clone(),
        sets: sets.clone(),
        nodes: nodes.clone(),
        pods: pods.by_controller(),
        revisions: revisions.by_controller(),
        control: PodControl::new(client, recorder),
        expectations: Expectations::new(),
        backoff: Backoff::new(Duration::from_secs(1), Duration::from_secs(15 * 60)),
        clock: context.config.clock.clone(),
        queue: context.queue("daemonset"),
    });

    let handler = this.clone();
    sets.on_change(move |change| {
        let key = ObjectKey::of(&**change.object());
        if matches!(change, Change::Deleted(_)) {
            handler.expectations.forget(&key);
        }
        handler.queue.add(key);
    });
    let handler = this.clone();
    pods.on_change(move |change| handler.pod_changed(change));
    let handler = this.clone();
    nodes.on_change(move |change| handler.node_changed(change));
    let handler = this.clone();
    revisions.on_change(move |change| history::wake("DaemonSet", &handler.queue, change));

    let ready = async move {
        sets.synced().await;
        nodes.synced().await;
        pods.synced().await;
        revisions.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    fn pod_changed(&self, change: &Change<Pod>) {
        let pod = change.object();
        let namespace = pod.namespace().unwrap_or_default();
        for state in change.old().into_iter().chain([pod]) {
            let reference = owner::controller_of(&**state).filter(|reference| reference.kind == "DaemonSet");
            let Some(set) = reference.and_then(|reference| self.sets.get(&namespace, &reference.name)) else {
                continue;
            };
            if !owner::is_controlled_by(&**state, &*set) {
                continue;
            }
            let key = ObjectKey::of(&*set);
            let uid = pod.metadata.uid.as_deref().unwrap_or_default();
            match change {
                Change::Added(_) if !pod::is_terminating(pod) => self.expectations.created(&key),
                Change::Modified { .. } if !pod::is_terminating(pod) => {}
                _ => self.expectations.deleted(&key, uid),
            }
            self.queue.add(key);
        }
        let free = |pod: &Pod| owner::controller_of(pod).is_none();
        let came = match change {
            Change::Added(_) => true,
            Change::Modified { old, new } => !free(old) || old.metadata.labels != new.metadata.labels,
            Change::Deleted(_) => false,
        };
        if came && free(pod) {
            for set in self.sets.list_in(&namespace) {
                if Selector::new(Some(&set.spec.selector)).matches(pod.metadata.labels.as_ref()) {
                    self.queue.add(ObjectKey::of(&*set));
                }
            }
        }
    }

    /// A node matters when a set fits it now and did not before, or the other way round.
    fn node_changed(&self, change: &Change<Node>) {
        for set in self.sets.list() {
            let concerns = match change {
                Change::Added(node) | Change::Deleted(node) => fit(&set, node).stay,
                Change::Modified { old, new } => fit(&set, old) != fit(&set, new),
            };
            if concerns {
                self.queue.add(ObjectKey::of(&*set));
            }
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(set) = self.sets.get_key(key) else {
            self.expectations.forget(key);
            return Ok(Action::Done);
        };
        let selector = Selector::new(Some(&set.spec.selector));
        if selector.is_everything() {
            let message = "This daemon set is selecting all pods. A non-empty selector is required.";
            self.recorder.event(&*set, EventType::Warning, "SelectingAll", message);
            return Ok(Action::Done);
        }
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Action::Done);
        }
        let api: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let (revisions, hash) = match self.revision(key, &set, &selector).await? {
            (revisions, Settled::Revision(current)) => (revisions, history::hash_of(&current)),
            (_, Settled::Collision) => {
                let mut updated = (*set).clone();
                let status = updated.status.get_or_insert_default();
                status.collision_count = Some(status.collision_count.unwrap_or_default().saturating_add(1));
                api.replace_status(&key.name, &PostParams::default(), &updated).await?;
                return Ok(Action::Done);
            }
        };
        // Asked before the pods are: what is seen in between must not be acted on as if it were missing.
        let pending = self.expectations.pending(key);
        let pods = self.claim(key, &set, &selector).await?;
        let nodes = self.nodes.list();
        let observed = Observed { set: &set, hash: &hash, nodes: &nodes, pods: &pods, now: self.clock.seconds() };
        let mut failure = None;
        let mut wait = pending;
        if pending.is_none() {
            match self.carry_out(key, &observed).await {
                Ok(delay) => wait = delay,
                Err(error) => failure = Some(error),
            }
        }
        if let Some(status) = plan::status(&observed, pending.is_none()) {
            let mut updated = (*set).clone();
            updated.status = Some(status);
            api.replace_status(&key.name, &PostParams::default(), &updated).await?;
        }
        if let Some(failure) = failure {
            return Err(failure.into());
        }
        let lives = |revision: &ControllerRevision| {
            let of = history::hash_of(revision);
            of == hash || pods.iter().any(|pod| pod.labels().get(history::HASH_LABEL) == Some(&of))
        };
        let limit = set.spec.revision_history_limit.unwrap_or(10);
        // Those that pods live from stay, and count.
        let counted = |revision: &ControllerRevision| history::hash_of(revision) != hash;
        let gone = history::superfluous(&revisions, limit, counted, lives);
        history::delete(&Api::namespaced(self.client.clone(), &key.namespace), &gone).await?;
        let seconds = set.spec.min_ready_seconds.unwrap_or_default();
        let next = pods.iter().filter_map(|daemon| match pod::availability(daemon, seconds, observed.now) {
            pod::Availability::After(left) => Some(left),
            pod::Availability::NotReady | pod::Availability::Available => None,
        });
        Ok(next.chain(wait).min().map_or(Action::Done, Action::After))
    }

    async fn revision(
        &self,
        key: &ObjectKey,
        set: &DaemonSet,
        selector: &Selector,
    ) -> Result<(Vec<Arc<ControllerRevision>>, Settled), Error> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &key.namespace);
        let owners: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let (uid, reference) = (set.metadata.uid.clone().unwrap_or_default(), owner::controller_reference(set));
        let mut candidates = self.revisions.get(&uid);
        candidates.extend(self.revisions.get(&format!("/{}", key.namespace)));
        let claims = claim::sort(candidates, &uid, false, selector);
        let mut revisions = claim::settle(claims, &api, &owners, &reference).await?;
        history::sort(&mut revisions);
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let annotations = set.metadata.annotations.clone();
        let current = history::current(&revisions, &set.spec.template, &reference, collisions, annotations);
        let settled = history::settle(&api, current).await?;
        Ok((revisions, settled))
    }

    async fn claim(&self, key: &ObjectKey, set: &DaemonSet, selector: &Selector) -> Result<Vec<Arc<Pod>>, Error> {
        let uid = set.metadata.uid.clone().unwrap_or_default();
        let mut candidates = self.pods.get(&uid);
        candidates.extend(self.pods.get(&format!("/{}", key.namespace)));
        // One that has ended and is going is as good as gone.
        candidates.retain(|pod| !(pod::is_terminal(pod) && pod::is_terminating(pod)));
        let claims = claim::sort(candidates, &uid, false, selector);
        let owners: Api<DaemonSet> = Api::namespaced(self.client.clone(), &key.namespace);
        let reference = owner::controller_reference(set);
        claim::settle(claims, &self.control.api(&key.namespace), &owners, &reference).await
    }

    /// Returns when to come back for pods that failed a moment ago.
    async fn carry_out(&self, key: &ObjectKey, observed: &Observed<'_>) -> Result<Option<Duration>, kube::Error> {
        let mut delay: Option<Duration> = None;
        let mut plan = plan::manage(observed);
        for daemon in std::mem::take(&mut plan.failed) {
            if let Some(left) = self.backoff.next(attempt(observed.set, &daemon)) {
                delay = Some(delay.map_or(left, |delay| delay.min(left)));
                continue;
            }
            let message = format!(
                "Found failed daemon pod {}/{} on node {}, will try to kill it",
                key.namespace,
                daemon.name_any(),
                pod::node(&daemon)
            );
            self.recorder.event(observed.set, EventType::Warning, "FailedDaemonPod", message);
            plan.delete.push(daemon);
        }
        for daemon in plan.delete.iter().filter(|daemon| pod::phase(daemon) == "Succeeded") {
            let message = format!(
                "Found succeeded daemon pod {}/{} on node {}, will try to delete it",
                key.namespace,
                daemon.name_any(),
                pod::node(daemon)
            );
            self.recorder.event(observed.set, EventType::Normal, "SucceededDaemonPod", message);
        }
        let settled = plan.create_on.is_empty() && plan.delete.is_empty();
        self.write(key, observed, plan).await?;
        if settled && self.expectations.pending(key).is_none() {
            self.write(key, observed, plan::update(observed)).await?;
        }
        Ok(delay)
    }

    async fn write(&self, key: &ObjectKey, observed: &Observed<'_>, plan: Plan) -> Result<(), kube::Error> {
        let on = plan.create_on.iter().take(BURST);
        let pods: Vec<Pod> = on.map(|node| pod_for(observed.set, observed.hash, node)).collect();
        let victims = &plan.delete[..plan.delete.len().min(BURST)];
        let deleted = self.control.delete_all(&self.expectations, key, observed.set, victims).await;
        self.control.create_all(&self.expectations, key, observed.set, &pods).await?;
        deleted
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_that_was_corrected_or_made_anew_does_not_wait_for_failures_of_before() {
        let set = |uid: &str, generation: i64| -> DaemonSet {
            serde_json::from_value(json!({ "metadata": { "name": "s", "uid": uid, "generation": generation } }))
                .expect("a set")
        };
        let pod = |node: &str| -> Pod {
            serde_json::from_value(json!({ "spec": { "nodeName": node, "containers": [] } })).expect("a pod")
        };
        let backoff = Backoff::new(Duration::from_secs(600), Duration::from_secs(900));
        assert!(backoff.next(attempt(&set("1", 1), &pod("a"))).is_none());
        assert!(backoff.next(attempt(&set("1", 1), &pod("a"))).is_some(), "the same fails again");
        assert!(backoff.next(attempt(&set("1", 1), &pod("b"))).is_none());
        assert!(backoff.next(attempt(&set("1", 2), &pod("a"))).is_none());
        assert!(backoff.next(attempt(&set("2", 1), &pod("a"))).is_none());
    }
}
