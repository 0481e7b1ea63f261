//! What goes by itself: finished jobs, and pods that do not tolerate a taint.

use ferry_client::Api;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::{Kit, is_ready};

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
