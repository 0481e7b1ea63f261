//! Scenarios of pods that claim devices.

use super::*;

fn claiming(name: &str, claim: &str) -> Arc<PodInfo> {
    pod(name, json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": claim}]}))
}

fn object<T: serde::de::DeserializeOwned>(name: &str, mut value: Value) -> T {
    value["metadata"]["name"] = json!(name);
    value["metadata"]["uid"] = json!(name);
    serde_json::from_value(value).expect("an object")
}

/// A claim of namespace `default`.
fn claim(world: &World, name: &str, devices: Value, status: Value) {
    let mut claim = json!({"spec": {"devices": devices}, "status": status});
    claim["metadata"]["namespace"] = json!("default");
    world.listers.devices.claims.apply(object(name, claim));
}

fn slice(world: &World, node: &str, devices: &[&str]) {
    let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
    let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
    let spec = json!({"driver": "d", "pool": pool, "nodeName": node, "devices": devices});
    world.listers.devices.slices.apply(object(&format!("slice-{node}"), json!({"spec": spec})));
}

fn gpu(count: i64) -> Value {
    json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": count}}]})
}

fn world() -> World {
    let world = World::new(&[node("a", json!({})), node("b", json!({})), node("c", json!({}))], &[]);
    world.listers.devices.classes.apply(object("gpu", json!({"spec": {}})));
    world
}

#[track_caller]
fn fails(world: &World, pod: &PodInfo, reason: &str) {
    let message = format!("0/3 nodes are available: {reason}. preemption: 0/3 nodes are available: 3 {NOT_HELPFUL}.");
    world.allows(pod, &message);
}

#[test]
fn pods_go_where_their_devices_are() {
    let world = world();
    slice(&world, "a", &["x"]);
    slice(&world, "b", &["x", "y"]);
    claim(&world, "one", gpu(1), json!({}));
    claim(&world, "two", gpu(2), json!({}));
    claim(&world, "three", gpu(3), json!({}));
    let on =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}]}]});
    let results = json!([{"request": "r", "driver": "d", "pool": "b", "device": "y"}]);
    claim(&world, "had", gpu(1), json!({"allocation": {"devices": {"results": results}, "nodeSelector": on}}));
    world.allows(&claiming("p", "one"), "a b");
    // One of the two is taken.
    fails(&world, &claiming("p", "two"), "3 cannot allocate all claims");
    world.allows(&claiming("p", "had"), "b");
    fails(&world, &claiming("p", "three"), "3 cannot allocate all claims");
    fails(&world, &claiming("p", "none"), "could not find ResourceClaim \"default/none\"");
    // Pods without claims are not concerned.
    world.allows(&pod("p", json!({})), "a b c");
}

#[test]
fn claims_that_cannot_be_allocated_say_why() {
    let world = world();
    slice(&world, "a", &["x"]);
    let of = |class: &str, selector: &str| json!({"requests": [{"name": "r", "exactly": {"deviceClassName": class, "allocationMode": "ExactCount", "count": 1, "selectors": [{"cel": {"expression": selector}}]}}]});
    claim(&world, "classless", of("none", "true"), json!({}));
    fails(&world, &claiming("p", "classless"), "request r: device class none does not exist");
    claim(&world, "broken", of("gpu", "device.attributes['d'].model == 'x'"), json!({}));
    world.allows(
        &claiming("p", "broken"),
        "running \"DynamicResources\" filter plugin: claim default/broken: selector #0 on device d/a/x: CEL runtime error: no such key: model. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
    );
    let several = json!({"requests": [{"name": "r", "firstAvailable": [{"name": "s", "deviceClassName": "none"}]}]});
    claim(&world, "several", several, json!({}));
    fails(&world, &claiming("p", "several"), "request r/s: device class none does not exist");
    let templated = pod("p", json!({"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]}));
    fails(&world, &templated, "pod \"default/p\": ResourceClaim not created yet");
    claim(&world, "pending", gpu(1), json!({}));
    let mut pending = (*world.listers.devices.claims.get("default", "pending").expect("a claim")).clone();
    pending.status.get_or_insert_default().allocation = Some(Default::default());
    world.listers.devices.assume(Arc::new(pending));
    fails(&world, &claiming("p", "pending"), "resource claim default/pending is in the process of being allocated");
}

#[test]
fn nodes_with_what_is_wanted_most_are_better() {
    let world = world();
    slice(&world, "a", &["small"]);
    slice(&world, "b", &["large", "small"]);
    let sub = |name: &str| json!({"name": name, "deviceClassName": "named", "allocationMode": "ExactCount", "count": 1, "selectors": [{"cel": {"expression": format!("device.attributes['d'].?kind.orValue('') == '{name}'")}}]});
    world.listers.devices.classes.apply(object("named", json!({"spec": {}})));
    let spec = |node: &str, kinds: &[&str]| {
        let devices: Vec<Value> =
            kinds.iter().map(|kind| json!({"name": kind, "attributes": {"kind": {"string": kind}}})).collect();
        let pool = json!({"name": node, "generation": 1, "resourceSliceCount": 1});
        world.listers.devices.slices.apply(object(
            &format!("slice-{node}"),
            json!({"spec": {"driver": "d", "pool": pool, "nodeName": node, "devices": devices}}),
        ));
    };
    spec("a", &["small"]);
    spec("b", &["small", "large"]);
    spec("c", &["small"]);
    claim(
        &world,
        "best",
        json!({"requests": [{"name": "r", "firstAvailable": [sub("large"), sub("small")]}]}),
        json!({}),
    );
    world.allows(&claiming("p", "best"), "a b c");
    world.prefers(&claiming("p", "best"), "b");
}

#[test]
fn devices_stand_in_for_extended_resources() {
    let world = World::new(
        &[
            node("a", json!({})),
            node("b", json!({"status": {"allocatable": {"example.com/gpu": "1"}}})),
            node("c", json!({})),
        ],
        &[],
    );
    let class = json!({"spec": {"extendedResourceName": "example.com/gpu"}});
    let asking = |amount: &str| pod("p", requests(json!({"example.com/gpu": amount})));
    slice(&world, "a", &["x", "y"]);
    world.allows(&asking("1"), "b");
    world.listers.devices.classes.apply(object("gpu", class));
    world.allows(&asking("1"), "a b");
    world.allows(&asking("2"), "a");
    fails(&world, &asking("3"), "1 Insufficient example.com/gpu, 2 cannot allocate all claims");
    // By the name of the class, too.
    world.allows(&pod("p", requests(json!({"deviceclass.resource.kubernetes.io/gpu": "1"}))), "a");
}
