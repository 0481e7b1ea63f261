//! What keeps a pod from a node is found in the objects; a node with nothing against it has none.

use serde_json::json;

use super::{Obstacle, check};
use crate::gather::ALL_PODS;
use crate::world::World;

#[test]
fn a_node_that_fits_has_nothing_in_the_way() {
    let node = json!({ "metadata": { "name": "n", "labels": { "zone": "1" } }, "spec": { "taints": [
        { "key": "soft", "effect": "PreferNoSchedule" }, { "key": "own", "value": "x", "effect": "NoSchedule" },
    ] }, "status": { "allocatable": { "cpu": "2", "pods": "10" } } });
    let pod = json!({ "metadata": { "name": "p", "namespace": "d", "labels": { "app": "web" } }, "spec": {
        "nodeSelector": { "zone": "1" },
        "tolerations": [{ "key": "own", "operator": "Exists" }],
        "topologySpreadConstraints": [{ "topologyKey": "zone", "maxSkew": 1, "labelSelector": { "matchLabels": { "app": "web" } } }],
        "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "app": "web" } } }] } },
        "containers": [{ "name": "c", "resources": { "requests": { "cpu": "2" } } }],
    } });
    let mut world = World::default();
    world.put("nodes", vec![node]);
    world.put(ALL_PODS, Vec::new());
    let checked = check(&world, &pod).unwrap();
    assert_eq!(checked[0].obstacles, Vec::<Obstacle>::new());
}

#[test]
fn nodes_that_could_not_be_read_are_not_judged() {
    assert!(check(&World::default(), &json!({})).is_none());
}
