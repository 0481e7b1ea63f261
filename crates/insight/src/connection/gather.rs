//! Reads what is around a connection.

use ferry_meta::object;
use serde_json::Value;

use super::{Scene, Target};
use crate::cluster::{Cluster, Error};
use crate::resolve::segment;
use crate::why;

/// From a pod to a target.
pub async fn look(cluster: &Cluster, namespace: &str, pod: &str, target: Target) -> Result<Scene, Error> {
    let path = format!("/api/v1/namespaces/{}/pods/{}", segment(namespace), segment(pod));
    let absent = || Error::NotFound(format!("there is no pod {pod:?} in namespace {namespace:?}"));
    let source = with_kind(cluster.get(&path).await?.ok_or_else(absent)?, "Pod");
    let there = target.namespace.clone();
    let (plural, kind) = if target.is_service { ("services", "Service") } else { ("pods", "Pod") };
    let path = format!("/api/v1/namespaces/{}/{plural}/{}", segment(&there), segment(&target.name));
    let object = cluster.get(&path).await?.map(|object| with_kind(object, kind));
    let mut scene = Scene { source, object, target, ..Scene::default() };
    if scene.target.is_service && scene.object.is_some() {
        let resource = cluster.resolve("services").await?;
        let world = why::look(cluster, &resource, &there, &scene.target.name).await?;
        scene.of_service = why::findings(&world);
        scene.unseen.extend(world.unseen);
        scene.is_cut |= world.is_cut;
    }
    if scene.object.is_none() {
        // Where it is instead is worth knowing; who may not look does without.
        let name = segment(&scene.target.name);
        let all = cluster.metadata(&format!("/api/v1/{plural}?fieldSelector=metadata.name%3D{name}")).await;
        let places = all.unwrap_or_default();
        scene.elsewhere = places.iter().map(|one| object::namespace(one).to_owned()).collect();
    }
    let core = |namespace: &str, plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let slices = |namespace: &str| format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices");
    let policies = |namespace: &str| format!("/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies");
    scene.pods = read(cluster, &core(&there, "pods"), "pods", &mut scene).await;
    scene.slices = read(cluster, &slices(&there), "endpointslices", &mut scene).await;
    scene.policies = read(cluster, &policies(&there), "networkpolicies", &mut scene).await;
    if there != namespace {
        let own = read(cluster, &policies(namespace), "networkpolicies", &mut scene).await;
        // Half of them would be as good as none.
        scene.policies = scene.policies.zip(own).map(|(there, own)| there.into_iter().chain(own).collect());
    }
    scene.cluster_policies = cluster_policies(cluster, &mut scene).await;
    scene.namespaces = read(cluster, "/api/v1/namespaces", "namespaces", &mut scene).await;
    scene.nodes = read(cluster, "/api/v1/nodes", "nodes", &mut scene).await;
    let dns = format!("{}?labelSelector=kubernetes.io%2Fservice-name%3Dkube-dns", slices("kube-system"));
    scene.dns = read(cluster, &dns, "the endpoints of kube-dns", &mut scene).await;
    scene.unseen.sort();
    scene.unseen.dedup();
    Ok(scene)
}

/// A kind that a cluster may not have.
async fn cluster_policies(cluster: &Cluster, scene: &mut Scene) -> Option<Vec<Value>> {
    let path = format!("/apis/{}/{}/{}", ferry_policy::GROUP, ferry_policy::VERSION, ferry_policy::PLURAL);
    match cluster.list(&path).await {
        Err(Error::NotFound(_) | Error::Refused { code: 404, .. }) => Some(Vec::new()),
        Ok(items) => Some(items),
        Err(_) => read(cluster, &path, "clusternetworkpolicies", scene).await,
    }
}

fn with_kind(mut object: Value, kind: &str) -> Value {
    if let Some(map) = object.as_object_mut() {
        map.entry("kind").or_insert_with(|| kind.into());
    }
    object
}

async fn read(cluster: &Cluster, path: &str, what: &str, scene: &mut Scene) -> Option<Vec<Value>> {
    match cluster.list(path).await {
        Ok(items) => return Some(items),
        Err(Error::Refused { code: 403, .. }) => scene.unseen.push(format!("{what}, which you may not list")),
        Err(error) => {
            scene.is_cut |= error.is_no_answer();
            scene.unseen.push(format!("{what}: {error}"));
        }
    }
    None
}
