//! Wishes that cannot be met, and things that vanish at the wrong moment: a clear word, and the queue moves on.

use super::*;

const USELESS: &str = "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.";

#[tokio::test]
async fn wishes_that_cannot_be_met_are_told() {
    let world = World::new();
    world.add_node("a", json!({}));
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    let named = |name: &str| json!({"key": "metadata.name", "operator": "In", "values": [name]});
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "nobody"}}});
    let huge = json!({"requests": {"cpu": "9223372036854775807", "memory": "8Ei", "example.com/unheard": "1"}});
    for (name, spec, reason) in [
        (
            "contradiction",
            json!({"affinity": {"nodeAffinity": {required: {"nodeSelectorTerms": [{"matchFields": [named("a"), named("b")]}]}}}}),
            "pod affinity terms conflict",
        ),
        (
            "lonely",
            json!({"affinity": {"podAffinity": {required: [term]}}}),
            "1 node(s) didn't match pod affinity rules",
        ),
        (
            "nowhere",
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "unheard.of/key", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"x": "y"}}}]}),
            "1 node(s) didn't match pod topology spread constraints (missing required label)",
        ),
        (
            "huge",
            json!({"containers": [{"name": "c", "resources": huge}]}),
            "1 Insufficient cpu, 1 Insufficient example.com/unheard, 1 Insufficient memory",
        ),
    ] {
        world.add(name, spec);
        let message = format!("0/1 nodes are available: {reason}. {USELESS}");
        world
            .sees(&[
                &format!("{name} PodScheduled=False Unschedulable: {message}"),
                &format!("Warning FailedScheduling: {message}"),
            ])
            .await;
    }
    world.add_pod("plain", "1", 0, None);
    world.sees(&["plain bound to a"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_node_that_vanishes_before_the_binding_takes_nobody_else() {
    let world = World::new();
    world.api.held.send_replace(true);
    world.add_node("a", json!({}));
    world.add_pod("first", "1", 0, None);
    world.sees(&["first is on its way"]).await;
    let gone = world.nodes.get("", "a").expect("the node");
    world.nodes.remove(gone.as_ref().clone());
    world.add_pod("second", "1", 0, None);
    world.sees(&["second PodScheduled=False Unschedulable: no nodes available to schedule pods"]).await;
    world.add_node("b", json!({}));
    world.sees(&["second is on its way"]).await;
    world.api.held.send_replace(false);
    world.sees(&["first bound to a", "second bound to b"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_pod_deleted_in_flight_is_forgotten_and_its_room_is_free() {
    let world = World::new();
    world.api.held.send_replace(true);
    world.add_node("a", json!({}));
    world.add_pod("fleeting", "4", 0, None);
    world.sees(&["fleeting is on its way"]).await;
    world.api.pods.remove(world.api.pod("fleeting").expect("the pod"));
    world.add_pod("next", "4", 0, None);
    world.sees(&["next is on its way"]).await;
    world.api.held.send_replace(false);
    world.sees(&["next bound to a"]).await;
    assert!(!world.api.log.borrow().iter().any(|line| line.starts_with("fleeting PodScheduled")));
    world.end().await;
}

#[tokio::test]
async fn pods_bound_before_a_restart_are_counted_and_the_rest_is_tried() {
    let world = World::new();
    // As after a restart in the middle of things: one bound, one on the way.
    world.add_pod("bound", "3", 0, Some("a"));
    world.add_pod("half", "3", 0, None);
    world.add_node("a", json!({}));
    world.sees(&["half PodScheduled=False Unschedulable: 0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims found for incoming pod."]).await;
    world.add_node("b", json!({}));
    world.sees(&["half bound to b"]).await;
    world.end().await;
}

#[tokio::test]
async fn a_pod_that_waits_for_a_companion_is_woken_by_its_placement() {
    let world = World::new();
    world.add_node("a", json!({}));
    let term = json!({"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "db"}}});
    let near = json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}});
    world.add("web", near);
    world.sees(&[&format!("web PodScheduled=False Unschedulable: 0/1 nodes are available: 1 node(s) didn't match pod affinity rules. {USELESS}")]).await;
    let db = pod_with("db", json!({"metadata": {"labels": {"app": "db"}}}));
    world.api.pods.apply(db.pod.as_ref().clone());
    world.sees(&["db bound to a", "web bound to a"]).await;
    world.end().await;
}
