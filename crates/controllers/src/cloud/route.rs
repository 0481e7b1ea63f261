//! The route controller: where a network needs it, the provider sends what is for a node's pods to the node.

use std::collections::HashMap;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Clock, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::Client;
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;
use serde_json::json;

use super::Provider;
use crate::Context;
use crate::common::conditions;

const NAME: &str = "route-controller";
const CONDITION: &str = "NetworkUnavailable";

struct Reconciler {
    client: Client,
    recorder: Recorder,
    provider: Arc<dyn Provider>,
    nodes: Informer<Node>,
    /// The ranges that were routed to a node, to be given back with it.
    made: Mutex<HashMap<String, Vec<String>>>,
    clock: Clock,
}

fn ranges(node: &Node) -> Vec<String> {
    let Some(spec) = &node.spec else { return Vec::new() };
    let list = spec.pod_cidrs.clone().filter(|list| !list.is_empty());
    list.unwrap_or_else(|| spec.pod_cidr.iter().filter(|range| !range.is_empty()).cloned().collect())
}

fn condition(node: &Node) -> Option<&NodeCondition> {
    conditions::find(node.status.as_ref().and_then(|status| status.conditions.as_ref()), CONDITION)
}

pub(crate) fn start(context: &Context) {
    let Some(provider) = context.config.provider.clone().filter(|provider| provider.has_routes()) else { return };
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), NAME, &context.tasks),
        client,
        provider,
        nodes: context.informers.of(),
        made: Mutex::default(),
        clock: context.config.clock.clone(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("route");
    let keys = queue.clone();
    this.nodes.on_change(move |change| {
        let state = |node: &Node| (ranges(node), condition(node).map(|condition| condition.status.clone()));
        let told = change.old().is_none_or(|old| state(old) != state(change.object()));
        if told || matches!(change, ferry_client::Change::Deleted(_)) {
            keys.add(ObjectKey::of(&**change.object()));
        }
    });
    let nodes = this.nodes.clone();
    let ready = async move { nodes.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let node = self.nodes.get_key(key);
        let wanted = node.as_ref().map(|node| ranges(node)).unwrap_or_default();
        let before = self.made.lock().get(&key.name).cloned().unwrap_or_default();
        for range in before.iter().filter(|range| !wanted.contains(range)) {
            self.provider.delete_route(&key.name, range).map_err(Error::from)?;
        }
        let Some(node) = node else {
            self.made.lock().remove(&key.name);
            return Ok(Action::Done);
        };
        if wanted.is_empty() {
            return Ok(Action::Done);
        }
        self.made.lock().insert(key.name.clone(), wanted.clone());
        let outcome = wanted.iter().try_for_each(|range| self.provider.ensure_route(&key.name, range));
        self.tell(key, &node, outcome.is_ok()).await?;
        if let Err(why) = outcome {
            let text = format!("Could not create route for node {}: {why}", key.name);
            self.recorder.event(&*node, EventType::Warning, "FailedToCreateRoute", text.clone());
            return Err(text.into());
        }
        Ok(Action::Done)
    }

    async fn tell(&self, key: &ObjectKey, node: &Node, routed: bool) -> Result<(), Error> {
        let (status, reason, message) = match routed {
            true => ("False", "RouteCreated", "RouteController created a route"),
            false => ("True", "NoRouteCreated", "RouteController failed to create a route"),
        };
        if condition(node).is_some_and(|known| known.status == status && known.reason.as_deref() == Some(reason)) {
            return Ok(());
        }
        let now = self.clock.time();
        let condition = json!({
            "type": CONDITION, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        });
        let patch = Patch::Strategic(json!({ "status": { "conditions": [condition] } }));
        match Api::<Node>::all(self.client.clone()).patch_status(&key.name, &PatchParams::default(), &patch).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
