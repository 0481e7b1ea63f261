//! TTL: how long a kubelet may keep Secrets and ConfigMaps before it asks again, by the size of the cluster.

use std::sync::Arc;

use ferry_client::controller::{self, Action};
use ferry_client::{Api, Change, Error, Informer, ObjectKey, WorkQueue, write};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams};
use kube::{Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;

use crate::Context;

const NAME: &str = "ttl-controller";
const ANNOTATION: &str = "node.alpha.kubernetes.io/ttl";
/// Smallest and largest number of nodes, and the seconds. They overlap, so that a node more or less does not flap.
const STEPS: [(usize, usize, u32); 5] =
    [(0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, usize::MAX, 300)];

/// The step for that many nodes, seen from the one that holds now.
fn step(mut now: usize, nodes: usize) -> usize {
    while nodes > STEPS[now].1 && now + 1 < STEPS.len() {
        now += 1;
    }
    while nodes < STEPS[now].0 && now > 0 {
        now -= 1;
    }
    now
}

pub(crate) fn start(context: &Context) {
    let (client, nodes) = (context.client(NAME), context.informers.of::<Node>());
    let queue: WorkQueue<ObjectKey> = context.queue("ttlcontroller");
    let holds = Arc::new(Mutex::new(0_usize));
    let (keys, all, current) = (queue.clone(), nodes.clone(), holds.clone());
    nodes.on_change(move |change| {
        if !matches!(change, Change::Deleted(_)) {
            keys.add(ObjectKey::of(&**change.object()));
        }
        let mut current = current.lock();
        let next = step(*current, all.len());
        if std::mem::replace(&mut *current, next) != next {
            for node in all.list() {
                keys.add(ObjectKey::of(&*node));
            }
        }
    });
    let synced = nodes.clone();
    let ready = async move { synced.synced().await };
    controller::run(&context.tasks, NAME, &queue, 1, ready, move |key: ObjectKey| {
        let (client, nodes, seconds) = (client.clone(), nodes.clone(), STEPS[*holds.lock()].2);
        async move { annotate(client, &nodes, &key.name, seconds).await }
    });
}

async fn annotate(client: Client, nodes: &Informer<Node>, name: &str, seconds: u32) -> Result<Action, Error> {
    let Some(node) = nodes.get("", name) else { return Ok(Action::Done) };
    let seconds = seconds.to_string();
    if node.annotations().get(ANNOTATION) == Some(&seconds) {
        return Ok(Action::Done);
    }
    let patch = json!({ "metadata": { "annotations": { ANNOTATION: seconds } } });
    match Api::<Node>::all(client).patch(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
        Err(error) if !write::is_not_found(&error) => Err(error.into()),
        _ => Ok(Action::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_overlap() {
        let mut now = 0;
        let mut seconds = |nodes| {
            now = step(now, nodes);
            STEPS[now].2
        };
        let seen: Vec<u32> = [1, 100, 101, 95, 89, 10_000, 1900, 1700, 0].map(&mut seconds).to_vec();
        assert_eq!(seen, [0, 0, 15, 15, 0, 300, 300, 60, 0]);
    }
}
