//! Announcements on a real segment: two nodes, and a machine beside them that is no node.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rtnetlink::new_connection;

use super::kernel::{Announcer, Where};
use super::{frames, kernel};
use crate::kernel_tests::{Lab, sh};

const ADDRESSES: [&str; 2] = ["192.168.77.100", "fd00:77::100"];

/// Makes a node announce exactly these, and say so.
fn announce(lab: &Lab, node: &'static str, number: u8, addresses: &[&str]) -> Vec<Where> {
    let wanted: BTreeSet<IpAddr> = addresses.iter().map(|text| text.parse().expect("an address")).collect();
    let own =
        [format!("192.168.77.{number}"), format!("fd00:77::{number}")].map(|text| text.parse().expect("an address"));
    let work = lab.inside(node, async move {
        let (connection, handle, _) = new_connection().expect("netlink");
        let announcer = Announcer::new(handle, "ferry-lb");
        let places = tokio::select! {
            () = connection => panic!("the connection ended"),
            places = announcer.apply(&own, &wanted) => places.expect("announces"),
        };
        places.iter().for_each(|place| frames::say(place).expect("said"));
        places
    });
    work.join().expect("no panic")
}

/// What the machine beside them takes an address's hardware address to be.
fn known(lab: &Lab, address: &str) -> String {
    sh(&format!("ip -n {} neigh show {address}", lab.name("c")))
}

#[test]
fn an_address_is_announced_by_one_node_and_moves() {
    let lab = Lab::new("l");
    // What the service proxy does: the address is translated to a pod's.
    for (node, number) in [("a", 1), ("b", 2)] {
        for command in [
            "add table inet lb".to_owned(),
            "add chain inet lb pre { type nat hook prerouting priority -100; }".to_owned(),
            format!("add rule inet lb pre ip daddr {} dnat ip to 10.200.{number}.2", ADDRESSES[0]),
            format!("add rule inet lb pre ip6 daddr {} dnat ip6 to fd00:200:{number}::2", ADDRESSES[1]),
        ] {
            sh(&format!("ip netns exec {} nft '{command}'", lab.name(node)));
        }
    }
    for address in ADDRESSES {
        assert!(!lab.ping_from_once("c", address), "nobody announces {address}");
    }
    let macs: Vec<String> = ["a", "b"]
        .iter()
        .map(|node| sh(&format!("ip netns exec {} cat /sys/class/net/eth0/address", lab.name(node))).trim().to_owned())
        .collect();
    let places = announce(&lab, "a", 1, &ADDRESSES);
    assert_eq!(places.len(), 2);
    for address in ADDRESSES {
        assert!(lab.ping_from("c", address, 56), "{address}");
        assert!(known(&lab, address).contains(&macs[0]), "{}", known(&lab, address));
    }
    // The first is cut off with everything it had, and says nothing more.
    sh(&format!("ip -n {} link set to-a down", lab.name("hub")));
    announce(&lab, "b", 2, &ADDRESSES);
    for address in ADDRESSES {
        assert!(lab.ping_from("c", address, 56), "{address} by the second");
        assert!(known(&lab, address).contains(&macs[1]), "{}", known(&lab, address));
    }
    // It comes back, and has been told that the second has them.
    announce(&lab, "a", 1, &[]);
    sh(&format!("ip -n {} link set to-a up", lab.name("hub")));
    let left = sh(&format!(
        "ip -n {0} route; ip -n {0} -6 route; ip -n {0} neigh show proxy; ip -n {0} -o link",
        lab.name("a")
    ));
    assert!(!left.contains("77.100") && !left.contains("77::100") && !left.contains("ferry-lb"), "{left}");
    // One of two stays, and nothing of others is touched.
    sh(&format!("ip -n {} neigh add proxy 192.168.77.200 dev eth0", lab.name("b")));
    announce(&lab, "b", 2, &ADDRESSES[..1]);
    let left = sh(&format!("ip -n {0} neigh show proxy; ip -n {0} -6 neigh show proxy", lab.name("b")));
    assert!(left.contains("77.100") && left.contains("77.200") && !left.contains("77::100"), "{left}");
    let cleared = lab.inside("b", async {
        let (connection, handle, _) = new_connection().expect("netlink");
        tokio::select! {
            () = connection => panic!("the connection ended"),
            done = kernel::clear(handle, "ferry-lb") => done.expect("cleared"),
        }
    });
    cleared.join().expect("no panic");
    let left = sh(&format!("ip -n {0} neigh show proxy; ip -n {0} route", lab.name("b")));
    assert!(!left.contains("77.100") && left.contains("77.200"), "{left}");
}
