use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;

fn of<K: k8s_openapi::serde::de::DeserializeOwned>(value: Value) -> Arc<K> {
    Arc::new(serde_json::from_value(value).expect("an object"))
}

fn node(name: &str, ready: &str, labels: Value) -> Arc<Node> {
    of(
        json!({"metadata": {"name": name, "labels": labels}, "status": {"conditions": [{"type": "Ready", "status": ready}]}}),
    )
}

fn service(name: &str, policy: &str, ip: &str) -> Arc<Service> {
    of(
        json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"type": "LoadBalancer", "externalTrafficPolicy": policy},
        "status": {"loadBalancer": {"ingress": [{"ip": ip}]}}}),
    )
}

/// Who announces what, by all of the nodes.
fn all(nodes: &[Arc<Node>], services: &[Arc<Service>], slices: &[Arc<EndpointSlice>]) -> BTreeMap<IpAddr, String> {
    let pool = |address: IpAddr| match address {
        IpAddr::V4(address) => address.octets().starts_with(&[192, 0, 2]),
        IpAddr::V6(_) => true,
    };
    let mut found = BTreeMap::new();
    for name in ["a", "b", "c"] {
        for address in plan(name, &pool, nodes, services, slices) {
            assert!(found.insert(address, name.to_owned()).is_none(), "two nodes announce {address}");
        }
    }
    found
}

#[test]
fn one_node_announces_each_address_and_few_move() {
    let services: Vec<_> = (1..100).map(|n| service(&format!("s{n}"), "Cluster", &format!("192.0.2.{n}"))).collect();
    let ready = ["a", "b", "c"].map(|name| node(name, "True", json!({})));
    let before = all(&ready, &services, &[]);
    assert_eq!(before.len(), 99);
    let count = |name: &str| before.values().filter(|one| *one == name).count();
    assert!(["a", "b", "c"].iter().all(|name| count(name) > 15), "they share the work");
    let failed = [node("a", "True", json!({})), node("b", "Unknown", json!({})), node("c", "True", json!({}))];
    let after = all(&failed, &services, &[]);
    assert_eq!(after.len(), 99);
    for (address, name) in &before {
        let now = &after[address];
        assert!(if name == "b" { now != "b" } else { now == name }, "{address}: {name} to {now}");
    }
    let none = ["a", "b", "c"].map(|name| node(name, "Unknown", json!({})));
    assert_eq!(all(&none, &services, &[]), before, "where none is ready, nothing moves");
    let out = [node("a", "True", json!({EXCLUDED: ""})), node("b", "True", json!({}))];
    assert!(all(&out, &services, &[]).values().all(|name| name == "b"));
}

#[test]
fn local_services_are_where_their_endpoints_are() {
    let nodes = ["a", "b", "c"].map(|name| node(name, "True", json!({})));
    let services = [
        service("s", "Local", "192.0.2.1"),
        service("t", "Local", "fd00::5"),
        service("other", "Cluster", "203.0.113.1"),
    ];
    let slice: Arc<EndpointSlice> = of(
        json!({"metadata": {"namespace": "d", "labels": {SERVICE_NAME: "s"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.0.0.1"], "nodeName": "b"}, {"addresses": ["10.0.0.2"], "nodeName": "a", "conditions": {"ready": false}}]}),
    );
    let found = all(&nodes, &services, &[slice]);
    assert_eq!(
        found,
        BTreeMap::from([([192, 0, 2, 1].into(), "b".to_owned())]),
        "no endpoint, no node; not of the pool"
    );
}
