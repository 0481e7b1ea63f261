use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::*;

fn service(spec: Value) -> Service {
    let mut json = json!({
        "metadata": { "name": "web", "namespace": "a", "uid": "s", "labels": { "own": "label" } },
        "spec": { "selector": { "app": "web" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    for (key, value) in spec.as_object().expect("a spec") {
        json["spec"][key] = value.clone();
    }
    serde_json::from_value(json).expect("a service")
}

fn pod(number: usize, ready: bool) -> Arc<Pod> {
    let ready = if ready { "True" } else { "False" };
    let json = json!({
        "metadata": { "name": format!("p{number}"), "namespace": "a", "uid": format!("u{number:05}") },
        "spec": { "nodeName": "n", "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": 8000 + number }] }] },
        "status": {
            "phase": "Running", "podIP": format!("10.0.{}.{}", number / 250, number % 250),
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    });
    Arc::new(serde_json::from_value(json).expect("a pod"))
}

fn zone(_: &str) -> Option<String> {
    Some("z".into())
}

/// Carries a plan out on the slices.
fn apply(slices: &mut Vec<Arc<EndpointSlice>>, plan: Plan) {
    for slice in plan.delete {
        slices.retain(|known| known.metadata.name != slice.metadata.name);
    }
    for slice in plan.update {
        let known = slices.iter_mut().find(|known| known.metadata.name == slice.metadata.name).expect("a slice");
        *known = Arc::new(slice);
    }
    for mut slice in plan.create {
        slice.metadata.name = Some(format!("web-{}", slices.len()));
        slices.push(Arc::new(slice));
    }
}

fn sizes(slices: &[Arc<EndpointSlice>]) -> Vec<usize> {
    slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len)).collect()
}

/// Sizes of slices after each number of pods in turn, and how many slices were written.
fn check(numbers: &[usize], expected: &[(&[usize], usize)]) {
    let (service, mut slices) = (service(json!({})), Vec::new());
    for (number, (wanted, writes)) in numbers.iter().zip(expected) {
        let pods: Vec<Arc<Pod>> = (0..*number).map(|number| pod(number, true)).collect();
        let made = plan(&service, &pods, &slices, zone, Shares::new);
        let written = made.create.len() + made.update.len() + made.delete.len();
        apply(&mut slices, made);
        assert_eq!((sizes(&slices).as_slice(), written), (*wanted, *writes), "{number} of {numbers:?}");
        assert_eq!(plan(&service, &pods, &slices, zone, Shares::new), Plan::default(), "comes to rest");
    }
}

#[test]
fn slices_fill_and_change_little() {
    check(&[0, 3, 2, 4, 0], &[(&[0], 1), (&[3], 1), (&[2], 1), (&[4], 1), (&[0], 1)]);
    check(&[250, 251, 150, 160], &[(&[100, 100, 50], 3), (&[100, 100, 51], 1), (&[100, 50], 2), (&[100, 60], 1)]);
}

#[test]
fn ten_thousand_pods_are_a_hundred_slices_and_one_change_is_one_of_them() {
    const MANY: usize = 10_000;
    let mut pods: Vec<Arc<Pod>> = (0..MANY).map(|number| pod(number, true)).collect();
    let fixed = service(json!({}));
    let named = service(json!({ "ports": [{ "port": 80, "targetPort": "http" }] }));
    // All of them at the same port, and each at one of its own.
    for (service, count) in [(fixed, MANY / PER_SLICE), (named, MANY)] {
        let mut slices = Vec::new();
        let made = plan(&service, &pods, &slices, zone, Shares::new);
        apply_all(&mut slices, made);
        assert_eq!(slices.len(), count);
        assert_eq!(plan(&service, &pods, &slices, zone, Shares::new), Plan::default(), "comes to rest");
        pods[4321] = pod(4321, pods[4321] == pod(4321, false));
        let change = plan(&service, &pods, &slices, zone, Shares::new);
        assert_eq!((change.create.len(), change.update.len(), change.delete.len()), (0, 1, 0));
    }
}

/// New slices get their names; nothing else is to be done.
fn apply_all(slices: &mut Vec<Arc<EndpointSlice>>, plan: Plan) {
    assert!(plan.update.is_empty() && plan.delete.is_empty());
    for (number, mut slice) in plan.create.into_iter().enumerate() {
        slice.metadata.name = Some(format!("web-{number}"));
        slices.push(Arc::new(slice));
    }
}

#[test]
fn endpoints_are_shared_out_where_the_service_asks_for_it() {
    let mut shared = service(json!({}));
    shared.annotations_mut().insert("service.kubernetes.io/topology-mode".into(), "Auto".into());
    let zones = || Shares::from([("z".to_owned(), 0.5), ("y".to_owned(), 0.5)]);
    let mut pods: Vec<Arc<Pod>> = (0..4).map(|number| pod(number, true)).collect();
    let (mut slices, made) = (Vec::new(), plan(&shared, &pods, &[], zone, zones));
    assert!(made.unshared.is_empty());
    apply(&mut slices, made);
    let meant = |slices: &[Arc<EndpointSlice>]| {
        let all = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
        all.map(|one| hints::zone_of(one).unwrap_or("-").to_owned()).collect::<String>()
    };
    assert_eq!(meant(&slices), "yyzz");
    assert_eq!(plan(&shared, &pods, &slices, zone, zones), Plan::default(), "comes to rest");
    // Too few for all zones: nobody is singled out, and it is told why.
    pods.truncate(1);
    let made = plan(&shared, &pods, &slices, zone, zones);
    assert_eq!(made.unshared[0].1, "Insufficient number of endpoints (1 endpoints, 2 zones)");
    apply(&mut slices, made);
    assert_eq!(meant(&slices), "-");
}

#[test]
fn an_endpoint_tells_all() {
    let mut going = (*pod(1, true)).clone();
    going.metadata.deletion_timestamp = Some(Time(Timestamp::UNIX_EPOCH));
    let pods = [pod(0, true), Arc::new(going), pod(2, false)];
    let conditions = |service: &Service| {
        let made = plan(service, &pods, &[], zone, Shares::new);
        let slice = made.create[0].clone();
        let list = slice.endpoints.into_iter().flatten().filter_map(|endpoint| endpoint.conditions);
        list.map(|c| (c.ready, c.serving, c.terminating)).collect::<Vec<_>>()
    };
    let (yes, no) = (Some(true), Some(false));
    assert_eq!(conditions(&service(json!({}))), [(yes, yes, no), (no, yes, yes), (no, no, no)]);
    let eager = service(json!({ "publishNotReadyAddresses": true }));
    assert_eq!(conditions(&eager), [(yes, yes, no), (yes, yes, yes), (yes, no, no)]);
    let slice = &plan(&service(json!({ "clusterIP": "None" })), &pods, &[], zone, Shares::new).create[0];
    assert_eq!(slice.labels()[HEADLESS_LABEL], "");
    assert_eq!(slice.labels()["own"], "label");
    let first = &slice.endpoints.as_ref().expect("endpoints")[0];
    assert_eq!((first.node_name.as_deref(), first.zone.as_deref()), (Some("n"), Some("z")));
    assert_eq!(slice.ports.as_ref().expect("ports")[0].port, Some(8080));
}

#[test]
fn named_ports_that_differ_make_slices_of_their_own() {
    let service = service(json!({ "ports": [{ "port": 80, "targetPort": "http" }] }));
    let made = plan(&service, &[pod(0, true), pod(1, true)], &[], zone, Shares::new);
    let ports: Vec<_> = made.create.iter().map(|slice| slice.ports.as_ref().expect("ports")[0].port).collect();
    assert_eq!(ports, [Some(8000), Some(8001)]);
}

#[test]
fn slices_of_a_service_that_had_the_name_are_not_used() {
    let pods = [pod(1, true)];
    let first = service(json!({}));
    let mut slices = Vec::new();
    apply(&mut slices, plan(&first, &pods, &[], zone, Shares::new));
    let mut second = first.clone();
    second.metadata.uid = Some("t".into());
    let made = plan(&second, &pods, &slices, zone, Shares::new);
    assert_eq!(
        (made.create.len(), made.update.len()),
        (1, 0),
        "whoever collects the old one must not take the new along"
    );
    assert_eq!(made.delete, slices);
    assert_eq!(made.create[0].metadata.owner_references.as_ref().expect("an owner")[0].uid, "t");
}
