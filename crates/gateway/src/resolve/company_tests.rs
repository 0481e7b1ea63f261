//! Several machines: the one that leads tells where all of them serve, and the others do as it says.

use std::net::IpAddr;

use ferry_client::ObjectKey;
use serde_json::{Value, json};

use super::objects::{Id, key};
use super::status::{self, Bound};
use super::{Changed, Incremental, SERVES, Settings};
use crate::INGRESS_CONTROLLER;
use crate::testing::{gateway, objects, read, settings};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn machine(own: &str, leads: bool) -> Incremental {
    let mut incremental = Incremental::new(Settings { addresses: vec![ip(own)], leads, ..settings() });
    let class = objects().classes.iter().next().expect("a class").clone();
    let ingress_class = json!({ "metadata": { "name": "ferry" }, "spec": { "controller": INGRESS_CONTROLLER } });
    incremental.apply([
        Changed::Class(key(&class.metadata), Some(class)),
        Changed::IngressClass(ObjectKey::new("", "ferry"), Some(read(ingress_class))),
    ]);
    incremental
}

fn web(status: &Value) -> Changed {
    let listener = |port: u16| json!({ "name": format!("p{port}"), "port": port, "protocol": "HTTP" });
    let mut made = gateway("web", json!([listener(80), listener(81)]));
    if !status.is_null() {
        made["status"] = status.clone();
    }
    Changed::Gateway(ObjectKey::new("n", "web"), Some(read(made)))
}

fn given(addresses: &[&str]) -> Value {
    json!({ "addresses": addresses.iter().map(|one| json!({ "type": "IPAddress", "value": one })).collect::<Vec<_>>() })
}

fn node(name: &str, address: &str, ready: &str, elsewhere: &Value) -> Changed {
    let report = json!({ "addresses": [address], "needsKeys": true, "elsewhere": elsewhere });
    let made = json!({
        "metadata": { "name": name, "annotations": { SERVES: report.to_string() } },
        "status": {
            "addresses": [{ "type": "InternalIP", "address": address }],
            "conditions": [{ "type": "Ready", "status": ready }],
        },
    });
    Changed::Node(ObjectKey::new("", name), Some(read(made)))
}

fn told(incremental: &Incremental, bound: &Bound, kind: &'static str) -> Value {
    let id = Id { kind, key: ObjectKey::new("n", "web") };
    let update =
        status::update(incremental.objects(), incremental.resolved(), bound, incremental.settings(), &id, "now");
    update.expect("a status").status
}

/// The addresses, and for each port whether it is served and what is said of it.
fn shown(status: &Value) -> String {
    let addresses = status["addresses"].as_array().unwrap().iter().map(|one| one["value"].as_str().unwrap());
    let mut text = addresses.collect::<Vec<_>>().join(" ");
    for listener in status["listeners"].as_array().unwrap() {
        let all = listener["conditions"].as_array().unwrap();
        let programmed = all.iter().find(|one| one["type"] == "Programmed").unwrap();
        text += &format!(" | {} {}", programmed["status"].as_str().unwrap(), programmed["message"].as_str().unwrap());
    }
    text
}

#[test]
fn statuses_have_the_machines_that_serve() {
    let mut leader = machine("192.0.2.1", true);
    let bound = Bound::from([
        ((ip("192.0.2.1"), 80, false), Ok(80)),
        ((ip("192.0.2.1"), 81, false), Err("port 81 of 192.0.2.1 is in use".to_owned())),
    ]);
    leader.apply([web(&Value::Null)]);
    assert!(!leader.objects().machines.need_keys());
    assert_eq!(shown(&told(&leader, &bound, "Gateway")), "192.0.2.1 | True  | False port 81 of 192.0.2.1 is in use");

    let effect = leader.apply([node("n1", "192.0.2.2", "True", &json!([]))]);
    assert!(effect.machines && effect.keys && !effect.tables && leader.objects().machines.need_keys());
    assert!(effect.statuses.contains(&Id { kind: "Gateway", key: ObjectKey::new("n", "web") }));
    // One machine that has not the port does not stop the other.
    assert_eq!(
        shown(&told(&leader, &bound, "Gateway")),
        "192.0.2.1 192.0.2.2 | True  | True port 81 of 192.0.2.1 is in use"
    );
    let effect = leader.apply([node("n1", "192.0.2.2", "True", &json!([]))]);
    assert!(!effect.machines && effect.statuses.is_empty(), "nothing is another: {effect:?}");

    let elsewhere = json!([
        { "address": "192.0.2.2", "port": 80, "servedAt": 8080 },
        { "address": "192.0.2.2", "port": 81 },
    ]);
    leader.apply([node("n1", "192.0.2.2", "True", &elsewhere)]);
    let message = "port 80 of 192.0.2.2, of node n1, is in use by another program: served at port 8080 instead";
    assert_eq!(
        shown(&told(&leader, &bound, "Gateway")),
        format!("192.0.2.1 | True {message} | False port 81 of 192.0.2.1 is in use"),
        "no client finds anything there"
    );
    let warnings = status::warnings(leader.objects(), leader.resolved(), &bound);
    assert!(warnings.iter().any(|one| one.message == format!("listener p80: {message}")));

    let backend = json!({ "service": { "name": "s", "port": { "number": 80 } } });
    let ingress = json!({
        "metadata": { "name": "web", "namespace": "n" },
        "spec": { "ingressClassName": "ferry", "defaultBackend": backend, "tls": [{ "secretName": "s" }] },
    });
    leader.apply([Changed::Ingress(ObjectKey::new("n", "web"), Some(read(ingress)))]);
    let unserved = json!({ "port": 443, "protocol": "TCP", "error": "NotServed" });
    let port = |port: u16| json!({ "port": port, "protocol": "TCP" });
    assert_eq!(
        told(&leader, &bound, "Ingress")["loadBalancer"]["ingress"],
        json!([
            { "ip": "192.0.2.1", "ports": [port(80), unserved] },
            { "ip": "192.0.2.2", "ports": [port(8080), unserved] },
        ])
    );

    leader.apply([node("n1", "192.0.2.2", "Unknown", &json!([]))]);
    assert_eq!(shown(&told(&leader, &bound, "Gateway")), "192.0.2.1 | True  | False port 81 of 192.0.2.1 is in use");
}

#[test]
fn machines_serve_what_has_an_address() {
    let mut follower = machine("192.0.2.2", false);
    let ports =
        |one: &Incremental| one.resolved().ports.keys().map(|(ip, port, _)| format!("{ip}:{port}")).collect::<Vec<_>>();
    follower.apply([web(&Value::Null)]);
    assert_eq!(ports(&follower), [""; 0], "nobody has given it an address");
    assert!(follower.apply([web(&given(&["192.0.2.1"]))]).tables);
    assert_eq!(ports(&follower), ["192.0.2.2:80", "192.0.2.2:81"]);
    assert!(!follower.apply([web(&given(&["192.0.2.1", "192.0.2.2"]))]).tables);
    follower.apply([web(&given(&["127.64.0.3"]))]);
    assert_eq!(ports(&follower), ["127.64.0.3:80", "127.64.0.3:81"]);

    // It leads from now on: it looks at all statuses, and gives addresses itself.
    follower.apply([web(&given(&["192.0.2.1", "192.0.2.2"]))]);
    let effect = follower.apply([Changed::Leads(true)]);
    assert_eq!(effect.statuses.len(), 2, "{effect:?}");
    assert_eq!(ports(&follower), ["192.0.2.2:80", "192.0.2.2:81"]);
    follower.apply([web(&Value::Null)]);
    assert_eq!(ports(&follower).len(), 2);
    follower.apply([Changed::Leads(false)]);
    assert_eq!(ports(&follower), [""; 0]);
}
