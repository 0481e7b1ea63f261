//! Scenarios per plugin: nodes, placed pods and a pod give the allowed nodes, the best of them, or the message.

mod arguments;
mod devices;
mod pods;
mod preemption;
mod random;
mod volumes;

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::framework::{Cycle, Failure, Search};
use crate::listers::Listers;
use crate::model::{Cache, PodInfo};
use crate::nominations::Nominations;
use crate::plugins::default_profile;
use crate::testing::{node, pod, pod_with};

struct World {
    cache: Cache,
    listers: Listers,
    nominations: Nominations,
}

impl World {
    fn new(nodes: &[Arc<Node>], placed: &[Arc<PodInfo>]) -> Self {
        let mut cache = Cache::default();
        nodes.iter().for_each(|node| cache.set_node(node.clone()));
        placed.iter().for_each(|pod| cache.set_pod(pod.clone()));
        Self { cache, listers: Listers::detached(), nominations: Nominations::default() }
    }

    fn search<T>(&self, pod: &PodInfo, work: impl FnOnce(&Search<'_>) -> T) -> T {
        let profile = default_profile("default-scheduler");
        let cycle = Cycle { pod, cache: &self.cache, listers: &self.listers };
        work(&Search { cycle, profile: &profile, nominations: &self.nominations, extension: None, metrics: None })
    }

    /// The allowed nodes, or the sentence users see.
    #[track_caller]
    fn allows(&self, pod: &PodInfo, expected: &str) {
        let seen = self.search(pod, |search| match search.feasible(&mut 0) {
            Ok((nodes, _)) => {
                nodes.iter().map(|node| &*node.name).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(" ")
            }
            Err(failure) => failure.message(),
        });
        assert_eq!(seen, expected);
    }

    /// The nodes with the highest score among the allowed.
    #[track_caller]
    fn prefers(&self, pod: &PodInfo, expected: &str) {
        let seen = self.search(pod, |search| {
            let (nodes, _) = search.feasible(&mut 0).expect("feasible nodes");
            let scores = search.scores(&nodes);
            let highest = scores.iter().max().copied();
            let best: BTreeSet<&str> =
                nodes.iter().zip(&scores).filter(|(_, s)| Some(**s) == highest).map(|(n, _)| &*n.name).collect();
            best.into_iter().collect::<Vec<_>>().join(" ")
        });
        assert_eq!(seen, expected);
    }
}

fn requests(list: Value) -> Value {
    json!({"containers": [{"name": "c", "resources": {"requests": list}}]})
}

fn labelled(name: &str, labels: Value, spec: Value) -> Arc<PodInfo> {
    pod_with(name, json!({"metadata": {"labels": labels}, "spec": spec}))
}

fn zoned(name: &str, zone: &str) -> Arc<Node> {
    node(name, json!({"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}))
}

const NOT_HELPFUL: &str = "Preemption is not helpful for scheduling";
const NO_VICTIMS: &str = "No preemption victims found for incoming pod";

#[test]
fn resources_must_suffice() {
    let full = pod(
        "full",
        json!({"nodeName": "a", "containers": [{"name": "c", "resources": {"requests": {"cpu": "3500m"}}}]}),
    );
    let world = World::new(
        &[node("a", json!({})), node("b", json!({"status": {"allocatable": {"example.com/gpu": "1"}}}))],
        std::slice::from_ref(&full),
    );
    world.allows(&pod("p", json!({})), "a b");
    world.allows(&pod("p", requests(json!({"cpu": "500m"}))), "a b");
    world.allows(&pod("p", requests(json!({"cpu": "501m"}))), "b");
    world.allows(&pod("p", requests(json!({"example.com/gpu": "1"}))), "b");
    world.allows(
        &pod("p", requests(json!({"cpu": "5", "memory": "9Gi"}))),
        &format!("0/2 nodes are available: 2 Insufficient cpu, 2 Insufficient memory. preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."),
    );
    let one = World::new(&[node("a", json!({}))], &[full]);
    one.allows(
        &pod("p", requests(json!({"cpu": "2"}))),
        &format!("0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
    one.allows(
        &pod("p", requests(json!({"example.com/gpu": "2", "ephemeral-storage": "20Gi"}))),
        &format!("0/1 nodes are available: 1 Insufficient ephemeral-storage, 1 Insufficient example.com/gpu. preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}."),
    );
    let crowded = World::new(
        &[node("a", json!({"status": {"allocatable": {"pods": "1"}}}))],
        &[pod("x", json!({"nodeName": "a"}))],
    );
    crowded.allows(
        &pod("p", json!({})),
        &format!("0/1 nodes are available: 1 Too many pods. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
    World::new(&[], &[]).allows(&pod("p", json!({})), "no nodes available to schedule pods");
}

#[test]
fn the_emptier_and_better_balanced_node_is_preferred() {
    let placed = |node: &str, list: Value| {
        let mut spec = requests(list);
        spec["nodeName"] = json!(node);
        pod(&format!("on-{node}"), spec)
    };
    let nodes = [node("a", json!({})), node("b", json!({})), node("c", json!({}))];
    let world = World::new(
        &nodes,
        &[placed("a", json!({"cpu": "2", "memory": "4Gi"})), placed("b", json!({"cpu": "1", "memory": "2Gi"}))],
    );
    world.prefers(&pod("p", requests(json!({"cpu": "1", "memory": "2Gi"}))), "c");
    world.prefers(&pod("p", json!({})), "c");
    // As empty as the other, but more even with this pod.
    let uneven = World::new(&nodes[..2], &[placed("a", json!({"cpu": "2"})), placed("b", json!({"memory": "4096Mi"}))]);
    uneven.prefers(&pod("p", requests(json!({"cpu": "1"}))), "b");
    // Pods without requests still count for something.
    let many: Vec<_> = (0..20).map(|n| pod(&format!("x{n}"), json!({"nodeName": "a"}))).collect();
    World::new(&nodes[..2], &many).prefers(&pod("p", json!({})), "b");
}

#[test]
fn taints_repel() {
    let tainted = |effect: &str| node("t", json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}}));
    let tolerant = pod("p", json!({"tolerations": [{"key": "k", "operator": "Exists"}]}));
    let intolerant = pod("p", json!({}));
    for effect in ["NoSchedule", "NoExecute"] {
        let world = World::new(&[tainted(effect), node("n", json!({}))], &[]);
        world.allows(&intolerant, "n");
        world.allows(&tolerant, "n t");
    }
    World::new(&[tainted("NoSchedule")], &[]).allows(
        &intolerant,
        &format!("0/1 nodes are available: 1 node(s) had untolerated taint(s). preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}."),
    );
    let soft = World::new(&[tainted("PreferNoSchedule"), node("n", json!({}))], &[]);
    soft.allows(&intolerant, "n t");
    soft.prefers(&intolerant, "n");
    soft.prefers(&tolerant, "n t");
}

#[test]
fn cordoned_and_named_nodes() {
    let world = World::new(&[node("a", json!({"spec": {"unschedulable": true}})), node("b", json!({}))], &[]);
    world.allows(&pod("p", json!({})), "b");
    world.allows(&pod("p", json!({"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]})), "a b");
    world.allows(
        &pod("p", json!({"nodeName": "c"})),
        &format!("0/2 nodes are available: 1 node(s) didn't match the requested node name, 1 node(s) were unschedulable. preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."),
    );
    let only = World::new(&[node("a", json!({"spec": {"unschedulable": true}}))], &[]);
    only.allows(
        &pod("p", json!({})),
        &format!("0/1 nodes are available: 1 node(s) were unschedulable. preemption: 0/1 nodes are available: 1 {NOT_HELPFUL}."),
    );
}

#[test]
fn ports_can_be_had_once() {
    let wants = |name: &str, address: &str, protocol: &str, port: i32, node: Option<&str>| {
        let port = json!({"containerPort": 80, "hostPort": port, "hostIP": address, "protocol": protocol});
        pod(name, json!({"nodeName": node, "containers": [{"name": "c", "ports": [port]}]}))
    };
    let world = World::new(
        &[node("a", json!({})), node("b", json!({}))],
        &[wants("x", "", "TCP", 80, Some("a")), wants("y", "10.0.0.1", "UDP", 53, Some("a"))],
    );
    world.allows(&wants("p", "", "TCP", 80, None), "b");
    world.allows(&wants("p", "10.0.0.2", "TCP", 80, None), "b");
    world.allows(&wants("p", "", "UDP", 80, None), "a b");
    world.allows(&wants("p", "10.0.0.2", "UDP", 53, None), "a b");
    world.allows(&wants("p", "", "UDP", 53, None), "b");
    let one = World::new(&[node("a", json!({}))], &[wants("x", "", "TCP", 80, Some("a"))]);
    one.allows(
        &wants("p", "", "TCP", 80, None),
        &format!("0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
}

#[test]
fn nodes_are_required_and_preferred_by_label_and_name() {
    let world = World::new(&[zoned("a", "east"), zoned("b", "west"), node("c", json!({}))], &[]);
    world.allows(&pod("p", json!({"nodeSelector": {"topology.kubernetes.io/zone": "west"}})), "b");
    let required = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let by_name = |names: &[&str]| -> Value {
        names
            .iter()
            .map(|name| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}))
            .collect()
    };
    world.allows(
        &pod(
            "p",
            required(json!([{"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "Exists"}]}])),
        ),
        "a b",
    );
    world.allows(&pod("p", required(by_name(&["a", "c"]))), "a c");
    world.allows(
        &pod("p", required(json!([{"matchExpressions": [{"key": "x", "operator": "Exists"}]}]))),
        &format!("0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}."),
    );
    let mut big = required(by_name(&["a"]));
    big["containers"] = requests(json!({"cpu": "5"}))["containers"].clone();
    world.allows(
        &pod("p", big),
        &format!("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't satisfy plugin(s) [NodeAffinity]. preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}."),
    );
    let contradictory = json!([{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["a"]}, {"key": "metadata.name", "operator": "In", "values": ["b"]},
    ]}]);
    world.allows(
        &pod("p", required(contradictory)),
        &format!("0/3 nodes are available: pod affinity terms conflict. preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}."),
    );
    let preferred = |weight: i32, zone: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}});
    let wishes = json!([preferred(10, "east"), preferred(90, "west")]);
    world.prefers(
        &pod("p", json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": wishes}}})),
        "b",
    );
}

#[test]
fn large_images_attract() {
    let with = |name: &str, size: i64| {
        node(name, json!({"status": {"images": [{"names": ["registry/app:1"], "sizeBytes": size}]}}))
    };
    let world = World::new(&[with("a", 900 << 20), with("b", 10 << 20)], &[]);
    world.prefers(&pod("p", json!({"containers": [{"name": "c", "image": "registry/app:1"}]})), "a");
    world.prefers(&pod("p", json!({"containers": [{"name": "c", "image": "registry/app"}]})), "a b");
}
