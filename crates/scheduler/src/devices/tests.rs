//! Tables: slices, claims and devices in use give the devices of a node, or the reason why not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::resource::v1::{AllocationResult, DeviceClass, DeviceTaintRule, ResourceClaim};
use serde_json::{Value, json};

use super::*;
use crate::model::labels::Labels;

/// What a table starts from; `slices` are of driver `d`, pool and node `n` unless they say otherwise.
#[derive(Default)]
struct Case {
    slices: Vec<Value>,
    taken: Vec<Value>,
    rules: Vec<Value>,
    classes: Vec<Value>,
    labels: Labels,
}

fn merged(mut base: Value, overlay: &Value) -> Value {
    match (&mut base, overlay) {
        (Value::Object(base), Value::Object(overlay)) => {
            for (key, value) in overlay {
                let old = base.remove(key).unwrap_or_default();
                base.insert(key.clone(), merged(old, value));
            }
        }
        (base, overlay) => *base = overlay.clone(),
    }
    base
}

/// A slice with plain devices of these names.
fn slice(devices: &[&str]) -> Value {
    json!({"devices": devices.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()})
}

fn exactly(overlay: Value) -> Value {
    json!({"name": "r", "exactly": merged(json!({"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}), &overlay)})
}

fn claim(number: usize, devices: Value) -> Arc<ResourceClaim> {
    let name = format!("c{number}");
    let claim = json!({"metadata": {"name": name, "namespace": "ns", "uid": name}, "spec": {"devices": devices}});
    Arc::new(serde_json::from_value(claim).expect("a claim"))
}

impl Case {
    fn of(slices: &[Value]) -> Self {
        Self { slices: slices.to_vec(), ..Self::default() }
    }

    fn snapshot(&self) -> Snapshot {
        let mut inventory = Inventory::default();
        for (number, overlay) in self.slices.iter().enumerate() {
            let base = json!({"driver": "d", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}});
            let mut spec = merged(base, overlay);
            let placed = ["nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"];
            if placed.iter().all(|key| spec[*key].is_null()) {
                spec["nodeName"] = json!("n");
            }
            let slice = json!({"metadata": {"name": format!("slice-{number}")}, "spec": spec});
            inventory.set(&serde_json::from_value(slice).expect("a slice"));
        }
        let mut taken = Taken::default();
        for result in &self.taken {
            let result = merged(json!({"request": "r", "driver": "d", "pool": "n"}), result);
            let allocation = json!({"devices": {"results": [result]}});
            taken.add(&serde_json::from_value::<AllocationResult>(allocation).expect("an allocation"));
        }
        let rule = |spec: &Value| {
            let rule: DeviceTaintRule =
                serde_json::from_value(json!({"metadata": {"name": "r"}, "spec": spec})).expect("a rule");
            Arc::new(rule)
        };
        Snapshot {
            inventory: Arc::new(inventory),
            taken: Arc::new(taken),
            rules: self.rules.iter().map(rule).collect::<Vec<_>>().into(),
        }
    }

    fn allocate(
        &self,
        claims: &[Arc<ResourceClaim>],
        limits: Limits,
    ) -> Result<Option<Vec<AllocationResult>>, Trouble> {
        let mut classes: BTreeMap<String, Arc<DeviceClass>> = BTreeMap::new();
        for spec in self.classes.iter().chain([&json!({"name": "any"})]) {
            let name = spec["name"].as_str().unwrap_or_default().to_owned();
            let class = json!({"metadata": {"name": name}, "spec": spec});
            classes.insert(name, Arc::new(serde_json::from_value(class).expect("a class")));
        }
        let selectors = Selectors::default();
        let wishes = Wishes::new(claims, &|name| classes.get(name).cloned(), &selectors)
            .map_err(|error| Trouble::Fatal(error.to_string()))?;
        let snapshot = self.snapshot();
        let request = Request { wishes: &wishes, snapshot: &snapshot, node: "n", labels: &self.labels };
        allocate(request, &mut Matched::default(), limits)
    }

    /// `request=device` for each device of each claim; `-` where there are not enough; or what is wrong.
    #[track_caller]
    fn gives(&self, claims: &[Value], expected: &str) -> Vec<AllocationResult> {
        let claims: Vec<_> = claims.iter().enumerate().map(|(number, one)| claim(number, one.clone())).collect();
        let found = self.allocate(&claims, Limits::default());
        let shown = match &found {
            Ok(None) => "-".to_owned(),
            Ok(Some(all)) => {
                let results = all.iter().flat_map(|one| one.devices.iter().flat_map(|d| d.results.iter().flatten()));
                let shown = results.map(|one| match one.pool.as_str() {
                    "n" => format!("{}={}", one.request, one.device),
                    pool => format!("{}={pool}/{}", one.request, one.device),
                });
                shown.collect::<Vec<_>>().join(" ")
            }
            Err(Trouble::Fatal(message)) => format!("fatal: {message}"),
            Err(Trouble::Here(message)) => format!("here: {message}"),
            Err(Trouble::Exhausted) => "exhausted".to_owned(),
        };
        assert_eq!(shown, expected);
        found.ok().flatten().unwrap_or_default()
    }
}

fn one(request: Value) -> Value {
    json!({"requests": [request]})
}

#[test]
fn as_many_as_are_asked_for() {
    let case = Case::of(&[slice(&["a", "b", "c"])]);
    case.gives(&[one(exactly(json!({})))], "r=a");
    case.gives(&[one(exactly(json!({"count": 2})))], "r=a r=b");
    case.gives(&[one(exactly(json!({"count": 4})))], "-");
    case.gives(&[one(exactly(json!({"allocationMode": "All"})))], "r=a r=b r=c");
    case.gives(&[one(exactly(json!({}))), one(exactly(json!({"count": 2})))], "r=a r=b r=c");
    case.gives(&[one(exactly(json!({"count": 2}))), one(exactly(json!({"count": 2})))], "-");
    case.gives(
        &[one(exactly(json!({"count": 33})))],
        "fatal: claim ns/c0: number of requested devices 33 exceeds the claim limit of 32",
    );
    let taken = Case { taken: vec![json!({"device": "a"})], ..Case::of(&[slice(&["a", "b"])]) };
    taken.gives(&[one(exactly(json!({})))], "r=b");
    taken.gives(&[one(exactly(json!({"allocationMode": "All"})))], "-");
    Case::of(&[]).gives(&[one(exactly(json!({"allocationMode": "All"})))], "-");
    case.gives(
        &[one(exactly(json!({"deviceClassName": "none"})))],
        "fatal: claim ns/c0, request r: could not retrieve device class none: deviceclass.resource.k8s.io \"none\" not found",
    );
}

#[test]
fn devices_of_a_node_are_those_that_reach_it() {
    let zone = |zone: &str| json!({"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]});
    let with = |overlay: Value| merged(slice(&["a"]), &overlay);
    let request = || one(exactly(json!({})));
    let case = |slice: Value| Case { labels: [("zone".to_owned(), "x".to_owned())].into(), ..Case::of(&[slice]) };
    case(with(json!({"nodeName": "m"}))).gives(&[request()], "-");
    let selector = |found: Vec<AllocationResult>| serde_json::to_value(&found[0].node_selector).expect("json");
    let only =
        json!({"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]});
    assert_eq!(selector(case(with(json!({}))).gives(&[request()], "r=a")), only);
    assert_eq!(selector(case(with(json!({"allNodes": true}))).gives(&[request()], "r=a")), json!(null));
    assert_eq!(selector(case(with(json!({"nodeSelector": zone("x")}))).gives(&[request()], "r=a")), zone("x"));
    case(with(json!({"nodeSelector": zone("y")}))).gives(&[request()], "-");
    let each = json!({"perDeviceNodeSelection": true, "devices": [
        {"name": "a", "nodeName": "m"}, {"name": "b", "nodeSelector": zone("x")}, {"name": "c", "nodeName": "n"},
        {"name": "e", "allNodes": true},
    ]});
    assert_eq!(selector(case(each.clone()).gives(&[request()], "r=b")), zone("x"));
    assert_eq!(selector(case(each.clone()).gives(&[one(exactly(json!({"count": 2})))], "r=b r=c")), only);
    case(each).gives(&[one(exactly(json!({"count": 4})))], "-");
}

#[test]
fn pools_are_complete_and_of_their_newest_generation() {
    let of = |generation: i64, count: i64, node: &str, devices: &[&str]| {
        let pool =
            json!({"pool": {"name": "n", "generation": generation, "resourceSliceCount": count}, "nodeName": node});
        merged(slice(devices), &pool)
    };
    let request = || one(exactly(json!({})));
    let all = || one(exactly(json!({"allocationMode": "All"})));
    Case::of(&[of(1, 1, "n", &["a"]), of(2, 1, "n", &["b"])]).gives(&[request()], "r=b");
    Case::of(&[of(1, 2, "n", &["a"])]).gives(&[request()], "-");
    let updated =
        "fatal: claim ns/c0, request r: asks for all devices, but resource pool d/n is currently being updated";
    Case::of(&[of(1, 2, "n", &["a"])]).gives(&[all()], updated);
    // A slice of another node counts for whether the pool is complete, and makes it old.
    Case::of(&[of(1, 2, "n", &["a"]), of(1, 2, "m", &["b"])]).gives(&[all()], "r=a");
    Case::of(&[of(1, 2, "n", &["a"]), of(2, 2, "m", &["b"])]).gives(&[request()], "-");
    // Names are unique within a pool.
    Case::of(&[of(1, 2, "n", &["a"]), of(1, 2, "n", &["a"])])
        .gives(&[request()], "here: invalid resource pools were encountered");
    let other = merged(slice(&["x"]), &json!({"pool": {"name": "m"}}));
    Case::of(&[of(1, 2, "n", &["a"]), of(1, 2, "n", &["a"]), other]).gives(&[request()], "r=m/x");
}

#[test]
fn selectors_of_class_and_request_both_count() {
    let devices = json!({"devices": [
        {"name": "a", "attributes": {"model": {"string": "small"}, "x.example.com/numa": {"int": 0}}, "capacity": {"memory": {"value": "8Gi"}}},
        {"name": "b", "attributes": {"model": {"string": "large"}, "x.example.com/numa": {"int": 1}}, "capacity": {"memory": {"value": "80Gi"}}},
        {"name": "c", "attributes": {"model": {"string": "large"}}},
    ]});
    let cel = |text: &str| json!([{"cel": {"expression": text}}]);
    let large = json!({"name": "large", "selectors": cel("device.attributes['d'].model == 'large'")});
    let case = Case { classes: vec![large], ..Case::of(&[devices]) };
    case.gives(&[one(exactly(json!({"deviceClassName": "large", "count": 2})))], "r=b r=c");
    case.gives(&[one(exactly(json!({"selectors": cel("device.attributes['d'].model == 'small'")})))], "r=a");
    let memory = "device.capacity['d'].?memory.orValue(quantity('0')).isGreaterThan(quantity('40Gi'))";
    case.gives(
        &[one(exactly(json!({"deviceClassName": "large", "allocationMode": "All", "selectors": cel(memory)})))],
        "r=b",
    );
    case.gives(&[one(exactly(json!({"selectors": cel("device.driver == 'other'")})))], "-");
    case.gives(
        &[one(exactly(json!({"count": 3, "selectors": cel("device.attributes['x.example.com'].numa >= 0")})))],
        "fatal: claim ns/c0: selector #0 on device d/n/c: CEL runtime error: no such key: numa. consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() for optional fields",
    );
    case.gives(
        &[one(exactly(json!({"selectors": cel("nope")})))],
        "fatal: claim ns/c0: selector #0: CEL compile error: compilation failed: ERROR: <input>:1:1: undeclared reference to 'nope' (in container '')\n | nope\n | ^",
    );
}

#[test]
fn the_first_of_several_that_can_be_had() {
    let devices = json!({"devices": [
        {"name": "a", "attributes": {"model": {"string": "small"}}}, {"name": "b", "attributes": {"model": {"string": "small"}}},
        {"name": "c", "attributes": {"model": {"string": "large"}}},
    ]});
    let sub = |name: &str, model: &str, count: i64| {
        let text = format!("device.attributes['d'].model == '{model}'");
        json!({"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": count, "selectors": [{"cel": {"expression": text}}]})
    };
    let request = || one(json!({"name": "r", "firstAvailable": [sub("large", "large", 1), sub("small", "small", 2)]}));
    let case = Case::of(&[devices]);
    case.gives(&[request()], "r/large=c");
    case.gives(&[request(), request()], "r/large=c r/small=a r/small=b");
    case.gives(&[request(), request(), request()], "-");
    // What a claim after it needs makes it take the second best.
    let large =
        || one(exactly(json!({"selectors": [{"cel": {"expression": "device.attributes['d'].model == 'large'"}}]})));
    case.gives(&[request(), large()], "r/small=a r/small=b r=c");
    // One that asks for more than a claim can hold does not spoil the others.
    let many = one(json!({"name": "r", "firstAvailable": [sub("many", "large", 33), sub("few", "small", 1)]}));
    case.gives(&[many], "r/few=a");
}

#[test]
fn constraints_hold_across_devices() {
    let device = |name: &str, numa: i64, slot: &str| json!({"name": name, "attributes": {"numa": {"int": numa}, "slot": {"string": slot}}});
    let case = Case::of(&[json!({"devices": [
        device("a", 0, "x"), device("b", 1, "x"), device("c", 1, "y"), json!({"name": "e"}),
    ]})]);
    let claim = |constraint: Value, count: i64| json!({"requests": [exactly(json!({"count": count}))], "constraints": [constraint]});
    case.gives(&[claim(json!({"matchAttribute": "d/numa"}), 2)], "r=b r=c");
    case.gives(&[claim(json!({"matchAttribute": "d/numa"}), 3)], "-");
    case.gives(&[claim(json!({"matchAttribute": "other/numa"}), 1)], "-");
    case.gives(&[claim(json!({"distinctAttribute": "d/slot"}), 2)], "r=a r=c");
    case.gives(&[claim(json!({"distinctAttribute": "d/slot"}), 3)], "-");
    // Only for the requests it names.
    let two = |constraint: Value| {
        let mut second = exactly(json!({}));
        second["name"] = json!("s");
        json!({"requests": [exactly(json!({"count": 2})), second], "constraints": [constraint]})
    };
    case.gives(&[two(json!({"matchAttribute": "d/numa", "requests": ["r"]}))], "r=b r=c s=a");
    case.gives(&[two(json!({"matchAttribute": "d/slot", "requests": ["r", "s"]}))], "-");
    let all =
        json!({"requests": [exactly(json!({"allocationMode": "All"}))], "constraints": [{"matchAttribute": "d/numa"}]});
    case.gives(
        &[all],
        "fatal: claim ns/c0, request r: cannot add device d/n/b because a claim constraint would not be satisfied",
    );
    case.gives(
        &[json!({"requests": [exactly(json!({}))], "constraints": [{}]})],
        "fatal: claim ns/c0, constraint #0: empty constraint (unsupported constraint type?)",
    );
}

#[test]
fn taints_are_tolerated_or_keep_claims_away() {
    let taint = |key: &str, effect: &str| json!({"key": key, "value": "v", "effect": effect});
    let device = |name: &str, taints: Value| json!({"name": name, "taints": taints});
    let case = Case::of(&[json!({"devices": [
        device("a", json!([taint("bad", "NoSchedule")])), device("b", json!([taint("bad", "NoExecute"), taint("worse", "NoSchedule")])),
        device("c", json!([taint("seen", "None")])),
    ]})]);
    let tolerating = |tolerations: Value| one(exactly(json!({"tolerations": tolerations, "count": 1})));
    case.gives(&[tolerating(json!([]))], "r=c");
    let found = case.gives(&[tolerating(json!([{"key": "bad", "operator": "Exists"}]))], "r=a");
    let results = found[0].devices.as_ref().and_then(|devices| devices.results.as_ref()).expect("results");
    assert_eq!(results[0].tolerations.as_ref().map(Vec::len), Some(1), "what was tolerated stands in the result");
    case.gives(&[tolerating(json!([{"key": "bad", "operator": "Equal", "value": "other"}]))], "r=c");
    case.gives(&[tolerating(json!([{"key": "bad", "value": "v", "effect": "NoSchedule"}]))], "r=a");
    let all = |tolerations: Value| one(exactly(json!({"tolerations": tolerations, "count": 3})));
    case.gives(&[all(json!([{"operator": "Exists"}]))], "r=a r=b r=c");
    case.gives(&[all(json!([{"key": "bad", "operator": "Exists"}]))], "-");
    let rule = |selector: Value| Case {
        rules: vec![json!({"deviceSelector": selector, "taint": taint("rule", "NoSchedule")})],
        ..Case::of(&[slice(&["x", "y"])])
    };
    rule(json!({"device": "x"})).gives(&[tolerating(json!([]))], "r=y");
    rule(json!({"driver": "d", "pool": "n"})).gives(&[tolerating(json!([]))], "-");
    rule(json!({"pool": "other"})).gives(&[tolerating(json!([]))], "r=x");
    rule(json!(null)).gives(&[tolerating(json!([{"key": "rule", "operator": "Exists"}]))], "r=x");
}

#[test]
fn administrators_see_devices_that_others_have() {
    let case = Case { taken: vec![json!({"device": "a"})], ..Case::of(&[slice(&["a", "b"])]) };
    let admin = |count: i64| one(exactly(json!({"adminAccess": true, "count": count})));
    let found = case.gives(&[admin(2)], "r=a r=b");
    let results = found[0].devices.as_ref().and_then(|devices| devices.results.clone()).expect("results");
    assert!(results.iter().all(|one| one.admin_access == Some(true)));
    let mut taken = Taken::default();
    taken.add(&found[0]);
    assert!(taken.is_empty(), "they take nothing");
    case.gives(&[admin(3)], "-");
    case.gives(&[admin(1), admin(1)], "r=a r=a");
    case.gives(&[one(exactly(json!({"adminAccess": true, "allocationMode": "All"})))], "r=a r=b");
}

#[test]
fn devices_take_from_the_counters_of_their_pool() {
    let pool = |count: i64| json!({"pool": {"name": "n", "generation": 1, "resourceSliceCount": count}});
    let sets =
        merged(pool(2), &json!({"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "40Gi"}}}]}));
    let part = |name: &str, memory: &str| json!({"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]});
    let parts =
        merged(pool(2), &json!({"devices": [part("whole", "40Gi"), part("half-0", "20Gi"), part("half-1", "20Gi")]}));
    let case = Case::of(&[sets.clone(), parts.clone()]);
    case.gives(&[one(exactly(json!({})))], "r=whole");
    case.gives(&[one(exactly(json!({"count": 2})))], "r=half-0 r=half-1");
    case.gives(&[one(exactly(json!({"count": 3})))], "-");
    let with =
        |device: &str| Case { taken: vec![json!({"device": device})], ..Case::of(&[sets.clone(), parts.clone()]) };
    with("half-1").gives(&[one(exactly(json!({})))], "r=half-0");
    with("whole").gives(&[one(exactly(json!({})))], "-");
    // What stands in a slice of another node counts too.
    let far = merged(pool(3), &json!({"nodeName": "m", "devices": [part("far", "30Gi")]}));
    let three = |slice: &Value| merged(slice.clone(), &pool(3));
    let shared = Case { taken: vec![json!({"device": "far"})], ..Case::of(&[three(&sets), three(&parts), far]) };
    shared.gives(&[one(exactly(json!({})))], "-");
    // A counter that nobody has makes the pool invalid.
    let odd = merged(pool(1), &json!({"devices": [part("odd", "1")]}));
    Case::of(&[odd]).gives(&[one(exactly(json!({})))], "here: invalid resource pools were encountered");
}

#[test]
fn capacity_is_shared_by_claims() {
    let device = json!({"name": "a", "allowMultipleAllocations": true, "capacity": {
        "memory": {"value": "10Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "step": "2Gi"}}},
        "channels": {"value": "4", "requestPolicy": {"default": "1"}},
    }});
    let case = Case::of(&[json!({"devices": [device]})]);
    let asks = |memory: &str| one(exactly(json!({"capacity": {"requests": {"memory": memory}}})));
    let found = case.gives(&[asks("2Gi"), asks("1Gi")], "r=a r=a");
    let of =
        |number: usize| found[number].devices.as_ref().and_then(|d| d.results.as_ref()).expect("results")[0].clone();
    let consumed = serde_json::to_value(of(0).consumed_capacity).expect("json");
    assert_eq!(consumed, json!({"memory": "3Gi", "channels": "1"}));
    assert!(of(0).share_id.is_some() && of(0).share_id != of(1).share_id);
    case.gives(&[asks("5Gi"), asks("5Gi"), asks("1Gi")], "-");
    case.gives(&[asks("1Gi"), asks("1Gi"), asks("1Gi"), asks("1Gi"), asks("1Gi")], "-");
    case.gives(&[one(exactly(json!({"capacity": {"requests": {"other": "1"}}})))], "-");
    let shared = json!({"device": "a", "shareID": "s", "consumedCapacity": {"memory": "8Gi", "channels": "1"}});
    let used = Case { taken: vec![shared], ..Case::of(&case.slices) };
    used.gives(&[asks("1Gi")], "r=a");
    used.gives(&[asks("3Gi")], "-");
    // A device that is not shared has to have what is asked for.
    let plain = Case::of(&[
        json!({"devices": [{"name": "s", "capacity": {"memory": {"value": "1Gi"}}}, {"name": "l", "capacity": {"memory": {"value": "8Gi"}}}]}),
    ]);
    plain.gives(&[asks("4Gi")], "r=l");
}

#[test]
fn what_is_given_back_is_free() {
    let case = Case::of(&[slice(&["a"])]);
    let found = case.gives(&[one(exactly(json!({})))], "r=a");
    let mut taken = Taken::default();
    taken.add(&found[0]);
    assert_eq!(taken.len(), 1);
    taken.remove(&found[0]);
    assert!(taken.is_empty());
}

#[test]
fn configuration_comes_from_classes_and_claims() {
    let opaque = |name: &str| json!({"opaque": {"driver": "d", "parameters": {"from": name}}});
    let class = json!({"name": "set", "config": [opaque("class")]});
    let case = Case { classes: vec![class], ..Case::of(&[slice(&["a", "b", "c"])]) };
    let named = |name: &str, class: &str| {
        let mut request = exactly(json!({"deviceClassName": class}));
        request["name"] = json!(name);
        request
    };
    let for_some = merged(opaque("some"), &json!({"requests": ["x"]}));
    let for_all = merged(opaque("all"), &json!({"requests": ["x", "y", "z"]}));
    let devices = json!({
        "requests": [named("x", "set"), named("y", "any"), named("z", "set")],
        "config": [for_some, for_all, opaque("each")],
    });
    let found = case.gives(&[devices], "x=a y=b z=c");
    let config = found[0].devices.as_ref().and_then(|devices| devices.config.as_ref()).expect("configuration");
    let shown: Vec<String> = config
        .iter()
        .map(|one| {
            let from = one.opaque.as_ref().map(|opaque| opaque.parameters.0["from"].to_string()).unwrap_or_default();
            format!("{} {from} {}", one.source, one.requests.as_deref().unwrap_or_default().join(","))
        })
        .collect();
    assert_eq!(shown, ["FromClass \"class\" x,z", "FromClaim \"some\" x", "FromClaim \"all\" ", "FromClaim \"each\" "]);
}

/// Claims and slices can be made so that nobody can try all ways.
#[test]
fn a_search_that_leads_nowhere_ends() {
    let devices: Vec<Value> =
        (0..100).map(|number| json!({"name": format!("x{number}"), "attributes": {"odd": {"int": number}}})).collect();
    let case = Case::of(&[json!({"devices": devices})]);
    // Sixteen different ones for each of six claims, and of the last two that are the same.
    let different =
        || json!({"requests": [exactly(json!({"count": 16}))], "constraints": [{"distinctAttribute": "d/odd"}]});
    let same = json!({"requests": [exactly(json!({"count": 2}))], "constraints": [{"matchAttribute": "d/odd"}]});
    let mut claims: Vec<Value> = (0..6).map(|_| different()).collect();
    claims.push(same);
    case.gives(&claims, "exhausted");
    let all: Vec<_> = claims.iter().enumerate().map(|(number, one)| claim(number, one.clone())).collect();
    let late = Limits { steps: usize::MAX, until: Some(Instant::now() - Duration::from_secs(1)) };
    assert_eq!(case.allocate(&all, late), Err(Trouble::Exhausted));
    // More claims than fit on a stack.
    let many: Vec<_> = (0..20_000).map(|number| claim(number, json!({"requests": []}))).collect();
    assert_eq!(case.allocate(&many, Limits::default()), Err(Trouble::Exhausted));
}
