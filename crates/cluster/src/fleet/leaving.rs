//! Removes the Nodes of machines that left: a node may not delete its own Node, so it says so and a server does it.

use std::time::Duration;

use ferry_client::{Api, Informer, write};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::Node;
use kube::Client;
use kube::api::DeleteParams;

/// On a Node whose machine leaves the cluster. Only the node itself and who may change Nodes can put it there.
pub const LEAVING: &str = "ferry.dev/leaving";
const RETRY: Duration = Duration::from_secs(5);

pub fn start(client: Client, nodes: Informer<Node>, tasks: &Tasks) {
    tasks.spawn_critical_once("leaving-nodes", async move {
        let api: Api<Node> = Api::all(client);
        let mut changes = nodes.subscribe();
        loop {
            let mut failed = false;
            for node in nodes.list() {
                let (Some(name), Some(annotations)) = (&node.metadata.name, &node.metadata.annotations) else {
                    continue;
                };
                if !annotations.contains_key(LEAVING) || node.metadata.deletion_timestamp.is_some() {
                    continue;
                }
                match api.delete(name, &DeleteParams::default()).await {
                    Err(error) if !write::is_not_found(&error) => {
                        tracing::warn!(
                            node = name,
                            "cannot delete the Node of a machine that left: {}",
                            write::short(&error)
                        );
                        failed = true;
                    }
                    _ => tracing::info!(node = name, "a node left the cluster"),
                }
            }
            if failed {
                tokio::time::sleep(RETRY).await;
            } else {
                changes.next().await;
            }
        }
    });
}
