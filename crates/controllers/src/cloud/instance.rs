//! The cloud node controller: what the provider knows of a machine goes to its node, which is then ready for pods.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Instance, Machine, Provider};
use crate::Context;

const NAME: &str = "node-controller";
/// Kubelets of a cluster with a cloud register with this taint.
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

const ASK_AGAIN: Duration = Duration::from_secs(300);

struct Reconciler {
    client: Client,
    recorder: Recorder,
    provider: Arc<dyn Provider>,
    nodes: Informer<Node>,
}

pub(super) fn taints(node: &Node) -> &[Taint] {
    node.spec.as_ref().and_then(|spec| spec.taints.as_deref()).unwrap_or_default()
}

fn is_new(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == UNINITIALIZED)
}

pub(crate) fn start(context: &Context) {
    let Some(provider) = context.config.provider.clone() else { return };
    let client = context.client(NAME);
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), "cloud-node-controller", &context.tasks),
        client,
        provider,
        nodes: context.informers.of(),
    });
    let queue: WorkQueue<ObjectKey> = context.queue("cloud_node");
    let keys = queue.clone();
    this.nodes.on_change(move |change| {
        let addresses = |node: &Node| node.status.as_ref().and_then(|status| status.addresses.clone());
        let node = change.object();
        let told = change.old().is_none_or(|old| addresses(old) != addresses(node));
        if !matches!(change, Change::Deleted(_)) && (told || is_new(node)) {
            keys.add(ObjectKey::of(&**node));
        }
    });
    let nodes = this.nodes.clone();
    let ready = async move { nodes.synced().await };
    controller::run(&context.tasks, "cloud-node-controller", &queue, 1, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

/// What of the object itself has to change, or none.
fn object_patch(node: &Node, machine: &Machine) -> Option<Value> {
    let labels: serde_json::Map<String, Value> = [
        ("node.kubernetes.io/instance-type", &machine.instance_type),
        ("beta.kubernetes.io/instance-type", &machine.instance_type),
        ("topology.kubernetes.io/zone", &machine.zone),
        ("failure-domain.beta.kubernetes.io/zone", &machine.zone),
        ("topology.kubernetes.io/region", &machine.region),
        ("failure-domain.beta.kubernetes.io/region", &machine.region),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value.as_ref()?.as_str().into())))
    .collect();
    let kept: Vec<&Taint> = taints(node).iter().filter(|taint| taint.key != UNINITIALIZED).collect();
    let mut spec = json!({ "taints": kept });
    let known = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).filter(|id| !id.is_empty());
    if let (None, Some(id)) = (known, &machine.provider_id) {
        spec["providerID"] = id.as_str().into();
    }
    let metadata = json!({ "labels": labels, "resourceVersion": node.metadata.resource_version });
    is_new(node).then(|| json!({ "metadata": metadata, "spec": spec }))
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(node) = self.nodes.get_key(key) else { return Ok(Action::Done) };
        let machine = match self.provider.instance(&node).map_err(Error::from)? {
            Instance::Running(machine) => machine,
            Instance::Gone if is_new(&node) => {
                return Err(format!("{} has no machine of the provider yet", key.name).into());
            }
            Instance::Stopped | Instance::Gone => return Ok(Action::Done),
        };
        let api: Api<Node> = Api::all(self.client.clone());
        let told = node.status.as_ref().and_then(|status| status.addresses.as_ref());
        if let Some(addresses) = machine.addresses.as_ref().filter(|known| told != Some(*known)) {
            let patch = Patch::Merge(json!({ "status": { "addresses": addresses } }));
            match api.patch_status(&key.name, &PatchParams::default(), &patch).await {
                Err(error) if write::is_not_found(&error) => return Ok(Action::Done),
                Err(error) => return Err(error.into()),
                // The object changed by it comes back through the watch, and the rest is done then.
                Ok(_) if is_new(&node) => return Ok(Action::Done),
                Ok(_) => {}
            }
        }
        // Addresses that a provider tells may change without anything in the API changing.
        let again = machine.addresses.as_ref().map_or(Action::Done, |_| Action::After(ASK_AGAIN));
        let Some(patch) = object_patch(&node, &machine) else { return Ok(again) };
        match api.patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Err(error) if !write::is_not_found(&error) => Err(error.into()),
            _ => {
                self.recorder.event(&*node, EventType::Normal, "Synced", "Node synced successfully");
                Ok(again)
            }
        }
    }
}
