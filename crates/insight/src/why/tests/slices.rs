//! Services without a selector.

use serde_json::{Value, json};

use super::{Reason, Situation, check_all, findings, world};
use crate::world::World;

fn service(slices: Value) -> World {
    let spec = json!({ "ports": [{ "name": "web", "port": 80 }] });
    let target = json!({ "kind": "Service", "apiVersion": "v1", "metadata": { "name": "s", "namespace": "d", "uid": "s" }, "spec": spec });
    world(target, &[("endpointslices", slices), ("pods", json!([]))])
}

fn slice(name: &str, of: Option<&str>, port: &str, endpoints: Value) -> Value {
    let labels = of.map_or(json!({}), |of| json!({ "kubernetes.io/service-name": of }));
    json!({ "kind": "EndpointSlice", "metadata": { "name": name, "labels": labels }, "ports": [{ "name": port, "port": 80 }], "endpoints": endpoints })
}

#[test]
fn slices() {
    let up = json!([{ "addresses": ["192.0.2.1"] }]);
    let down = json!([{ "addresses": ["192.0.2.1"], "conditions": { "ready": false } }]);
    let rows: Vec<Situation<'_>> = vec![
        (
            "not ready",
            service(json!([slice("one", Some("s"), "web", down)])),
            Reason::SliceNotReady,
            &["none of the 1 address in its EndpointSlice one is ready", "kubectl edit -n d endpointslice/one"],
        ),
        (
            "empty",
            service(json!([slice("one", Some("s"), "web", json!([]))])),
            Reason::SliceNotReady,
            &["its EndpointSlice one lists no address"],
        ),
        (
            "no label",
            service(json!([slice("s-1", None, "web", up.clone())])),
            Reason::NoSelector,
            &["there is the EndpointSlice s-1", "kubectl label -n d endpointslice/s-1 kubernetes.io/service-name=s"],
        ),
        (
            "other port",
            service(json!([slice("one", Some("s"), "http", up.clone())])),
            Reason::SlicePort,
            &["nothing is behind its port \"web\"", "one has \"http\""],
        ),
        ("none", service(json!([])), Reason::NoSelector, &["nobody has written an EndpointSlice"]),
    ];
    check_all(&rows);
    assert_eq!(findings(&service(json!([slice("one", Some("s"), "web", up)]))), []);
}
