//! Pods that have to go: for limits of their own, and for the node's sake.

use std::time::Duration;

use ferry_kubelet::{Eviction, Statements};
use serde_json::{Value, json};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{NODE, Node, condition, is_ready, shell};

fn failed(pod: &Value) -> bool {
    pod["status"]["phase"] == "Failed"
}

fn words(pod: &Value) -> (&str, &str) {
    let text = |key: &str| pod["status"][key].as_str().unwrap_or_default();
    (text("reason"), text("message"))
}

pub(crate) async fn a_pod_over_its_own_limits_goes(node: &Node) {
    let scratch = node
        .create(
            "scratch",
            json!({"containers": [{"name": "main", "command": shell("dd if=/dev/zero of=/s/x bs=1M count=3; sleep 1000"),
                    "volumeMounts": [{"name": "s", "mountPath": "/s"}]}],
                "volumes": [{"name": "s", "emptyDir": {"sizeLimit": "1Mi"}}]}),
        )
        .await;
    let layer = node
        .create(
            "layer",
            json!({"containers": [{"name": "main", "command": shell("dd if=/dev/zero of=/x bs=1M count=3; sleep 1000"),
                "resources": {"limits": {"ephemeral-storage": "1Mi"}}}]}),
        )
        .await;
    let modest = node
        .create(
            "modest",
            json!({"containers": [{"name": "main", "command": shell("dd if=/dev/zero of=/s/x bs=1M count=3; sleep 1000"),
                    "resources": {"limits": {"ephemeral-storage": "50Mi"}},
                    "volumeMounts": [{"name": "s", "mountPath": "/s"}]}],
                "volumes": [{"name": "s", "emptyDir": {"sizeLimit": "10Mi"}}]}),
        )
        .await;
    let pod = node.api.until(&scratch, "evicted", failed).await;
    assert_eq!(words(&pod), ("Evicted", "Usage of EmptyDir volume \"s\" exceeds the limit \"1Mi\". "));
    assert_eq!(condition(&pod, "DisruptionTarget"), "");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    let folder = node.config.root_dir.join("pods").join(pod["metadata"]["uid"].as_str().expect("a uid"));
    let gone = async {
        while folder.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("what filled the disk is removed");
    let pod = node.api.until(&layer, "evicted", failed).await;
    let why = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(words(&pod), ("Evicted", why));
    assert!(node.events_of("layer").contains(&"Evicted".to_owned()));
    assert!(is_ready(&node.api.get(&modest).expect("a pod")));
    let (_, metrics) = node.certificates.get(node.kubelet.port(), "/metrics").await;
    assert!(metrics.contains("kubelet_evictions{eviction_signal=\"emptydirfs.limit\"} 1\n"), "{metrics}");
    for key in [scratch, layer, modest] {
        node.delete(&key).await;
    }
}

/// A node whose threshold lies above the memory that is ever free.
pub(crate) async fn a_node_short_of_memory_lets_pods_go(api: &Api, containerd: &Containerd) {
    let node = Node::start(api, containerd).await;
    let spec =
        |priority: i32| json!({"priority": priority, "containers": [{"name": "main", "command": shell("sleep 1000")}]});
    let (cheap, critical) = (node.create("cheap", spec(0)).await, node.create("critical", spec(2_000_000_000)).await);
    for key in [&cheap, &critical] {
        api.until(key, "ready", is_ready).await;
    }
    node.stop().await;
    let node = Node::start_with(api, containerd, |config| {
        let statements = Statements { hard: Some("memory.available<99.9%"), ..Statements::default() };
        config.eviction = Eviction::default().with(statements).expect("thresholds");
    })
    .await;
    let pod = api.until(&cheap, "evicted", failed).await;
    let (reason, message) = words(&pod);
    assert!(
        message.starts_with("The node was low on resource: memory. Threshold quantity: ")
            && message.contains(", available: "),
        "{message}"
    );
    assert!(message.contains("Container main was using "), "{message}");
    assert_eq!((reason, condition(&pod, "DisruptionTarget").as_str()), ("Evicted", "True"));
    let conditions = pod["status"]["conditions"].as_array().expect("conditions");
    let target = conditions.iter().find(|c| c["type"] == "DisruptionTarget").expect("the condition");
    assert_eq!((&target["reason"], &target["message"]), (&json!("TerminationByKubelet"), &json!(message)));
    let short = |object: &Value| condition(object, "MemoryPressure") == "True";
    api.until("api/v1/nodes||test-node", "short of memory", short).await;
    let events = node.events_of(NODE);
    for reason in ["EvictionThresholdMet", "NodeHasInsufficientMemory"] {
        assert!(events.iter().any(|e| e == reason), "{reason} in {events:?}");
    }
    let late = node.create("late", spec(0)).await;
    let pod = api.until(&late, "refused", failed).await;
    assert_eq!(words(&pod), ("Evicted", "Pod was rejected: The node had condition: [MemoryPressure]. "));
    assert!(is_ready(&api.get(&critical).expect("a pod")), "a critical pod stays");
    for key in [cheap, critical, late] {
        node.delete(&key).await;
    }
    node.stop().await;
}
