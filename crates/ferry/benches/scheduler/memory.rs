//! What the scheduler's own view of a large cluster takes: the objects in its informers and its cache.

use std::sync::Arc;

use anyhow::{Context, Result};
use ferry_client::Informer;
use ferry_scheduler::model::{Cache, PodInfo};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};

use crate::{resident, workloads};

const NODES: usize = 5000;
const PODS: usize = 50_000;

pub fn measure() -> Result<Value> {
    let before = resident().context("the memory of this process cannot be read")?;
    let (nodes, pods) = (Informer::<Node>::detached(), Informer::<Pod>::detached());
    let mut cache = Cache::default();
    let template = workloads::all().swap_remove(0).measured.template.to_string();
    for number in 0..NODES {
        let name = format!("node-{number}");
        nodes.apply(serde_json::from_value(workloads::node(&name, None))?);
        cache.set_node(nodes.get("", &name).context("the node")?);
    }
    for number in 0..PODS {
        let (name, node) = (format!("pod-{number}"), format!("node-{}", number % NODES));
        pods.apply(serde_json::from_value(running(&template, &name, &node)?)?);
        let pod = pods.get("sched-0", &name).context("the pod")?;
        cache.set_pod(Arc::new(PodInfo::new(pod)));
    }
    let after = resident().context("the memory of this process cannot be read")?;
    let known = (cache.node_count(), cache.pod_count());
    Ok(json!({"what": "Memory", "nodes": known.0, "pods": known.1, "scheduler_mb": after - before}))
}

/// A pod as the API server tells of it: with its defaults, placed and running.
fn running(template: &str, name: &str, node: &str) -> Result<Value> {
    let mut pod: Value = serde_json::from_str(&template.replace("@name@", name))?;
    let uid = format!("00000000-0000-0000-0000-{name:0>12}");
    let created = "2026-01-01T00:00:00Z";
    pod["metadata"] = json!({
        "name": name, "namespace": "sched-0", "uid": uid, "resourceVersion": "1000000", "creationTimestamp": created,
        "generation": 1, "labels": {"app": "web", "pod-template-hash": "5d4f8c7b9d"},
    });
    let tolerated =
        |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
    for (field, value) in [
        ("nodeName", json!(node)),
        ("serviceAccountName", json!("default")),
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("terminationGracePeriodSeconds", json!(30)),
        (
            "tolerations",
            json!([tolerated("node.kubernetes.io/not-ready"), tolerated("node.kubernetes.io/unreachable")]),
        ),
    ] {
        pod["spec"][field] = value;
    }
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": created});
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"].map(condition);
    pod["status"] = json!({
        "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}], "startTime": created,
        "conditions": conditions,
        "containerStatuses": [{
            "name": "pause", "image": "registry.k8s.io/pause:3.10.1", "imageID": "", "ready": true, "restartCount": 0,
            "started": true, "state": {"running": {"startedAt": created}},
        }],
    });
    Ok(pod)
}
