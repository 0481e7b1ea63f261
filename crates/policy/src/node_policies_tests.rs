//! The pure part: who is isolated, who reaches whom, and how little a change changes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use crate::cases::{self, PODS, address, bridge, namespace, pod, policy, state};
use crate::node_policies::NodePolicies;
use crate::policy::Protocol;

fn reaches(state: &NodePolicies, from: &str, to: &str) -> bool {
    state.allows(address(from), address(to), Protocol::Tcp, 80)
}

fn deny(spec: &str) -> Value {
    json!({"podSelector": {}, "policyTypes": [spec]})
}

#[test]
fn upstreams_cases_hold() {
    for case in cases::all() {
        let mut state = state();
        for (number, (namespace, spec)) in case.policies.iter().enumerate() {
            state.policy(&policy(namespace, &format!("p{number}"), spec), true);
        }
        state.transaction();
        for look in &case.looks {
            for (from, _) in PODS {
                for (to, _) in PODS.iter().filter(|(to, _)| *to != from) {
                    let allowed = state.allows(address(from), address(to), look.protocol, look.port);
                    assert_eq!(allowed, look.expects(from, to), "{}: {from} to {to}:{}", case.name, look.port);
                }
            }
        }
        // Nothing is left when the policies go.
        for (number, (namespace, spec)) in case.policies.iter().enumerate() {
            state.policy(&policy(namespace, &format!("p{number}"), spec), false);
        }
        state.transaction();
        assert!(PODS.iter().all(|(from, _)| PODS.iter().all(|(to, _)| reaches(&state, from, to))), "{}", case.name);
        let whole = state.resync().script();
        assert!(!whole.contains("add set") && !whole.contains("add chain"), "{}: {whole}", case.name);
    }
}

#[test]
fn labels_of_pods_and_namespaces_are_followed() {
    let mut state = state();
    let from = json!([{"namespaceSelector": {"matchLabels": {"team": "blue"}}}, {"podSelector": {"matchLabels": {"friend": "yes"}}}]);
    let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": from}]});
    state.policy(&policy("x", "p", &spec), true);
    state.transaction();
    assert!(!reaches(&state, "y/a", "x/a") && !reaches(&state, "x/b", "x/a"));
    state.namespace(&namespace("y", json!({"team": "blue"})), true);
    state.pod(&pod("x/b", json!({"friend": "yes"}), Some("10.244.0.11")), true);
    state.transaction();
    assert!(reaches(&state, "y/a", "x/a") && reaches(&state, "y/b", "x/a") && reaches(&state, "x/b", "x/a"));
    state.namespace(&namespace("y", json!({})), true);
    state.pod(&pod("x/b", json!({}), Some("10.244.0.11")), true);
    state.transaction();
    assert!(!reaches(&state, "y/a", "x/a") && !reaches(&state, "x/b", "x/a"));
    // The pod that the policy selects leaves it.
    state.pod(&pod("x/a", json!({"pod": "other"}), Some("10.244.0.10")), true);
    state.transaction();
    assert!(reaches(&state, "y/a", "x/a"));
}

#[test]
fn addresses_of_ended_and_deleted_pods_are_no_ones() {
    let mut state = state();
    let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    state.policy(&policy("x", "p", &spec), true);
    state.transaction();
    assert!(reaches(&state, "x/b", "x/a"));
    let mut over = pod("x/b", json!({"pod": "b"}), Some("10.244.0.11")).as_ref().clone();
    over.status.as_mut().expect("a status").phase = Some("Succeeded".into());
    state.pod(&over.into(), true);
    state.transaction();
    assert!(!reaches(&state, "x/b", "x/a"), "an ended pod's address may be another's");
    assert!(reaches(&state, "x/c", "x/a"));
    state.pod(&pod("x/c", json!({"pod": "c"}), Some("10.244.0.12")), false);
    state.transaction();
    assert!(!reaches(&state, "x/c", "x/a"));
    // Its own address is free once the selected pod is gone.
    state.pod(&pod("x/a", json!({"pod": "a"}), Some("10.244.0.10")), false);
    state.transaction();
    assert!(reaches(&state, "y/a", "x/a"));
}

#[test]
fn pods_of_other_nodes_and_of_the_host_are_not_isolated_here() {
    let mut state = NodePolicies::new("there", "t", bridge());
    state.namespace(&namespace("x", json!({})), true);
    state.pod(&pod("x/a", json!({}), Some("10.244.0.10")), true);
    let mut host = pod("x/h", json!({}), Some("198.51.100.1")).as_ref().clone();
    let spec = host.spec.as_mut().expect("a spec");
    (spec.host_network, spec.node_name) = (Some(true), Some("there".into()));
    state.pod(&host.into(), true);
    state.policy(&policy("x", "p", &deny("Ingress")), true);
    state.transaction();
    assert!(state.isolated().is_empty());
}

#[test]
fn a_new_pod_is_closed_before_anybody_else_knows_its_address() {
    let mut state = state();
    state.policy(&policy("z", "p", &deny("Egress")), true);
    state.transaction();
    let fresh = pod("z/new", json!({}), None);
    let at = "10.244.0.99";
    state.told(&fresh, vec![at.parse().expect("an address")]);
    let script = state.transaction().script();
    assert!(script.contains("isolated-egress-4 { 10.244.0.99 : goto egress-"), "{script}");
    let from: IpAddr = at.parse().expect("an address");
    assert!(!state.allows(from, address("x/a"), Protocol::Tcp, 80));
    // The informer's older word does not open it.
    state.pod(&fresh, true);
    assert!(state.transaction().script().is_empty());
    state.pod(&pod("z/new", json!({}), Some(at)), true);
    assert!(state.transaction().script().is_empty());
    // Another pod has the address before the end of this one is told.
    state.told(&pod("x/next", json!({}), None), vec![from]);
    state.transaction();
    assert!(state.allows(from, address("x/a"), Protocol::Tcp, 80), "the policy is z's");
    state.pod(&fresh, false);
    state.transaction();
    assert!(state.allows(from, address("x/a"), Protocol::Tcp, 80));
}

#[test]
fn a_pod_that_nobody_told_of_again_does_not_keep_its_address() {
    let mut state = state();
    state.policy(&policy("z", "p", &deny("Ingress")), true);
    let at: IpAddr = "10.244.0.99".parse().expect("an address");
    for number in 0..3 {
        state.told(&pod(&format!("z/n{number}"), json!({}), None), vec![at]);
        state.transaction();
        assert!(!state.allows(address("x/a"), at, Protocol::Tcp, 80));
    }
    state.told(&pod("y/n", json!({}), None), vec![at]);
    state.transaction();
    assert!(state.allows(address("x/a"), at, Protocol::Tcp, 80));
}

#[test]
fn a_change_writes_only_what_it_changes() {
    let mut state = state();
    for number in 0..50 {
        let label = format!("l{number}");
        let from = json!([{"from": [{"podSelector": {"matchLabels": {"l": label}}}]}]);
        let spec = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": from});
        state.policy(&policy("x", &format!("p{number}"), &spec), true);
    }
    state.transaction();
    // A pod that a single set takes in.
    state.pod(&pod("x/n", json!({"l": "l7"}), Some("10.244.0.77")), true);
    let script = state.transaction().script();
    assert_eq!(script.lines().count(), 1, "{script}");
    assert!(script.starts_with("add element inet t pods-") && script.contains("{ 10.244.0.77 }"), "{script}");
    // Its status changes, its labels do not.
    state.pod(&pod("x/n", json!({"l": "l7"}), Some("10.244.0.77")), true);
    assert!(state.transaction().script().is_empty());
    state.pod(&pod("x/n", json!({"l": "l7"}), Some("10.244.0.77")), false);
    let gone = state.transaction();
    assert!(gone.forbids && gone.script().starts_with("delete element"), "{}", gone.script());
    // Equal selectors of several policies share one set.
    let spec = json!({"podSelector": {}, "ingress": [{"from": [{"podSelector": {"matchLabels": {"l": "l7"}}}], "ports": [{"port": 1}]}]});
    state.policy(&policy("x", "again", &spec), true);
    assert!(!state.transaction().script().contains("add set"));
}

#[test]
fn both_families_have_rules() {
    let mut state = NodePolicies::new("here", "t", bridge());
    state.namespace(&namespace("x", json!({})), true);
    let mut dual = pod("x/a", json!({"pod": "a"}), Some("10.244.0.10")).as_ref().clone();
    let status = dual.status.as_mut().expect("a status");
    status.pod_ips.as_mut().expect("addresses").push(k8s_openapi::api::core::v1::PodIP { ip: "fd00::10".into() });
    state.pod(&dual.into(), true);
    let from =
        json!([{"from": [{"podSelector": {}}, {"ipBlock": {"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}}]}]);
    state.policy(&policy("x", "p", &json!({"podSelector": {}, "ingress": from})), true);
    let script = state.transaction().script();
    assert!(script.starts_with("add table"), "the whole table, since a family comes anew");
    for part in [
        "isolated-ingress-4 { 10.244.0.10 : goto",
        "isolated-ingress-6 { fd00::10 : goto",
        "own-6 { fd00::10 . fd00::10 }",
        "strays ip6 saddr { ::, fe80::/10 } drop",
        "strays ip6 daddr { fe80::/10, ff00::/8 } drop",
        "ip6 saddr 2001:db8::/32 ip6 saddr != 2001:db8:1::/48 accept",
    ] {
        assert!(script.contains(part), "{part} in {script}");
    }
    let allows =
        |from: &str| state.allows(from.parse().expect("one"), "fd00::10".parse().expect("one"), Protocol::Tcp, 1);
    assert!(allows("2001:db8::1") && !allows("2001:db8:1::1") && !allows("198.51.100.1"));
}

/// Sets that rules of the whole table name, and sets that are in it.
fn sets(script: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let words = script.split_whitespace();
    let named = words.filter_map(|word| word.strip_prefix('@')).filter(|name| name.starts_with("po")).collect();
    let made = script.lines().filter_map(|line| line.strip_prefix("add set inet t ")?.split_whitespace().next());
    (named, made.collect())
}

#[test]
fn a_set_stays_while_any_chain_names_it() {
    let to = |pod: &str, peers: Value| {
        let mut rule = json!({"ports": [{"port": "serve-80-tcp"}]});
        if !peers.is_null() {
            rule["to"] = peers;
        }
        json!({"podSelector": {"matchLabels": {"pod": pod}}, "policyTypes": ["Egress"], "egress": [rule]})
    };
    let four = json!({"ipBlock": {"cidr": "0.0.0.0/0"}});
    let all_but_all = json!({"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.0.0.0/9", "10.128.0.0/9"]}});
    // What allows nothing on a node without IPv6, or nothing at all.
    for nothing in [json!({"ipBlock": {"cidr": "::/0"}}), all_but_all] {
        let mut state = state();
        let one = policy("x", "one", &to("a", json!([four])));
        let two = policy("x", "two", &to("b", json!([four, nothing])));
        state.policy(&one, true);
        state.transaction();
        state.policy(&two, true);
        state.policy(&policy("x", "three", &to("c", Value::Null)), true);
        state.transaction();
        for gone in [one, two] {
            state.policy(&gone, false);
            let script = state.transaction().script();
            assert!(!script.contains("delete set"), "the third policy's chain names it: {script}");
        }
        assert!(reaches(&state, "x/c", "y/a"));
        let whole = state.resync().script();
        let (named, made) = sets(&whole);
        assert!(!named.is_empty() && named == made, "{whole}");
        state.policy(&policy("x", "three", &to("c", Value::Null)), false);
        assert!(state.transaction().script().contains("delete set"));
    }
}

#[test]
fn the_whole_table_follows_from_pods_and_policies_alone() {
    let mut state = state();
    state.policy(&policy("x", "p", &deny("Ingress")), true);
    let from = json!([{"from": [{"podSelector": {}}], "ports": [{"port": "serve-80-tcp"}]}]);
    state.policy(&policy("y", "p", &json!({"podSelector": {}, "ingress": from})), true);
    let at: IpAddr = "10.244.0.99".parse().expect("an address");
    state.told(&pod("z/old", json!({}), None), vec![at]);
    state.told(&pod("y/new", json!({}), None), vec![at]);
    state.transaction();
    let whole = state.resync().script();
    assert_eq!(whole, state.resync().script());
    assert!(whole.contains("10.244.0.99 : goto ingress-"), "who was told last holds the address: {whole}");
    assert!(state.transaction().script().is_empty());
    // Changes go on from there.
    state.policy(&policy("x", "p", &deny("Ingress")), false);
    state.policy(&policy("y", "p", &json!({"podSelector": {}, "ingress": from})), false);
    state.transaction();
    let empty = state.resync().script();
    assert!(!empty.contains("add set") && !empty.contains("add chain") && !empty.contains("goto"), "{empty}");
}

#[test]
fn packets_without_a_pods_address_are_dropped_while_a_pod_is_isolated() {
    let mut state = state();
    assert!(!state.resync().script().contains("add rule inet t strays"), "no pod is isolated");
    state.policy(&policy("x", "p", &deny("Egress")), true);
    let script = state.transaction().script();
    assert!(script.contains("add rule inet t strays meta nfproto ipv6 drop"), "{script}");
    state.policy(&policy("y", "p", &deny("Ingress")), true);
    assert!(!state.transaction().script().contains("strays"), "once is enough");
    state.policy(&policy("x", "p", &deny("Egress")), false);
    assert!(!state.transaction().script().contains("strays"));
    state.policy(&policy("y", "p", &deny("Ingress")), false);
    assert!(state.transaction().script().contains("flush chain inet t strays"));
}

/// Each had as much as a policy may have, and nobody counted the policies.
#[test]
fn the_policies_of_a_namespace_stand_for_so_much_together() {
    let mut state = state();
    let ports: Vec<_> = (0..400).map(|at| json!({"port": 2 * at + 1})).collect();
    let allow = |to: &str| {
        let others = (1..400).map(|at| format!("172.16.{}.{}/32", at / 256, at % 256));
        let blocks: Vec<_> =
            others.chain([format!("{}/32", address(to))]).map(|range| json!({"ipBlock": {"cidr": range}})).collect();
        json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": blocks, "ports": ports}]})
    };
    let reaches =
        |state: &NodePolicies, from: &str, to: &str| state.allows(address(from), address(to), Protocol::Tcp, 81);
    // Each stands for 160,000 rules, and the first namespace has half a million.
    for (number, to) in ["y/a", "y/b", "x/b", "z/a"].into_iter().enumerate() {
        state.policy(&policy("x", &format!("p{number}"), &allow(to)), true);
    }
    state.policy(&policy("y", "p", &allow("z/a")), true);
    state.transaction();
    assert!(["y/a", "y/b", "x/b"].iter().all(|to| reaches(&state, "x/a", to)));
    assert!(!reaches(&state, "x/a", "z/a"), "there is no room for the last one");
    assert!(reaches(&state, "y/a", "z/a"), "another namespace has room");
    // What has room keeps it, though there would be less now; what is given back is there for others.
    state.policy(&policy("x", "p0", &allow("y/a")), true);
    state.policy(&policy("x", "p1", &allow("y/b")), false);
    state.transaction();
    assert!(reaches(&state, "x/a", "y/a") && !reaches(&state, "x/a", "y/b") && !reaches(&state, "x/a", "z/a"));
    state.policy(&policy("y", "p", &allow("z/a")), false);
    state.transaction();
    assert!(reaches(&state, "x/a", "z/a"));
}
