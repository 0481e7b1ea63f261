use std::net::IpAddr;

use ipnet::IpNet;

use crate::Mode;
use crate::plan::{Forwarding, Member, Neighbour, Plan, Route, Underlay, Way, mac_of, plan};
use crate::wireguard::PublicKey;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

fn member(name: &str, addresses: &[&str], ranges: &[&str]) -> Member {
    Member {
        name: name.into(),
        addresses: addresses.iter().map(|a| ip(a)).collect(),
        pod_cidrs: ranges.iter().map(|r| net(r)).collect(),
        public_key: None,
    }
}

fn underlay() -> Underlay {
    Underlay { index: 7, mtu: 1500, networks: vec![net("192.168.1.10/24"), net("fd00:1::10/64")] }
}

fn own() -> Member {
    member("a", &["192.168.1.10", "fd00:1::10"], &["10.244.0.0/24", "fd00:244::/64"])
}

fn made(mode: Mode, others: &[Member]) -> Plan {
    plan(mode, &own(), &underlay(), others)
}

#[test]
fn a_node_on_the_segment_is_a_route_of_each_family() {
    let other = member("b", &["192.168.1.11", "fd00:1::11"], &["10.244.1.0/24", "fd00:244:0:1::/64"]);
    for mode in [Mode::Auto, Mode::Routes] {
        let plan = made(mode, std::slice::from_ref(&other));
        assert_eq!(plan.routes.len(), 2);
        assert!(
            plan.routes.contains(&Route { destination: net("10.244.1.0/24"), way: Way::Underlay(ip("192.168.1.11")) })
        );
        assert!(
            plan.routes
                .contains(&Route { destination: net("fd00:244:0:1::/64"), way: Way::Underlay(ip("fd00:1::11")) })
        );
        assert_eq!((plan.tunnel, plan.neighbours.len(), plan.forwarding.len()), (None, 0, 0));
    }
}

#[test]
fn a_node_elsewhere_is_behind_the_tunnel() {
    let other = member("b", &["172.16.0.5"], &["10.244.1.0/24"]);
    let plan = made(Mode::Auto, std::slice::from_ref(&other));
    let mac = mac_of(&net("10.244.1.0/24"));
    assert_eq!(
        plan.routes.iter().collect::<Vec<_>>(),
        [&Route { destination: net("10.244.1.0/24"), way: Way::Tunnel(ip("10.244.1.0")) }]
    );
    assert!(plan.neighbours.contains(&Neighbour { address: ip("10.244.1.0"), mac }));
    assert!(plan.forwarding.contains(&Forwarding { mac, node: ip("172.16.0.5") }));
    let tunnel = plan.tunnel.expect("a tunnel");
    assert_eq!((tunnel.mtu, tunnel.underlay, tunnel.local), (1450, 7, ip("192.168.1.10")));
    // What this node is to others is what others compute for it.
    assert_eq!(tunnel.mac, mac_of(&net("10.244.0.0/24")));
    assert_eq!(tunnel.mac.0[0] & 0b11, 0b10, "a locally administered unicast address");

    let refused = made(Mode::Routes, &[other]);
    assert!(refused.routes.is_empty());
    assert!(refused.unreachable[0].1.contains("vxlan"), "{:?}", refused.unreachable);
}

#[test]
fn vxlan_is_used_on_the_segment_too_when_asked_for() {
    let plan = made(Mode::Vxlan, &[member("b", &["192.168.1.11"], &["10.244.1.0/24"])]);
    assert!(plan.routes.iter().all(|route| matches!(route.way, Way::Tunnel(_))));
}

#[test]
fn ipv6_costs_more_of_each_packet() {
    let own = member("a", &["fd00:1::10"], &["fd00:244::/64"]);
    let plan = plan(Mode::Vxlan, &own, &underlay(), &[member("b", &["fd00:1::11"], &["fd00:244:0:1::/64"])]);
    assert_eq!(plan.tunnel.expect("a tunnel").mtu, 1430);
}

#[test]
fn overlapping_ranges_are_refused_by_name_and_harm_nobody() {
    let others = [
        member("c", &["192.168.1.12"], &["10.244.1.0/25"]),
        member("b", &["192.168.1.11"], &["10.244.1.0/24"]),
        member("d", &["192.168.1.13"], &["10.244.0.128/25"]),
    ];
    let plan = made(Mode::Auto, &others);
    assert_eq!(plan.routes.len(), 1);
    let reasons: Vec<_> = plan.unreachable.iter().map(|(name, reason)| format!("{name}: {reason}")).collect();
    assert_eq!(
        reasons,
        ["c: its pod range 10.244.1.0/25 overlaps that of b", "d: its pod range 10.244.0.128/25 overlaps that of a",]
    );
}

#[test]
fn own_ranges_and_an_outside_network_need_nothing() {
    assert_eq!(made(Mode::Auto, &[own()]), Plan::default());
    assert_eq!(made(Mode::Cni, &[member("b", &["192.168.1.11"], &["10.244.1.0/24"])]), Plan::default());
    // A node without a range yet, or without an address, is no peer yet.
    assert_eq!(made(Mode::Auto, &[member("b", &["192.168.1.11"], &[])]), Plan::default());
    assert_eq!(made(Mode::Auto, &[member("b", &[], &["10.244.1.0/24"])]).unreachable.len(), 1);
}

fn keyed(name: &str, address: &str, range: &str, key: u8) -> Member {
    Member { public_key: Some(PublicKey([key; 32])), ..member(name, &[address], &[range]) }
}

#[test]
fn wireguard_routes_every_range_and_knows_whose_it_is() {
    let others = [
        keyed("b", "192.168.1.11", "10.244.1.0/24", 1),
        keyed("c", "fd00:9::1", "fd00:244:0:2::/64", 2),
        // No key, one that another node has told, and this node's own.
        member("d", &["192.168.1.13"], &["10.244.3.0/24"]),
        keyed("e", "192.168.1.14", "10.244.4.0/24", 1),
        keyed("f", "192.168.1.15", "10.244.5.0/24", 9),
    ];
    let own = Member { public_key: Some(PublicKey([9; 32])), ..own() };
    let plan = plan(Mode::Wireguard, &own, &underlay(), &others);
    assert_eq!((plan.tunnel, plan.neighbours.len(), plan.forwarding.len()), (None, 0, 0));
    // What cannot be encrypted is not sent in the clear instead.
    assert_eq!(plan.routes.len(), 5);
    assert!(plan.routes.iter().all(|route| route.way == Way::Wireguard));
    let device = plan.wireguard.expect("a device");
    assert_eq!(device.mtu, 1420, "one of them is reached over IPv6");
    assert_eq!(device.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.244.0.0", "fd00:244::"]);
    let peers: Vec<_> = device.peers.values().map(|peer| (peer.node.as_str(), peer.endpoint.to_string())).collect();
    assert_eq!(peers, [("b", "192.168.1.11:8478".to_owned()), ("c", "[fd00:9::1]:8478".to_owned())]);
    let reasons = plan.unreachable.iter().map(|(node, reason)| (node.as_str(), reason.as_str()));
    let expected = [("d", "has not told"), ("e", "the WireGuard key of b"), ("f", "this node's own")];
    for ((node, reason), (expected, words)) in reasons.zip(expected) {
        assert!(node == expected && reason.contains(words), "{node}: {reason}");
    }
    assert_eq!(plan.unreachable.len(), 3);
}

#[test]
fn ranges_that_meet_are_not_taken_for_ranges_that_overlap() {
    let beside =
        ["10.244.0.0/24", "10.243.255.0/24", "10.244.1.0/24", "10.244.2.0/23", "10.244.4.0/30", "10.244.4.4/30"];
    let others: Vec<Member> = beside[1..]
        .iter()
        .enumerate()
        .map(|(number, range)| member(&format!("b{number}"), &["192.168.1.11"], &[range]))
        .collect();
    let plan = made(Mode::Routes, &others);
    assert_eq!((plan.routes.len(), plan.unreachable.len()), (5, 0), "{plan:?}");
    for (range, holder) in
        [("10.244.0.128/25", "a"), ("10.244.0.0/16", "b4"), ("10.244.3.0/24", "b2"), ("10.244.4.0/29", "b4")]
    {
        let mut others = others.clone();
        others.push(member("late", &["192.168.1.12"], &[range]));
        let unreachable = made(Mode::Routes, &others).unreachable;
        let expected = format!("its pod range {range} overlaps that of {holder}");
        assert_eq!(unreachable, [("late".to_owned(), expected)], "{range}");
    }
}
