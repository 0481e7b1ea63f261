//! What the Node tells of its machine in annotations: the ports that it listens on itself, at which no LoadBalancer Service is
//! given the node's address, what its gateway serves, and who drops packets of pods, for `ferry why`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ferry_client::Api;
use ferry_controllers::LISTENING_PORTS;
use ferry_insight::why::PACKETS_DROPPED;
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::watch;

const RETRY: Duration = Duration::from_secs(1);

fn text(ports: &BTreeSet<String>) -> String {
    ports.iter().map(String::as_str).collect::<Vec<_>>().join(",")
}

/// What a node is registered with: it is known before the node takes traffic.
pub async fn note_listening(annotations: &mut BTreeMap<String, String>) {
    if let Ok(ports) = tokio::task::spawn_blocking(ferry_proxy::listening).await {
        annotations.insert(LISTENING_PORTS.to_owned(), text(&ports));
    }
}

/// Writes what the proxy sees when it looks, which it does for Services that want to be reached at the node.
pub fn listening(node: &str, client: Client, ports: watch::Receiver<BTreeSet<String>>, tasks: &Tasks) {
    keep(node, client, ports, LISTENING_PORTS, |ports| json!(text(ports)), tasks);
}

pub fn problems(node: &str, client: Client, mut problems: watch::Receiver<Vec<String>>, tasks: &Tasks) {
    // Also when there are none: those of the last run may be gone.
    problems.mark_changed();
    let value = |problems: &Vec<String>| if problems.is_empty() { Value::Null } else { json!(problems.join("; ")) };
    keep(node, client, problems, PACKETS_DROPPED, value, tasks);
}

/// What the gateway of the machine tells through the sender, or that there is none.
pub fn gateway(node: &str, client: Client, tasks: &Tasks) -> watch::Sender<Option<String>> {
    let (sender, mut reports) = watch::channel(None);
    // That of the last run may be there.
    reports.mark_changed();
    keep(node, client, reports, ferry_gateway::SERVES, |report| json!(report), tasks);
    sender
}

fn keep<T: Send + Sync + 'static>(
    node: &str,
    client: Client,
    mut source: watch::Receiver<T>,
    annotation: &'static str,
    value: impl Fn(&T) -> Value + Send + 'static,
    tasks: &Tasks,
) {
    let node = node.to_owned();
    let nodes: Api<Node> = Api::all(client);
    tasks.spawn_until_stopped("annotations of the node", async move {
        while source.changed().await.is_ok() {
            loop {
                let now = value(&source.borrow_and_update());
                let patch = json!({ "metadata": { "annotations": { annotation: now } } });
                match nodes.patch(&node, &PatchParams::default(), &Patch::Merge(patch)).await {
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!("annotation {annotation} of the Node cannot be written: {error}");
                        tokio::time::sleep(RETRY).await;
                    }
                }
            }
        }
    });
}
