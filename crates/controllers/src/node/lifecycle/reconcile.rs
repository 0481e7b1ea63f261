//! The loop of node lifecycle: one key is one node, looked at when it changes and when it has been silent too long.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use super::plan;
use super::zones::{Permit, Zones};
use crate::Context;
use crate::common::pod;
use crate::node::pods_by_node;

const NAME: &str = "node-controller";
const LEASES: &str = "kube-node-lease";
const WORKERS: usize = 8;
/// A node that has never reported has longer.
const STARTUP_GRACE: Duration = Duration::from_secs(60);
/// A node from which no pod may be driven away is looked at again after this time, since its zone may have changed.
const WHILE_DISRUPTED: Duration = Duration::from_secs(5);

/// When a node was last heard of, by our own clock: those of others are not believed.
struct Heard {
    renewed: Option<MicroTime>,
    heartbeat: Option<Time>,
    at: Instant,
    /// The version of the node that was last found well, with nothing left to do.
    well: Option<String>,
}

struct Reconciler {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pods: Index<Pod>,
    grace: Duration,
    heard: Mutex<HashMap<String, Heard>>,
    /// Nodes whose pods were marked since they stopped being ready.
    marked: Mutex<HashSet<String>>,
    zones: Mutex<Zones>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    let leases = context.informers.of::<Lease>();
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        nodes: nodes.clone(),
        pods: pods_by_node(&pods),
        grace: context.config.node_monitor_grace_period,
        heard: Mutex::default(),
        marked: Mutex::default(),
        zones: Mutex::default(),
        clock: context.config.clock.clone(),
        queue: context.queue("node_lifecycle_controller"),
    });

    let handler = this.clone();
    nodes.on_change(move |change| handler.node_changed(change));
    let handler = this.clone();
    leases.on_change(move |change| handler.lease_changed(change));

    let ready = async move {
        nodes.synced().await;
        pods.synced().await;
        leases.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    fn node_changed(&self, change: &Change<Node>) {
        let node = change.object();
        let key = ObjectKey::of(&**node);
        let gone = matches!(change, Change::Deleted(_));
        match change {
            Change::Added(_) => self.tell(node, "RegisteredNode", "Registered", "in"),
            Change::Deleted(_) => self.tell(node, "RemovingNode", "Removing", "from"),
            Change::Modified { .. } => {}
        }
        let (recovered, turned) = {
            let mut zones = self.zones.lock();
            let before = zones.nobody_is_well();
            let recovered = zones.change(change.old().map(|node| &**node), (!gone).then_some(node));
            (recovered, before != zones.nobody_is_well())
        };
        if turned {
            // Whether anybody is well decides on the taints of all.
            self.nodes.list().iter().for_each(|node| self.queue.add(ObjectKey::of(&**node)));
        }
        if recovered {
            // It was we who heard nothing: all silence counts from now.
            let now = Instant::now();
            self.heard.lock().values_mut().for_each(|heard| heard.at = now);
        }
        if gone {
            self.heard.lock().remove(&key.name);
            self.marked.lock().remove(&key.name);
            return;
        }
        let ready = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        let heartbeat = ready.and_then(|list| list.iter().find(|condition| condition.type_ == "Ready"));
        let heartbeat = heartbeat.and_then(|condition| condition.last_heartbeat_time.clone());
        {
            let mut heard = self.heard.lock();
            let known = heard.entry(key.name.clone()).or_insert_with(|| Heard {
                renewed: None,
                heartbeat: None,
                at: Instant::now(),
                well: None,
            });
            if known.heartbeat != heartbeat {
                known.heartbeat = heartbeat;
                known.at = Instant::now();
            }
        }
        self.queue.add(key);
    }

    fn tell(&self, node: &Node, reason: &str, verb: &str, where_to: &str) {
        let name = node.name_any();
        let message = format!("Node {name} event: {verb} Node {name} {where_to} Controller");
        self.recorder.event(node, EventType::Normal, reason, message);
    }

    /// A renewed lease only moves the time; the node is looked at when that time has come.
    fn lease_changed(&self, change: &Change<Lease>) {
        let lease = change.object();
        if lease.metadata.namespace.as_deref() != Some(LEASES) {
            return;
        }
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.clone());
        let mut heard = self.heard.lock();
        if let Some(known) = heard.get_mut(&lease.name_any())
            && known.renewed != renewed
            && !matches!(change, Change::Deleted(_))
        {
            known.renewed = renewed;
            known.at = Instant::now();
        }
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::Done) };
        let started = plan::state(&node, "Ready").is_some();
        let grace = if started { self.grace } else { self.grace.max(STARTUP_GRACE) };
        let (silence, well) = match self.heard.lock().get(&key.name) {
            Some(heard) => (heard.at.elapsed(), heard.well.is_some() && heard.well == node.metadata.resource_version),
            None => (Duration::ZERO, false),
        };
        let wait = grace.saturating_sub(silence).max(Duration::from_secs(1));
        // What most nodes are most of the time.
        if well && silence < grace {
            return Ok(Action::After(wait));
        }
        let api: Api<Node> = Api::all(self.client.clone());
        let mut node = node;
        if silence >= grace
            && let Some(status) = plan::silent(&node, &self.clock.time())
        {
            if self.renewed_unheard(&key.name).await? {
                return Ok(Action::After(grace));
            }
            let was_ready = plan::state(&node, "Ready") == Some("True");
            let silent = Node { status: Some(status), ..(*node).clone() };
            node = Arc::new(api.replace_status(&key.name, &PostParams::default(), &silent).await?);
            if was_ready {
                let message = format!("Node {} status is now: NodeNotReady", key.name);
                self.recorder.event(&*node, EventType::Normal, "NodeNotReady", message);
            }
        }
        self.label(&api, &node).await?;
        let delay = self.taint(&api, &node).await?;
        self.mark_pods(&node).await?;
        if delay.is_none()
            && plan::state(&node, "Ready") == Some("True")
            && let Some(heard) = self.heard.lock().get_mut(&key.name)
        {
            heard.well = node.metadata.resource_version.clone();
        }
        Ok(Action::After(delay.map_or(wait, |delay| delay.min(wait))))
    }

    /// Whether the node speaks, and only the watch of leases is behind: then nothing is known of any node, and none may lose
    /// its pods for that.
    async fn renewed_unheard(&self, name: &str) -> Result<bool, Error> {
        let api: Api<Lease> = Api::namespaced(self.client.clone(), LEASES);
        let Some(lease) = api.get_opt(name).await? else { return Ok(false) };
        let renewed = lease.spec.and_then(|spec| spec.renew_time);
        let mut heard = self.heard.lock();
        let Some(known) = heard.get_mut(name).filter(|known| known.renewed != renewed) else { return Ok(false) };
        known.renewed = renewed;
        known.at = Instant::now();
        Ok(true)
    }

    /// Keeps labels of old equal to those that took their place.
    async fn label(&self, api: &Api<Node>, node: &Node) -> Result<(), Error> {
        let labels = plan::labels(node);
        if !labels.is_empty() {
            let patch = json!({ "metadata": { "uid": node.metadata.uid, "labels": labels } });
            api.patch(&node.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        }
        Ok(())
    }

    /// Writes taints; returns how long to wait when the zone had its eviction a moment ago.
    async fn taint(&self, api: &Api<Node>, node: &Node) -> Result<Option<Duration>, Error> {
        let nobody_is_well = self.zones.lock().nobody_is_well();
        let now = self.clock.time();
        let Some(mut taints) = plan::taints(node, !nobody_is_well, &now) else { return Ok(None) };
        let old = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
        let starts_eviction = taints.iter().any(|taint| {
            taint.effect == "NoExecute"
                && !old.is_some_and(|old| {
                    old.iter().any(|old| old.effect == "NoExecute" && old.key.starts_with("node.kubernetes.io/"))
                })
        });
        let mut delay = None;
        if starts_eviction {
            delay = match self.zones.lock().ask(node, Instant::now()) {
                Permit::Now => None,
                Permit::After(left) => Some(left),
                Permit::No => Some(WHILE_DISRUPTED),
            };
        }
        if delay.is_some() {
            let Some(mild) = plan::taints(node, false, &now) else { return Ok(delay) };
            taints = mild;
        }
        let patch = json!({
            "metadata": { "resourceVersion": node.metadata.resource_version }, "spec": { "taints": taints },
        });
        api.patch(&node.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(delay)
    }

    /// Pods of a node that is not ready are not ready either: they leave the endpoints. Once per outage, since the
    /// kubelet may know better when it is alive.
    async fn mark_pods(&self, node: &Node) -> Result<(), Error> {
        let name = node.name_any();
        if plan::state(node, "Ready").is_none_or(|state| state == "True") {
            self.marked.lock().remove(&name);
            return Ok(());
        }
        if self.marked.lock().contains(&name) {
            return Ok(());
        }
        for pod in self.pods.get(&name).iter().filter(|pod| pod::is_ready(pod)) {
            let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
            self.recorder.event(&**pod, EventType::Warning, "NodeNotReady", "Node is not ready");
            let condition = PodCondition { type_: "Ready".into(), status: "False".into(), ..PodCondition::default() };
            let patch = json!({
                "metadata": { "uid": pod.metadata.uid },
                "status": { "conditions": [{
                    "type": condition.type_, "status": condition.status, "lastTransitionTime": self.clock.time(),
                }] },
            });
            match api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await {
                Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => return Err(error.into()),
                _ => {}
            }
        }
        self.marked.lock().insert(name);
        Ok(())
    }
}
