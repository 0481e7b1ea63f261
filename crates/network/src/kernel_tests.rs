//! Against a real kernel, in network namespaces of their own.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::process::Command;

use ipnet::IpNet;
use rtnetlink::new_connection;

use crate::plan::{Member, plan};
use crate::{Kernel, Mode};

/// Three nodes on one segment, each a network namespace with a device `eth0` and a pod behind it.
pub(crate) struct Lab {
    prefix: String,
}

pub(crate) const NODES: [&str; 3] = ["a", "b", "c"];

pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-c", line]).output().expect("sh runs");
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Lab {
    pub(crate) fn new(test: &str) -> Self {
        let lab = Self { prefix: format!("fn{}{test}", std::process::id() % 10000) };
        let hub = lab.name("hub");
        sh(&format!("ip netns add {hub} && ip -n {hub} link add br0 type bridge && ip -n {hub} link set br0 up"));
        for (number, node) in NODES.iter().enumerate() {
            let (name, pod, n) = (lab.name(node), lab.name(&format!("{node}p")), number + 1);
            sh(&format!(
                "ip netns add {name} && ip netns add {pod} \
                 && ip -n {name} link add eth0 type veth peer name to-{node} netns {hub} && ip -n {hub} link set to-{node} master br0 up \
                 && ip -n {name} addr add 192.168.77.{n}/24 dev eth0 && ip -n {name} addr add fd00:77::{n}/64 dev eth0 nodad \
                 && ip -n {name} link set eth0 up && ip -n {name} link set lo up \
                 && ip -n {name} link add pods type veth peer name eth0 netns {pod} && ip -n {name} link set pods up \
                 && ip -n {name} addr add 10.200.{n}.1/24 dev pods && ip -n {name} addr add fd00:200:{n}::1/64 dev pods nodad \
                 && ip -n {pod} addr add 10.200.{n}.2/24 dev eth0 && ip -n {pod} addr add fd00:200:{n}::2/64 dev eth0 nodad \
                 && ip -n {pod} link set eth0 up && ip -n {pod} link set lo up \
                 && ip -n {pod} route add default via 10.200.{n}.1 && ip -n {pod} route add default via fd00:200:{n}::1 \
                 && ip netns exec {name} sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding'"
            ));
        }
        lab
    }

    pub(crate) fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    pub(crate) fn member(&self, node: usize) -> Member {
        let n = node + 1;
        Member {
            name: NODES[node].into(),
            addresses: vec![ip(&format!("192.168.77.{n}")), ip(&format!("fd00:77::{n}"))],
            pod_cidrs: vec![net(&format!("10.200.{n}.0/24")), net(&format!("fd00:200:{n}::/64"))],
            public_key: None,
        }
    }

    /// Plans for one node and applies; returns how much changed.
    fn apply(&self, node: usize, mode: Mode, others: &[Member]) -> usize {
        let own = self.member(node);
        let others = others.to_vec();
        let work = self.inside(NODES[node], async move {
            let (connection, handle, _) = new_connection().expect("netlink");
            let kernel = Kernel::new(handle, "ferry-vxlan");
            tokio::select! {
                () = connection => panic!("the connection ended"),
                changes = async {
                    let underlay = kernel.underlay(own.addresses[0]).await.expect("the device");
                    kernel.apply(&plan(mode, &own, &underlay, &others), None).await.expect("applies")
                } => changes,
            }
        });
        work.join().expect("no panic")
    }

    /// Runs in a namespace. A thread is in one of them, and a socket belongs to that of the thread that opened it.
    pub(crate) fn inside<T: Send + 'static>(
        &self,
        part: &str,
        work: impl Future<Output = T> + Send + 'static,
    ) -> std::thread::JoinHandle<T> {
        let path = format!("/run/netns/{}", self.name(part));
        std::thread::spawn(move || {
            let namespace = std::fs::File::open(&path).expect("the namespace");
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).expect("enters the namespace");
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(work)
        })
    }

    pub(crate) fn apply_everywhere(&self, mode: Mode) {
        let all: Vec<Member> = (0..3).map(|node| self.member(node)).collect();
        for node in 0..3 {
            self.apply(node, mode, &all);
        }
    }

    pub(crate) fn ping(&self, from: &str, to: &str, size: usize) -> bool {
        self.ping_from(&format!("{from}p"), to, size)
    }

    /// One packet that is not answered within a second is answered never.
    pub(crate) fn ping_once(&self, from: &str, to: &str) -> bool {
        let line = format!("ip netns exec {} ping -q -c 1 -W 1 -p 666572727921 {to}", self.name(&format!("{from}p")));
        Command::new("sh").args(["-c", &line]).output().expect("sh runs").status.success()
    }

    /// The same from any part.
    pub(crate) fn ping_from_once(&self, part: &str, to: &str) -> bool {
        let line = format!("ip netns exec {} ping -q -c 1 -W 1 {to}", self.name(part));
        Command::new("sh").args(["-c", &line]).output().expect("sh runs").status.success()
    }

    /// From a pod's namespace or a node's own. What is sent repeats `ferry!`.
    pub(crate) fn ping_from(&self, part: &str, to: &str, size: usize) -> bool {
        // Addresses that IPv6 gives itself are not usable at once, so that the first packets may be lost.
        let line = format!("ip netns exec {} ping -q -c 1 -W 1 -p 666572727921 -s {size} {to}", self.name(part));
        (0..20).any(|_| Command::new("sh").args(["-c", &line]).output().expect("sh runs").status.success())
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for part in ["hub", "a", "b", "c", "ap", "bp", "cp"] {
            let _ = Command::new("ip").args(["netns", "del", &self.name(part)]).output();
        }
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn net(text: &str) -> IpNet {
    text.parse().expect("a range")
}

#[test]
fn pods_of_all_nodes_reach_each_other_in_both_families_and_with_large_packets() {
    let lab = Lab::new("r");
    for mode in [Mode::Routes, Mode::Vxlan, Mode::Auto] {
        lab.apply_everywhere(mode);
        for (from, to) in [("a", 2), ("b", 3), ("c", 1)] {
            assert!(lab.ping(from, &format!("10.200.{to}.2"), 56), "{mode}: {from} to {to}");
            assert!(lab.ping(from, &format!("10.200.{to}.2"), 4000), "{mode}: {from} to {to} in fragments");
            assert!(lab.ping(from, &format!("fd00:200:{to}::2"), 56), "{mode}: {from} to {to} over IPv6");
        }
        let has_tunnel = sh(&format!("ip -n {} -o link", lab.name("a"))).contains("ferry-vxlan");
        assert_eq!(has_tunnel, mode == Mode::Vxlan, "the device goes with the last route that needs it");
    }
}

#[test]
fn only_what_differs_is_changed_and_others_routes_stay() {
    let lab = Lab::new("d");
    let name = lab.name("a");
    sh(&format!("ip -n {name} route add 10.99.0.0/16 via 192.168.77.3"));
    let all: Vec<Member> = (0..3).map(|node| lab.member(node)).collect();
    for mode in [Mode::Routes, Mode::Vxlan] {
        assert!(lab.apply(0, mode, &all) > 0);
        assert_eq!(lab.apply(0, mode, &all), 0, "{mode}: a second look finds nothing to do");
    }
    // One node goes, another changes its address.
    let mut moved = lab.member(1);
    moved.addresses = vec![ip("192.168.77.9")];
    assert!(lab.apply(0, Mode::Vxlan, &[lab.member(0), moved]) > 0);
    let entries = sh(&format!("bridge -n {name} fdb show dev ferry-vxlan"));
    assert!(entries.contains("192.168.77.9") && !entries.contains("192.168.77.3"), "{entries}");
    let routes = sh(&format!("ip -n {name} route"));
    assert!(!routes.contains("10.200.3.0/24"), "{routes}");
    // Somebody flushed one of ours.
    sh(&format!("ip -n {name} route del 10.200.2.0/24"));
    assert_eq!(lab.apply(0, Mode::Vxlan, &[lab.member(0), lab.member(1)]), 2, "the route, and the node's old address");
    assert!(lab.apply(0, Mode::Vxlan, &[lab.member(0)]) > 0);
    let left = sh(&format!("ip -n {name} route; ip -n {name} -o link"));
    assert!(left.contains("10.99.0.0/16") && !left.contains("10.200.2") && !left.contains("ferry-vxlan"), "{left}");
}
