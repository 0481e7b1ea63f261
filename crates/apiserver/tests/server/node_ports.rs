//! Node ports and ports of health checks: each is given once, and given back by whom it was given to.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::Fixture;

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn ports_of(service: &Value) -> Vec<i64> {
    let listed = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let listed = listed.iter().filter_map(|port| port["nodePort"].as_i64());
    listed.chain(service["spec"]["healthCheckNodePort"].as_i64()).collect()
}

async fn create(fixture: &Fixture, name: &str, spec: Value) -> (u16, Value) {
    fixture.json("POST", SERVICES, &json!({"metadata": {"name": name}, "spec": spec})).await
}

/// In a range that is nearly full almost every choice collides, that of the health check too.
#[tokio::test]
async fn ports_of_health_checks_are_given_once() {
    let fixture = Fixture::new().await;
    let mut all = BTreeSet::new();
    for number in 0..40 {
        let (code, made) =
            create(&fixture, &format!("n{number}"), json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
        assert_eq!(code, 201, "{made}");
        assert!(ports_of(&made).into_iter().all(|port| all.insert(port)), "{made}");
    }
    let local = |allocate: bool| {
        json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [{"port": 80}],
               "allocateLoadBalancerNodePorts": allocate})
    };
    for number in 0..8 {
        let (code, made) = create(&fixture, &format!("l{number}"), local(number < 4)).await;
        assert_eq!(code, 201, "{made}");
        let ports = ports_of(&made);
        // Who wants no node ports gets none, though the choice of the health check's port was made again.
        assert_eq!(ports.len(), if number < 4 { 2 } else { 1 }, "{made}");
        assert!(ports.into_iter().all(|port| all.insert(port)), "{made}");
    }
    // Twelve ports are left: they are found, and then there is none.
    for number in 0..12 {
        let (code, made) =
            create(&fixture, &format!("m{number}"), json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
        assert_eq!(code, 201, "{made}");
        assert!(ports_of(&made).into_iter().all(|port| all.insert(port)), "{made}");
    }
    assert_eq!(all.len(), 64);
    let (code, refused) = create(&fixture, "full", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    assert_eq!(code, 500, "{refused}");
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("range is full")), "{refused}");

    // What is deleted gives back its own ports and no others.
    let (_, gone) = fixture.call(&fixture.admin, "GET", &format!("{SERVICES}/l0"), "", "").await;
    let freed: BTreeSet<i64> = ports_of(&gone).into_iter().collect();
    let (code, _) = fixture.call(&fixture.admin, "DELETE", &format!("{SERVICES}/l0"), "", "").await;
    assert_eq!(code, 200);
    let (code, made) = create(&fixture, "again", local(true)).await;
    assert_eq!(code, 201, "{made}");
    assert_eq!(ports_of(&made).into_iter().collect::<BTreeSet<_>>(), freed);
    let (code, _) = create(&fixture, "full", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    assert_eq!(code, 500);
    fixture.stop().await;
}

/// How many ports a Service may have is told by validation, behind the choice of their node ports.
#[tokio::test]
async fn a_list_of_ports_costs_no_more_than_its_length() {
    let fixture = Fixture::new().await;
    let port = |number: usize| json!({"name": format!("p{number}"), "port": 1 + number % 60_000});
    let ports: Vec<Value> = (0..40_000).map(port).collect();
    let (code, refused) = create(&fixture, "many", json!({"type": "NodePort", "ports": ports})).await;
    assert_eq!(code, 500);
    assert!(refused["message"].as_str().is_some_and(|why| why.contains("range is full")), "{refused}");
    // One port under two protocols has one node port; the same protocol again has its own.
    let ports = json!([{"name": "a", "port": 53, "protocol": "TCP"}, {"name": "b", "port": 53, "protocol": "UDP"},
                       {"name": "c", "port": 54, "protocol": "TCP"}]);
    let (code, made) = create(&fixture, "dns", json!({"type": "NodePort", "ports": ports})).await;
    assert_eq!(code, 201, "{made}");
    let ports = ports_of(&made);
    assert!(ports[0] == ports[1] && ports[1] != ports[2], "{made}");
    fixture.stop().await;
}

/// A port is taken before the name is, and a dry run takes none.
#[tokio::test]
async fn a_port_that_is_taken_is_told_before_the_name() {
    let fixture = Fixture::new().await;
    let (_, made) = create(&fixture, "a", json!({"type": "NodePort", "ports": [{"port": 80}]})).await;
    let port = ports_of(&made)[0];
    let same = |port: i64| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
    let (code, answer) = create(&fixture, "a", same(port)).await;
    let wanted = format!("spec.ports[0].nodePort: Invalid value: {port}: provided port is already allocated");
    assert!(code == 422 && answer["message"].as_str().is_some_and(|why| why.ends_with(&wanted)), "{answer}");
    let address = json!({"clusterIP": made["spec"]["clusterIP"], "ports": [{"port": 80}]});
    let (code, answer) = create(&fixture, "a", address).await;
    assert!(
        code == 422 && answer["message"].as_str().is_some_and(|why| why.contains("failed to allocate IP")),
        "{answer}"
    );
    let (code, _) = create(&fixture, "a", json!({"ports": [{"port": 80}]})).await;
    assert_eq!(code, 409);
    let body = json!({"metadata": {"name": "b"}, "spec": same(5)});
    assert_eq!(fixture.json("POST", SERVICES, &body).await.0, 422);
    assert_eq!(fixture.json("POST", &format!("{SERVICES}?dryRun=All"), &body).await.0, 201);
    fixture.stop().await;
}

/// Servers that start together apply the same Service with the same address: who is second changes what the first has made.
#[tokio::test]
async fn a_service_that_two_apply_at_once_is_there_once() {
    let fixture = Fixture::new().await;
    for number in 1..=50 {
        let name = format!("s{number}");
        let path = format!("{SERVICES}/{name}?fieldManager=ferry&force=true");
        let spec = json!({"clusterIP": format!("10.96.0.{}", 100 + number), "ports": [{"port": 80}]});
        let body = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}).to_string();
        let apply = || fixture.call(&fixture.admin, "PATCH", &path, "application/apply-patch+yaml", body.clone());
        let (first, second) = futures::join!(apply(), apply());
        let mut codes = [first.0, second.0];
        codes.sort_unstable();
        assert_eq!(codes, [200, 201], "{} {}", first.1, second.1);
    }
    fixture.stop().await;
}
