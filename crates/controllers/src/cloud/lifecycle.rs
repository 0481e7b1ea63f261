//! The cloud's side of node lifecycle: nodes that fell silent are switched off or gone with their machines.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::json;

use super::instance::taints;
use super::{Instance, Provider};
use crate::Context;
use crate::common::conditions;

const NAME: &str = "node-controller";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
/// Machines are gone without an event of the API's.
const ASK_AGAIN: Duration = Duration::from_secs(5);

struct Reconciler {
    client: Client,
    recorder: Recorder,
    provider: Arc<dyn Provider>,
    nodes: Informer<Node>,
}

fn is_ready(node: &Node) -> bool {
    let list = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions::find(list, "Ready").is_some_and(|condition| condition.status == "True")
}

fn is_shut_down(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == SHUTDOWN)
}

pub(crate) fn start(context: &Context) {
    let Some(provider) = context.config.provider.clone() else { return };
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), "cloud-node-lifecycle-controller", &context.tasks),
        client,
        provider,
        nodes: context.informers.of(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("cloud_node_lifecycle");
    let keys = queue.clone();
    this.nodes.on_change(move |change| {
        let node = change.object();
        if !matches!(change, Change::Deleted(_)) && (!is_ready(node) || is_shut_down(node)) {
            keys.add(ObjectKey::of(&**node));
        }
    });
    let nodes = this.nodes.clone();
    let ready = async move { nodes.synced().await };
    controller::run(&context.tasks, "cloud-node-lifecycle-controller", &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::Done) };
        if is_ready(&node) {
            self.taint(key, &node, false).await?;
            return Ok(Action::Done);
        }
        match self.provider.instance(&node).map_err(Error::from)? {
            Instance::Running(_) => {}
            Instance::Stopped => self.taint(key, &node, true).await?,
            Instance::Gone => {
                let text = format!("Deleting node {} because it does not exist in the cloud provider", key.name);
                self.recorder.event(&*node, EventType::Normal, "DeletingNode", text);
                let uid = node.metadata.uid.clone();
                let preconditions = Some(Preconditions { uid, resource_version: None });
                let parameters = DeleteParams { preconditions, ..DeleteParams::default() };
                match Api::<Node>::all(self.client.clone()).delete(&key.name, &parameters).await {
                    Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => {
                        return Err(error.into());
                    }
                    _ => return Ok(Action::Done),
                }
            }
        }
        Ok(Action::After(ASK_AGAIN))
    }

    /// No pod is to be placed on a machine that is switched off.
    async fn taint(&self, key: &ObjectKey, node: &Node, wanted: bool) -> Result<(), Error> {
        if is_shut_down(node) == wanted {
            return Ok(());
        }
        let mut list: Vec<Taint> = taints(node).iter().filter(|taint| taint.key != SHUTDOWN).cloned().collect();
        if wanted {
            list.push(Taint { key: SHUTDOWN.into(), effect: "NoSchedule".into(), ..Taint::default() });
        }
        let metadata = json!({ "resourceVersion": node.metadata.resource_version });
        let patch = Patch::Merge(json!({ "metadata": metadata, "spec": { "taints": list } }));
        match Api::<Node>::all(self.client.clone()).patch(&key.name, &PatchParams::default(), &patch).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
