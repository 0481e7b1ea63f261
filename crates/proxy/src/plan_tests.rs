//! Scenarios from objects to rules: what a service becomes, and what a change costs.

use std::sync::Arc;

use ferry_client::endpoint_slices::Slice;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde_json::{Value, json};

use crate::conntrack;
use crate::endpoints::NodeView;
use crate::family::Family;
use crate::frame::Frame;
use crate::listeners::Listeners;
use crate::plan::View;
use crate::proxier::Proxier;

pub(crate) fn service(name: &str, spec: Value, status: Value) -> Arc<Service> {
    let object = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status});
    Arc::new(serde_json::from_value(object).expect("a service"))
}

pub(crate) fn slice(service: &str, port: i32, protocol: &str, endpoints: Value) -> Arc<Slice> {
    Arc::new(whole_slice(service, port, protocol, endpoints).into())
}

pub(crate) fn whole_slice(service: &str, port: i32, protocol: &str, endpoints: Value) -> EndpointSlice {
    let object = json!({
        "metadata": {"name": format!("{service}-1"), "namespace": "default", "labels": {"kubernetes.io/service-name": service}},
        "addressType": "IPv4", "endpoints": endpoints, "ports": [{"port": port, "protocol": protocol}],
    });
    serde_json::from_value(object).expect("a slice")
}

pub(crate) fn state() -> Proxier {
    state_at(&[])
}

/// Node ports are served at these addresses alone.
pub(crate) fn state_at(node_port_addresses: &[&str]) -> Proxier {
    state_of(Family::Ipv4, node_port_addresses)
}

pub(crate) fn state_of(family: Family, node_port_addresses: &[&str]) -> Proxier {
    let (pod_cidr, services) = match family {
        Family::Ipv4 => ("10.244.0.0/16", "10.96.0.0/16"),
        Family::Ipv6 => ("fd00:244::/56", "fd00:96::/112"),
    };
    let frame = Frame {
        family,
        table: "t".into(),
        pod_cidr: pod_cidr.into(),
        service_cidrs: vec![services.into()],
        node_port_addresses: node_port_addresses.iter().map(|range| (*range).to_owned()).collect(),
        masquerade_between_pods: false,
    };
    let node = NodeView { name: "here".into(), zone: None };
    Proxier::new(frame, View { family, node, pod_cidr: pod_cidr.into(), ..View::default() })
}

fn listed(ports: impl Iterator<Item = usize>) -> Vec<Value> {
    ports.map(|port| json!({"name": format!("p{port}"), "port": port})).collect()
}

/// Each port was compared with each of the slice's, and each was put in front of all others.
#[test]
fn a_service_with_very_many_ports_is_planned_at_once() {
    const PORTS: usize = 20_000;
    let mut state = state();
    let descending = listed((1..=PORTS).rev());
    state.service(&service("web", json!({"clusterIP": "10.96.0.9", "ports": descending}), Value::Null), true);
    let mut slice = whole_slice("web", 1, "TCP", json!([{"addresses": ["10.244.0.7"]}]));
    slice.ports = serde_json::from_value(json!(listed(1..=PORTS))).expect("ports");
    state.slice(&Arc::new(slice.into()), true);
    let begin = std::time::Instant::now();
    let transaction = state.transaction();
    let elapsed = begin.elapsed();
    assert_eq!(state.take_refused().len(), 0);
    assert!(!transaction.is_empty());
    // It took minutes.
    assert!(elapsed < std::time::Duration::from_secs(20), "{elapsed:?}");
}

#[test]
fn the_services_of_a_namespace_stand_for_so_much_together() {
    let mut state = state();
    let endpoints: Vec<_> = (0..50).map(|number| json!({"addresses": [format!("10.244.0.{number}")]})).collect();
    let listed = listed(1..=8000);
    let mut add = |namespace: &str, number: usize, present: bool| {
        let name = format!("s{number}");
        let spec = json!({"clusterIP": format!("10.96.{}.{number}", namespace.len()), "ports": listed});
        let mut service = Arc::unwrap_or_clone(service(&name, spec, Value::Null));
        service.metadata.namespace = Some(namespace.to_owned());
        let mut slice = whole_slice(&name, 1, "TCP", json!(endpoints));
        slice.metadata.namespace = Some(namespace.to_owned());
        slice.ports = serde_json::from_value(json!(listed)).expect("ports");
        state.service(&Arc::new(service), present);
        state.slice(&Arc::new(slice.into()), present);
        state.transaction();
        let refused = state.take_refused();
        refused
            .into_iter()
            .map(|(service, why)| format!("{}: {why}", service.metadata.name.as_deref().unwrap_or_default()))
            .collect::<Vec<_>>()
    };
    // Each stands for 408,000 elements, and the first namespace has two million.
    for number in 0..4 {
        assert_eq!(add("greedy", number, true), [""; 0]);
    }
    let why = "s4: the Service is not served: those of namespace greedy would be more than a node keeps rules for";
    assert_eq!(add("greedy", 4, true), [why]);
    assert_eq!(add("other", 0, true), [""; 0]);
    add("greedy", 0, false);
    let told = add("greedy", 4, true);
    assert_eq!(told, [""; 0]);
    assert_eq!(add("greedy", 0, true), [why.replace("s4", "s0")], "there is no room again: the other has got it");
}

#[test]
fn each_family_has_its_own_addresses() {
    let spec = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.2", "clusterIPs": ["10.96.0.2", "fd00:96::2"], "externalTrafficPolicy": "Local",
        "externalIPs": ["203.0.113.7", "2001:db8::7"], "sessionAffinity": "ClientIP",
        "loadBalancerSourceRanges": ["192.0.2.0/24", "2001:db8:1::/48", "2001:db8:1:2::/64"],
        "ports": [{"port": 80, "nodePort": 30080}],
    });
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}, {"ip": "2001:db8::5"}]}});
    let of = |kind: &str, address: &str| {
        let endpoints = json!([{"addresses": [address], "nodeName": "here"}]);
        let mut slice = whole_slice("web", 8080, "TCP", endpoints);
        slice.metadata.name = Some(kind.to_owned());
        slice.address_type = kind.to_owned();
        Arc::new(slice.into())
    };
    for (family, wanted, other) in [
        (
            Family::Ipv4,
            [
                "element ip t",
                "10.96.0.2 . tcp . 80 :",
                "203.0.113.7 . tcp . 80 :",
                "dnat to 10.244.0.5:8080",
                "ip saddr != { 192.0.2.0/24 } drop",
            ],
            "fd00",
        ),
        (
            Family::Ipv6,
            [
                "element ip6 t",
                "fd00:96::2 . tcp . 80 :",
                "2001:db8::7 . tcp . 80 :",
                "dnat to [fd00:244::5]:8080",
                "ip6 saddr != { 2001:db8:1::/48 } drop",
            ],
            "10.",
        ),
    ] {
        let mut state = state_of(family, &[]);
        state.service(&service("web", spec.clone(), status.clone()), true);
        state.slice(&of("IPv4", "10.244.0.5"), true);
        state.slice(&of("IPv6", "fd00:244::5"), true);
        let rules = state.transaction().script();
        for line in wanted {
            assert!(rules.contains(line), "{line} in {rules}");
        }
        assert!(!rules.contains(other) && rules.contains("tcp . 30080 :"), "{rules}");
        // Names of chains and sets have no colons.
        let names = rules.lines().filter_map(|line| line.strip_prefix("add chain ").or(line.strip_prefix("add set ")));
        assert!(
            names.clone().count() > 3
                && names.map(|line| line.split(" {").next()).all(|name| !name.unwrap_or_default().contains(':')),
            "{rules}"
        );
    }
}

#[test]
fn slices_of_a_service_that_was_headless_are_left_to_dns() {
    let labelled = |headless: bool| {
        let mut slice = whole_slice("web", 8080, "TCP", json!([{"addresses": ["10.244.0.5"]}]));
        if headless {
            let labels = slice.metadata.labels.get_or_insert_default();
            labels.insert("service.kubernetes.io/headless".to_owned(), String::new());
        }
        Arc::new(slice.into())
    };
    let mut state = state();
    state.service(&service("web", json!({"clusterIP": "10.96.0.2", "ports": [{"port": 80}]}), Value::Null), true);
    let mut reaches = |slice: &Arc<Slice>| {
        state.slice(slice, true);
        state.transaction().script().contains("10.96.0.2 . 80 . 0 : 10.244.0.5 . 8080")
    };
    assert!(!reaches(&labelled(true)));
    assert!(reaches(&labelled(false)), "the label is gone");
}

fn check(spec: Value, status: Value, endpoints: Value, expected: &[&str]) {
    let mut state = state();
    state.service(&service("web", spec.clone(), status), true);
    state.slice(&slice("web", 8080, "TCP", endpoints.clone()), true);
    let transaction = state.transaction().script();
    for line in expected {
        let (wanted, line) = line.strip_prefix('!').map_or((true, *line), |line| (false, line));
        assert_eq!(
            transaction.lines().any(|l| l.contains(line)),
            wanted,
            "{line:?} for {spec} {endpoints} in\n{transaction}"
        );
    }
    state.service(&service("web", spec.clone(), Value::Null), false);
    state.slice(&slice("web", 8080, "TCP", endpoints), false);
    let removal = state.transaction().script();
    let count = |verb: &str, text: &str| text.lines().filter(|line| line.starts_with(verb)).count();
    let own = |verb: &str, text: &str| {
        text.lines().filter(|line| line.starts_with(verb) && line.contains("default/web")).count()
    };
    assert_eq!(own("add chain", &transaction), own("delete chain", &removal), "chains left by {spec}");
    assert_eq!(count("add set", &transaction), count("delete set", &removal), "sets left by {spec}");
    assert_eq!(count("add element", &transaction), count("delete element", &removal), "elements left by {spec}");
}

#[test]
fn services_become_rules() {
    let none = || Value::Null;
    let two = json!([{"addresses": ["10.244.0.5"]}, {"addresses": ["10.244.0.6"], "nodeName": "here"}]);
    let far = json!([{"addresses": ["10.244.9.5"], "nodeName": "there"}]);
    let port = json!([{"port": 80, "protocol": "TCP"}]);
    check(
        json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "ports": port}),
        none(),
        two.clone(),
        &[
            "add element ip t services { 10.96.0.7 . tcp . 80 : goto pick-tcp-2 }",
            "add element ip t cluster-addresses { 10.96.0.7 }",
            "add element ip t hairpin { 10.244.0.5 . 10.244.0.5, 10.244.0.6 . 10.244.0.6 }",
            "add element ip t endpoints-tcp { 10.96.0.7 . 80 . 0 : 10.244.0.5 . 8080, 10.96.0.7 . 80 . 1 : 10.244.0.6 . 8080 }",
            "pick-tcp-2 dnat ip to ip daddr . tcp dport . numgen random mod 2 map @endpoints-tcp",
            "!no-endpoints",
        ],
    );
    check(
        json!({"clusterIP": "10.96.0.7", "ports": port}),
        none(),
        json!([]),
        &["add element ip t no-endpoints { 10.96.0.7 . tcp . 80 : goto reject-it }", "!add chain"],
    );
    check(json!({"clusterIP": "None", "ports": port}), none(), two.clone(), &["!add"]);
    check(json!({"type": "ExternalName", "externalName": "example.com"}), none(), json!([]), &["!add"]);
    // Local inside: the endpoint of this node only; dropped while only other nodes have one.
    check(
        json!({"clusterIP": "10.96.0.7", "ports": port, "internalTrafficPolicy": "Local"}),
        none(),
        two.clone(),
        &["80 : goto pick-tcp-1 }", "endpoints-tcp { 10.96.0.7 . 80 . 0 : 10.244.0.6 . 8080 }", "!10.244.0.5"],
    );
    check(
        json!({"clusterIP": "10.96.0.7", "ports": port, "internalTrafficPolicy": "Local"}),
        none(),
        far.clone(),
        &["no-endpoints { 10.96.0.7 . tcp . 80 : drop }"],
    );
    let node_port = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    check(
        json!({"type": "NodePort", "clusterIP": "10.96.0.7", "ports": node_port, "externalIPs": ["192.0.2.9"]}),
        none(),
        two.clone(),
        &[
            "node-ports { tcp . 30080 : goto node-outside-tcp-2 }",
            "192.0.2.9 . tcp . 80 : goto outside-tcp-2",
            "192.0.2.9 . 80 . 1 : 10.244.0.6 . 8080",
            "node-endpoints-tcp { 30080 . 0 : 10.244.0.5 . 8080, 30080 . 1 : 10.244.0.6 . 8080 }",
            "add rule ip t node-outside-tcp-2 jump masquerade-later",
            "add rule ip t node-outside-tcp-2 goto node-pick-tcp-2",
            "node-pick-tcp-2 dnat ip to tcp dport . numgen random mod 2 map @node-endpoints-tcp",
        ],
    );
    check(
        json!({"type": "NodePort", "clusterIP": "10.96.0.7", "ports": node_port, "externalTrafficPolicy": "Local"}),
        none(),
        two.clone(),
        &[
            "node-outside-tcp-2-local-1 ip saddr 10.244.0.0/16 goto node-pick-tcp-2",
            "node-outside-tcp-2-local-1 goto node-pick-local-tcp-1",
            "numgen random mod 1 offset 16777216 map @node-endpoints-tcp",
            "{ 30080 . 0 : 10.244.0.5 . 8080, 30080 . 1 : 10.244.0.6 . 8080, 30080 . 16777216 : 10.244.0.6 . 8080 }",
            "!node-outside-tcp-2-local-1 jump masquerade-later",
        ],
    );
    check(
        json!({"type": "NodePort", "clusterIP": "10.96.0.7", "ports": node_port, "externalTrafficPolicy": "Local"}),
        none(),
        far,
        &["no-endpoint-node-ports { tcp . 30080 : drop }", "fib saddr type local goto node-pick-tcp-1"],
    );
    check(
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.7", "ports": port, "loadBalancerSourceRanges": ["198.51.100.0/24", "198.51.100.8/32", "bad"]}),
        json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.4"}, {"ip": "203.0.113.5", "ipMode": "Proxy"}]}}),
        two.clone(),
        &[
            "203.0.113.4 . tcp . 80 : goto outside-tcp-2",
            "fw-default/web/tcp/80 ip saddr != { 198.51.100.0/24 } drop",
            "firewall { 203.0.113.4 . tcp . 80 : goto fw-default/web/tcp/80 }",
            "!203.0.113.5",
        ],
    );
    check(
        json!({"clusterIP": "10.96.0.7", "ports": port, "sessionAffinity": "ClientIP", "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 7}}}),
        none(),
        two,
        &[
            "add set ip t clients-default/web/tcp/80/10.244.0.5/8080/7 { type ipv4_addr; flags dynamic,timeout; timeout 7s; }",
            "svc-default/web/tcp/80 ip saddr @clients-default/web/tcp/80/10.244.0.5/8080/7 goto ep-default/web/tcp/80/10.244.0.5/8080",
            "numgen random mod 2 vmap { 0 : goto ep-default/web/tcp/80/10.244.0.5/8080, 1 :",
        ],
    );
}

#[test]
fn a_change_touches_only_its_service() {
    let mut state = state();
    for (name, address) in [("a", "10.96.0.1"), ("b", "10.96.0.2")] {
        state.service(&service(name, json!({"clusterIP": address, "ports": [{"port": 80}]}), Value::Null), true);
        state.slice(&slice(name, 80, "TCP", json!([{"addresses": ["10.244.0.5"]}])), true);
    }
    assert!(state.transaction().script().contains("10.96.0.2 . 80 . 0"));
    assert!(state.transaction().is_empty());
    state.slice(&slice("a", 80, "TCP", json!([{"addresses": ["10.244.0.6"]}])), true);
    let change = state.transaction().script();
    let expected = "delete element ip t endpoints-tcp { 10.96.0.1 . 80 . 0 : 10.244.0.5 . 80 }
add element ip t hairpin { 10.244.0.6 . 10.244.0.6 }
add element ip t endpoints-tcp { 10.96.0.1 . 80 . 0 : 10.244.0.6 . 80 }
";
    assert_eq!(change, expected, "the address that b still has must stay");
    state.slice(&slice("a", 80, "TCP", json!([{"addresses": ["10.244.0.6"]}])), true);
    assert!(state.transaction().is_empty());
}

/// Services share a chain for each number of endpoints; one that nobody needs any more goes when another one comes.
#[test]
fn chains_are_shared_by_the_number_of_endpoints() {
    let mut state = state();
    let add = |state: &mut Proxier, name: &str, address: &str, count: usize| {
        state.service(&service(name, json!({"clusterIP": address, "ports": [{"port": 80}]}), Value::Null), true);
        let endpoints: Value = (0..count).map(|n| json!({"addresses": [format!("10.244.0.{}", n + 1)]})).collect();
        state.slice(&slice(name, 80, "TCP", endpoints), true);
        let script = state.transaction().script();
        let chains = script.lines().filter(|line| line.contains("chain"));
        chains.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(add(&mut state, "a", "10.96.0.1", 2), ["add chain ip t pick-tcp-2"]);
    assert!(add(&mut state, "b", "10.96.0.2", 2).is_empty());
    let gone = ["flush chain ip t pick-tcp-2", "delete chain ip t pick-tcp-2"];
    assert_eq!(add(&mut state, "a", "10.96.0.1", 3), ["add chain ip t pick-tcp-3"], "b still needs the other");
    assert!(add(&mut state, "b", "10.96.0.2", 3).is_empty(), "a change of elements alone");
    assert!(!state.resync().contains("add chain ip t pick-tcp-2"));
    assert!(add(&mut state, "b", "10.96.0.2", 3).is_empty());
    assert_eq!(add(&mut state, "b", "10.96.0.2", 2), ["add chain ip t pick-tcp-2"]);
    assert!(add(&mut state, "b", "10.96.0.2", 3).is_empty());
    assert_eq!(add(&mut state, "b", "10.96.0.2", 1), ["add chain ip t pick-tcp-1", gone[0], gone[1]]);
}

#[test]
fn of_two_claims_on_an_address_one_holds_until_it_goes() {
    let mut state = state();
    for (name, address, endpoint) in [("a", "10.96.0.1", "10.244.0.5"), ("b", "10.96.0.2", "10.244.0.6")] {
        let spec = json!({"clusterIP": address, "externalIPs": ["192.0.2.9"], "ports": [{"port": 80}]});
        state.service(&service(name, spec, Value::Null), true);
        state.slice(&slice(name, 80, "TCP", json!([{"addresses": [endpoint]}])), true);
    }
    let both = state.transaction().script();
    let leads = |script: &str, endpoint: &str| script.contains(&format!("192.0.2.9 . 80 . 0 : {endpoint} . 80"));
    assert!(leads(&both, "10.244.0.5") && !leads(&both, "10.244.0.6"), "{both}");
    let why: Vec<String> = state.take_refused().into_iter().map(|(_, why)| why).collect();
    assert_eq!(why, ["TCP port 80 of 192.0.2.9 is not served for this Service: Service default/a has it"]);
    state.service(&service("a", json!({}), Value::Null), false);
    let one = state.transaction().script();
    let (_, added) = one.split_once("add element").unwrap_or_default();
    assert!(leads(added, "10.244.0.6") && !leads(added, "10.244.0.5"), "{one}");
}

/// A name that comes first in the alphabet, externalIPs and a status that somebody wrote: none of it takes a ClusterIP.
#[test]
fn a_cluster_address_cannot_be_taken() {
    let thief = json!({"type": "LoadBalancer", "clusterIP": "10.96.0.2", "externalIPs": ["10.96.0.10"],
        "loadBalancerSourceRanges": ["192.0.2.0/24"],
        "ports": [{"port": 53, "protocol": "UDP", "name": "d"}, {"port": 80, "name": "w"}]});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "10.96.0.10"}]}});
    let dns = json!({"clusterIP": "10.96.0.10", "ports": [{"port": 53, "protocol": "UDP"}]});
    let endpoint = |address: &str| json!([{"addresses": [address]}]);
    // Whoever comes first, and whether it has endpoints or not.
    for (order, ready) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut state = state();
        let add = |state: &mut Proxier, name: &str| {
            let (spec, status, address) = match name {
                "a" => (thief.clone(), status.clone(), "10.244.0.66"),
                _ => (dns.clone(), Value::Null, "10.244.0.5"),
            };
            state.service(&service(name, spec, status), true);
            if ready || name == "a" {
                state.slice(&slice(name, 53, "UDP", endpoint(address)), true);
            }
            state.transaction()
        };
        let (first, second) = if order { ("a", "dns") } else { ("dns", "a") };
        add(&mut state, first);
        add(&mut state, second);
        let moved = state.take_moved();
        let asked = conntrack::Frontend { address: Some(std::net::IpAddr::from([10, 96, 0, 10])), port: 53 };
        let answering: Option<Vec<String>> =
            moved.get(&asked).map(|endpoints| endpoints.iter().map(|one| one.address.to_string()).collect());
        assert_eq!(answering.unwrap_or_default(), if ready { vec!["10.244.0.5"] } else { Vec::new() });
        let whole = state.resync();
        assert!(!whole.contains("10.96.0.10 . tcp . 80"), "no port of it: {whole}");
        assert_eq!(whole.contains("10.96.0.10 . 53 . 0 : 10.244.0.5 . 53"), ready, "{whole}");
        assert_eq!(whole.contains("10.96.0.10 . udp . 53 : goto reject-it"), !ready, "{whole}");
        for stolen in [" . 53 . 0 : 10.244.0.66", " . udp . 53 : goto outside-", " . udp . 53 : goto fw-"] {
            assert!(!whole.contains(&format!("10.96.0.10{stolen}")), "{stolen} in {whole}");
        }
        let told = state.take_refused();
        assert!(told.iter().all(|(service, _)| service.metadata.name.as_deref() == Some("a")), "{told:?}");
        assert!(
            told.iter().any(|(_, why)| why.contains("10.96.0.10 is the ClusterIP of Service default/dns")),
            "{told:?}"
        );
        assert!(state.take_refused().is_empty(), "once");
    }
}

#[test]
fn what_the_node_listens_on_stays_its_own() {
    let listeners = Listeners::of_test(
        &["192.0.2.5", "127.0.0.1"],
        &[("tcp", None, 22), ("tcp", Some("192.0.2.5"), 10250), ("tcp", Some("127.0.0.1"), 9000), ("tcp", None, 30081)],
    );
    let mut state = state();
    state.listeners(listeners.clone());
    let ports: Vec<Value> = [22, 10250, 9000, 80]
        .iter()
        .enumerate()
        .map(|(index, port)| json!({"port": port, "name": format!("p{port}"), "nodePort": 30080 + index}))
        .collect();
    let spec =
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.2", "externalIPs": ["203.0.113.7"], "ports": ports});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.5"}]}});
    state.service(&service("web", spec, status), true);
    assert!(state.wants_the_nodes());
    let rules = state.transaction().script();
    for (place, served) in [
        ("192.0.2.5 . tcp . 22 ", false),
        ("192.0.2.5 . tcp . 10250 ", false),
        ("192.0.2.5 . tcp . 9000 ", true),
        ("192.0.2.5 . tcp . 80 ", true),
        // Addresses of others are no matter of the node's sockets.
        ("203.0.113.7 . tcp . 22 ", true),
        ("tcp . 30080 ", true),
        ("tcp . 30081 ", false),
    ] {
        assert_eq!(rules.contains(&format!("{place}:")), served, "{place} in {rules}");
    }
    let told: Vec<String> = state.take_refused().into_iter().map(|(_, why)| why).collect();
    let want = "TCP port 22 of 192.0.2.5 is not served for this Service: node here listens there itself";
    assert!(told.len() == 3 && told.iter().any(|why| why == want), "{told:?}");
    // Once the node is done with it, it is served.
    state.listeners(Listeners::of_test(&["192.0.2.5"], &[]));
    assert!(state.transaction().script().contains("192.0.2.5 . tcp . 22 :"));
    state.listeners(listeners);
    assert!(state.transaction().script().contains("delete element"));
}

#[test]
fn health_checks_count_ready_endpoints_of_this_node() {
    let spec = |policy: &str, port: u16| {
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.2", "externalTrafficPolicy": policy,
            "healthCheckNodePort": port, "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "a"}]})
    };
    let endpoints = json!([
        {"addresses": ["10.244.0.5"], "nodeName": "here"},
        {"addresses": ["10.244.0.6"], "nodeName": "here", "conditions": {"ready": false, "serving": true, "terminating": true}},
        {"addresses": ["10.244.1.7"], "nodeName": "there"},
    ]);
    let mut state = state();
    for (spec, want) in
        [(spec("Local", 31000), Some((31000, 1))), (spec("Cluster", 31000), None), (spec("Local", 0), None)]
    {
        state.service(&service("web", spec.clone(), Value::Null), true);
        let mut own = whole_slice("web", 8080, "TCP", endpoints.clone());
        own.ports =
            Some(vec![serde_json::from_value(json!({"name": "a", "port": 8080, "protocol": "TCP"})).expect("a port")]);
        state.slice(&Arc::new(own.into()), true);
        state.transaction();
        assert_eq!(state.checks().get("default/web").map(|check| (check.port, check.local)), want, "{spec}");
    }
}
