//! The Node objects: registered once, and brought back to Ready when somebody doubts them.

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, Informer, WorkQueue, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::{Config, LABEL, annotation};

const WORKERS: usize = 16;

/// The prefix as a label's value: without what may not stand at its end.
pub(crate) fn group(prefix: &str) -> &str {
    prefix.trim_matches(|c: char| !c.is_ascii_alphanumeric())
}

/// The number in the node's name.
pub(crate) fn number(config: &Config, name: &str) -> usize {
    name.strip_prefix(&config.name_prefix).and_then(|rest| rest.parse().ok()).unwrap_or_default()
}

pub(crate) fn address(config: &Config, name: &str) -> Ipv4Addr {
    let offset = u32::try_from(number(config, name)).unwrap_or_default();
    Ipv4Addr::from(u32::from(config.first_address).wrapping_add(offset))
}

pub(crate) fn is_silent(node: &Node) -> bool {
    node.annotations().get(annotation::SILENT).is_some_and(|value| value == "true")
}

/// Of ten thousand nodes only the little that is read here is kept.
pub(crate) fn trim(node: &mut Node) {
    node.metadata.labels = None;
    let annotations = node.metadata.annotations.get_or_insert_default();
    annotations.retain(|key, _| key == annotation::SILENT);
    let range = node.spec.take().unwrap_or_default();
    node.spec = Some(NodeSpec { pod_cidr: range.pod_cidr, ..NodeSpec::default() });
    let status = node.status.take().unwrap_or_default();
    let mut conditions = status.conditions.unwrap_or_default();
    conditions.retain(|condition| condition.type_ == "Ready");
    node.status = Some(NodeStatus { conditions: Some(conditions), ..NodeStatus::default() });
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

pub(crate) fn start(config: &Arc<Config>, client: &Client, nodes: &Informer<Node>, tasks: &Tasks) {
    let queue: WorkQueue<String> = WorkQueue::new();
    let keys = queue.clone();
    nodes.on_change(move |change| {
        let node = change.object();
        if !matches!(change, Change::Deleted(_)) && !is_ready(node) {
            keys.add(node.name_any());
        }
    });
    for number in 0..config.nodes {
        queue.add(format!("{}{number}", config.name_prefix));
    }
    let this = Arc::new(NodeLoop {
        config: config.clone(),
        client: client.clone(),
        nodes: nodes.clone(),
        registered: Mutex::default(),
    });
    let synced = nodes.clone();
    let ready = async move { synced.synced().await };
    controller::run(tasks, "simulated-nodes", &queue, WORKERS, ready, move |name| {
        let this = this.clone();
        async move { this.reconcile(&name).await }
    });
}

struct NodeLoop {
    config: Arc<Config>,
    client: Client,
    nodes: Informer<Node>,
    /// A node that was registered and is gone was deleted by somebody: it stays away.
    registered: Mutex<HashSet<String>>,
}

impl NodeLoop {
    async fn reconcile(&self, name: &str) -> Result<Action, Error> {
        let first = !self.registered.lock().contains(name);
        match self.nodes.get("", name) {
            Some(node) => {
                self.registered.lock().insert(name.to_owned());
                if !is_silent(&node) && (first || !is_ready(&node)) {
                    report(&self.client, &self.config, name).await?;
                }
            }
            None if first => {
                let api: Api<Node> = Api::all(self.client.clone());
                match api.create(&PostParams::default(), &object(&self.config, name)).await {
                    Ok(_) => {}
                    // There since an earlier run, perhaps under another prefix: it is ours from now on.
                    Err(error) if write::is_already_exists(&error) => {
                        let node = object(&self.config, name);
                        let patch = json!({ "metadata": { "labels": node.metadata.labels } });
                        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
                        report(&self.client, &self.config, name).await?;
                    }
                    Err(error) => return Err(error.into()),
                }
                self.registered.lock().insert(name.to_owned());
            }
            None => {}
        }
        Ok(Action::Done)
    }
}

/// Writes the whole status of the node.
pub(crate) async fn report(client: &Client, config: &Config, name: &str) -> Result<(), kube::Error> {
    let patch = Patch::Strategic(json!({ "status": status(config, name) }));
    let request = kube::core::Request::new(Node::url_path(&(), None)).patch_subresource(
        "status",
        name,
        &PatchParams::default(),
        &patch,
    );
    let request = request.map_err(kube::Error::BuildRequest)?;
    match client.request::<IgnoredAny>(request).await {
        Err(error) if !write::is_not_found(&error) => Err(error),
        _ => Ok(()),
    }
}

fn object(config: &Config, name: &str) -> Node {
    let mut labels = BTreeMap::from(
        [
            ("kubernetes.io/hostname", name),
            ("kubernetes.io/os", "linux"),
            ("kubernetes.io/arch", "amd64"),
            ("beta.kubernetes.io/os", "linux"),
            ("beta.kubernetes.io/arch", "amd64"),
            ("node.kubernetes.io/instance-type", "simulated"),
            (LABEL, group(&config.name_prefix)),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned())),
    );
    if config.zones > 0 {
        let zone = number(config, name) % config.zones;
        labels.insert("topology.kubernetes.io/region".into(), "simulated".into());
        labels.insert("topology.kubernetes.io/zone".into(), format!("simulated-{zone}"));
    }
    labels.extend(config.labels.clone());
    Node {
        metadata: ObjectMeta { name: Some(name.into()), labels: Some(labels), ..ObjectMeta::default() },
        spec: Some(NodeSpec {
            taints: (!config.taints.is_empty()).then(|| config.taints.clone()),
            ..NodeSpec::default()
        }),
        status: Some(status(config, name)),
    }
}

fn status(config: &Config, name: &str) -> NodeStatus {
    let now = Time(write::now().0);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| NodeCondition {
        type_: kind.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: Some(message.into()),
        last_heartbeat_time: Some(now.clone()),
        last_transition_time: Some(now.clone()),
    };
    let enough = |kind: &str, reason: &str, what: &str| {
        condition(kind, "False", reason, &format!("kubelet has {what} available"))
    };
    let address = address(config, name).to_string();
    let amounts: BTreeMap<_, _> = config.capacity.iter().map(|(k, v)| (k.clone(), Quantity(v.clone()))).collect();
    NodeStatus {
        addresses: Some(vec![
            NodeAddress { type_: "InternalIP".into(), address },
            NodeAddress { type_: "Hostname".into(), address: name.into() },
        ]),
        allocatable: Some(amounts.clone()),
        capacity: Some(amounts),
        conditions: Some(vec![
            enough("MemoryPressure", "KubeletHasSufficientMemory", "sufficient memory"),
            enough("DiskPressure", "KubeletHasNoDiskPressure", "no disk pressure"),
            enough("PIDPressure", "KubeletHasSufficientPID", "sufficient PID"),
            condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
        ]),
        node_info: Some(NodeSystemInfo {
            architecture: "amd64".into(),
            operating_system: "linux".into(),
            os_image: "simulated".into(),
            kernel_version: "6.1.0".into(),
            container_runtime_version: format!("simulated://{}", env!("CARGO_PKG_VERSION")),
            kubelet_version: config.version.clone(),
            machine_id: name.into(),
            system_uuid: name.into(),
            boot_id: name.into(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}
