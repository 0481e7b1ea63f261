//! The hops between a client's write and a pod that can be reached, of any object, with how long each took.
//!
//! `story.rs` reads what is needed, `hops.rs` puts the hops together (pure), `render.rs` shows them. Times come from the
//! server's flight recorder where it has them; the rest is put together from the objects and their Events, whose times
//! have whole seconds: such hops are marked.

mod flight;
mod hops;
mod pod;
mod render;
mod shown;
mod story;
#[cfg(test)]
mod tests;

use std::time::Duration;

use futures::StreamExt;
use futures::stream::select_all;
use serde_json::Value;

use crate::cluster::{Cluster, Error};
use crate::resolve::Resource;
use crate::why;

pub use hops::{Hop, Trace};
pub use render::{lines, summary, to_json, waits, writes};
pub use shown::Shown;
pub use story::Story;

/// Reads the story of an object as far as it has come.
pub async fn read(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Result<Story, Error> {
    story::read(cluster, resource, namespace, name).await
}

/// The hops of a story.
pub fn hops(story: &Story) -> Trace {
    hops::of(story)
}

/// How far an object has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Ready, over or written: there is nothing to wait for.
    Done,
    /// Nothing is wrong so far.
    OnItsWay,
    Stuck,
}

/// Where the object stands, by its hops and by what was found to hold it up.
pub fn state(story: &Story, trace: &Trace) -> State {
    match why::held(&story.held) {
        Some(finding) if !finding.underway => State::Stuck,
        Some(_) => State::OnItsWay,
        // A note says that it goes no further, as somebody wants it.
        None if trace.finished || !story.held.is_empty() => State::Done,
        None => State::OnItsWay,
    }
}

/// Finds out what the object waits for: the hop that comes after the last one that was made.
pub async fn explain(
    cluster: &Cluster,
    resource: &Resource,
    namespace: &str,
    name: &str,
    story: &mut Story,
) -> Result<(), Error> {
    let world = why::look(cluster, resource, namespace, name).await?;
    let found = why::findings(&world);
    if why::verdict(&world, &found) == why::Verdict::Unknown {
        return Err(Error::Cut(world.unseen.first().cloned().unwrap_or_default()));
    }
    story.held = found;
    Ok(())
}

/// Changes come in bursts: one look for all of them.
const TOGETHER: Duration = Duration::from_millis(50);

/// When nothing changes for so long, it is time to say what it waits for.
const QUIET: Duration = Duration::from_secs(3);

/// Tells each look at the object, from now until it is ready, `patience` is over, or nobody listens any more (`tell` is
/// false).
pub async fn follow(
    cluster: &Cluster,
    resource: &Resource,
    namespace: &str,
    name: &str,
    patience: Duration,
    mut tell: impl FnMut(&Story, &Trace) -> bool,
) -> Result<(), Error> {
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
    let mut followed = None;
    let looks = async {
        loop {
            let mut story = read(cluster, resource, namespace, name).await?;
            story.keep_to(&mut followed);
            let trace = hops(&story);
            if trace.finished {
                // What it still waits for is no matter any more; what is wrong with it is.
                explain(cluster, resource, namespace, name, &mut story).await?;
                story.held.retain(|finding| !finding.underway);
            }
            if !tell(&story, &trace) || trace.finished {
                return Ok(true);
            }
            match tokio::time::timeout(QUIET, changes.next()).await {
                Ok(Some(())) => {}
                Ok(None) => return Ok(false),
                Err(_) => {
                    explain(cluster, resource, namespace, name, &mut story).await?;
                    if !tell(&story, &trace) {
                        return Ok(true);
                    }
                    if changes.next().await.is_none() {
                        return Ok(false);
                    }
                }
            }
            while let Ok(Some(())) = tokio::time::timeout(TOGETHER, changes.next()).await {}
        }
    };
    if !tokio::time::timeout(patience, looks).await.unwrap_or(Ok(false))? {
        let mut story = read(cluster, resource, namespace, name).await?;
        story.keep_to(&mut followed);
        explain(cluster, resource, namespace, name, &mut story).await?;
        tell(&story, &hops(&story));
    }
    Ok(())
}

/// So many objects are followed at once: each of them takes a few watches.
const AT_ONCE: usize = 16;

/// Follows several objects, each from now until it is ready, `patience` is over or `tell` says that it is enough. What is told
/// comes with the object's place in the list.
pub async fn follow_all(
    cluster: &Cluster,
    objects: &[(Resource, String, String)],
    patience: Duration,
    tell: impl FnMut(usize, &Story, &Trace) -> bool,
) -> Vec<Result<(), Error>> {
    let tell = std::cell::RefCell::new(tell);
    let each = objects.iter().enumerate().map(|(place, (resource, namespace, name))| {
        let tell = &tell;
        async move {
            let told = |story: &Story, trace: &Trace| (tell.borrow_mut())(place, story, trace);
            follow(cluster, resource, namespace, name, patience, told).await
        }
    });
    futures::stream::iter(each).buffered(AT_ONCE).collect().await
}

/// Whether this story is of a kind that ends with pods.
fn has_pods(target: &Value) -> bool {
    matches!(
        crate::world::known_kind(target),
        "Pod" | "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "Job" | "CronJob" | "ReplicationController"
    )
}
