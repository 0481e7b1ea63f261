//! Reads what is around an object.

use std::collections::BTreeMap;

use ferry_meta::object;
use futures::future::join_all;
use jiff::Timestamp;
use serde_json::Value;

use crate::cluster::{Cluster, Error};
use crate::resolve::Resource;
use crate::world::World;

/// (plural, where it is listed, whether it stands in namespaces)
const LISTS: [(&str, &str, bool); 10] = [
    ("pods", "/api/v1", true),
    ("events", "/api/v1", true),
    ("services", "/api/v1", true),
    ("persistentvolumeclaims", "/api/v1", true),
    ("nodes", "/api/v1", false),
    ("replicasets", "/apis/apps/v1", true),
    ("jobs", "/apis/batch/v1", true),
    ("endpointslices", "/apis/discovery.k8s.io/v1", true),
    ("storageclasses", "/apis/storage.k8s.io/v1", false),
    ("deployments", "/apis/apps/v1", true),
];

/// What has to be read for which kind.
fn needed(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" => &["events", "nodes", "persistentvolumeclaims", "storageclasses", "services", "endpointslices"],
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" | "ReplicationController" | "Job" | "CronJob" => &[
            "pods",
            "replicasets",
            "jobs",
            "events",
            "nodes",
            "persistentvolumeclaims",
            "storageclasses",
            "services",
            "endpointslices",
        ],
        "Service" => &[
            "pods",
            "deployments",
            "events",
            "nodes",
            "persistentvolumeclaims",
            "storageclasses",
            "services",
            "endpointslices",
        ],
        "PodDisruptionBudget" => &["pods", "events", "nodes", "persistentvolumeclaims", "storageclasses"],
        "PersistentVolumeClaim" => &["events", "storageclasses"],
        _ => &["events"],
    }
}

/// Reads the object and what is around it.
pub async fn world(cluster: &Cluster, resource: &Resource, namespace: &str, name: &str) -> Result<World, Error> {
    let path = resource.object(namespace, name);
    let mut target = cluster.get(&path).await?.ok_or_else(|| {
        Error::NotFound(format!("there is no {} {name:?}{}", resource.title(), place(resource, namespace)))
    })?;
    if let Some(map) = target.as_object_mut() {
        map.entry("kind").or_insert_with(|| resource.kind.clone().into());
    }
    // Events of nodes and of other objects without a namespace stand in the default one.
    let around = if resource.namespaced { namespace } else { "default" };
    let mut world = around_it(cluster, target, around, needed(&resource.kind)).await;
    add_verdicts(cluster, &mut world, around).await;
    add_last_lines(cluster, &mut world, around).await;
    Ok(world)
}

fn place(resource: &Resource, namespace: &str) -> String {
    if resource.namespaced { format!(" in namespace {namespace:?}") } else { String::new() }
}

/// The lists of these names; what may not be read is noted.
pub(crate) async fn around_it(cluster: &Cluster, target: Value, namespace: &str, names: &[&str]) -> World {
    let mut world = World::new(target, Timestamp::now());
    let lists =
        LISTS.iter().filter(|(plural, ..)| names.contains(plural)).map(|(plural, root, namespaced)| async move {
            let path = match namespaced {
                true => format!("{root}/namespaces/{namespace}/{plural}"),
                false => format!("{root}/{plural}"),
            };
            (*plural, cluster.list(&path).await)
        });
    for (plural, outcome) in join_all(lists).await {
        match outcome {
            Ok(items) => world.put(plural, items),
            Err(Error::Refused { code: 403, .. }) => world.unseen.push(format!("{plural}, which you may not list")),
            Err(error) => world.unseen.push(format!("{plural}: {error}")),
        }
    }
    // A pod is among the pods, so that whoever goes through them finds it.
    if object::text(&world.target, "/kind") == "Pod" {
        let pods = vec![world.target.clone()];
        world.put("pods", pods);
    }
    world
}

/// So many pods are asked about one by one; those that wait together mostly wait for the same.
const ASKED: usize = 8;

async fn add_verdicts(cluster: &Cluster, world: &mut World, namespace: &str) {
    let waiting: Vec<String> = (world.all("pods").iter())
        .filter(|pod| object::text(pod, "/spec/nodeName").is_empty())
        .map(|pod| object::name(pod).to_owned())
        .take(ASKED)
        .collect();
    let asked = waiting.into_iter().map(|name| async move {
        // Servers of others have none, and not everybody may ask.
        let verdict = cluster.get(&format!("/debug/verdicts/{namespace}/{name}")).await.ok().flatten();
        (name, verdict)
    });
    world.verdicts = join_all(asked).await.into_iter().filter_map(|(name, verdict)| Some((name, verdict?))).collect();
}

/// What containers that ended badly said last.
async fn add_last_lines(cluster: &Cluster, world: &mut World, namespace: &str) {
    let mut wanted = Vec::new();
    for pod in world.all("pods") {
        for list in ["/status/initContainerStatuses", "/status/containerStatuses"] {
            for status in object::items(pod, list) {
                let ended =
                    status.pointer("/state/terminated/exitCode").and_then(Value::as_i64).is_some_and(|c| c != 0);
                let backs_off = object::text(status, "/state/waiting/reason") == "CrashLoopBackOff";
                if ended || backs_off {
                    wanted.push((object::name(pod).to_owned(), object::text(status, "/name").to_owned(), backs_off));
                }
            }
        }
    }
    wanted.truncate(ASKED);
    let asked = wanted.into_iter().map(|(pod, container, previous)| async move {
        let path = format!(
            "/api/v1/namespaces/{namespace}/pods/{pod}/log?container={container}&tailLines=1&limitBytes=2048&previous={previous}"
        );
        let text = cluster.text(&path).await.unwrap_or_default();
        (format!("{pod}/{container}"), text.trim().to_owned())
    });
    let lines: BTreeMap<String, String> =
        join_all(asked).await.into_iter().filter(|(_, line)| !line.is_empty()).collect();
    world.last_lines = lines;
}
