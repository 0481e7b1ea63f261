//! The rules in a real kernel: a node, six pods on its bridge and a client outside, each in a network namespace, with packets.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ferry_client::Informer;
use ferry_nft::{Nft, Watch, Writer};
use ferry_tasks::Tasks;
use ferry_testkit::network::Namespaces;
use serde_json::json;

use crate::cases::{self, PODS, address, namespace, pod, policy};
use crate::cluster_cases;
use crate::conntrack;
use crate::node_policies::NodePolicies;
use crate::policy::Protocol;
use crate::stored::StoredPolicy;
use crate::sync::{Sources, Sync};

/// For an answer that must come.
const PATIENCE: Duration = Duration::from_secs(5);
/// For one that must not: a slow machine makes the test milder, never wrong.
const SILENCE: Duration = Duration::from_millis(250);
const CLIENT: &str = "198.51.100.2";

struct Lab(Namespaces);

impl std::ops::Deref for Lab {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.0
    }
}

impl Lab {
    /// None, and a record of why, where namespaces cannot be made: without root there are no policies either.
    fn new(tag: &str) -> Option<Self> {
        let lab = Self(Namespaces::with_node(tag)?);
        lab.inside("node", "ip link add br0 type bridge");
        lab.inside("node", "ip addr add 10.244.0.1/24 dev br0");
        lab.inside("node", "ip link set br0 up");
        lab.inside("node", "sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 net.bridge.bridge-nf-call-ip6tables=1");
        for (pod, address) in PODS {
            let device = pod.replace('/', "");
            lab.add(pod, &device);
            lab.inside("node", &format!("ip link set {device} master br0 up"));
            lab.inside("node", &format!("bridge link set dev {device} hairpin on"));
            lab.join(pod, &format!("{address}/24"), "10.244.0.1");
        }
        lab.add("client", "out");
        lab.inside("node", "ip addr add 198.51.100.1/24 dev out");
        lab.inside("node", "ip link set out up");
        lab.join("client", &format!("{CLIENT}/24"), "198.51.100.1");
        Some(lab)
    }

    fn nft(&self) -> Nft {
        let writer = self.within("node", || Writer::open().expect("a socket"));
        Nft::with_writer(self.command("node", "nft"), writer)
    }

    /// Servers at ports 80 and 81 that send everything back.
    fn serve(&self, namespace: &str) {
        for port in [80_u16, 81] {
            let bound = self.within(namespace, move || {
                let address = SocketAddr::from(([0, 0, 0, 0], port));
                (TcpListener::bind(address).expect("tcp"), UdpSocket::bind(address).expect("udp"))
            });
            let (tcp, udp) = bound;
            std::thread::spawn(move || {
                for mut stream in tcp.incoming().flatten() {
                    std::thread::spawn(move || {
                        let mut buffer = [0; 64];
                        while let Ok(length @ 1..) = stream.read(&mut buffer) {
                            if stream.write_all(&buffer[..length]).is_err() {
                                break;
                            }
                        }
                    });
                }
            });
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((length, peer)) = udp.recv_from(&mut buffer) {
                    let _ = udp.send_to(&buffer[..length], peer);
                }
            });
        }
    }

    /// Whether there is an answer within this time.
    fn probe(&self, from: &str, to: SocketAddr, protocol: Protocol, time: Duration) -> std::thread::JoinHandle<bool> {
        self.begin(from, move || {
            let answer = match protocol {
                Protocol::Tcp => TcpStream::connect_timeout(&to, time).map(drop),
                _ => UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
                    socket.connect(to)?;
                    socket.set_read_timeout(Some(time))?;
                    socket.send(b"x")?;
                    socket.recv(&mut [0; 8]).map(drop)
                }),
            };
            answer.is_ok()
        })
    }

    fn reaches(&self, from: &str, to: &str, expected: bool) -> bool {
        let time = if expected { PATIENCE } else { SILENCE };
        self.probe(from, to.parse().expect("an address"), Protocol::Tcp, time).join().expect("a probe") == expected
    }

    /// A connection that stays.
    fn connect(&self, from: &str, to: &str) -> TcpStream {
        let to: SocketAddr = to.parse().expect("an address");
        self.within(from, move || TcpStream::connect_timeout(&to, PATIENCE).expect("a connection"))
    }
}

/// Whether what is sent over a connection comes back.
fn echoes(stream: &mut TcpStream, time: Duration) -> bool {
    stream.set_read_timeout(Some(time)).expect("a timeout");
    stream.write_all(b"x").is_ok() && stream.read(&mut [0; 8]).is_ok_and(|length| length > 0)
}

async fn change(lab: &Lab, state: &mut NodePolicies) {
    let rules = state.transaction().rules;
    lab.nft().commit(&rules).await.unwrap_or_else(|error| panic!("{error}\n{}", rules.script()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_cases_hold_with_real_packets() {
    let Some(lab) = Lab::new("c") else { return };
    PODS.iter().for_each(|(name, _)| lab.serve(name));
    let mut state = cases::state();
    lab.nft().apply(&state.resync().script()).await.expect("the table without policies");
    for case in cases::all() {
        let policies: Vec<_> = (0..).zip(&case.policies).collect();
        for (number, (namespace, spec)) in &policies {
            state.policy(&policy(namespace, &format!("p{number}"), spec), true);
        }
        change(&lab, &mut state).await;
        for look in case.looks.iter().filter(|look| look.protocol != Protocol::Sctp) {
            let pairs = PODS.iter().flat_map(|(from, _)| PODS.iter().map(move |(to, _)| (*from, *to)));
            let probes: Vec<_> = pairs
                .filter(|(from, to)| from != to)
                .map(|(from, to)| {
                    let expected = look.expects(from, to);
                    let time = if expected { PATIENCE } else { SILENCE };
                    let probe = lab.probe(from, (address(to), look.port).into(), look.protocol, time);
                    (from, to, expected, probe)
                })
                .collect();
            for (from, to, expected, probe) in probes {
                let reached = probe.join().expect("a probe");
                assert_eq!(reached, expected, "{}: {from} to {to}:{}", case.name, look.port);
            }
        }
        for (number, (namespace, spec)) in &policies {
            state.policy(&policy(namespace, &format!("p{number}"), spec), false);
        }
        change(&lab, &mut state).await;
    }
    let left = lab.inside("node", "nft list table inet t");
    assert!(!left.contains("pods-") && !left.contains("goto"), "nothing is left of the policies: {left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_end_when_a_policy_forbids_them() {
    let Some(lab) = Lab::new("e") else { return };
    ["x/a", "node"].iter().for_each(|name| lab.serve(name));
    let mut state = cases::state();
    lab.nft().apply(&state.resync().script()).await.expect("the table");
    let mut from_b = lab.connect("x/b", "10.244.0.10:80");
    let mut from_y = lab.connect("y/a", "10.244.0.10:80");
    // Flows that the kernel remembers: one of a pod that stays welcome, one of a pod that does not.
    for from in ["x/b", "y/a"] {
        let reached = lab.probe(from, "10.244.0.10:80".parse().expect("one"), Protocol::Udp, PATIENCE);
        assert!(reached.join().expect("a probe"));
    }
    // Both ways between the node and the pod, as with the cluster's DNS.
    for (from, to) in [("x/a", "10.244.0.1:80"), ("node", "10.244.0.10:81")] {
        let reached = lab.probe(from, to.parse().expect("one"), Protocol::Udp, PATIENCE);
        assert!(reached.join().expect("a probe"));
    }
    assert!(echoes(&mut from_b, PATIENCE) && echoes(&mut from_y, PATIENCE));
    let friends = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "ingress": [{"from": [{"podSelector": {}}]}]});
    state.policy(&policy("x", "p", &friends), true);
    change(&lab, &mut state).await;
    assert!(echoes(&mut from_b, PATIENCE), "who may still talk goes on");
    assert!(!echoes(&mut from_y, SILENCE), "who may not is cut off in the middle");

    let isolated = state.isolated();
    let flows = lab.within("node", move || conntrack::flows(&isolated).expect("flows"));
    assert_eq!(flows.len(), 2, "those with the node are not judged: {flows:?}");
    let forbidden: Vec<_> =
        flows.into_iter().filter(|flow| !state.allows(flow.from, flow.to, Protocol::Udp, flow.port)).collect();
    assert!(forbidden.len() == 1 && forbidden[0].from == address("y/a"), "{forbidden:?}");
    lab.within("node", move || conntrack::forget(&forbidden).expect("forgotten"));
    let isolated = state.isolated();
    let left = lab.within("node", move || conntrack::flows(&isolated).expect("flows"));
    assert!(left.len() == 1 && left[0].from == address("x/b"), "{left:?}");

    // The policy goes, and the connection goes on where it stopped.
    state.policy(&policy("x", "p", &friends), false);
    change(&lab, &mut state).await;
    assert!(echoes(&mut from_y, PATIENCE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_services_and_the_world_are_judged_as_upstream_says() {
    let Some(lab) = Lab::new("s") else { return };
    ["x/a", "y/a", "client", "node"].iter().for_each(|name| lab.serve(name));
    // A Service in front of x/a, and answers to oneself through the node.
    let service = "table ip service {\n chain pre { type nat hook prerouting priority -100; ip daddr 10.96.0.7 tcp dport 8 dnat to 10.244.0.10:80; }\n chain post { type nat hook postrouting priority 100; ip saddr 10.244.0.10 ip daddr 10.244.0.10 masquerade; }\n}\n";
    lab.nft().apply(service).await.expect("a Service");
    let mut state = cases::state();
    lab.nft().apply(&state.resync().script()).await.expect("the table");
    let closed = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"podSelector": {"matchLabels": {"pod": "b"}}}], "ports": [{"port": 80}]}]});
    state.policy(&policy("x", "p", &closed), true);
    change(&lab, &mut state).await;
    assert!(lab.reaches("node", "10.244.0.10:80", true), "its node reaches every pod: probes");
    assert!(lab.reaches("x/a", "10.244.0.1:80", true), "a pod reaches its node");
    assert!(lab.reaches("x/b", "10.96.0.7:8", true), "a Service is judged by the pod behind it and the pod's port");
    assert!(lab.reaches("x/c", "10.96.0.7:8", false), "no way around through a Service");
    assert!(lab.reaches("x/a", "10.96.0.7:8", true), "a pod reaches itself through its Service");
    assert!(lab.reaches("client", "10.244.0.10:80", false), "the world is nobody's pod");
    assert!(lab.reaches("x/a", &format!("{CLIENT}:80"), false), "and not to be reached");
    assert!(lab.reaches("y/a", &format!("{CLIENT}:80"), true), "but by others");

    let open = json!({"podSelector": {"matchLabels": {"pod": "a"}}, "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"from": [{"ipBlock": {"cidr": "198.51.100.0/24"}}]}],
        "egress": [{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8"]}}]}]});
    state.policy(&policy("x", "p", &open), true);
    change(&lab, &mut state).await;
    assert!(lab.reaches("client", "10.244.0.10:80", true));
    assert!(lab.reaches("client", "10.96.0.7:8", true), "the client's own address counts");
    assert!(lab.reaches("x/a", &format!("{CLIENT}:80"), true));
    assert!(lab.reaches("x/a", "10.244.0.20:80", false), "an exception");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tiers_of_cluster_policies_hold_with_real_packets() {
    let Some(lab) = Lab::new("t") else { return };
    PODS.iter().map(|(name, _)| *name).chain(["node"]).for_each(|name| lab.serve(name));
    let mut state = cases::state();
    lab.nft().apply(&state.resync().script()).await.expect("the table");
    for case in cluster_cases::all() {
        case.apply(&mut state, true);
        change(&lab, &mut state).await;
        for (from, to, port, expected) in &case.looks {
            let reached = lab.reaches(from, &format!("{}:{port}", address(to)), *expected);
            assert!(reached, "{}: {from} to {to}:{port}, {expected}", case.name);
        }
        case.apply(&mut state, false);
        change(&lab, &mut state).await;
    }
    // The pod's own node, which NetworkPolicies never forbid.
    state.node(&cluster_cases::node("here", "10.244.0.1"), true);
    let spec = json!({"tier": "Baseline", "priority": 0, "subject": {"namespaces": {}}, "egress": [
        {"action": "Accept", "to": [{"nodes": {}}], "protocols": [{"tcp": {"destinationPort": {"number": 81}}}]},
        {"action": "Deny", "to": [{"nodes": {}}]}]});
    state.cluster_policy(&cluster_cases::cluster_policy("c", &spec), true);
    change(&lab, &mut state).await;
    assert!(lab.reaches("x/a", "10.244.0.1:80", false) && lab.reaches("x/a", "10.244.0.1:81", true));
    assert!(lab.reaches("node", "10.244.0.10:80", true), "answers to the node's own connections pass");
    assert!(lab.reaches("x/a", "10.244.0.20:80", true));
    state.policy(&policy("x", "p", &json!({"podSelector": {}, "policyTypes": ["Egress"]})), true);
    change(&lab, &mut state).await;
    assert!(lab.reaches("x/a", "10.244.0.1:80", true), "its NetworkPolicies decide, and they allow its node");
    assert!(lab.reaches("y/a", "10.244.0.1:80", false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reach_the_kernel_and_a_lost_table_comes_back() {
    let Some(lab) = Lab::new("l") else { return };
    PODS.iter().for_each(|(name, _)| lab.serve(name));
    let sources = Sources {
        pods: Informer::detached(),
        namespaces: Informer::detached(),
        policies: Informer::detached(),
        nodes: Informer::detached(),
        cluster_policies: Informer::detached(),
    };
    for name in ["x", "y", "z"] {
        sources.namespaces.apply(namespace(name, json!({"kubernetes.io/metadata.name": name})));
    }
    for (name, address) in PODS.iter().filter(|(name, _)| *name != "z/a") {
        sources.pods.apply(pod(name, json!({}), Some(address)).as_ref().clone());
    }
    let closed = json!({"podSelector": {}, "policyTypes": ["Ingress"]});
    sources.policies.apply(StoredPolicy(policy("x", "closed", &closed)));
    sources.pods.mark_synced();
    sources.namespaces.mark_synced();
    sources.policies.mark_synced();
    sources.nodes.mark_synced();
    sources.cluster_policies.mark_synced();
    let (sender, mut ready) = tokio::sync::watch::channel(false);
    let (gate, newcomers) = crate::gate();
    let (tasks, nft) = (Tasks::new("test"), lab.nft());
    let told = lab.within("node", || Watch::socket().expect("a socket"));
    let watch = Watch::of(told, &nft).expect("a watch");
    let sync = Sync::new("here", "t", cases::bridge(), nft, sources.clone(), newcomers, sender).watching(watch);
    tasks.spawn_until_stopped("policies", sync.run());
    ready.wait_for(|ready| *ready).await.expect("ready");
    assert!(lab.reaches("y/a", "10.244.0.10:80", false) && lab.reaches("x/a", "10.244.0.20:80", true));

    // A pod that is about to start: what holds for it holds when the gate opens.
    sources.policies.apply(StoredPolicy(policy("z", "closed", &closed)));
    let newcomer = pod("z/a", json!({}), None);
    gate.pass(newcomer, vec![address("z/a")]).await.expect("the gate opens");
    // The gate and the informer are two ways: the policy may be the later one.
    eventually(|| lab.inside("node", "nft list map inet t isolated-ingress-4").contains("10.244.0.30")).await;
    assert!(lab.reaches("y/a", "10.244.0.30:80", false));

    for harm in ["delete table inet t", "flush ruleset", "flush table inet t", "flush map inet t isolated-ingress-4"] {
        lab.inside("node", &format!("nft {harm}"));
        eventually(|| lab.reaches("y/a", "10.244.0.10:80", false) && lab.reaches("y/a", "10.244.0.30:80", false)).await;
    }
    sources.policies.remove(StoredPolicy(policy("x", "closed", &closed)));
    eventually(|| lab.reaches("y/a", "10.244.0.10:80", true)).await;
    assert!(tasks.stop(Duration::from_secs(10)).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_way_around_policies_without_a_pods_address() {
    let Some(lab) = Lab::new("n") else { return };
    let mut state = cases::state();
    lab.nft().apply(&state.resync().script()).await.expect("the table");
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let (link_local, received) = lab.within("x/a", move || {
        let listener = TcpListener::bind("[::]:82").expect("tcp");
        let socket = UdpSocket::bind("0.0.0.0:83").expect("udp");
        socket.join_multicast_v4(&group, &Ipv4Addr::new(10, 244, 0, 10)).expect("a group");
        (listener, socket)
    });
    let shown = lab.inside("x/a", "ip -6 -o addr show dev eth0 scope link");
    let own = shown.split_whitespace().find(|word| word.starts_with("fe80:")).expect("a link-local address");
    let own: Ipv6Addr = own.trim_end_matches("/64").parse().expect("an address");
    let linked = |expected: bool| {
        let time = if expected { PATIENCE } else { SILENCE };
        let connect = move || TcpStream::connect_timeout(&SocketAddrV6::new(own, 82, 0, scope()).into(), time).is_ok();
        lab.within("y/a", connect) == expected
    };
    let heard = |to: &'static str, expected: bool| {
        received.set_read_timeout(Some(if expected { PATIENCE } else { SILENCE })).expect("a timeout");
        lab.within("y/a", move || {
            let socket = UdpSocket::bind("10.244.0.20:0").expect("udp");
            socket.set_broadcast(true).expect("the right");
            socket.send_to(b"x", (to, 83)).expect("sent");
        });
        received.recv(&mut [0; 8]).is_ok() == expected
    };
    let to_all = ["10.244.0.255", "255.255.255.255", "239.1.2.3"];
    // Addresses of a link are not in use before nobody else was found to have them.
    eventually(|| linked(true)).await;
    for to in to_all {
        assert!(heard(to, true), "{to}: no pod is isolated");
    }
    for direction in ["Ingress", "Egress"] {
        // Of the one that receives, or of the one that sends.
        let (namespace, spec) = match direction {
            "Ingress" => ("x", json!({"podSelector": {}, "policyTypes": ["Ingress"]})),
            _ => ("y", json!({"podSelector": {}, "policyTypes": ["Egress"]})),
        };
        state.policy(&policy(namespace, "p", &spec), true);
        change(&lab, &mut state).await;
        assert!(linked(false), "{direction}: link-local addresses");
        for to in to_all {
            assert!(heard(to, false), "{direction}: {to}");
        }
        state.policy(&policy(namespace, "p", &spec), false);
        change(&lab, &mut state).await;
        assert!(linked(true) && to_all.iter().all(|to| heard(to, true)), "{direction}: nothing is left of it");
    }
    drop(link_local);
}

/// Binds the ports of the lab's bridge as they are.
async fn bind(lab: &Lab, ports: &mut crate::ports::Ports, fresh: &[IpAddr]) -> usize {
    let fresh = [fresh.iter().copied().collect()];
    let own = PODS.iter().map(|(name, _)| address(name)).collect();
    let known = ports.known(&fresh);
    let (new, all) = lab.within("node", move || ferry_nft::bridge_ports("br0", &known).expect("ports"));
    let new: Vec<_> = new.into_iter().filter_map(|port| ports.judged(port, &own, &fresh)).collect();
    let count = new.len();
    let rules = ports.transaction(new, &all);
    lab.nft().commit(&rules).await.unwrap_or_else(|error| panic!("{error}\n{}", rules.script()));
    ports.are_written(true);
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_speaks_with_its_own_addresses_only() {
    let Some(lab) = Lab::new("p") else { return };
    PODS.iter().for_each(|(name, _)| lab.serve(name));
    let received = lab.within("x/a", || UdpSocket::bind("10.244.0.10:84").expect("udp"));
    let heard = |from: &'static str, expected: bool| {
        received.set_read_timeout(Some(if expected { PATIENCE } else { SILENCE })).expect("a timeout");
        lab.within("y/a", move || {
            let socket = UdpSocket::bind((from, 0)).expect("an address");
            socket.send_to(b"x", "10.244.0.10:84").expect("sent");
        });
        received.recv(&mut [0; 8]).is_ok() == expected
    };
    // As a pod with raw sockets does: its packets have no source. Addresses of a link are free to use after a while.
    let shown = lab.inside("x/a", "ip -6 -o addr show dev eth0 scope link");
    let linked = shown.split_whitespace().find(|word| word.starts_with("fe80:")).expect("a link-local address");
    let linked: Ipv6Addr = linked.trim_end_matches("/64").parse().expect("an address");
    lab.inside("y/a", "nft add table ip6 sourceless");
    lab.inside("y/a", "nft add chain ip6 sourceless out { type filter hook postrouting priority 0 ; }");
    lab.inside("y/a", "nft add rule ip6 sourceless out udp dport 85 ip6 saddr set ::");
    let sixth = lab.within("x/a", || UdpSocket::bind("[::]:85").expect("udp"));
    let heard_without_source = |expected: bool| {
        sixth.set_read_timeout(Some(SILENCE)).expect("a timeout");
        lab.within("y/a", move || {
            let socket = UdpSocket::bind("[::]:0").expect("udp");
            let _ = socket.send_to(b"x", SocketAddrV6::new(linked, 85, 0, scope()));
        });
        sixth.recv_from(&mut [0; 8]).is_ok_and(|(_, from)| from.ip().is_unspecified()) == expected
    };
    eventually(|| heard_without_source(true)).await;
    while sixth.recv(&mut [0; 8]).is_ok() {}
    let neighbour = || lab.inside("x/a", "ip neigh show 10.244.0.11");
    assert!(lab.reaches("x/a", "10.244.0.11:80", true));
    let before = neighbour();
    let hardware = before.split_whitespace().skip_while(|word| *word != "lladdr").nth(1).expect("its place").to_owned();

    let mut ports = crate::ports::Ports::new("t", "br0");
    assert_eq!(bind(&lab, &mut ports, &[]).await, PODS.len());
    assert!(lab.reaches("x/a", "10.244.0.20:80", true) && lab.reaches("y/a", "10.244.0.10:80", true));
    assert!(heard("10.244.0.20", true), "under its own address");
    assert!(heard_without_source(false), "nor without one");
    // y/a takes the address of x/b, in its packets and on the bridge.
    lab.inside("y/a", "ip addr add 10.244.0.11/32 dev eth0");
    assert!(heard("10.244.0.11", false), "under another's");
    lab.inside("x/a", "ip neigh flush dev eth0");
    assert!(heard("10.244.0.11", false), "and when it is asked for");
    assert!(lab.reaches("x/a", "10.244.0.11:80", true), "who has the address is found");
    assert!(neighbour().contains(&hardware), "{} instead of {before}", neighbour());
    lab.inside("y/a", "ip addr add 203.0.113.9/32 dev eth0");
    assert!(heard("203.0.113.9", false), "nor under that of a stranger");
    // Its place on the bridge.
    let own = lab.inside("y/a", "cat /sys/class/net/eth0/address");
    lab.inside("y/a", &format!("ip link set eth0 address {hardware}"));
    assert!(heard("10.244.0.20", false), "nor with another's hardware address");
    assert!(lab.reaches("x/a", "10.244.0.11:80", true), "nobody takes its frames away");
    lab.inside("y/a", &format!("ip link set eth0 address {}", own.trim()));
    assert!(heard("10.244.0.20", true), "as before");

    // Another pod at a port of its own, and one that is gone.
    let all = ports.known(&[]);
    assert!(ports.transaction(Vec::new(), &all).is_empty(), "nothing is new");
    lab.inside("node", "ip link delete xc");
    assert_eq!(bind(&lab, &mut ports, &[]).await, 0);
    // One that the kubelet tells of again is looked at again: it has what it had, and what it was told to have.
    let more: IpAddr = "10.244.0.99".parse().expect("an address");
    lab.inside("y/a", "ip addr add 10.244.0.99/32 dev eth0");
    assert_eq!(bind(&lab, &mut ports, &[address("y/a"), more]).await, 1);
    assert!(heard("10.244.0.99", true) && heard("10.244.0.20", true));
    assert!(heard("10.244.0.11", false) && heard("203.0.113.9", false), "what is others' stays so");
    assert!(!lab.inside("node", "nft list set bridge t ports").contains("\"xc\""));
    assert!(heard("10.244.0.20", true));
}

/// The number of the only device but the loopback in the namespace of this thread.
fn scope() -> u32 {
    let shown = std::fs::read_to_string("/proc/thread-self/net/if_inet6").expect("addresses");
    let line = shown.lines().find(|line| line.ends_with("eth0")).expect("the device");
    u32::from_str_radix(line.split_whitespace().nth(1).expect("its number"), 16).expect("a number")
}

/// The kernel tells nobody that its rules changed, hence the attempts.
async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..100 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it never came true");
}
