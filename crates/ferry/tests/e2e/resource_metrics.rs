//! What nodes and pods use, in a cluster without any add-on: shown by kubectl, and followed by an autoscaler.

use crate::cluster::{Cluster, until};

/// Burns as much of a processor as it may: a fifth of one, where a tenth was asked for.
const BURNING: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: burning}
spec:
  selector: {matchLabels: {app: burning}}
  template:
    metadata: {labels: {app: burning}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: 'busybox:1.36'
        command: [sh, -c, 'while :; do :; done']
        resources: {requests: {cpu: 100m, memory: 16Mi}, limits: {cpu: 200m}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: burning}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: burning}
  minReplicas: 1
  maxReplicas: 2
  metrics:
  - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}
";

/// The figures of a line of `kubectl top`, in thousandths of a processor and mebibytes.
fn figures(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace().skip(1);
    let cpu = words.next()?.strip_suffix('m')?.parse().ok()?;
    let memory = words.find_map(|word| word.strip_suffix("Mi"))?.parse().ok()?;
    Some((cpu, memory))
}

pub fn usage_is_shown_and_scales(cluster: &mut Cluster) {
    cluster.apply(BURNING);
    let (_, memory) = until("the node's usage", || {
        let output = cluster.try_kubectl(&["top", "nodes", "--no-headers"], "");
        figures(String::from_utf8_lossy(&output.stdout).lines().find(|line| line.starts_with("e2e "))?)
    });
    assert!(memory > 0);
    let (cpu, memory) = until("the pod's usage", || {
        let output = cluster.try_kubectl(&["top", "pods", "-l", "app=burning", "--no-headers"], "");
        figures(String::from_utf8_lossy(&output.stdout).lines().next()?).filter(|(cpu, _)| *cpu > 20)
    });
    assert!(cpu <= 400 && memory < 64, "{cpu}m {memory}Mi");
    let own = cluster
        .ferry()
        .args(["kubectl", "--kubeconfig"])
        .arg(cluster.data_dir().join("kubeconfig"))
        .args(["top", "pods", "-l", "app=burning", "--no-headers"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&own.stdout).starts_with("burning-"), "{own:?}");
    let table = cluster.kubectl(&["get", "pods.metrics.k8s.io", "-l", "app=burning"]);
    let head: Vec<&str> = table.lines().next().unwrap_or_default().split_whitespace().collect();
    assert_eq!(head, ["NAME", "CPU", "MEMORY", "WINDOW"], "{table}");
    until("the autoscaler adds a pod", || {
        let deployment = cluster.json(&["get", "deployment", "burning"]);
        (deployment["status"]["readyReplicas"] == 2).then_some(())
    });
    let scaler = cluster.json(&["get", "hpa", "burning"]);
    let active = scaler["status"]["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "ScalingActive");
    assert_eq!(active.unwrap()["reason"], "ValidMetricFound");
    cluster.kubectl(&["delete", "hpa/burning", "deployment/burning", "--wait=true"]);
}
