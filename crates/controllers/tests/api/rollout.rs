//! Deployments: rollout, rollback, scale, self-healing, and what one change of a pod costs.

use ferry_testbed::{Kit, deployment, is_ready};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

async fn patch(kit: &Kit, name: &str, change: Value) {
    let patch = Patch::Strategic(change);
    kit.api::<Deployment>().patch(name, &PatchParams::default(), &patch).await.unwrap();
}

fn with_image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } })
}

async fn until_rolled_out(kit: &Kit, name: &str, replicas: i32) {
    kit.until(kit.api::<Deployment>(), "the rollout", |all| {
        all.iter().filter(|d| d.name_any() == name).any(|deployment| {
            let (status, meta) = (deployment.status.clone().unwrap_or_default(), &deployment.metadata);
            status.observed_generation == meta.generation
                && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(replicas); 3]
        })
    })
    .await;
}

/// Replicas by image, without sets that have none.
async fn sets(kit: &Kit) -> Vec<(String, i32, String)> {
    let mut list: Vec<_> = kit
        .api::<ReplicaSet>()
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .map(|set| {
            let image = set.spec.template.and_then(|t| t.spec).and_then(|s| s.containers[0].image.clone());
            let revision = set.metadata.annotations.unwrap_or_default()["deployment.kubernetes.io/revision"].clone();
            (image.unwrap(), set.spec.replicas.unwrap(), revision)
        })
        .collect();
    list.sort();
    list
}

fn row(image: &str, replicas: i32, revision: &str) -> (String, i32, String) {
    (image.into(), replicas, revision.into())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deployment_rolls_out_and_back_scales_and_heals() {
    let kit = Kit::cluster(3).await;
    kit.create::<Deployment>(deployment("web", 3, "v1")).await;
    until_rolled_out(&kit, "web", 3).await;
    assert_eq!(sets(&kit).await, [row("v1", 3, "1")]);

    patch(&kit, "web", with_image("v2")).await;
    until_rolled_out(&kit, "web", 3).await;
    assert_eq!(sets(&kit).await, [row("v1", 0, "1"), row("v2", 3, "2")]);

    // Back to the old template: the old set is used again, under a new revision.
    patch(&kit, "web", with_image("v1")).await;
    until_rolled_out(&kit, "web", 3).await;
    assert_eq!(sets(&kit).await, [row("v1", 3, "3"), row("v2", 0, "2")]);

    patch(&kit, "web", json!({ "spec": { "replicas": 7 } })).await;
    until_rolled_out(&kit, "web", 7).await;
    patch(&kit, "web", json!({ "spec": { "replicas": 2 } })).await;
    until_rolled_out(&kit, "web", 2).await;

    // Paused, a new template changes nothing; resumed, it rolls out.
    patch(&kit, "web", json!({ "spec": { "paused": true } })).await;
    patch(&kit, "web", with_image("v3")).await;
    kit.until(kit.api::<Deployment>(), "the pause", |all| {
        all.iter().any(|d| d.status.as_ref().is_some_and(|s| s.observed_generation == d.metadata.generation))
    })
    .await;
    assert_eq!(sets(&kit).await.len(), 2);
    patch(&kit, "web", json!({ "spec": { "paused": null } })).await;
    until_rolled_out(&kit, "web", 2).await;
    assert_eq!(sets(&kit).await.len(), 3);

    let victim = kit.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    kit.api::<Pod>().delete(&victim.name_any(), &DeleteParams::default()).await.unwrap();
    kit.until_pods("a replacement", |pods| {
        let others: Vec<_> = pods.iter().filter(|pod| pod.uid() != victim.uid() && is_ready(pod)).collect();
        others.len() == 2 && pods.len() == 2
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_change_of_a_pod_is_at_most_one_write_of_a_slice() {
    let kit = Kit::cluster(2).await;
    kit.create::<Service>(
        json!({ "metadata": { "name": "web" }, "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80 }] } }),
    )
    .await;
    kit.create::<Deployment>(deployment("web", 4, "v1")).await;
    let ready = |slice: &EndpointSlice| {
        let list = slice.endpoints.iter().flatten();
        list.filter(|e| e.conditions.as_ref().and_then(|c| c.ready) == Some(true)).count()
    };
    let whole = |all: &[std::sync::Arc<EndpointSlice>]| all.len() == 1 && ready(&all[0]) == 4;
    let before = kit.until(kit.api(), "four endpoints", whole).await;
    let pod = kit.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    let never = json!({ "metadata": { "annotations": { ferry_simulator::annotation::READY_AFTER: "never" } } });
    let name = pod.name_any();
    kit.api::<Pod>().patch(&name, &PatchParams::default(), &Patch::Merge(never)).await.unwrap();
    let after =
        kit.until(kit.api(), "three endpoints", |all: &[std::sync::Arc<EndpointSlice>]| ready(&all[0]) == 3).await;
    let generation = |list: &[std::sync::Arc<EndpointSlice>]| list[0].metadata.generation.unwrap();
    assert_eq!(generation(&after) - generation(&before), 1);
    kit.stop().await;
}
