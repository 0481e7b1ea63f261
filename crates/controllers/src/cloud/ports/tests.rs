use serde_json::{Value, json};

use super::*;

fn node(name: &str, listening: &str) -> Arc<Node> {
    let node: Node = serde_json::from_value(json!({
        "metadata": { "name": name, "annotations": { LISTENING_PORTS: listening } },
        "status": { "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } } },
    }))
    .expect("a node");
    Arc::new(node)
}

fn service(name: &str, born: u8, kind: &str, ports: Value) -> Arc<Service> {
    let service: Service = serde_json::from_value(json!({
        "metadata": { "name": name, "namespace": "a", "creationTimestamp": format!("2026-01-01T00:00:{born:02}Z") },
        "spec": { "type": kind, "ports": ports },
    }))
    .expect("a service");
    Arc::new(service)
}

fn check(service: &Service, services: &[&Arc<Service>], nodes: &[Arc<Node>], want: &[&str], why: &[&str]) {
    let services: Vec<_> = services.iter().map(|one| Arc::clone(one)).collect();
    let (free, reasons) = divide(service, nodes, &services);
    assert_eq!(free.iter().map(|node| node.name_any()).collect::<Vec<_>>(), want, "{}", service.name_any());
    assert_eq!(reasons, why, "{}", service.name_any());
}

#[test]
fn ports_of_nodes_and_of_older_services_are_never_taken() {
    let nodes = [node("one", "tcp/22,tcp/80,udp/53"), node("two", "tcp/22")];
    let balanced = |name: &str, born, numbers: &[i32]| {
        let ports: Value = numbers.iter().map(|number| json!({"port": number, "protocol": "TCP"})).collect();
        service(name, born, "LoadBalancer", ports)
    };
    let (ssh, kubelet) = (balanced("ssh", 0, &[22]), balanced("kubelet", 0, &[10250]));
    let both =
        |what: &str| ["one", "two"].map(|node| format!("tcp/{what} of node {node} is in use by the node itself"));
    check(&ssh, &[&ssh], &nodes, &[], &both("22").each_ref().map(String::as_str));
    check(&kubelet, &[&kubelet], &nodes, &[], &both("10250").each_ref().map(String::as_str));
    let web = balanced("z-web", 1, &[80]);
    let of_the_node = "tcp/80 of node one is in use by the node itself";
    check(&web, &[&web], &nodes, &["two"], &[of_the_node]);
    let names = service("dns", 1, "LoadBalancer", json!([{"port": 53, "protocol": "UDP"}]));
    check(&names, &[&names], &nodes, &["two"], &["udp/53 of node one is in use by the node itself"]);

    // Not the first in the alphabet has it, but the oldest.
    let late = balanced("a-web", 2, &[443, 80]);
    let why = [of_the_node, "tcp/80 of node two is in use by Service a/z-web"];
    check(&late, &[&late, &web], &nodes, &[], &why);
    check(&web, &[&late, &web], &nodes, &["two"], &[of_the_node]);
    // One that has nothing is in nobody's way.
    let third = balanced("b-web", 3, &[443]);
    check(&third, &[&late, &web, &third], &nodes, &["one", "two"], &[]);
    check(&third, &[&late, &third], &nodes, &["one"], &["tcp/443 of node two is in use by Service a/a-web"]);
}

#[test]
fn node_ports_of_others_are_never_taken() {
    let nodes = [node("one", "")];
    let web = service("web", 9, "NodePort", json!([{"port": 80, "nodePort": 30080}]));
    let thief = service("thief", 1, "LoadBalancer", json!([{"port": 30080, "nodePort": 31000}]));
    check(&thief, &[&thief, &web], &nodes, &[], &["tcp/30080 is the node port of Service a/web"]);
    let own = service("own", 1, "LoadBalancer", json!([{"port": 30081, "nodePort": 30081}]));
    check(&own, &[&thief, &web, &own], &nodes, &["one"], &[]);
    assert_eq!(sentence((0..9).map(|n| n.to_string()).collect()), "0; 1; 2; 3; and 5 more");
}
