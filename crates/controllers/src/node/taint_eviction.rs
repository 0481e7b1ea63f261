//! Taint eviction: pods that do not tolerate a NoExecute taint of their node go, at once or when their time is up.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, write};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};

use super::pods_by_node;
use crate::Context;
use crate::common::disruption;
use crate::common::node_match::tolerates;
use crate::common::pod;

/// Upstream gives this part of the node controller no identity of its own.
const NAME: &str = "node-controller";
const COMPONENT: &str = "taint-eviction-controller";
const WORKERS: usize = 8;

struct Loop {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    pods_of: Index<Pod>,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    let this = Arc::new(Loop {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        nodes: nodes.clone(),
        pods_of: pods_by_node(&pods),
        pods: pods.clone(),
        queue: context.queue("noexec_taint_pod"),
    });

    let handler = this.clone();
    nodes.on_change(move |change| {
        let before = change.old().filter(|_| matches!(change, Change::Modified { .. }));
        let node = change.object();
        if before.map(|node| evicting(node)).unwrap_or_default() != evicting(node) {
            for pod in handler.pods_of.get(&node.name_any()) {
                handler.queue.add(ObjectKey::of(&*pod));
            }
        }
    });
    let handler = this.clone();
    pods.on_change(move |change| {
        let facts =
            |pod: &Pod| (pod::node(pod).to_owned(), pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()));
        let pod = change.object();
        let same = change.old().is_some_and(|old| facts(old) == facts(pod));
        if !same && !pod::node(pod).is_empty() {
            handler.queue.add(ObjectKey::of(&**pod));
        }
    });

    let ready = async move {
        nodes.synced().await;
        pods.synced().await;
    };
    let queue = this.queue.clone();
    controller::run(&context.tasks, COMPONENT, &queue, WORKERS, ready, move |key| {
        let this = this.clone();
        async move { this.reconcile(&key).await }
    });
}

fn evicting(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().filter(|taint| taint.effect == "NoExecute").cloned().collect()
}

impl Loop {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::Done) };
        if pod::is_terminating(&pod) {
            return Ok(Action::Done);
        }
        let Some(node) = self.nodes.get("", pod::node(&pod)) else { return Ok(Action::Done) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        match stay(&evicting(&node), &tolerations, write::now().0) {
            Stay::ForEver => Ok(Action::Done),
            Stay::For(left) => Ok(Action::After(left)),
            Stay::Not => {
                let message = format!("Marking for deletion Pod {key}");
                self.recorder.event(&*pod, EventType::Normal, "TaintManagerEviction", message);
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                let words = "Taint manager: deleting due to NoExecute taint";
                disruption::mark(&api, &pod, "DeletionByTaintManager", words, None).await?;
                write::delete(&api, &*pod, None).await?;
                Ok(Action::Done)
            }
        }
    }
}

#[derive(Debug, PartialEq)]
enum Stay {
    ForEver,
    For(Duration),
    Not,
}

/// How long a pod with these tolerations may stay; seconds count from when the youngest taint was added.
fn stay(taints: &[Taint], tolerations: &[Toleration], now: Timestamp) -> Stay {
    let mut shortest: Option<i64> = None;
    for taint in taints {
        let matching: Vec<&Toleration> = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).collect();
        if matching.is_empty() {
            return Stay::Not;
        }
        let limits = matching.iter().filter_map(|toleration| toleration.toleration_seconds);
        shortest = shortest.into_iter().chain(limits).min();
    }
    let Some(seconds) = shortest else { return Stay::ForEver };
    let added = taints.iter().filter_map(|taint| taint.time_added.as_ref()).map(|time| time.0).max().unwrap_or(now);
    let passed = now.duration_since(added).as_secs();
    match u64::try_from(seconds.saturating_sub(passed)) {
        Ok(0) | Err(_) => Stay::Not,
        Ok(left) => Stay::For(Duration::from_secs(left)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(tolerations: serde_json::Value, expected: Stay) {
        let now = Timestamp::from_second(1000).expect("a time");
        let taint = json!({ "key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "1970-01-01T00:16:00Z" });
        let taints = [serde_json::from_value(taint).expect("a taint")];
        let parsed: Vec<Toleration> = serde_json::from_value(tolerations.clone()).expect("tolerations");
        assert_eq!(stay(&taints, &parsed, now), expected, "{tolerations}");
    }

    #[test]
    fn pods_stay_as_long_as_they_tolerate() {
        check(json!([]), Stay::Not);
        check(json!([{ "operator": "Exists" }]), Stay::ForEver);
        check(json!([{ "key": "k", "value": "v" }]), Stay::ForEver);
        check(json!([{ "key": "k", "value": "other" }]), Stay::Not);
        check(json!([{ "key": "k", "operator": "Exists", "effect": "NoSchedule" }]), Stay::Not);
        check(
            json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 300 }]),
            Stay::For(Duration::from_secs(260)),
        );
        check(json!([{ "key": "k", "operator": "Exists", "tolerationSeconds": 40 }]), Stay::Not);
        assert_eq!(stay(&[], &[], Timestamp::UNIX_EPOCH), Stay::ForEver);
    }
}
