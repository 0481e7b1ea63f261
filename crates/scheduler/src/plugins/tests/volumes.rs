//! Scenarios of pods with volumes.

use super::*;

fn claiming(name: &str, claim: &str, node: Option<&str>) -> Arc<PodInfo> {
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": claim}}]);
    pod(name, json!({"nodeName": node, "volumes": volumes}))
}

/// Claims, volumes and classes as pairs of a name and what matters of it.
fn store(world: &World, claims: &[(&str, Value)], volumes: &[(&str, Value)], classes: &[(&str, Value)]) {
    let object = |name: &str, value: &Value| {
        let mut object = value.clone();
        object["metadata"]["name"] = json!(name);
        object
    };
    for (name, value) in claims {
        let mut claim = object(name, value);
        claim["metadata"]["namespace"] = json!("default");
        if !claim["spec"]["volumeName"].is_null() {
            claim["metadata"]["annotations"] = json!({"pv.kubernetes.io/bind-completed": "yes"});
        }
        world.listers.claims.apply(serde_json::from_value(claim).expect("a claim"));
    }
    for (name, value) in volumes {
        world.listers.volumes.apply(serde_json::from_value(object(name, value)).expect("a volume"));
    }
    for (name, value) in classes {
        world.listers.classes.apply(serde_json::from_value(object(name, value)).expect("a class"));
    }
}

fn on_node(name: &str) -> Value {
    let rule = json!({"key": "kubernetes.io/hostname", "operator": "In", "values": [name]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}})
}

#[test]
fn bound_volumes_decide_where_a_pod_can_go() {
    let world = World::new(&[zoned("a", "east"), zoned("b", "west")], &[claiming("user", "single", Some("a"))]);
    store(
        &world,
        &[
            ("local", json!({"spec": {"volumeName": "local"}})),
            ("zonal", json!({"spec": {"volumeName": "zonal"}})),
            ("lost", json!({"spec": {"volumeName": "nowhere"}})),
            ("single", json!({"spec": {"volumeName": "anywhere", "accessModes": ["ReadWriteOncePod"]}})),
            ("later", json!({"spec": {"storageClassName": "immediate"}})),
        ],
        &[
            ("local", json!({"spec": {"nodeAffinity": on_node("b")}})),
            ("zonal", json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "east__north"}}})),
            ("anywhere", json!({"spec": {}})),
        ],
        &[("immediate", json!({"provisioner": "x", "volumeBindingMode": "Immediate"}))],
    );
    world.allows(&claiming("p", "local", None), "b");
    world.allows(&claiming("p", "zonal", None), "a");
    let fails = |claim: &str, reason: &str, afterwards: &str| {
        let message =
            format!("0/2 nodes are available: {reason}. preemption: 0/2 nodes are available: 2 {afterwards}.");
        world.allows(&claiming("p", claim, None), &message);
    };
    fails("lost", "2 node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)", NOT_HELPFUL);
    fails("missing", "persistentvolumeclaim \"missing\" not found", NOT_HELPFUL);
    fails("later", "pod has unbound immediate PersistentVolumeClaims", NOT_HELPFUL);
    let in_use = "2 node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod";
    fails("single", in_use, NO_VICTIMS);
}

#[test]
fn claims_that_wait_find_a_volume_or_are_provisioned() {
    let world = World::new(&[zoned("a", "east"), zoned("b", "west")], &[]);
    let claim = |class: &str, size: &str| json!({"spec": {"storageClassName": class, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}});
    let volume = |node: &str, size: &str, phase: &str| json!({"spec": {"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": size}, "nodeAffinity": on_node(node)}, "status": {"phase": phase}});
    let waiting = "WaitForFirstConsumer";
    let topology = json!([{"matchLabelExpressions": [{"key": "topology.kubernetes.io/zone", "values": ["west"]}]}]);
    store(
        &world,
        &[
            ("small", claim("local", "1Gi")),
            ("large", claim("local", "5Gi")),
            ("huge", claim("local", "50Gi")),
            ("dynamic", claim("dynamic", "1Gi")),
            ("topological", claim("topological", "1Gi")),
        ],
        &[
            ("a1", volume("a", "2Gi", "Available")),
            ("b1", volume("b", "10Gi", "Available")),
            ("b2", volume("b", "60Gi", "Released")),
        ],
        &[
            ("local", json!({"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": waiting})),
            ("dynamic", json!({"provisioner": "x", "volumeBindingMode": waiting})),
            ("topological", json!({"provisioner": "x", "volumeBindingMode": waiting, "allowedTopologies": topology})),
        ],
    );
    world.allows(&claiming("p", "small", None), "a b");
    world.allows(&claiming("p", "large", None), "b");
    world.allows(
        &claiming("p", "huge", None),
        &format!("0/2 nodes are available: 2 node(s) didn't find available persistent volumes to bind. preemption: 0/2 nodes are available: 2 {NOT_HELPFUL}."),
    );
    world.allows(&claiming("p", "dynamic", None), "a b");
    world.allows(&claiming("p", "topological", None), "b");
}

#[test]
fn nodes_attach_only_so_many_volumes() {
    let world = World::new(&[node("a", json!({}))], &[claiming("x", "one", Some("a"))]);
    let csi = |handle: &str| json!({"spec": {"csi": {"driver": "d", "volumeHandle": handle}}});
    store(
        &world,
        &[
            ("one", json!({"spec": {"volumeName": "v1"}})),
            ("same", json!({"spec": {"volumeName": "v1"}})),
            ("two", json!({"spec": {"volumeName": "v2"}})),
        ],
        &[("v1", csi("h1")), ("v2", csi("h2"))],
        &[],
    );
    world.allows(&claiming("p", "two", None), "a");
    let limits = json!({"metadata": {"name": "a"}, "spec": {"drivers": [{"name": "d", "nodeID": "a", "allocatable": {"count": 1}}]}});
    world.listers.csi_nodes.apply(serde_json::from_value(limits).expect("a CSI node"));
    world.allows(&claiming("p", "same", None), "a");
    world.allows(
        &claiming("p", "two", None),
        &format!("0/1 nodes are available: 1 node(s) exceed max volume count. preemption: 0/1 nodes are available: 1 {NO_VICTIMS}."),
    );
}
