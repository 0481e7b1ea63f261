//! Nodes that are lost, and what becomes of their pods.

use std::time::Duration;

use ferry_client::Api;
use ferry_testbed::{Kit, deployment, is_ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::json;

fn node_of(pod: &Pod) -> &str {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_lost_node_are_replaced_elsewhere() {
    let node_monitor_grace_period = Duration::from_secs(3);
    let kit = Kit::cluster_with(2, |config| ferry_controllers::Config { node_monitor_grace_period, ..config }).await;
    let mut wanted = deployment("web", 4, "v1");
    wanted["spec"]["template"]["spec"]["tolerations"] = json!([{ "key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 0 }]);
    kit.create::<Deployment>(wanted).await;
    // Where they go is the scheduler's: a node that is late, or was silent for a moment on a busy machine, has none.
    let mut lost = String::new();
    kit.until_pods("four pods", |pods| {
        lost = pods.iter().filter(|pod| is_ready(pod)).map(|pod| node_of(pod)).min().unwrap_or_default().to_owned();
        pods.iter().filter(|pod| is_ready(pod)).count() == 4
    })
    .await;
    let other = if lost == "node-0" { "node-1" } else { "node-0" };

    let nodes: Api<Node> = Api::all(kit.client.clone());
    let silent = |value: Option<&str>| {
        Patch::Merge(json!({ "metadata": { "annotations": { ferry_simulator::annotation::SILENT: value } } }))
    };
    nodes.patch(&lost, &PatchParams::default(), &silent(Some("true"))).await.unwrap();
    let state = |node: &Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().find(|c| c.type_ == "Ready").map(|c| c.status.clone()).unwrap_or_default()
    };
    let tainted = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints.filter(|taint| taint.key == "node.kubernetes.io/unreachable").count()
    };
    kit.until(nodes.clone(), "an unknown node", |all| {
        all.iter().any(|node| node.name_any() == lost && state(node) == "Unknown" && tainted(node) == 2)
    })
    .await;
    kit.until_pods("four pods on the other node", |pods| {
        pods.iter().filter(|pod| is_ready(pod) && node_of(pod) == other).count() == 4
    })
    .await;

    // It speaks again: ready, without taints, and its old pods end.
    nodes.patch(&lost, &PatchParams::default(), &silent(None)).await.unwrap();
    kit.until(nodes, "a node that is back", |all| all.iter().all(|node| state(node) == "True" && tainted(node) == 0))
        .await;
    kit.until_pods("no pods left over", |pods| pods.len() == 4).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_come_and_evictions_that_are_called_off_are_told() {
    let kit = Kit::cluster(1).await;
    let told = async |api: Api<Event>, message: &str| {
        kit.until(api, message, |all| all.iter().any(|event| event.message.as_deref() == Some(message))).await;
    };
    let of_cluster: Api<Event> = Api::namespaced(kit.client.clone(), "default");
    told(of_cluster, "Node node-0 event: Registered Node node-0 in Controller").await;

    let pod = |name: &str, tolerations: serde_json::Value| {
        json!({ "metadata": { "name": name }, "spec": {
            "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "tolerations": tolerations,
            "containers": [{ "name": "c", "image": "i" }],
        } })
    };
    let patient = json!([{ "key": "hurt", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 3600 }]);
    kit.create::<Pod>(pod("patient", patient)).await;
    kit.create::<Pod>(pod("impatient", json!([]))).await;
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let taints = |taints: serde_json::Value| Patch::Merge(json!({ "spec": { "taints": taints } }));
    let hurt = taints(json!([{ "key": "hurt", "effect": "NoExecute" }]));
    nodes.patch("node-0", &PatchParams::default(), &hurt).await.unwrap();
    told(kit.api(), "Marking for deletion Pod test/impatient").await;
    kit.until_pods("one pod", |pods| pods.len() == 1).await;
    kit.at_rest().await;
    nodes.patch("node-0", &PatchParams::default(), &taints(json!(null))).await.unwrap();
    told(kit.api(), "Cancelling deletion of Pod test/patient").await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_told_how_long_kubelets_may_keep_secrets() {
    let kit = Kit::cluster(1).await;
    let told = |node: &Node| node.annotations().get("node.alpha.kubernetes.io/ttl").is_some_and(|ttl| ttl == "0");
    kit.until(Api::all(kit.client.clone()), "the annotation", |all| all.iter().any(|node| told(node))).await;
    kit.at_rest().await;
    kit.stop().await;
}
