//! How the containers of a pod end together.

use k8s_openapi::api::core::v1::Pod;
use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::{Node, condition, is_ready, shell};

/// A server that has been told to end gives up readiness first, and connections that it has later. Probes that would have it started
/// again are not asked any more.
pub(crate) async fn a_pod_that_ends_tells_when_it_is_not_ready(node: &Node) {
    let folder = node.config.root_dir.join("ending");
    let main =
        "touch /ready; trap 'rm /ready; while ! test -e /shared/end; do sleep 1; done; exit 0' TERM; sleep 1000 & wait";
    let exec = json!({"exec": {"command": ["test", "-e", "/ready"]}, "periodSeconds": 1, "failureThreshold": 1,
        "initialDelaySeconds": 1});
    let key = node
        .create(
            "ending",
            json!({"terminationGracePeriodSeconds": 600,
                "containers": [{"name": "main", "command": shell(main), "readinessProbe": exec, "livenessProbe": exec,
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
                "volumes": [{"name": "shared", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}]}),
        )
        .await;
    node.api.until(&key, "ready", is_ready).await;
    let pods: ferry_client::Api<Pod> = node.pods();
    pods.delete("ending", &DeleteParams::default()).await.expect("deleted");
    let pod = node.api.until(&key, "not ready", |pod| condition(pod, "Ready") == "False").await;
    assert!(pod["metadata"]["deletionTimestamp"].is_string() && pod["status"]["phase"] == "Running", "{pod}");
    let container = &pod["status"]["containerStatuses"][0];
    assert!(container["ready"] == false && container["state"]["running"].is_object(), "{container}");
    std::fs::write(folder.join("end"), "").expect("written");
    node.api.until(&key, "gone", Value::is_null).await;
    let kills = node.events_of("ending").iter().filter(|reason| *reason == "Killing").count();
    assert_eq!(kills, 1, "{:?}", node.events_of("ending"));
}

/// The hook of a sidecar runs while the others still do; its signal comes after their end.
pub(crate) async fn hooks_of_sidecars_run_at_once(node: &Node) {
    let folder = node.config.root_dir.join("hooks");
    let mounts = json!([{"name": "shared", "mountPath": "/shared"}]);
    let main = "trap 'while ! test -e /shared/hook; do sleep 1; done; echo > /shared/main; exit 0' TERM; \
                sleep 1000 & wait";
    let side = "trap 'test -e /shared/main && echo > /shared/side; exit 0' TERM; sleep 1000 & wait";
    let key = node
        .create(
            "hooked",
            json!({"terminationGracePeriodSeconds": 20,
                "initContainers": [{"name": "side", "restartPolicy": "Always", "command": shell(side),
                    "lifecycle": {"preStop": {"exec": {"command": shell("echo > /shared/hook")}}}, "volumeMounts": mounts}],
                "containers": [{"name": "main", "command": shell(main), "volumeMounts": mounts}],
                "volumes": [{"name": "shared", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}]}),
        )
        .await;
    node.api.until(&key, "ready", is_ready).await;
    node.delete(&key).await;
    let [hook, main, side] = ["hook", "main", "side"].map(|file| folder.join(file).exists());
    assert_eq!((hook, main, side), (true, true, true));
}
