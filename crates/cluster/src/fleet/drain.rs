//! Empties a node as `kubectl drain` does: cordon, then evict what may go; disruption budgets say when.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ferry_client::{Api, write};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Client;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams};
use serde_json::json;

/// A pod from a file, which the API server only mirrors.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// How long until a budget that said no is asked again, and a pod that goes is looked at again.
const BUDGET_PAUSE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(500);

/// What may be done to pods that lose something by it.
#[derive(Clone, Debug, Default)]
pub struct Drain {
    /// Evicts pods that no controller makes again.
    pub force: bool,
    /// Evicts pods whose emptyDir volumes go with them.
    pub delete_emptydir_data: bool,
    /// Seconds; what each pod says when not given.
    pub grace_period: Option<u32>,
    /// For all pods together; for ever when not given.
    pub timeout: Option<Duration>,
}

/// What becomes of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainAction {
    Goes,
    Stays,
    Refused(&'static str),
}

impl Drain {
    fn action(&self, pod: &Pod) -> DrainAction {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let ended = matches!(phase, Some("Succeeded" | "Failed"));
        let controller = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
        let is_mirror = pod.metadata.annotations.as_ref().is_some_and(|known| known.contains_key(MIRROR));
        if is_mirror || (!ended && controller.is_some_and(|owner| owner.kind == "DaemonSet")) {
            return DrainAction::Stays;
        }
        if ended {
            return DrainAction::Goes;
        }
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        if !self.delete_emptydir_data && volumes.into_iter().any(|volume| volume.empty_dir.is_some()) {
            return DrainAction::Refused("its emptyDir volumes would be lost (--delete-emptydir-data lets them go)");
        }
        if !self.force && controller.is_none() {
            return DrainAction::Refused("no controller makes it again (--force lets it go)");
        }
        DrainAction::Goes
    }

    /// Evicts the node's pods and waits until they are gone. Nothing is evicted where one pod may not be.
    pub async fn run(&self, client: &Client, node: &str) -> Result<()> {
        let pods = pods_of(client, node).await?;
        let (mut going, mut refused) = (Vec::new(), Vec::new());
        for pod in &pods {
            match self.action(pod) {
                DrainAction::Goes => going.push(pod),
                DrainAction::Stays => {}
                DrainAction::Refused(why) => refused.push(format!("  {}: {why}", path(pod))),
            }
        }
        if !refused.is_empty() {
            bail!("{node} is cordoned but not drained, for some pods may not be evicted:\n{}", refused.join("\n"));
        }
        let begin = Instant::now();
        let evictions = futures::future::join_all(going.iter().map(|pod| self.evict(client, node, pod, begin)));
        let failed: Vec<String> =
            evictions.await.into_iter().filter_map(|one| one.err().map(|error| format!("  {error:#}"))).collect();
        if !failed.is_empty() {
            bail!("{node} is not drained:\n{}", failed.join("\n"));
        }
        loop {
            let there = pods_of(client, node).await?;
            let left: Vec<String> = going.iter().filter(|pod| is_among(&there, pod)).map(|pod| path(pod)).collect();
            if left.is_empty() {
                return Ok(());
            }
            self.pause(begin, LOOK).await.with_context(|| format!("evicted but not gone: {}", left.join(", ")))?;
        }
    }

    /// Returns once the pod is told to go.
    async fn evict(&self, client: &Client, node: &str, pod: &Pod, begin: Instant) -> Result<()> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let pods: kube::Api<Pod> =
            kube::Api::namespaced(client.clone(), pod.metadata.namespace.as_deref().unwrap_or_default());
        let delete = DeleteParams { grace_period_seconds: self.grace_period, ..DeleteParams::default() };
        let delete = match pod.metadata.uid.clone() {
            // Another pod that got its name meanwhile, as those of a StatefulSet do, is not the one that was meant.
            Some(uid) => delete.preconditions(kube::api::Preconditions { uid: Some(uid), resource_version: None }),
            None => delete,
        };
        let parameters = EvictParams { delete_options: Some(delete), ..EvictParams::default() };
        let mut told = false;
        loop {
            let error = match pods.evict(name, &parameters).await {
                Ok(_) => break,
                Err(error) => error,
            };
            let pause = if is_not_yet(&error) {
                BUDGET_PAUSE
            } else if write::is_not_found(&error) || !is_among(&pods_of(client, node).await?, pod) {
                // Its name may be another pod's by now; a node may not even ask for a pod that is gone.
                break;
            } else if write::is_conflict(&error) {
                LOOK
            } else {
                bail!("{} cannot be evicted: {}", path(pod), write::short(&error));
            };
            if !told {
                println!("waits: {}: {}", path(pod), write::short(&error));
                told = true;
            }
            self.pause(begin, pause).await.with_context(|| format!("{}: {}", path(pod), write::short(&error)))?;
        }
        println!("evicted {}", path(pod));
        Ok(())
    }

    /// Waits, but not beyond the end of all patience.
    async fn pause(&self, begin: Instant, time: Duration) -> Result<()> {
        let left = self.timeout.map_or(time, |timeout| timeout.saturating_sub(begin.elapsed()));
        if left.is_zero() {
            bail!("the time given with --timeout is over");
        }
        tokio::time::sleep(time.min(left)).await;
        Ok(())
    }
}

/// A node may list its own pods this way, but not ask for one that is gone.
async fn pods_of(client: &Client, node: &str) -> Result<Vec<Pod>> {
    let own = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = Api::<Pod>::all(client.clone()).list(&own).await;
    Ok(pods.with_context(|| format!("cannot list the pods of {node}"))?.items)
}

fn is_among(pods: &[Pod], pod: &Pod) -> bool {
    pods.iter().any(|known| known.metadata.uid == pod.metadata.uid)
}

/// Whether trying again may help: a disruption budget is spent, or a namespace that goes takes the pod along by itself.
fn is_not_yet(error: &kube::Error) -> bool {
    write::is_namespace_terminating(error) || write::status_of(error).is_some_and(|status| status.code == 429)
}

fn path(pod: &Pod) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!("{}/{}", text(&pod.metadata.namespace), text(&pod.metadata.name))
}

/// Keeps new pods away from a node.
pub async fn cordon(client: &Client, node: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let change = json!({ "spec": { "unschedulable": true } });
    match nodes.patch(node, &PatchParams::default(), &Patch::Merge(&change)).await {
        Ok(_) => println!("cordoned {node}"),
        Err(error) if write::is_not_found(&error) => bail!("the cluster has no node called {node}"),
        Err(error) => bail!("cannot cordon {node}: {}", write::short(&error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn pod(change: &Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": "p", "namespace": "d", "ownerReferences": [
                { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true },
            ]},
            "status": { "phase": "Running" },
        });
        for (part, value) in change.as_object().unwrap() {
            for (key, value) in value.as_object().unwrap() {
                pod[part][key] = value.clone();
            }
        }
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn what_may_go_is_as_with_kubectl() {
        let plain = Drain::default();
        let force = Drain { force: true, ..Drain::default() };
        let lossy = Drain { delete_emptydir_data: true, ..Drain::default() };
        let daemon =
            json!([{ "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u", "controller": true }]);
        let scratch = json!({ "containers": [], "volumes": [{ "name": "v", "emptyDir": {} }] });
        let of = |drain: &Drain, change: Value| drain.action(&pod(&change));
        assert_eq!(of(&plain, json!({})), DrainAction::Goes);
        let unowned = json!({ "metadata": { "ownerReferences": [] } });
        assert!(matches!(of(&plain, unowned.clone()), DrainAction::Refused(why) if why.contains("--force")));
        assert_eq!(of(&force, unowned), DrainAction::Goes);
        let with_scratch = json!({ "spec": scratch });
        assert!(
            matches!(of(&force, with_scratch.clone()), DrainAction::Refused(why) if why.contains("--delete-emptydir"))
        );
        assert_eq!(of(&lossy, with_scratch), DrainAction::Goes);
        assert_eq!(of(&force, json!({ "metadata": { "ownerReferences": daemon } })), DrainAction::Stays);
        assert_eq!(of(&force, json!({ "metadata": { "annotations": { MIRROR: "x" } } })), DrainAction::Stays);
        // What has ended loses nothing.
        let ended = json!({ "metadata": { "ownerReferences": [] }, "spec": scratch, "status": { "phase": "Failed" } });
        assert_eq!(of(&plain, ended), DrainAction::Goes);
    }
}
