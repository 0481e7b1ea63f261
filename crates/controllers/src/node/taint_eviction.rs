//! Taint eviction: pods that do not tolerate a NoExecute taint of their node go, at once or when their time is up.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Clock, Error, EventType, Index, Informer, ObjectKey, Recorder, WorkQueue, write};
use ferry_semantics::taints;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use k8s_openapi::jiff::Timestamp;
use kube::{Client, ResourceExt};
use parking_lot::Mutex;

use super::pods_by_node;
use crate::Context;
use crate::common::disruption::{self, Disruption};
use crate::common::pod;

/// Upstream gives this part of the node controller no identity of its own.
const NAME: &str = "node-controller";
const COMPONENT: &str = "taint-eviction-controller";
const WORKERS: usize = 8;

struct Reconciler {
    client: Client,
    recorder: Recorder,
    nodes: Informer<Node>,
    pods: Informer<Pod>,
    pods_of: Index<Pod>,
    /// Pods whose time runs.
    doomed: Mutex<HashMap<ObjectKey, Seen>>,
    clock: Clock,
    queue: WorkQueue<ObjectKey>,
}

pub(crate) fn start(context: &Context) {
    let client = context.client(NAME);
    let (nodes, pods) = (context.informers.of::<Node>(), context.informers.of::<Pod>());
    let this = Arc::new(Reconciler {
        recorder: Recorder::new(client.clone(), COMPONENT, &context.tasks),
        client,
        nodes: nodes.clone(),
        pods_of: pods_by_node(&pods),
        pods: pods.clone(),
        doomed: Mutex::default(),
        clock: context.config.clock.clone(),
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
        if matches!(change, Change::Deleted(_)) {
            handler.doomed.lock().remove(&ObjectKey::of(&**pod));
            return;
        }
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

impl Reconciler {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Error> {
        let Some(pod) = self.pods.get_key(key) else { return Ok(Action::Done) };
        if pod::is_terminating(&pod) {
            return Ok(Action::Done);
        }
        let Some(node) = self.nodes.get("", pod::node(&pod)) else { return Ok(Action::Done) };
        let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.clone()).unwrap_or_default();
        let (taints, now) = (evicting(&node), self.clock.seconds());
        let seen = self.doomed.lock().get(key).cloned().unwrap_or_default().and_now(&taints, now);
        match stay(&taints, &tolerations, bound_at(&pod), &seen, now) {
            Stay::ForEver => {
                if self.doomed.lock().remove(key).is_some() {
                    let message = format!("Cancelling deletion of Pod {key}");
                    self.recorder.event(&*pod, EventType::Normal, "TaintManagerEviction", message);
                }
                Ok(Action::Done)
            }
            Stay::For(left) => {
                self.doomed.lock().insert(key.clone(), seen);
                Ok(Action::After(left))
            }
            Stay::Not => {
                self.doomed.lock().remove(key);
                let message = format!("Marking for deletion Pod {key}");
                self.recorder.event(&*pod, EventType::Normal, "TaintManagerEviction", message);
                let api: Api<Pod> = Api::namespaced(self.client.clone(), &key.namespace);
                let announced = Disruption {
                    reason: "DeletionByTaintManager",
                    message: "Taint manager: deleting due to NoExecute taint",
                    since: self.clock.time(),
                };
                disruption::mark(&api, &pod, announced, None).await?;
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

/// Since when the pod is where it is.
fn bound_at(pod: &Pod) -> Option<Timestamp> {
    let bound = pod::condition(pod, "PodScheduled").and_then(|condition| condition.last_transition_time.as_ref());
    bound.or(pod.metadata.creation_timestamp.as_ref()).map(|time| time.0)
}

/// Since when a pod was seen beside taints that do not tell when they were added, as those of kubectl.
#[derive(Clone, Debug, Default, PartialEq)]
struct Seen(HashMap<(String, Option<String>), Timestamp>);

impl Seen {
    fn name(taint: &Taint) -> (String, Option<String>) {
        (taint.key.clone(), taint.value.clone())
    }

    /// With those that came, without those that went.
    fn and_now(&self, taints: &[Taint], now: Timestamp) -> Self {
        let untimed = taints.iter().filter(|taint| taint.time_added.is_none()).map(Self::name);
        Self(untimed.map(|name| (name.clone(), self.0.get(&name).copied().unwrap_or(now))).collect())
    }
}

/// How long a pod with these tolerations may stay. The seconds of a toleration count from when the taint was added, or
/// from when the pod came to a node that had it already.
fn stay(taints: &[Taint], tolerations: &[Toleration], bound: Option<Timestamp>, seen: &Seen, now: Timestamp) -> Stay {
    let mut end: Option<i64> = None;
    for taint in taints {
        let tolerates = |toleration: &&Toleration| taints::Toleration::from(*toleration).tolerates(taint);
        let matching: Vec<&Toleration> = tolerations.iter().filter(tolerates).collect();
        if matching.is_empty() {
            return Stay::Not;
        }
        let Some(seconds) = matching.iter().filter_map(|toleration| toleration.toleration_seconds).min() else {
            continue;
        };
        let added = taint.time_added.as_ref().map(|time| time.0).or_else(|| seen.0.get(&Seen::name(taint)).copied());
        let since = added.into_iter().chain(bound).max().unwrap_or(now).min(now);
        let until = since.as_second().saturating_add(seconds.max(0));
        end = end.into_iter().chain([until]).min();
    }
    let Some(end) = end else { return Stay::ForEver };
    match u64::try_from(end.saturating_sub(now.as_second())) {
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
        assert_eq!(stay(&taints, &parsed, None, &Seen::default(), now), expected, "{tolerations}");
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
        assert_eq!(stay(&[], &[], None, &Seen::default(), Timestamp::UNIX_EPOCH), Stay::ForEver);
    }

    #[test]
    fn each_taint_has_its_own_time_and_none_began_before_the_pod_came() {
        let time = |second: i64| Timestamp::from_second(second).expect("a time");
        let check = |taints: &[(&str, i64)], seconds: &[(&str, i64)], bound: i64, expected: Stay| {
            let taint = |(key, added): &(&str, i64)| -> Taint {
                let json = json!({ "key": key, "effect": "NoExecute", "timeAdded": time(*added).to_string() });
                serde_json::from_value(json).expect("a taint")
            };
            let toleration = |(key, seconds): &(&str, i64)| -> Toleration {
                let json = json!({ "key": key, "operator": "Exists", "tolerationSeconds": seconds });
                serde_json::from_value(json).expect("a toleration")
            };
            let taints: Vec<Taint> = taints.iter().map(taint).collect();
            let tolerations: Vec<Toleration> = seconds.iter().map(toleration).collect();
            let stays = stay(&taints, &tolerations, Some(time(bound)), &Seen::default(), time(1000));
            assert_eq!(stays, expected, "{taints:?} {bound}");
        };
        let left = |seconds| Stay::For(Duration::from_secs(seconds));
        check(&[("a", 100)], &[("a", 300)], 0, Stay::Not);
        check(&[("a", 100)], &[("a", 300)], 990, left(290));
        check(&[("a", 800), ("b", 950)], &[("a", 300), ("b", 600)], 0, left(100));
        check(&[("a", 950)], &[("a", -5)], 0, Stay::Not);
    }

    #[test]
    fn a_taint_that_does_not_say_when_it_was_added_counts_from_when_it_was_seen() {
        let time = |second: i64| Timestamp::from_second(second).expect("a time");
        let taint = |key: &str| -> Taint {
            serde_json::from_value(json!({ "key": key, "effect": "NoExecute" })).expect("a taint")
        };
        let tolerations: Vec<Toleration> = serde_json::from_value(json!([
            { "key": "a", "operator": "Exists", "tolerationSeconds": 300 },
            { "key": "b", "operator": "Exists", "tolerationSeconds": 50 },
        ]))
        .expect("tolerations");
        let left = |seconds| Stay::For(Duration::from_secs(seconds));
        let mut seen = Seen::default();
        // The pod has been there for long.
        let mut check = |taints: &[Taint], now: i64, expected: Stay| {
            seen = seen.and_now(taints, time(now));
            assert_eq!(stay(taints, &tolerations, Some(time(5)), &seen, time(now)), expected, "at {now}");
        };
        check(&[taint("a")], 1000, left(300));
        check(&[taint("a")], 1100, left(200));
        check(&[taint("a"), taint("b")], 1100, left(50));
        check(&[taint("a"), taint("b")], 1149, left(1));
        check(&[taint("a")], 1160, left(140));
        check(&[], 1170, Stay::ForEver);
        check(&[taint("a")], 1200, left(300));
        check(&[taint("a")], 1500, Stay::Not);
    }
}
