//! The loop that walks the pods of all simulated nodes through their phases.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, Informer, ObjectKey, Selection, WorkQueue, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{Container, Node, Pod, PodSpec};
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde::de::IgnoredAny;
use tokio::time::Instant;

use crate::addresses::Addresses;
use crate::plan::{self, Elapsed, Step};
use crate::status::{self, PodAddresses};
use crate::{Config, nodes};

const WORKERS: usize = 32;
/// A container that ends at once is not started again at once.
const SHORTEST_LIFE: Duration = Duration::from_secs(1);

/// When this process first saw a pod in each of its states; the wire knows whole seconds only.
struct Seen {
    uid: String,
    bound: Instant,
    running: Option<Instant>,
    stopping: Option<Instant>,
}

struct PodLoop {
    config: Arc<Config>,
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    seen: Mutex<HashMap<ObjectKey, Seen>>,
    addresses: Mutex<Addresses>,
}

pub(crate) fn start(config: &Arc<Config>, client: &Client, nodes: &Informer<Node>, tasks: &Tasks) {
    let bound = Selection::fields("spec.nodeName!=");
    let pods: Informer<Pod> = Informer::trimmed(Api::all(client.clone()), tasks, bound, trim);
    let by_node = pods.index("node", |pod: &Pod| vec![node_name(pod).to_owned()]);
    let this = Arc::new(PodLoop {
        config: config.clone(),
        client: client.clone(),
        nodes: nodes.clone(),
        pods: pods.clone(),
        seen: Mutex::default(),
        addresses: Mutex::new(Addresses::new(config.spare_address)),
    });
    let queue: WorkQueue<ObjectKey> = WorkQueue::new();

    let (handler, keys) = (this.clone(), queue.clone());
    pods.on_change(move |change| {
        let key = ObjectKey::of(&**change.object());
        if let Change::Deleted(pod) = change {
            handler.seen.lock().remove(&key);
            handler.addresses.lock().release(&pod.uid().unwrap_or_default());
        } else {
            handler.see(&key, change.object());
            keys.add(key);
        }
    });
    // A node that speaks again has pods that waited for it.
    let keys = queue.clone();
    nodes.on_change(move |change| {
        if change.old().is_none_or(|old| nodes::is_silent(old) != nodes::is_silent(change.object())) {
            for pod in by_node.get(&change.object().name_any()) {
                keys.add(ObjectKey::of(&*pod));
            }
        }
    });

    let synced = (nodes.clone(), pods);
    let ready = async move {
        synced.0.synced().await;
        synced.1.synced().await;
    };
    controller::run(tasks, "simulated-pods", &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn node_name(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

/// Of a hundred thousand pods only the little that is read here is kept.
fn trim(pod: &mut Pod) {
    pod.metadata.labels = None;
    pod.metadata.owner_references = None;
    let spec = pod.spec.take().unwrap_or_default();
    let keep = |list: Vec<Container>| {
        let small = |container: Container| Container {
            name: container.name,
            image: container.image,
            resources: container.resources,
            restart_policy: container.restart_policy,
            ..Container::default()
        };
        list.into_iter().map(small).collect::<Vec<_>>()
    };
    pod.spec = Some(PodSpec {
        node_name: spec.node_name,
        host_network: spec.host_network,
        restart_policy: spec.restart_policy,
        readiness_gates: spec.readiness_gates,
        containers: keep(spec.containers),
        init_containers: spec.init_containers.map(keep),
        ..PodSpec::default()
    });
}

impl PodLoop {
    fn see(&self, key: &ObjectKey, pod: &Pod) {
        let (uid, now) = (pod.uid().unwrap_or_default(), Instant::now());
        let mut all = self.seen.lock();
        let fresh = || Seen { uid: uid.clone(), bound: now, running: None, stopping: None };
        let seen = all.entry(key.clone()).or_insert_with(fresh);
        if seen.uid != uid {
            *seen = fresh();
        }
        if plan::phase(pod) == "Running" {
            seen.running.get_or_insert(now);
        }
        if pod.metadata.deletion_timestamp.is_some() {
            seen.stopping.get_or_insert(now);
        }
        drop(all);
        let known = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()?.parse().ok());
        if let Some(address) = known
            && !plan::is_terminal(pod)
        {
            let range = self.range(node_name(pod));
            self.addresses.lock().occupy(&uid, range.as_deref(), address);
        }
    }

    fn elapsed(&self, key: &ObjectKey) -> Elapsed {
        let all = self.seen.lock();
        let Some(seen) = all.get(key) else { return Elapsed::default() };
        let since = |at: Option<Instant>| at.map(|at| at.elapsed()).unwrap_or_default();
        Elapsed { bound: seen.bound.elapsed(), running: since(seen.running), stopping: since(seen.stopping) }
    }

    fn range(&self, node: &str) -> Option<String> {
        self.nodes.get("", node)?.spec.as_ref()?.pod_cidr.clone()
    }

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::Done) };
        let name = node_name(&pod);
        let Some(node) = self.nodes.get("", name).filter(|node| !nodes::is_silent(node)) else {
            return Ok(Action::Done);
        };
        let step = plan::step(&pod, self.elapsed(key), &self.config.timing);
        match step {
            Step::Nothing => {}
            Step::Wait(time) => return Ok(Action::After(time)),
            Step::Remove => self.remove(key, &pod).await?,
            Step::Stop => {
                self.report(key, &pod, &node, step).await?;
                self.remove(key, &pod).await?;
            }
            Step::Restart => {
                let life = self.elapsed(key).running;
                if let Some(left) = SHORTEST_LIFE.checked_sub(life).filter(|left| !left.is_zero()) {
                    return Ok(Action::After(left));
                }
                if let Some(seen) = self.seen.lock().get_mut(key) {
                    seen.running = Some(Instant::now());
                }
                self.report(key, &pod, &node, step).await?;
            }
            Step::Run { .. } => self.report(key, &pod, &node, step).await?,
            Step::End { .. } => {
                self.report(key, &pod, &node, step).await?;
                self.addresses.lock().release(&pod.uid().unwrap_or_default());
            }
        }
        Ok(Action::Done)
    }

    async fn report(&self, key: &ObjectKey, pod: &Pod, node: &Node, step: Step) -> Result<(), Error> {
        let host = nodes::address(&self.config, &node.name_any());
        let on_host = pod.spec.as_ref().is_some_and(|spec| spec.host_network == Some(true));
        let address = if on_host {
            Some(host)
        } else {
            let range = node.spec.as_ref().and_then(|spec| spec.pod_cidr.as_deref());
            let address = self.addresses.lock().of(&pod.uid().unwrap_or_default(), range);
            Some(address.ok_or("the node's range of addresses is used up")?)
        };
        let change = status::patch(pod, step, &PodAddresses { host, pod: address }, &write::now());
        let request = kube::core::Request::new(Pod::url_path(&(), Some(&key.namespace)))
            .patch_subresource("status", &key.name, &PatchParams::default(), &Patch::Strategic(change))
            .map_err(kube::Error::BuildRequest)?;
        match self.client.request::<IgnoredAny>(request).await {
            Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn remove(&self, key: &ObjectKey, pod: &Pod) -> Result<(), Error> {
        let parameters = DeleteParams {
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default().grace_period(0)
        };
        let request = kube::core::Request::new(Pod::url_path(&(), Some(&key.namespace)))
            .delete(&key.name, &parameters)
            .map_err(kube::Error::BuildRequest)?;
        match self.client.request::<IgnoredAny>(request).await {
            Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}
