//! Pods that stand in files of the node.

use std::time::Duration;

use ferry_kubelet::Manifests;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{NODE, Node, is_ready, shell};

fn parse(bytes: &[u8]) -> Result<Value, String> {
    serde_json::from_slice(bytes).map_err(|error| error.to_string())
}

fn container(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["containerID"].as_str().unwrap_or_default()
}

/// Waits until the kubelet shows that log: a process says something some time after it has started.
async fn says(node: &Node, want: &str) {
    let path = format!("/containerLogs/default/web-{NODE}/main");
    let said = async {
        while node.certificates.get(node.kubelet.port(), &path).await != (200, want.to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), said).await.expect(want);
}

pub(crate) async fn a_pod_in_a_file_runs_and_is_shown(api: &Api, containerd: &Containerd) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let node = Node::start_with(api, containerd, |config| config.manifests = Some(Manifests { path, parse })).await;
    let file = folder.path().join("web.json");
    let write = |word: &str| {
        let script = format!("echo {word}; trap 'exit 0' TERM; sleep 1000 & wait");
        let pod = json!({"metadata": {"name": "web"}, "spec": {"terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "test.local/busybox:1", "command": shell(&script)}]}});
        std::fs::write(&file, pod.to_string()).expect("written");
    };
    write("one");
    let key = format!("api/v1/pods|default|web-{NODE}");
    let first = api.until(&key, "ready", is_ready).await;
    assert_eq!(first["metadata"]["ownerReferences"][0]["kind"], "Node");
    let port = node.kubelet.port();
    says(&node, "one\n").await;
    let (_, running) = node.certificates.get(port, "/runningpods/").await;
    assert!(running.contains(&format!("web-{NODE}")), "{running}");
    let (_, metrics) = node.certificates.get(port, "/metrics/cadvisor").await;
    assert!(metrics.contains("container_memory_working_set_bytes{container=\"main\""), "{metrics}");
    let (_, configz) = node.certificates.get(port, "/configz").await;
    assert!(configz.contains("\"staticPodPath\""), "{configz}");

    // Who deletes what is shown deletes nothing else.
    let uid = first["metadata"]["uid"].clone();
    node.pods().delete(&format!("web-{NODE}"), &DeleteParams::default()).await.expect("deleted");
    let again = api.until(&key, "back", |p| is_ready(p) && p["metadata"]["uid"] != uid).await;
    assert_eq!(container(&again), container(&first));

    write("two");
    let changed = api.until(&key, "changed", |p| is_ready(p) && container(p) != container(&first)).await;
    says(&node, "two\n").await;

    // A kubelet that starts anew finds it running.
    node.stop().await;
    let path = folder.path().to_owned();
    let node = Node::start_with(api, containerd, |config| config.manifests = Some(Manifests { path, parse })).await;
    let probe = node.create("beside", json!({"containers": [{"name": "main", "command": shell("sleep 1000")}]})).await;
    api.until(&probe, "ready", is_ready).await;
    assert_eq!(container(&api.get(&key).expect("a pod")), container(&changed));
    node.delete(&probe).await;
    std::fs::remove_file(&file).expect("removed");
    api.until(&key, "gone", Value::is_null).await;
    node.stop().await;
}
