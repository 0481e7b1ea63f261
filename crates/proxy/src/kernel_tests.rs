//! The rules in a real kernel: a node, two pods on its bridge and a client outside, each in a network namespace.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use ferry_client::Informer;
use ferry_nft::{Nft, Watch, Writer};
use ferry_tasks::Tasks;
use ferry_testkit::network::Namespaces;
use serde_json::{Value, json};

use crate::conntrack;
use crate::frame::Frame;
use crate::listeners::Listeners;
use crate::plan_tests::{service, slice, state, state_at, whole_slice};
use crate::proxier::Proxier;
use crate::sync::{Sources, Sync};

const PATIENCE: Duration = Duration::from_secs(2);

struct Lab(Namespaces);

impl std::ops::Deref for Lab {
    type Target = Namespaces;

    fn deref(&self) -> &Namespaces {
        &self.0
    }
}

impl Lab {
    /// None, and a record of why, where namespaces cannot be made: without root there is no proxy either.
    fn new(tag: &str) -> Option<Self> {
        let lab = Self(Namespaces::with_node(tag)?);
        lab.inside("node", "ip link add br0 type bridge");
        lab.inside("node", "ip addr add 10.244.0.1/24 dev br0");
        lab.inside("node", "ip link set br0 up");
        lab.inside("node", "sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1");
        for (pod, address) in [("pod-a", "10.244.0.5/24"), ("pod-b", "10.244.0.6/24")] {
            lab.add(pod, pod);
            lab.inside("node", &format!("ip link set {pod} master br0 up"));
            lab.inside("node", &format!("bridge link set dev {pod} hairpin on"));
            lab.join(pod, address, "10.244.0.1");
        }
        lab.add("client", "out");
        lab.inside("node", "ip addr add 198.51.100.1/24 dev out");
        lab.inside("node", "ip link set out up");
        // Where the host's default route would be: ClusterIPs must be routable for the output hook to see them.
        lab.inside("node", "ip route add default via 198.51.100.2");
        lab.join("client", "198.51.100.2/24", "198.51.100.1");
        Some(lab)
    }

    fn nft(&self) -> Nft {
        let writer = self.within("node", || Writer::open().expect("a socket"));
        Nft::with_writer(self.command("node", "nft"), writer)
    }

    /// A server that answers each connection or datagram with its name and the address it saw.
    fn serve(&self, namespace: &'static str) {
        let (tcp, udp) = self.within(namespace, || {
            (TcpListener::bind("0.0.0.0:8080").expect("tcp"), UdpSocket::bind("0.0.0.0:8080").expect("udp"))
        });
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                if let Ok(peer) = stream.peer_addr() {
                    let _ = stream.write_all(format!("{namespace} {}", peer.ip()).as_bytes());
                }
            }
        });
        std::thread::spawn(move || {
            let mut buffer = [0; 64];
            while let Ok((_, peer)) = udp.recv_from(&mut buffer) {
                let _ = udp.send_to(format!("{namespace} {}", peer.ip()).as_bytes(), peer);
            }
        });
    }

    /// `server source-address`, or what went wrong: `refused` or `silence`.
    fn call(&self, from: &str, to: &str) -> String {
        let address: SocketAddr = to.parse().expect("an address");
        self.within(from, move || {
            let answer = TcpStream::connect_timeout(&address, PATIENCE).and_then(|mut stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                let mut text = String::new();
                stream.read_to_string(&mut text)?;
                Ok(text)
            });
            outcome(answer)
        })
    }

    /// A conversation from one port: each call sends a datagram and gives the answer.
    fn talk(&self, from: &str, to: &str) -> impl FnMut() -> String + use<> {
        let address: SocketAddr = to.parse().expect("an address");
        let socket = self.within(from, || UdpSocket::bind("0.0.0.0:0").expect("a socket"));
        socket.connect(address).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        move || {
            let mut buffer = [0; 64];
            let answer = socket.send(b"x").and_then(|_| socket.recv(&mut buffer));
            outcome(answer.map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned()))
        }
    }

    fn call_udp(&self, from: &str, to: &str) -> String {
        let address: SocketAddr = to.parse().expect("an address");
        self.within(from, move || {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            let mut buffer = [0; 64];
            let answer = socket.connect(address).and_then(|()| {
                socket.set_read_timeout(Some(PATIENCE))?;
                socket.send(b"x")?;
                socket.recv(&mut buffer)
            });
            outcome(answer.map(|length| String::from_utf8_lossy(&buffer[..length]).into_owned()))
        })
    }
}

fn outcome(answer: std::io::Result<String>) -> String {
    match answer {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => "refused".into(),
        Err(error) if matches!(error.kind(), std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock) => {
            "silence".into()
        }
        Err(error) => error.to_string(),
    }
}

fn endpoints(addresses: &[&str]) -> Value {
    addresses.iter().map(|address| json!({"addresses": [address], "nodeName": "here"})).collect()
}

async fn change(lab: &Lab, state: &mut Proxier) {
    let transaction = state.transaction();
    lab.nft().commit(&transaction).await.unwrap_or_else(|error| panic!("{error}\n{}", transaction.script()));
}

/// Calls until both servers have answered; fails when one never does.
fn spread(lab: &Lab, from: &str, to: &str) -> BTreeSet<String> {
    let mut seen = BTreeSet::new();
    for _ in 0..60 {
        seen.insert(lab.call(from, to));
        if seen.len() >= 2 {
            break;
        }
    }
    seen
}

fn set<const N: usize>(items: [&str; N]) -> BTreeSet<String> {
    items.map(str::to_owned).into()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_carry_traffic() {
    let Some(lab) = Lab::new("t") else { return };
    lab.serve("pod-a");
    lab.serve("pod-b");
    let mut state = state();
    lab.nft().apply(&state.resync()).await.expect("the empty table");
    assert_eq!(lab.call("pod-a", "10.96.0.7:80"), "refused", "an address that no service has");
    assert_eq!(lab.call("node", "10.96.0.7:80"), "refused");

    let ports = json!([{"port": 80, "protocol": "TCP", "nodePort": 30080}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.96.0.7", "externalIPs": ["203.0.113.9"], "ports": ports});
    state.service(&service("web", spec.clone(), Value::Null), true);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("pod-a", "10.96.0.7:80"), "refused", "no endpoints");
    assert_eq!(lab.call("client", "198.51.100.1:30080"), "refused", "no endpoints");

    state.slice(&slice("web", 8080, "TCP", endpoints(&["10.244.0.5", "10.244.0.6"])), true);
    change(&lab, &mut state).await;
    // A pod keeps its address, except where it talks to itself and the answer must come back through the node.
    assert_eq!(spread(&lab, "pod-a", "10.96.0.7:80"), set(["pod-a 10.244.0.1", "pod-b 10.244.0.5"]));
    assert_eq!(spread(&lab, "node", "10.96.0.7:80"), set(["pod-a 10.244.0.1", "pod-b 10.244.0.1"]));
    assert_eq!(spread(&lab, "client", "198.51.100.1:30080"), set(["pod-a 10.244.0.1", "pod-b 10.244.0.1"]));
    assert_eq!(spread(&lab, "node", "198.51.100.1:30080").len(), 2, "a node port from the node itself");
    assert_eq!(spread(&lab, "client", "203.0.113.9:80").len(), 2, "an external address");
    assert_eq!(lab.call("pod-a", "10.96.0.7:81"), "refused", "a port the service does not have");

    state.slice(&slice("web", 8080, "TCP", endpoints(&["10.244.0.6"])), true);
    change(&lab, &mut state).await;
    for _ in 0..5 {
        assert_eq!(lab.call("pod-a", "10.96.0.7:80"), "pod-b 10.244.0.5");
    }

    // The policy Local keeps the client's address; without a local endpoint the client hears nothing.
    let mut local = spec.clone();
    local["externalTrafficPolicy"] = json!("Local");
    state.service(&service("web", local, Value::Null), true);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("client", "198.51.100.1:30080"), "pod-b 198.51.100.2");
    let elsewhere = json!([{"addresses": ["10.244.0.6"], "nodeName": "there"}]);
    state.slice(&slice("web", 8080, "TCP", elsewhere), true);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("client", "198.51.100.1:30080"), "silence");
    assert_eq!(lab.call("pod-a", "198.51.100.1:30080"), "pod-b 10.244.0.5");

    state.service(&service("web", spec, Value::Null), false);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("pod-a", "10.96.0.7:80"), "refused");
    let left = lab.inside("node", "nft list table ip t");
    assert!(!left.contains("10.96.0.7") && !left.contains("10.244.0.6"), "{left}");
    lab.nft().apply(&state.resync()).await.expect("a resync over an existing table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn affinity_datagrams_and_firewalls_work() {
    let Some(lab) = Lab::new("a") else { return };
    lab.serve("pod-a");
    lab.serve("pod-b");
    let mut state = state();
    lab.nft().apply(&state.resync()).await.expect("the empty table");
    let sticky = json!({"clusterIP": "10.96.0.8", "sessionAffinity": "ClientIP", "ports": [{"port": 80}]});
    let datagrams = json!({"clusterIP": "10.96.0.10", "ports": [{"port": 53, "protocol": "UDP"}]});
    let balanced = json!({
        "type": "LoadBalancer", "clusterIP": "10.96.0.11", "ports": [{"port": 80}], "loadBalancerSourceRanges": ["198.51.100.7/32"],
    });
    let both = endpoints(&["10.244.0.5", "10.244.0.6"]);
    state.service(&service("sticky", sticky, Value::Null), true);
    state.slice(&slice("sticky", 8080, "TCP", both.clone()), true);
    state.service(&service("dns", datagrams, Value::Null), true);
    state.slice(&slice("dns", 8080, "UDP", both.clone()), true);
    let ingress = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.4"}]}});
    state.service(&service("balanced", balanced, ingress), true);
    state.slice(&slice("balanced", 8080, "TCP", both), true);
    change(&lab, &mut state).await;

    let first = lab.call("client", "10.96.0.8:80");
    let mut words = first.split(' ');
    let chosen = words.next().unwrap_or_default().to_owned();
    for _ in 0..12 {
        assert_eq!(lab.call("client", "10.96.0.8:80"), first, "the same client keeps its endpoint");
    }
    // The proxy starts anew, and writes the whole table.
    let sets = state.affinities();
    let clients = lab.within("node", move || {
        crate::affinity::remembered(crate::family::Family::Ipv4, "t", &sets).expect("the clients")
    });
    assert_eq!(clients.matches("198.51.100.2 timeout 10800s expires").count(), 1, "{clients}");
    lab.nft().apply(&format!("{}{clients}", state.resync())).await.expect("the table with its clients");
    for _ in 0..12 {
        assert_eq!(lab.call("client", "10.96.0.8:80"), first, "over a restart as well");
    }
    // The client stays where it is while its endpoint lives, and moves when it goes.
    let (stays, goes) = if chosen == "pod-a" { ("10.244.0.5", "10.244.0.6") } else { ("10.244.0.6", "10.244.0.5") };
    state.slice(&slice("sticky", 8080, "TCP", endpoints(&[stays])), true);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("client", "10.96.0.8:80"), first);
    state.slice(&slice("sticky", 8080, "TCP", endpoints(&[goes])), true);
    change(&lab, &mut state).await;
    assert_ne!(lab.call("client", "10.96.0.8:80"), first);

    // A client that keeps its port follows its endpoint's end only when the flow is ended.
    let mut conversation = lab.talk("client", "10.96.0.10:53");
    let first = conversation().split(' ').next().unwrap_or_default().to_owned();
    let (stays, other) = if first == "pod-a" { ("10.244.0.6", "pod-b") } else { ("10.244.0.5", "pod-a") };
    assert_eq!(conversation().split(' ').next(), Some(first.as_str()));
    state.take_moved();
    state.slice(&slice("dns", 8080, "UDP", endpoints(&[stays])), true);
    change(&lab, &mut state).await;
    let moved = state.take_moved();
    assert_eq!(
        lab.within("node", move || conntrack::end_stale(crate::family::Family::Ipv4, &moved).expect("flows")),
        1
    );
    assert_eq!(conversation().split(' ').next(), Some(other));
    state.slice(&slice("dns", 8080, "UDP", endpoints(&["10.244.0.5", "10.244.0.6"])), true);
    change(&lab, &mut state).await;

    let seen: BTreeSet<String> = (0..30).map(|_| lab.call_udp("pod-a", "10.96.0.10:53")).collect();
    assert_eq!(seen, set(["pod-a 10.244.0.1", "pod-b 10.244.0.5"]));
    assert_eq!(lab.call("client", "203.0.113.4:80"), "silence", "a source outside of the ranges");
    assert_eq!(lab.call("client", "10.96.0.11:80").split(' ').count(), 2, "the ranges are the load balancer's alone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_ports_are_served_where_they_should_be() {
    let Some(lab) = Lab::new("n") else { return };
    lab.serve("pod-a");
    lab.inside("node", "ip addr add 198.51.100.9/24 dev out");
    let mut state = state_at(&["198.51.100.8/29"]);
    lab.nft().apply(&state.resync()).await.expect("the empty table");
    let ports = json!([{"port": 80, "nodePort": 30080}]);
    state.service(
        &service("web", json!({"type": "NodePort", "clusterIP": "10.96.0.7", "ports": ports}), Value::Null),
        true,
    );
    state.slice(&slice("web", 8080, "TCP", endpoints(&["10.244.0.5"])), true);
    change(&lab, &mut state).await;
    assert_eq!(lab.call("client", "198.51.100.9:30080"), "pod-a 10.244.0.1");
    assert_eq!(lab.call("client", "198.51.100.1:30080"), "refused", "another address of the node");
    assert_eq!(lab.call("client", "10.96.0.7:80"), "pod-a 10.244.0.1", "the ClusterIP is no matter of it");
}

/// The node's own server stands for sshd, the API server, the kubelet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn addresses_and_ports_of_others_are_not_taken() {
    let Some(lab) = Lab::new("c") else { return };
    for name in ["pod-a", "pod-b", "node"] {
        lab.serve(name);
    }
    let mut state = state();
    state.listeners(lab.within("node", Listeners::read));
    lab.nft().apply(&state.resync()).await.expect("the empty table");
    let victim = json!({"type": "NodePort", "clusterIP": "10.96.0.10",
        "ports": [{"port": 53, "protocol": "TCP", "nodePort": 30080}]});
    state.service(&service("victim", victim, Value::Null), true);
    state.slice(&slice("victim", 8080, "TCP", endpoints(&["10.244.0.5"])), true);
    // First in the alphabet, and at all that is not its own: the ClusterIP, the node's port, the node port.
    let ports = json!([{"port": 53, "name": "a"}, {"port": 8080, "name": "b"}, {"port": 30080, "name": "c"}, {"port": 81, "name": "d"}]);
    let thief =
        json!({"type": "LoadBalancer", "clusterIP": "10.96.0.11", "externalIPs": ["10.96.0.10"], "ports": ports});
    let status = json!({"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}});
    state.service(&service("a-thief", thief, status), true);
    let mut stolen = whole_slice("a-thief", 8080, "TCP", endpoints(&["10.244.0.6"]));
    stolen.ports = Some(
        ["a", "b", "c", "d"]
            .map(|name| serde_json::from_value(json!({"name": name, "port": 8080, "protocol": "TCP"})).expect("a port"))
            .to_vec(),
    );
    state.slice(&Arc::new(stolen.into()), true);
    change(&lab, &mut state).await;
    let who = |from: &str, to: &str| lab.call(from, to).split(' ').next().unwrap_or_default().to_owned();
    for from in ["client", "pod-a", "node"] {
        assert_eq!(who(from, "10.96.0.10:53"), "pod-a", "the ClusterIP, from {from}");
        assert_eq!(who(from, "198.51.100.1:8080"), "node", "what the node listens on, from {from}");
        assert_eq!(who(from, "198.51.100.1:30080"), "pod-a", "the node port, from {from}");
        assert_ne!(who(from, "10.96.0.10:81"), "pod-b", "another port of the ClusterIP, from {from}");
        assert_eq!(who(from, "198.51.100.1:81"), "pod-b", "what is free, from {from}");
    }
    let told: Vec<String> = state.take_refused().into_iter().map(|(_, why)| why).collect();
    for want in [
        "TCP port 53 of 10.96.0.10 is not served for this Service: 10.96.0.10 is the ClusterIP of Service default/victim",
        "TCP port 8080 of 198.51.100.1 is not served for this Service: node here listens there itself",
        "TCP port 30080 of 198.51.100.1 is not served for this Service: it is the node port of Service default/victim",
    ] {
        assert!(told.iter().any(|why| why == want), "{want} in {told:#?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_reach_the_kernel_and_a_lost_table_comes_back() {
    let Some(lab) = Lab::new("s") else { return };
    lab.serve("pod-a");
    let sources = Sources { services: Informer::detached(), slices: Informer::detached(), nodes: Informer::detached() };
    sources.services.mark_synced();
    sources.slices.mark_synced();
    sources.nodes.mark_synced();
    let (services, slices) = (sources.services.clone(), sources.slices.clone());
    let add = |name: &str, address: &str| {
        let spec = json!({"clusterIP": address, "ports": [{"port": 80}]});
        services.apply(service(name, spec, Value::Null).as_ref().clone());
        slices.apply(slice(name, 8080, "TCP", endpoints(&["10.244.0.5"])).as_ref().clone());
    };
    add("first", "10.96.0.7");
    let frame = Frame {
        family: crate::family::Family::Ipv4,
        table: "t".into(),
        pod_cidr: "10.244.0.0/16".into(),
        service_cidrs: vec!["10.96.0.0/16".into()],
        node_port_addresses: Vec::new(),
        masquerade_between_pods: false,
    };
    let (sender, mut ready) = tokio::sync::watch::channel(false);
    let tasks = Tasks::new("test");
    let nft = lab.nft();
    let told = lab.within("node", || Watch::socket().expect("a socket"));
    let watch = Watch::of(told, &nft).expect("a watch");
    let sync = Sync::new("here".into(), vec![frame], nft, sources, sender).watching(watch);
    tasks.spawn_until_stopped("proxy", sync.run());
    ready.wait_for(|ready| *ready).await.expect("ready");
    assert_eq!(lab.call("pod-b", "10.96.0.7:80"), "pod-a 10.244.0.6");
    add("second", "10.96.0.8");
    eventually(|| lab.call("pod-b", "10.96.0.8:80") == "pod-a 10.244.0.6").await;
    // Whatever others do, it is back without a change in the cluster.
    for harm in [
        "delete table ip t",
        "flush ruleset",
        "flush table ip t",
        "delete element ip t services { 10.96.0.7 . tcp . 80 }",
    ] {
        lab.inside("node", &format!("nft {harm}"));
        eventually(|| ["10.96.0.7:80", "10.96.0.8:80"].iter().all(|to| lab.call("pod-b", to) == "pod-a 10.244.0.6"))
            .await;
    }
    add("third", "10.96.0.9");
    eventually(|| lab.call("pod-b", "10.96.0.9:80") == "pod-a 10.244.0.6").await;
    assert!(tasks.stop(Duration::from_secs(10)).await);
}

/// The kernel tells nobody that its rules changed, hence the attempts; a refused call returns at once.
async fn eventually(mut holds: impl FnMut() -> bool) {
    for _ in 0..200 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it never came true");
}
