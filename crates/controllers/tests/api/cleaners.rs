//! What goes by itself: finished jobs, pods of nodes out of service, pods that do not tolerate a taint; and what stays
//! because it is more likely that the fault is ours.

use std::time::Duration;

use ferry_client::Api;
use ferry_testbed::{Kit, is_ready};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn pod(name: &str, node: &str, tolerations: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }], "tolerations": tolerations,
    } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finished_jobs_go_when_their_time_is_up() {
    let kit = Kit::cluster(1).await;
    for (name, ttl) in [("kept", json!(null)), ("short", json!(0)), ("long", json!(3600))] {
        let spec = json!({ "ttlSecondsAfterFinished": ttl, "template": {
            "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: "0" } },
            "spec": { "restartPolicy": "Never", "nodeName": "node-0", "containers": [{ "name": "c", "image": "i" }] },
        } });
        kit.create::<Job>(json!({ "metadata": { "name": name }, "spec": spec })).await;
    }
    kit.until(kit.api::<Job>(), "two finished jobs", |all| {
        let done = |job: &Job| job.status.as_ref().and_then(|status| status.succeeded) == Some(1);
        all.len() == 2 && all.iter().all(|job| done(job) && job.name_any() != "short")
    })
    .await;
    kit.until_pods("their pods alone", |pods| pods.len() == 2).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_stay_on_a_tainted_node_as_long_as_they_tolerate() {
    let kit = Kit::cluster(1).await;
    let tolerates = |seconds: Value| json!([{ "key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds }]);
    kit.create::<Pod>(pod("never", "node-0", json!([]))).await;
    kit.create::<Pod>(pod("a-while", "node-0", tolerates(json!(3)))).await;
    kit.create::<Pod>(pod("for-ever", "node-0", tolerates(json!(null)))).await;
    kit.until_pods("three pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 3).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let taint = Patch::Merge(
        json!({ "spec": { "taints": [{ "key": "gone", "effect": "NoExecute", "timeAdded": ferry_client::write::now() }] } }),
    );
    nodes.patch("node-0", &PatchParams::default(), &taint).await.unwrap();
    let names = |pods: &[&Pod]| {
        let mut names: Vec<String> = pods.iter().map(|pod| pod.name_any()).collect();
        names.sort();
        names
    };
    kit.until_pods("two pods", |pods| names(pods) == ["a-while", "for-ever"]).await;
    kit.until_pods("one pod", |pods| names(pods) == ["for-ever"]).await;
    kit.until_event("TaintManagerEviction").await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_no_node_is_heard_of_no_pod_is_driven_away() {
    let node_monitor_grace_period = Duration::from_secs(3);
    let kit = Kit::cluster_with(2, |config| ferry_controllers::Config { node_monitor_grace_period, ..config }).await;
    for node in ["node-0", "node-1"] {
        kit.create::<Pod>(pod(&format!("on-{node}"), node, json!([]))).await;
    }
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let silent =
        Patch::Merge(json!({ "metadata": { "annotations": { ferry_simulator::annotation::SILENT: "true" } } }));
    for node in ["node-0", "node-1"] {
        nodes.patch(node, &PatchParams::default(), &silent).await.unwrap();
    }
    let taints = |node: &Node| {
        let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
        taints
            .map(|taint| format!("{}:{}", taint.key.trim_start_matches("node.kubernetes.io/"), taint.effect))
            .collect::<Vec<_>>()
    };
    kit.until(nodes.clone(), "two unreachable nodes", |all| {
        all.iter().all(|node| taints(node) == ["unreachable:NoSchedule"])
    })
    .await;
    kit.at_rest().await;
    assert_eq!(kit.api::<Pod>().list(&Default::default()).await.unwrap().items.len(), 2);

    // A pod that was told to go stays on a node that says nothing, until an administrator gives the node up.
    kit.api::<Pod>().delete("on-node-0", &DeleteParams::default().grace_period(30)).await.unwrap();
    let given_up = Patch::Merge(
        json!({ "spec": { "taints": [{ "key": "node.kubernetes.io/out-of-service", "effect": "NoExecute", "value": "nodeshutdown" }] } }),
    );
    nodes.patch("node-0", &PatchParams::default(), &given_up).await.unwrap();
    kit.until_pods("no pod on it", |pods| pods.iter().all(|pod| pod.name_any() != "on-node-0")).await;
    kit.stop().await;
}
