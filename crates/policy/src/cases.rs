//! What upstream's end-to-end suite expects of policies, as a table: policies, and who reaches whom. Checked against the pure
//! state (`node_policies_tests`) and with real packets (`kernel_tests`).

use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};

use crate::Bridge;
use crate::node_policies::NodePolicies;
use crate::policy::Protocol;

/// Pods by `namespace/name`, with their address.
pub(crate) const PODS: [(&str, &str); 6] = [
    ("x/a", "10.244.0.10"),
    ("x/b", "10.244.0.11"),
    ("x/c", "10.244.0.12"),
    ("y/a", "10.244.0.20"),
    ("y/b", "10.244.0.21"),
    ("z/a", "10.244.0.30"),
];

pub(crate) fn address(pod: &str) -> IpAddr {
    let found = PODS.iter().find(|(name, _)| *name == pod);
    found.expect("a pod of the table").1.parse().expect("an address")
}

pub(crate) fn pod(name: &str, labels: Value, address: Option<&str>) -> Arc<Pod> {
    let (namespace, name) = name.split_once('/').expect("namespace/name");
    let ports = json!([
        {"name": "serve-80-tcp", "containerPort": 80, "protocol": "TCP"},
        {"name": "serve-81-tcp", "containerPort": 81, "protocol": "TCP"},
        {"name": "serve-80-udp", "containerPort": 80, "protocol": "UDP"},
    ]);
    let pod = json!({
        "metadata": {"namespace": namespace, "name": name, "uid": format!("{namespace}-{name}"), "labels": labels},
        "spec": {"nodeName": "here", "containers": [{"name": "c", "ports": ports}]},
        "status": {"phase": "Running", "podIPs": address.map(|ip| json!([{"ip": ip}]))},
    });
    Arc::new(serde_json::from_value(pod).expect("a pod"))
}

pub(crate) fn namespace(name: &str, labels: Value) -> Namespace {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}})).expect("a namespace")
}

pub(crate) fn policy(namespace: &str, name: &str, spec: &Value) -> NetworkPolicy {
    let object = json!({"metadata": {"namespace": namespace, "name": name}, "spec": spec});
    serde_json::from_value(object).expect("a policy")
}

pub(crate) fn bridge() -> Bridge {
    Bridge { name: "br0".to_owned(), broadcasts: vec![[10, 244, 0, 0].into(), [10, 244, 0, 255].into()] }
}

/// All pods, none of them isolated.
pub(crate) fn state() -> NodePolicies {
    let mut state = NodePolicies::new("here", "t", bridge());
    for name in ["x", "y", "z"] {
        state.namespace(&namespace(name, json!({"kubernetes.io/metadata.name": name})), true);
    }
    for (name, address) in PODS {
        let (_, short) = name.split_once('/').expect("namespace/name");
        state.pod(&pod(name, json!({"pod": short}), Some(address)), true);
    }
    state
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) policies: Vec<(&'static str, Value)>,
    pub(crate) looks: Vec<Look>,
}

/// Who reaches whom at a port: everybody everybody, but for these; the last that fits holds. `*` is all pods, `x` those of a
/// namespace.
pub(crate) struct Look {
    pub(crate) port: u16,
    pub(crate) protocol: Protocol,
    rows: Vec<(&'static str, &'static str, bool)>,
}

impl Look {
    pub(crate) fn expects(&self, from: &str, to: &str) -> bool {
        let fits =
            |pattern: &str, pod: &str| pattern == "*" || pattern == pod || pod.starts_with(&format!("{pattern}/"));
        let row = self.rows.iter().rev().find(|(one, other, _)| fits(one, from) && fits(other, to));
        row.is_none_or(|(_, _, reaches)| *reaches)
    }
}

fn at<const N: usize>(port: u16, protocol: Protocol, rows: [(&'static str, &'static str, bool); N]) -> Look {
    Look { port, protocol, rows: rows.to_vec() }
}

fn tcp<const N: usize>(port: u16, rows: [(&'static str, &'static str, bool); N]) -> Look {
    at(port, Protocol::Tcp, rows)
}

fn case<const N: usize, const M: usize>(
    name: &'static str,
    policies: [(&'static str, Value); N],
    looks: [Look; M],
) -> Case {
    Case { name, policies: policies.into(), looks: looks.into() }
}

fn labels(name: &str) -> Value {
    json!({"matchLabels": {"pod": name}})
}

fn in_namespace(name: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": name}})
}

fn not_in(name: &str) -> Value {
    json!({"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [name]}]})
}

/// For pods with this label, or all where it is empty.
fn ingress(pod: &str, rules: Value) -> Value {
    let selector = if pod.is_empty() { json!({}) } else { labels(pod) };
    json!({"podSelector": selector, "policyTypes": ["Ingress"], "ingress": rules})
}

fn egress(pod: &str, rules: Value) -> Value {
    let selector = if pod.is_empty() { json!({}) } else { labels(pod) };
    json!({"podSelector": selector, "policyTypes": ["Egress"], "egress": rules})
}

pub(crate) fn all() -> Vec<Case> {
    let mut all = selectors();
    all.extend(ports());
    all.extend(both_ways());
    all.extend(blocks());
    all
}

fn selectors() -> Vec<Case> {
    const CLOSED: (&str, &str, bool) = ("*", "x/a", false);
    let from = |peers: Value| ("x", ingress("a", json!([{"from": peers}])));
    vec![
        case("default deny of ingress", [("x", ingress("", json!([])))], [tcp(80, [("*", "x", false)])]),
        case(
            "default deny of everything",
            [("x", json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}))],
            [tcp(80, [("*", "x", false), ("x", "*", false)])],
        ),
        case(
            "pods of the namespace by label",
            [from(json!([{"podSelector": labels("b")}]))],
            [tcp(80, [CLOSED, ("x/b", "x/a", true)])],
        ),
        case(
            "one target opened to all pods",
            [("x", ingress("", json!([]))), from(json!([{"podSelector": {}, "namespaceSelector": {}}]))],
            [tcp(80, [("*", "x", false), ("*", "x/a", true)])],
        ),
        case("pods of all namespaces", [from(json!([{"namespaceSelector": {}}]))], [tcp(80, [])]),
        case(
            "another namespace",
            [from(json!([{"namespaceSelector": in_namespace("y")}]))],
            [tcp(80, [CLOSED, ("y", "x/a", true)])],
        ),
        case(
            "expressions over pods",
            [from(json!([{"podSelector": {"matchExpressions": [{"key": "pod", "operator": "In", "values": ["b"]}]}}]))],
            [tcp(80, [CLOSED, ("x/b", "x/a", true)])],
        ),
        case(
            "expressions over namespaces",
            [from(json!([{"namespaceSelector": not_in("x")}]))],
            [tcp(80, [("x", "x/a", false)])],
        ),
        case(
            "pods or namespaces",
            [from(json!([{"namespaceSelector": not_in("x")}, {"podSelector": labels("b")}]))],
            [tcp(80, [("x/c", "x/a", false)])],
        ),
        case(
            "pods and namespaces",
            [from(json!([{"namespaceSelector": not_in("x"), "podSelector": labels("b")}]))],
            [tcp(80, [CLOSED, ("y/b", "x/a", true)])],
        ),
        case(
            "several pods and namespaces",
            [from(json!([{"namespaceSelector": not_in("x"),
                "podSelector": {"matchExpressions": [{"key": "pod", "operator": "In", "values": ["b", "c"]}]}}]))],
            [tcp(80, [CLOSED, ("y/b", "x/a", true)])],
        ),
        case(
            "any of several pods",
            [from(json!([{"podSelector": labels("b")}, {"podSelector": labels("c")}]))],
            [tcp(80, [CLOSED, ("x/b", "x/a", true), ("x/c", "x/a", true)])],
        ),
        case(
            "one pod of another namespace",
            [from(json!([{"namespaceSelector": in_namespace("y"), "podSelector": labels("a")}]))],
            [tcp(80, [CLOSED, ("y/a", "x/a", true)])],
        ),
        case(
            "the own namespace alone",
            [("x", ingress("", json!([{"from": [{"podSelector": {}}]}])))],
            [tcp(80, [("y", "x", false), ("z", "x", false)])],
        ),
        case("a rule without peers is for all", [("x", ingress("", json!([{}])))], [tcp(80, []), tcp(81, [])]),
        case(
            "an empty list of peers is for all",
            [("x", ingress("", json!([{"from": [], "ports": []}])))],
            [tcp(80, [])],
        ),
        case("without types it is of ingress", [("x", json!({"podSelector": labels("a")}))], [tcp(80, [CLOSED])]),
        case(
            "without types and with rules of egress it is of both",
            [("x", json!({"podSelector": labels("a"), "egress": [{"to": [{"podSelector": labels("b")}]}]}))],
            [tcp(80, [CLOSED, ("x/a", "*", false), ("x/a", "x/b", true)])],
        ),
    ]
}

fn ports() -> Vec<Case> {
    let from_y = |port: Value| {
        ("x", ingress("a", json!([{"from": [{"namespaceSelector": in_namespace("y")}], "ports": [port]}])))
    };
    let shut = || [("*", "x/a", false)];
    let to_y = || [("*", "x/a", false), ("y", "x/a", true)];
    vec![
        case("a port", [from_y(json!({"port": 81, "protocol": "TCP"}))], [tcp(81, to_y()), tcp(80, shut())]),
        case(
            "policies add up",
            [from_y(json!({"port": 81})), from_y(json!({"port": 80}))],
            [tcp(81, to_y()), tcp(80, to_y()), at(80, Protocol::Udp, shut())],
        ),
        case(
            "a named port",
            [("x", ingress("", json!([{"ports": [{"port": "serve-81-tcp"}]}])))],
            [tcp(81, []), tcp(80, [("*", "x", false)])],
        ),
        case(
            "a named port for one namespace",
            [from_y(json!({"port": "serve-80-tcp", "protocol": "TCP"}))],
            [tcp(80, to_y()), tcp(81, shut())],
        ),
        case("a named port that no container has", [from_y(json!({"port": "nobody"}))], [tcp(80, shut())]),
        case(
            "a named port of another protocol",
            [from_y(json!({"port": "serve-80-udp", "protocol": "TCP"}))],
            [tcp(80, shut()), at(80, Protocol::Udp, shut())],
        ),
        case(
            "a named port of the other side",
            [("x", egress("", json!([{"ports": [{"port": "serve-80-tcp"}]}])))],
            [tcp(80, []), tcp(81, [("x", "*", false)])],
        ),
        case(
            "a named port of some others",
            [(
                "x",
                egress(
                    "",
                    json!([{"to": [{"namespaceSelector": in_namespace("y")}], "ports": [{"port": "serve-80-tcp"}]}]),
                ),
            )],
            [tcp(80, [("x", "*", false), ("x", "y", true)]), tcp(81, [("x", "*", false)])],
        ),
        case("a range of ports", [from_y(json!({"port": 70, "endPort": 80}))], [tcp(80, to_y()), tcp(81, shut())]),
        case(
            "ranges that overlap",
            [(
                "x",
                ingress(
                    "a",
                    json!([{"ports": [{"port": 70, "endPort": 80}, {"port": 75, "endPort": 79}, {"port": 80}, {"port": 81, "endPort": 90}]}]),
                ),
            )],
            [tcp(80, []), tcp(81, []), at(80, Protocol::Udp, shut())],
        ),
        case(
            "a protocol without a port",
            [("x", ingress("a", json!([{"ports": [{"protocol": "TCP"}]}])))],
            [tcp(80, []), at(80, Protocol::Udp, shut())],
        ),
        case(
            "UDP is not TCP",
            [("x", ingress("a", json!([{"ports": [{"protocol": "UDP", "port": 80}]}])))],
            [at(80, Protocol::Udp, []), tcp(80, shut())],
        ),
        case(
            "SCTP is not TCP",
            [("x", ingress("a", json!([{"ports": [{"protocol": "SCTP", "port": 80}]}])))],
            [tcp(80, shut()), at(80, Protocol::Udp, shut()), at(80, Protocol::Sctp, [])],
        ),
        case(
            "all ports take precedence",
            [("x", ingress("", json!([{"ports": [{"port": 80}]}]))), ("x", ingress("", json!([{}])))],
            [tcp(81, [])],
        ),
    ]
}

fn both_ways() -> Vec<Case> {
    let to = |peers: Value| ("x", egress("a", json!([{"to": peers}])));
    vec![
        case("no egress from a pod", [("x", egress("a", json!([])))], [tcp(80, [("x/a", "*", false)])]),
        case("no egress from a namespace", [("x", egress("", json!([])))], [tcp(80, [("x", "*", false)])]),
        case(
            "ingress and egress in one",
            [(
                "x",
                json!({"podSelector": labels("a"), "policyTypes": ["Ingress", "Egress"],
                "ingress": [{"from": [{"podSelector": labels("b")}]}], "egress": [{"ports": [{"port": 80}]}]}),
            )],
            [
                tcp(80, [("*", "x/a", false), ("x/b", "x/a", true)]),
                tcp(81, [("*", "x/a", false), ("x/a", "*", false), ("x/b", "x/a", true)]),
            ],
        ),
        case(
            "the client's side forbids what the server's allows",
            [
                to(json!([{"namespaceSelector": in_namespace("y"), "podSelector": labels("a")}])),
                (
                    "y",
                    ingress(
                        "a",
                        json!([{"from": [{"namespaceSelector": in_namespace("x"), "podSelector": labels("a")}]}]),
                    ),
                ),
                (
                    "y",
                    ingress(
                        "b",
                        json!([{"from": [{"namespaceSelector": in_namespace("x"), "podSelector": labels("a")}]}]),
                    ),
                ),
            ],
            [tcp(80, [("*", "y", false), ("x/a", "*", false), ("x/a", "y/a", true)])],
        ),
        case(
            "egress to one pod of another namespace",
            [to(json!([{"namespaceSelector": in_namespace("y"), "podSelector": labels("a")}]))],
            [tcp(80, [("x/a", "*", false), ("x/a", "y/a", true)])],
        ),
        case(
            "all egress takes precedence",
            [("x", egress("", json!([{"ports": [{"port": 80}]}]))), ("x", egress("", json!([{}])))],
            [tcp(81, [])],
        ),
        case(
            "both directions on their own",
            [
                ("x", ingress("a", json!([{"from": [{"podSelector": labels("b")}]}]))),
                to(json!([{"podSelector": labels("c")}])),
            ],
            [tcp(80, [("*", "x/a", false), ("x/b", "x/a", true), ("x/a", "*", false), ("x/a", "x/c", true)])],
        ),
    ]
}

fn blocks() -> Vec<Case> {
    let to = |block: Value| ("x", egress("a", json!([{"to": [{"ipBlock": block}]}])));
    vec![
        case(
            "egress to a range",
            [to(json!({"cidr": "10.244.0.20/32"}))],
            [tcp(80, [("x/a", "*", false), ("x/a", "y/a", true)])],
        ),
        case(
            "egress to a range but for a part",
            [to(json!({"cidr": "10.244.0.0/24", "except": ["10.244.0.20/32", "10.244.0.21/32"]}))],
            [tcp(80, [("x/a", "y", false)])],
        ),
        case(
            "what one block excepts another allows",
            [to(json!({"cidr": "10.244.0.0/24", "except": ["10.244.0.20/32"]})), to(json!({"cidr": "10.244.0.20/32"}))],
            [tcp(80, [])],
        ),
        case("all but nothing", [to(json!({"cidr": "0.0.0.0/0"}))], [tcp(80, [])]),
        case(
            "all but some",
            [to(json!({"cidr": "0.0.0.0/0", "except": ["10.244.0.0/28"]}))],
            [tcp(80, [("x/a", "x", false)])],
        ),
        case(
            "a block without anything left",
            [to(json!({"cidr": "10.244.0.0/24", "except": ["10.244.0.0/16"]}))],
            [tcp(80, [("x/a", "*", false)])],
        ),
        case(
            "the other family's addresses are others",
            [to(json!({"cidr": "::/0", "except": ["fd00::/8"]}))],
            [tcp(80, [("x/a", "*", false)])],
        ),
        case(
            "ingress from a range at a port",
            [("x", ingress("", json!([{"from": [{"ipBlock": {"cidr": "10.244.0.16/29"}}], "ports": [{"port": 80}]}])))],
            [tcp(80, [("*", "x", false), ("y", "x", true)]), tcp(81, [("*", "x", false)])],
        ),
        case(
            "a named port within a range",
            [(
                "x",
                egress(
                    "a",
                    json!([{"to": [{"ipBlock": {"cidr": "10.244.0.20/31"}}], "ports": [{"port": "serve-80-tcp"}]}]),
                ),
            )],
            [tcp(80, [("x/a", "*", false), ("x/a", "y", true)]), tcp(81, [("x/a", "*", false)])],
        ),
    ]
}
