//! What is scheduled: sizes and templates as upstream's scheduler_perf has them.

use std::time::Duration;

use serde_json::{Value, json};

pub struct Pods {
    pub count: usize,
    pub namespace: &'static str,
    /// `@name@` stands for the name.
    pub template: Value,
    prefix: &'static str,
}

impl Pods {
    pub fn name_prefix(&self) -> &'static str {
        self.prefix
    }
}

#[derive(Clone, Copy)]
pub enum Churn {
    /// A further pod of this sort every so often.
    Create { template: fn() -> Value, every: Duration },
    /// A node, a large pod and a service, made and removed in turns.
    Mixed { every: Duration },
}

pub struct Workload {
    pub name: &'static str,
    pub floor: f64,
    pub nodes: usize,
    pub zones: &'static [&'static str],
    pub initial: Pods,
    pub measured: Pods,
    pub churn: Option<Churn>,
}

pub fn all() -> Vec<Workload> {
    let workload =
        |name, floor, zones, initial: (usize, &'static str, Value), measured: (usize, &'static str, Value), churn| {
            let pods = |(count, namespace, template), prefix| Pods { count, namespace, template, prefix };
            Workload {
                name,
                floor,
                nodes: 5000,
                zones,
                initial: pods(initial, "init-"),
                measured: pods(measured, "pod-"),
                churn,
            }
        };
    let plain = || pod(json!({}), json!({}), "100m");
    let low = || pod(json!({}), json!({}), "900m");
    let every = |millis| Duration::from_millis(millis);
    let moons: &[&str] = &["moon-1", "moon-2", "moon-3"];
    vec![
        workload("SchedulingBasic", 680.0, &[], (1000, "init", plain()), (10_000, "sched-0", plain()), None),
        workload("NodeAffinity", 540.0, &["zone1"], (5000, "init", in_zone()), (10_000, "sched-0", in_zone()), None),
        workload("TopologySpreading", 460.0, moons, (5000, "init", plain()), (5000, "sched-0", spread()), None),
        workload(
            "PreferredPodAntiAffinity",
            190.0,
            &[],
            (5000, "sched-0", preferred_away()),
            (5000, "sched-1", preferred_away()),
            None,
        ),
        workload("PodAntiAffinity", 180.0, &[], (1000, "sched-0", away()), (2000, "sched-1", away()), None),
        workload("PodAffinity", 70.0, &["zone1"], (5000, "sched-0", together()), (5000, "sched-1", together()), None),
        workload(
            "Preemption",
            570.0,
            &[],
            (20_000, "init", low()),
            (5000, "sched-0", plain()),
            Some(Churn::Create { template: high_pod, every: every(200) }),
        ),
        workload(
            "Unschedulable",
            590.0,
            &[],
            (100, "init", plain()),
            (10_000, "sched-0", plain()),
            Some(Churn::Create { template: large_pod, every: every(200) }),
        ),
        workload(
            "MixedChurn",
            710.0,
            &[],
            (0, "init", plain()),
            (10_000, "sched-0", plain()),
            Some(Churn::Mixed { every: every(1000) }),
        ),
    ]
}

pub fn node(name: &str, zone: Option<&str>) -> Value {
    let mut labels = json!({"kubernetes.io/hostname": name});
    if let Some(zone) = zone {
        labels["topology.kubernetes.io/zone"] = zone.into();
    }
    let amounts = json!({"cpu": "4", "memory": "32Gi", "pods": "110"});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": ready, "phase": "Running"},
    })
}

fn pod(labels: Value, affinity: Value, cpu: &str) -> Value {
    let requests = json!({"cpu": cpu, "memory": "500Mi"});
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "@name@", "labels": labels},
        "spec": {
            "automountServiceAccountToken": false, "affinity": affinity,
            "containers": [{
                "name": "pause", "image": "registry.k8s.io/pause:3.10.1", "ports": [{"containerPort": 80}],
                "resources": {"requests": requests, "limits": requests},
            }],
        },
    })
}

pub fn high_pod() -> Value {
    let mut pod = pod(json!({}), json!({}), "3000m");
    pod["spec"]["priorityClassName"] = "high".into();
    pod
}

pub fn large_pod() -> Value {
    let mut pod = pod(json!({}), json!({}), "9000m");
    pod["spec"]["priorityClassName"] = "high".into();
    pod
}

fn in_zone() -> Value {
    let terms = json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone1", "zone2"]}]}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    pod(json!({}), json!({"nodeAffinity": required}), "100m")
}

fn term(color: &str, key: &str) -> Value {
    json!({"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key, "namespaces": ["sched-0", "sched-1"]})
}

fn away() -> Value {
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": [term("green", "kubernetes.io/hostname")]});
    pod(json!({"color": "green", "name": "test"}), json!({"podAntiAffinity": required}), "100m")
}

fn preferred_away() -> Value {
    let weighted = json!({"weight": 1, "podAffinityTerm": term("yellow", "kubernetes.io/hostname")});
    let preferred = json!({"preferredDuringSchedulingIgnoredDuringExecution": [weighted]});
    pod(json!({"color": "yellow"}), json!({"podAntiAffinity": preferred}), "100m")
}

fn together() -> Value {
    let required =
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [term("blue", "topology.kubernetes.io/zone")]});
    pod(json!({"color": "blue"}), json!({"podAffinity": required}), "100m")
}

fn spread() -> Value {
    let mut pod = pod(json!({"color": "blue"}), json!({}), "100m");
    pod["spec"]["topologySpreadConstraints"] = json!([{
        "maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }]);
    pod
}
