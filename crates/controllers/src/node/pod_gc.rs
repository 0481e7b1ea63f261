//! PodGC: pods nobody will care for any more. Their node is gone, they were never bound and should end, their node is
//! out of service, or there are too many that have ended.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, Index, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Preconditions};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::pods_by_node;
use crate::Context;
use crate::common::disruption::{self, Disruption};
use crate::common::{conditions, pod};

const NAME: &str = "pod-garbage-collector";
const WORKERS: usize = 4;
/// A node that vanished may come back under the same name.
const QUARANTINE: Duration = Duration::from_secs(40);
const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Work {
    Pod(ObjectKey),
    /// Count the pods that have ended.
    Ended,
}

struct Reconciler {
    client: Client,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    pods_of: Index<Pod>,
    threshold: usize,
    vanished: Mutex<Vanished>,
    clock: Clock,
    queue: WorkQueue<Work>,
}

/// Nodes that pods name and that are not there: since when.
#[derive(Default)]
struct Vanished(HashMap<String, Instant>);

impl Vanished {
    /// How long the node may still come back; none when its time is over.
    fn left(&mut self, node: &str, now: Instant) -> Option<Duration> {
        let since = *self.0.entry(node.to_owned()).or_insert(now);
        QUARANTINE.checked_sub(now.saturating_duration_since(since)).filter(|left| !left.is_zero())
    }

    /// It is there, or none of its pods is.
    fn forget(&mut self, node: &str) {
        self.0.remove(node);
    }
}

pub(crate) fn start(context: &Context) {
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        client: context.client(NAME),
        nodes: nodes.clone(),
        pods_of: pods_by_node(&pods),
        pods: pods.clone(),
        threshold: context.config.terminated_pod_threshold,
        vanished: Mutex::default(),
        clock: context.config.clock.clone(),
        queue: context.queue("orphaned_pods_nodes"),
    });

    let handler = this.clone();
    nodes.on_change(move |change| {
        let name = change.object().name_any();
        handler.vanished.lock().forget(&name);
        let delay = match change {
            Change::Deleted(_) => QUARANTINE,
            _ if is_out_of_service(change.object()) => Duration::ZERO,
            _ => return,
        };
        let pods = handler.pods_of.get(&name);
        if matches!(change, Change::Deleted(_)) && !pods.is_empty() {
            handler.vanished.lock().left(&name, Instant::now());
        }
        for pod in pods {
            handler.queue.add_after(Work::Pod(ObjectKey::of(&*pod)), delay);
        }
    });
    let handler = this.clone();
    pods.on_change(move |change| {
        let pod = change.object();
        if matches!(change, Change::Deleted(_)) {
            if handler.pods_of.get(pod::node(pod)).is_empty() {
                handler.vanished.lock().forget(pod::node(pod));
            }
            return;
        }
        let work = || Work::Pod(ObjectKey::of(&**pod));
        if pod::is_terminating(pod) {
            handler.queue.add(work());
        } else if change.old().is_none_or(|old| pod::node(old).is_empty()) && !pod::node(pod).is_empty() {
            // Whether the node is there is known once both caches are filled.
            handler.queue.add(work());
        }
        if pod::is_terminal(pod) && !change.old().is_some_and(|old| pod::is_terminal(old)) {
            handler.queue.add_after(Work::Ended, Duration::from_secs(20));
        }
    });

    let ready = async move {
        nodes.synced().await;
        pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, NAME, &queue, WORKERS, ready, move |work| {
        let this = this.clone();
        async move {
            match work {
                Work::Pod(key) => this.reconcile(&key).await,
                Work::Ended => this.sweep_ended().await,
            }
        }
    });
}

fn is_out_of_service(node: &Node) -> bool {
    let tainted = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let ready = node.status.as_ref().and_then(|status| conditions::find(status.conditions.as_ref(), "Ready"));
    tainted.is_some_and(|taints| taints.iter().any(|taint| taint.key == OUT_OF_SERVICE))
        && ready.is_none_or(|ready| ready.status != "True")
}

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::Done) };
        let name = pod::node(&pod);
        if name.is_empty() {
            if pod::is_terminating(&pod) {
                self.remove(&pod, None).await?;
            }
            return Ok(Action::Done);
        }
        if let Some(node) = self.nodes.get("", name) {
            if pod::is_terminating(&pod) && is_out_of_service(&node) {
                self.remove(&pod, None).await?;
            }
            return Ok(Action::Done);
        }
        // The node is not in the cache. Give it time, then ask the server before anything is deleted by force.
        if let Some(left) = self.vanished.lock().left(name, Instant::now()) {
            return Ok(Action::After(left));
        }
        let nodes: Api<Node> = Api::all(self.client.clone());
        if nodes.get_opt(name).await?.is_none() {
            self.remove(&pod, Some("PodGC: node no longer exists")).await?;
        }
        Ok(Action::Done)
    }

    async fn sweep_ended(&self) -> Result<Action, Error> {
        let mut ended: Vec<Arc<Pod>> = self.pods.list().into_iter().filter(|pod| pod::is_terminal(pod)).collect();
        let surplus = ended.len().saturating_sub(self.threshold);
        if self.threshold == 0 || surplus == 0 {
            return Ok(Action::Done);
        }
        ended.sort_by_key(|pod| {
            let evicted = pod.status.as_ref().and_then(|status| status.reason.as_deref()) == Some("Evicted");
            (!evicted, pod.metadata.creation_timestamp.clone(), pod.name_any())
        });
        for pod in ended.iter().take(surplus) {
            self.remove(pod, None).await?;
        }
        Ok(Action::Done)
    }

    /// Deletes by force: no kubelet will confirm it. A pod that has not ended is marked as failed first.
    async fn remove(&self, pod: &Pod, disruption: Option<&str>) -> Result<(), Error> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        if !pod::is_terminal(pod) {
            match disruption {
                Some(message) => {
                    let announced = Disruption { reason: "DeletionByPodGC", message, since: self.clock.time() };
                    disruption::mark(&api, pod, announced, Some("Failed")).await?;
                }
                None => disruption::set_phase(&api, pod, "Failed").await?,
            }
        }
        let parameters = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
            ..DeleteParams::default()
        };
        match api.delete(&pod.name_any(), &parameters).await {
            Err(error) if !write::is_not_found(&error) && !write::is_conflict(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_its_time_to_come_back_from_when_it_vanished() {
        let (mut vanished, begin) = (Vanished::default(), Instant::now());
        let at = |seconds: u64| begin + Duration::from_secs(seconds);
        let left = |seconds: u64| Some(Duration::from_secs(seconds));
        assert_eq!(vanished.left("a", at(0)), left(40));
        assert_eq!(vanished.left("b", at(30)), left(40), "each has its own");
        assert_eq!(vanished.left("a", at(39)), left(1));
        assert_eq!(vanished.left("a", at(40)), None);
        assert_eq!(vanished.left("a", at(400)), None);
        vanished.forget("a");
        assert_eq!(vanished.left("a", at(500)), left(40), "it was there meanwhile");
    }
}
