//! The failures everyone meets, with the symptoms everyone knows.

use serde_json::Value;

use crate::cluster::{Cluster, until};
use crate::insight::why;

fn pod(name: &str, container: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","labels":{{"app":"{name}"}}}},"spec":{{"terminationGracePeriodSeconds":1,"containers":[{{"name":"c",{container}}}]}}}}"#
    )
}

fn waiting_reason(cluster: &Cluster, pod: &str) -> String {
    let pod = cluster.json(&["get", "pod", pod]);
    pod.pointer("/status/containerStatuses/0/state/waiting/reason")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn events_of(cluster: &Cluster, pod: &str) -> Vec<(String, String)> {
    let selector = format!("involvedObject.name={pod}");
    let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
    let events = cluster.items(&["get", "events", "--field-selector", &selector]);
    events.iter().map(|e| (text(e, "reason"), text(e, "message"))).collect()
}

fn remove(cluster: &Cluster, pod: &str) {
    cluster.kubectl(&["delete", "pod", pod, "--wait=true", "--grace-period=1"]);
}

pub fn an_unschedulable_pod_says_why(cluster: &mut Cluster) {
    cluster.apply(&pod("huge", r#""image":"busybox:1.36","resources":{"requests":{"cpu":"4000"}}"#));
    let message = until("a FailedScheduling event", || {
        events_of(cluster, "huge")
            .into_iter()
            .find(|(reason, _)| reason == "FailedScheduling")
            .map(|(_, message)| message)
    });
    assert!(message.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{message}");
    let pod = cluster.json(&["get", "pod", "huge"]);
    assert_eq!(pod["status"]["phase"], "Pending");
    let condition =
        pod["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "PodScheduled").unwrap();
    assert_eq!((&condition["status"], &condition["reason"]), (&Value::from("False"), &Value::from("Unschedulable")));
    why(cluster, "po/huge", &["stuck at  scheduler", "1 node (e2e): Insufficient cpu", "the pod asks for 4k"]);
    remove(cluster, "huge");
}

pub fn a_wrong_image_backs_off(cluster: &mut Cluster) {
    // Named by its registry: of any other, the one on the internet would be asked after the mirror.
    let image = format!("{}/no-such-image:1", cluster.registry());
    cluster.apply(&pod("wrong-image", &format!(r#""image":"{image}""#)));
    until("ImagePullBackOff", || (waiting_reason(cluster, "wrong-image") == "ImagePullBackOff").then_some(()));
    let events = events_of(cluster, "wrong-image");
    assert!(
        events.iter().any(|(reason, message)| reason == "Failed" && message.contains("no-such-image:1")),
        "{events:?}"
    );
    why(cluster, "pod/wrong-image", &["stuck at  kubelet", "no-such-image:1 of container c cannot be pulled"]);
    remove(cluster, "wrong-image");
}

pub fn a_crashing_container_backs_off(cluster: &mut Cluster) {
    cluster.apply(&pod("crash", r#""image":"busybox:1.36","command":["sh","-c","echo going down; exit 3"]"#));
    until("CrashLoopBackOff", || (waiting_reason(cluster, "crash") == "CrashLoopBackOff").then_some(()));
    let pod = cluster.json(&["get", "pod", "crash"]);
    let last = pod.pointer("/status/containerStatuses/0/lastState/terminated").cloned().unwrap_or_default();
    assert_eq!(last["exitCode"], 3, "{pod:#}");
    assert!(pod.pointer("/status/containerStatuses/0/restartCount").and_then(Value::as_i64) >= Some(1));
    assert!(cluster.kubectl(&["logs", "crash", "--previous"]).contains("going down"));
    why(cluster, "pod/crash", &["exit code 3", "its log says: going down", "--previous"]);
    remove(cluster, "crash");
}

pub fn a_failing_readiness_probe_keeps_the_pod_out(cluster: &mut Cluster) {
    let probe = r#""image":"nginx:1.25","readinessProbe":{"httpGet":{"path":"/","port":81},"periodSeconds":1}"#;
    cluster.apply(&pod("unready", probe));
    cluster.apply(r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"unready"},"spec":{"selector":{"app":"unready"},"ports":[{"port":80}]}}"#);
    until("an Unhealthy event", || {
        events_of(cluster, "unready").iter().any(|(reason, _)| reason == "Unhealthy").then_some(())
    });
    let pod = cluster.json(&["get", "pod", "unready"]);
    assert_eq!(pod["status"]["phase"], "Running");
    let slices = until("an EndpointSlice", || {
        let slices = cluster.items(&["get", "endpointslices", "-l", "kubernetes.io/service-name=unready"]);
        slices.iter().any(|s| s["endpoints"].as_array().is_some_and(|e| !e.is_empty())).then_some(slices)
    });
    for endpoint in slices.iter().flat_map(|s| s["endpoints"].as_array().cloned().unwrap_or_default()) {
        assert_eq!(endpoint["conditions"]["ready"], false, "{endpoint:#}");
    }
    why(cluster, "pod/unready", &["stuck at  readiness", "GET / on port 81"]);
    why(cluster, "svc/unready", &["stuck at  endpoints", "none of them is ready", "GET / on port 81"]);
    cluster.kubectl(&["delete", "service", "unready"]);
    remove(cluster, "unready");
}

pub fn a_pod_over_its_disk_limit_is_evicted(cluster: &mut Cluster) {
    let command =
        r#""image":"busybox:1.36","command":["sh","-c","dd if=/dev/zero of=/scratch/x bs=1M count=9; sleep 1000"]"#;
    let mounts = r#""volumeMounts":[{"name":"scratch","mountPath":"/scratch"}]"#;
    let manifest = pod("greedy", &format!("{command},{mounts}"));
    let mut manifest: Value = serde_json::from_str(&manifest).unwrap();
    manifest["spec"]["volumes"] = serde_json::json!([{"name": "scratch", "emptyDir": {"sizeLimit": "4Mi"}}]);
    cluster.apply(&manifest.to_string());
    let evicted = until("the eviction", || {
        let pod = cluster.json(&["get", "pod", "greedy"]);
        (pod["status"]["phase"] == "Failed").then_some(pod)
    });
    assert_eq!(evicted["status"]["reason"], "Evicted");
    let message = "Usage of EmptyDir volume \"scratch\" exceeds the limit \"4Mi\". ";
    assert_eq!(evicted["status"]["message"], message);
    assert!(events_of(cluster, "greedy").contains(&("Evicted".to_owned(), message.to_owned())));
    remove(cluster, "greedy");
}

pub fn a_container_over_its_memory_is_killed(cluster: &mut Cluster) {
    let command = r#""image":"busybox:1.36","command":["sh","-c","x=a; while true; do x=$x$x; done"]"#;
    cluster.apply(&pod("hungry", &format!(r#"{command},"resources":{{"limits":{{"memory":"20Mi"}}}}"#)));
    until("OOMKilled", || {
        let pod = cluster.json(&["get", "pod", "hungry"]);
        let status = &pod["status"]["containerStatuses"][0];
        let ended = [&status["state"], &status["lastState"]].map(|state| state["terminated"]["reason"].clone());
        ended.contains(&Value::from("OOMKilled")).then_some(())
    });
    remove(cluster, "hungry");
}
