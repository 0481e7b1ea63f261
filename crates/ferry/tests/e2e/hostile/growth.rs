//! Objects of a few kilobytes that stand for gigabytes: what they list is multiplied, or refers to itself, where it is carried out.

use serde_json::{Value, json};

use super::node::{MALLORY, is_running, make_mallory};
use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::growth::what_a_pod_says_is_not_multiplied", what_a_pod_says_is_not_multiplied),
    (
        "hostile::growth::what_services_and_policies_list_is_not_multiplied",
        what_services_and_policies_list_is_not_multiplied,
    ),
];

/// What the attacks may add to the memory of the process, at its peak. Each would have taken more than a gigabyte.
const MEGABYTES: u64 = 400;

/// A figure of the process, in kilobytes.
fn memory(cluster: &Cluster, figure: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", cluster.pid())).expect("the process is there");
    let line = status.lines().find(|line| line.starts_with(figure)).expect("the figure");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Afterwards the process is the same, and its memory was bounded.
fn bounded(cluster: &mut Cluster, attack: impl FnOnce(&Cluster)) {
    make_mallory(cluster);
    let pid = cluster.pid();
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak is forgotten");
    let before = memory(cluster, "VmRSS");
    attack(cluster);
    assert_eq!(cluster.pid(), pid);
    let grown = memory(cluster, "VmHWM").saturating_sub(before) / 1024;
    println!("  {grown} MB");
    assert!(grown < MEGABYTES, "it grew by {grown} MB");
    cluster.kubectl(&["delete", "namespace", "mallory", "--wait=true"]);
}

fn create(cluster: &Cluster, object: &Value) {
    cluster.kubectl_with(&[MALLORY, "create", "-n", "mallory", "-f", "-"], &object.to_string());
}

/// Allowed under `restricted`.
fn pod(name: &str, mut container: Value, volumes: Value) -> Value {
    container["name"] = "main".into();
    container["image"] = "busybox:1.36".into();
    container["command"] = json!(["sleep", "3600"]);
    container["securityContext"] = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
    let context = json!({"runAsNonRoot": true, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "securityContext": context,
        "containers": [container], "volumes": volumes}})
}

fn told(cluster: &Cluster, name: &str, part: &str) {
    until(&format!("{name} is told: {part}"), || {
        let events = cluster.items(&["get", "events", "-n", "mallory"]);
        let of_it = events.iter().filter(|event| event["involvedObject"]["name"] == name);
        of_it.filter_map(|event| event["message"].as_str()).any(|message| message.contains(part)).then_some(())
    });
}

fn what_a_pod_says_is_not_multiplied(cluster: &mut Cluster) {
    bounded(cluster, |cluster| {
        let doubled: Vec<Value> = (0..28)
            .map(|at: usize| match at {
                0 => json!({"name": "V0", "value": "xxxxxxxxxx"}),
                _ => json!({"name": format!("V{at}"), "value": format!("$(V{0})$(V{0})", at - 1)}),
            })
            .collect();
        create(cluster, &pod("doubled", json!({"env": doubled}), json!([])));
        let value = "x".repeat(1_000_000);
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "long"}, "data": {"a": value}});
        create(cluster, &map);
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "long"}, "stringData": {"a": value}});
        create(cluster, &secret);
        let prefixed: Vec<Value> =
            (0..1000).map(|at| json!({"prefix": format!("P{at}"), "configMapRef": {"name": "long"}})).collect();
        create(cluster, &pod("prefixed", json!({"envFrom": prefixed}), json!([])));
        let items: Vec<Value> = (0..1000).map(|at| json!({"key": "a", "path": at.to_string()})).collect();
        let volume = json!([{"name": "v", "secret": {"secretName": "long", "items": items}}]);
        create(cluster, &pod("items", json!({}), volume));
        let volumes: Vec<Value> =
            (0..1000).map(|at| json!({"name": format!("v{at}"), "secret": {"secretName": "long"}})).collect();
        create(cluster, &pod("volumes", json!({}), json!(volumes)));
        for name in ["doubled", "prefixed"] {
            told(cluster, name, "the environment is longer than 6291456 bytes");
        }
        for name in ["items", "volumes"] {
            told(cluster, name, "is longer than 67108864 bytes");
        }
        create(cluster, &pod("plain", json!({}), json!([])));
        until("others run", || is_running(cluster, "mallory", "plain"));
    });
}

fn what_services_and_policies_list_is_not_multiplied(cluster: &mut Cluster) {
    bounded(cluster, |cluster| {
        let ports: Vec<Value> = (1..=2000).map(|at| json!({"name": format!("p{at}"), "port": at})).collect();
        let address = |at: usize| format!("198.51.{}.{}", at >> 8, at & 255);
        let addresses: Vec<String> = (0..2000).map(address).collect();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "long"},
            "spec": {"ports": ports, "externalIPs": addresses}});
        create(cluster, &service);
        told(cluster, "long", "its 2000 ports at 2001 addresses are more than a node keeps rules for");
        let peers: Vec<Value> = addresses.iter().map(|one| json!({"ipBlock": {"cidr": format!("{one}/32")}})).collect();
        let names: Vec<Value> = (0..2000).map(|at| json!({"port": format!("p{at}")})).collect();
        let policy = json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "long"},
            "spec": {"podSelector": {"matchLabels": {"app": "none"}}, "policyTypes": ["Egress"],
                "egress": [{"to": peers, "ports": names}]}});
        create(cluster, &policy);
        // Its network is made once the policies are known.
        create(cluster, &pod("plain", json!({}), json!([])));
        until("others run", || is_running(cluster, "mallory", "plain"));
    });
}
