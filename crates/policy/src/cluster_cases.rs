//! What network-policy-api says of ClusterNetworkPolicies, as a table: policies, and who reaches whom. Checked against the pure state
//! here, and with real packets in `kernel_tests`.

use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::cases::{self, PODS, address, namespace, pod, policy};
use crate::cluster_policy::StoredClusterPolicy;
use crate::node_policies::NodePolicies;
use crate::policy::Protocol;

pub(crate) fn cluster_policy(name: &str, spec: &Value) -> StoredClusterPolicy {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).expect("a policy")
}

pub(crate) fn node(name: &str, address: &str) -> Node {
    let addresses = json!([{"type": "Hostname", "address": name}, {"type": "InternalIP", "address": address}]);
    let node = json!({"metadata": {"name": name, "labels": {"node": name}}, "status": {"addresses": addresses}});
    serde_json::from_value(node).expect("a node")
}

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) cluster: Vec<Value>,
    /// Of namespace x.
    pub(crate) policies: Vec<Value>,
    /// From, to, port over TCP, and whether it is reached.
    pub(crate) looks: Vec<(&'static str, &'static str, u16, bool)>,
}

fn in_namespace(name: &str) -> Value {
    json!({"matchLabels": {"kubernetes.io/metadata.name": name}})
}

fn peer(namespace_name: &str) -> Value {
    json!([{"namespaces": in_namespace(namespace_name)}])
}

fn everyone() -> Value {
    json!([{"namespaces": {}}])
}

fn from(action: &str, peers: Value, protocols: Value) -> Value {
    json!({"action": action, "from": peers, "protocols": protocols})
}

fn to(action: &str, peers: Value, protocols: Value) -> Value {
    json!({"action": action, "to": peers, "protocols": protocols})
}

/// For the pods of namespace x.
fn of_x(tier: &str, priority: u32, ingress: Value, egress: Value) -> Value {
    json!({"tier": tier, "priority": priority, "subject": {"namespaces": in_namespace("x")},
        "ingress": ingress, "egress": egress})
}

pub(crate) fn all() -> Vec<Case> {
    let port = |number: u16| json!([{"tcp": {"destinationPort": {"number": number}}}]);
    let (any, none) = (Value::Null, json!([]));
    let closed = json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]});
    let open = json!({"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]});
    let deny_y = || from("Deny", peer("y"), any.clone());
    vec![
        Case {
            name: "the first rule that fits decides",
            cluster: vec![of_x(
                "Admin",
                10,
                json!([from("Accept", peer("y"), port(80)), deny_y(), from("Accept", peer("y"), any.clone())]),
                none.clone(),
            )],
            policies: vec![],
            looks: vec![
                ("y/a", "x/a", 80, true),
                ("y/a", "x/a", 81, false),
                ("z/a", "x/a", 81, true),
                ("x/b", "x/a", 81, true),
            ],
        },
        Case {
            name: "the lower priority decides, whatever the names say",
            cluster: vec![
                of_x("Admin", 20, json!([from("Accept", everyone(), any.clone())]), none.clone()),
                of_x("Admin", 3, json!([deny_y()]), none.clone()),
            ],
            policies: vec![closed.clone()],
            looks: vec![("y/a", "x/a", 80, false), ("z/a", "x/a", 80, true)],
        },
        Case {
            name: "the Admin tier is before NetworkPolicies",
            cluster: vec![of_x("Admin", 1, json!([from("Accept", peer("z"), port(80)), deny_y()]), none.clone())],
            policies: vec![closed.clone()],
            looks: vec![("z/a", "x/a", 80, true), ("z/a", "x/a", 81, false), ("y/a", "x/a", 80, false)],
        },
        Case {
            name: "passed to NetworkPolicies",
            cluster: vec![
                of_x("Admin", 1, json!([from("Pass", peer("y"), any.clone())]), none.clone()),
                of_x("Admin", 2, json!([from("Deny", everyone(), any.clone())]), none.clone()),
            ],
            policies: vec![open.clone()],
            looks: vec![("y/a", "x/a", 80, true), ("z/a", "x/a", 80, false), ("x/b", "x/a", 80, false)],
        },
        Case {
            name: "passed to the Baseline tier where no NetworkPolicy selects",
            cluster: vec![
                of_x("Admin", 1, json!([from("Pass", peer("y"), any.clone())]), none.clone()),
                of_x("Admin", 2, json!([from("Deny", peer("y"), any.clone())]), none.clone()),
                of_x(
                    "Baseline",
                    0,
                    json!([from("Deny", peer("y"), port(81)), from("Deny", peer("z"), any.clone())]),
                    none.clone(),
                ),
            ],
            policies: vec![],
            looks: vec![("y/a", "x/a", 80, true), ("y/a", "x/a", 81, false), ("z/a", "x/a", 80, false)],
        },
        Case {
            name: "NetworkPolicies leave nothing to the Baseline tier",
            cluster: vec![of_x("Baseline", 0, json!([from("Deny", everyone(), any.clone())]), none.clone())],
            policies: vec![open],
            looks: vec![("y/a", "x/a", 80, true), ("x/a", "y/a", 80, true)],
        },
        Case {
            name: "passed within the Baseline tier is allowed",
            cluster: vec![of_x(
                "Baseline",
                0,
                json!([from("Pass", peer("y"), any.clone()), from("Deny", everyone(), any.clone())]),
                none.clone(),
            )],
            policies: vec![],
            looks: vec![("y/a", "x/a", 80, true), ("z/a", "x/a", 80, false)],
        },
        Case {
            name: "egress to networks, after an exception for pods",
            cluster: vec![of_x(
                "Admin",
                0,
                none.clone(),
                json!([
                    to("Pass", peer("y"), any.clone()),
                    to("Accept", json!([{"networks": ["10.244.0.30/32"]}]), port(81)),
                    to("Deny", json!([{"networks": ["0.0.0.0/0", "::/0"]}]), any.clone()),
                ]),
            )],
            policies: vec![],
            looks: vec![
                ("x/a", "y/a", 80, true),
                ("x/a", "z/a", 80, false),
                ("x/a", "z/a", 81, true),
                ("y/a", "x/a", 80, true),
            ],
        },
        Case {
            name: "named ports, of the pod that is connected to",
            cluster: vec![of_x(
                "Admin",
                0,
                json!([from("Deny", peer("y"), json!([{"destinationNamedPort": "serve-80-tcp"}]))]),
                json!([to("Deny", peer("z"), json!([{"destinationNamedPort": "serve-81-tcp"}]))]),
            )],
            policies: vec![],
            looks: vec![
                ("y/a", "x/a", 80, false),
                ("y/a", "x/a", 81, true),
                ("x/a", "z/a", 80, true),
                ("x/a", "z/a", 81, false),
            ],
        },
        Case {
            name: "pods by their labels, in ranges of ports",
            cluster: vec![json!({"tier": "Admin", "priority": 0,
                "subject": {"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "a"}}}},
                "ingress": [from("Deny", json!([{"pods": {"namespaceSelector": {}, "podSelector": {"matchLabels": {"pod": "b"}}}}]),
                    json!([{"tcp": {"destinationPort": {"range": {"start": 70, "end": 80}}}}]))]})],
            policies: vec![],
            looks: vec![
                ("y/b", "x/a", 80, false),
                ("x/b", "y/a", 80, false),
                ("y/b", "x/a", 81, true),
                ("y/b", "x/b", 80, true),
                ("x/c", "x/a", 80, true),
            ],
        },
        Case {
            name: "a peer that is not known closes",
            cluster: vec![of_x("Admin", 0, none, json!([to("Deny", json!([{"domainNames": ["example.com"]}]), any)]))],
            policies: vec![],
            looks: vec![("x/a", "y/a", 80, false), ("y/a", "x/a", 80, true)],
        },
    ]
}

impl Case {
    pub(crate) fn apply(&self, state: &mut NodePolicies, present: bool) {
        for (number, spec) in self.cluster.iter().enumerate() {
            state.cluster_policy(&cluster_policy(&format!("c{number}"), spec), present);
        }
        for (number, spec) in self.policies.iter().enumerate() {
            state.policy(&policy("x", &format!("p{number}"), spec), present);
        }
    }
}

fn reaches(state: &NodePolicies, from: &str, to: &str, port: u16) -> bool {
    state.allows(address(from), address(to), Protocol::Tcp, port)
}

#[test]
fn tiers_decide_as_the_api_says() {
    for case in all() {
        let mut state = cases::state();
        case.apply(&mut state, true);
        state.transaction();
        for (from, to, port, expected) in &case.looks {
            assert_eq!(reaches(&state, from, to, *port), *expected, "{}: {from} to {to}:{port}", case.name);
        }
        case.apply(&mut state, false);
        state.transaction();
        assert!(PODS.iter().all(|(from, _)| PODS.iter().all(|(to, _)| reaches(&state, from, to, 80))), "{}", case.name);
        let whole = state.resync().script();
        assert!(!whole.contains("add set") && !whole.contains("add chain"), "{}: {whole}", case.name);
    }
}

#[test]
fn labels_of_namespaces_and_nodes_are_followed() {
    let mut state = cases::state();
    let spec = json!({"tier": "Admin", "priority": 0, "subject": {"namespaces": {"matchLabels": {"team": "blue"}}},
        "ingress": [from("Deny", everyone(), Value::Null)],
        "egress": [to("Deny", json!([{"nodes": {"matchLabels": {"node": "n2"}}}]), Value::Null)]});
    state.cluster_policy(&cluster_policy("c", &spec), true);
    state.transaction();
    assert!(state.isolated().is_empty());
    state.namespace(&namespace("y", json!({"team": "blue"})), true);
    state.transaction();
    assert!(
        !reaches(&state, "x/a", "y/a", 80) && !reaches(&state, "y/b", "y/a", 80) && reaches(&state, "y/a", "x/a", 80)
    );
    let there = |state: &NodePolicies| state.allows(address("y/a"), [192, 0, 2, 2].into(), Protocol::Tcp, 22);
    assert!(there(&state));
    state.node(&node("n2", "192.0.2.2"), true);
    let script = state.transaction().script();
    assert_eq!(script.lines().count(), 1, "{script}");
    assert!(!there(&state));
    state.node(&node("n2", "192.0.2.2"), true);
    assert!(state.transaction().script().is_empty(), "nothing that matters changed");
    state.node(&node("n2", "192.0.2.2"), false);
    state.transaction();
    assert!(there(&state));
    state.namespace(&namespace("y", json!({})), true);
    state.transaction();
    assert!(state.isolated().is_empty());
    // A pod that comes to a namespace that is selected.
    state.namespace(&namespace("z", json!({"team": "blue"})), true);
    state.pod(&pod("z/new", json!({}), Some("10.244.0.31")), true);
    state.transaction();
    assert!(!state.allows(address("x/a"), [10, 244, 0, 31].into(), Protocol::Tcp, 80));
}

/// There are no sets for addresses of a family that no pod has: one transaction after the other was refused.
#[test]
fn a_node_may_have_addresses_of_a_family_that_no_pod_has() {
    let mut state = cases::state();
    let nodes = json!([{"nodes": {"matchLabels": {"node": "n2"}}}]);
    let spec = of_x("Admin", 0, json!([]), json!([to("Deny", nodes, Value::Null)]));
    state.cluster_policy(&cluster_policy("c", &spec), true);
    state.transaction();
    let sixth = |script: String| -> Vec<String> {
        script.lines().filter(|line| line.contains("fd00::2")).map(str::to_owned).collect()
    };
    state.node(&node("n2", "fd00::2"), true);
    let told: Vec<String> =
        [state.transaction().script(), state.resync().script()].into_iter().flat_map(sixth).collect();
    assert!(told.is_empty(), "{told:?}");
    state.pod(&pod("z/six", json!({}), Some("fd00::31")), true);
    let told = sixth(state.transaction().script());
    assert!(told.len() == 1 && told[0].starts_with("add element inet t nodes-"), "{told:?}");
    state.node(&node("n2", "fd00::2"), false);
    let told = sixth(state.transaction().script());
    assert!(told.len() == 1 && told[0].starts_with("delete element inet t nodes-"), "{told:?}");
}

#[test]
fn pods_with_the_same_policies_share_a_chain() {
    let mut state = cases::state();
    let spec = of_x("Admin", 0, json!([from("Deny", peer("y"), Value::Null)]), json!([]));
    state.cluster_policy(&cluster_policy("shared", &spec), true);
    let script = state.transaction().script();
    assert_eq!(script.matches("add chain").count(), 2, "one of the tier, one of the pods: {script}");
    assert!(script.contains("drop comment \"Admin shared\""), "{script}");
}
