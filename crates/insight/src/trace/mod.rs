//! The hops between a client's write and a pod that can be reached, of any object, with how long each took.
//!
//! `story.rs` reads what is needed, `hops.rs` puts the hops together (pure), `render.rs` shows them. Times come from the
//! server's flight recorder where it has them; the rest is put together from the objects and their Events, whose times
//! have whole seconds: such hops are marked.

mod flight;
mod hops;
mod pod;
mod render;
mod story;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use serde_json::Value;

use crate::cluster::{Cluster, Error};
use crate::resolve::Resource;

pub use hops::{Hop, Trace};
pub use render::{lines, summary, to_json, writes};
pub use story::Story;

/// Reads the story of an object as far as it has come.
pub async fn read(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Result<Story, Error> {
    story::read(cluster, resource, namespace, name).await
}

/// The hops of a story.
pub fn hops(story: &Story) -> Trace {
    hops::of(story)
}

/// Changes come in bursts: one look for all of them.
const TOGETHER: Duration = Duration::from_millis(50);

/// Tells each look at the object, from now until it is ready or `patience` is over. False: it did not become ready.
pub async fn follow(
    cluster: &Cluster,
    resource: &Resource,
    namespace: &str,
    name: &str,
    patience: Duration,
    mut tell: impl FnMut(&Story, &Trace),
) -> Result<bool, Error> {
    let watch = |path: String| async move { cluster.changes(&path).await };
    let mut streams =
        vec![watch(format!("{}?watch=true&fieldSelector=metadata.name%3D{name}", resource.path(namespace))).await?];
    if resource.namespaced {
        for list in ["/api/v1 pods", "/apis/discovery.k8s.io/v1 endpointslices", "/apis/apps/v1 replicasets"] {
            let (root, plural) = list.split_once(' ').unwrap_or_default();
            // Who may not watch them all still sees what the object itself tells.
            streams.extend(watch(format!("{root}/namespaces/{namespace}/{plural}?watch=true")).await.ok());
        }
    }
    let mut changes = select_all(streams);
    let looks = async {
        loop {
            let story = read(cluster, resource, namespace, name).await?;
            let trace = hops(&story);
            tell(&story, &trace);
            if trace.finished {
                return Ok(true);
            }
            if changes.next().await.is_none() {
                return Ok(false);
            }
            while let Ok(Some(())) = tokio::time::timeout(TOGETHER, changes.next()).await {}
        }
    };
    tokio::time::timeout(patience, looks).await.unwrap_or(Ok(false))
}

/// Whether this story is of a kind that ends with pods.
fn has_pods(target: &Value) -> bool {
    matches!(
        ferry_meta::object::text(target, "/kind"),
        "Pod" | "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "ReplicationController"
    )
}
