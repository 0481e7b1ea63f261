//! Against a real kernel: a node and its pods, each a network namespace of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::configuration::{Request, Settings};
use crate::error::BridgeError;
use crate::inside::inside;
use crate::links::{addresses, find, link_name, local, names};
use crate::records::Records;
use crate::{attach, run};

const PATIENCE: Duration = Duration::from_secs(20);

static LABS: AtomicU32 = AtomicU32::new(0);

struct Lab {
    prefix: String,
    state: tempfile::TempDir,
    ranges: Vec<String>,
    pods: Vec<String>,
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("ip runs");
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Lab {
    fn new(ranges: &[&str]) -> Self {
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let lab = Self {
            prefix: format!("fb{}x{number}", std::process::id()),
            state: tempfile::tempdir().expect("a folder"),
            ranges: ranges.iter().map(|&range| range.to_owned()).collect(),
            pods: Vec::new(),
        };
        ip(&["netns", "add", &lab.name("node")]);
        ip(&["-n", &lab.name("node"), "link", "set", "lo", "up"]);
        let forward = "echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding";
        ip(&["netns", "exec", &lab.name("node"), "sh", "-c", forward]);
        let settings = lab.settings();
        let prepared = lab.on_node(move || crate::netlink::block_on(attach::prepare(settings)));
        prepared.expect("the node is set up");
        lab
    }

    fn name(&self, part: &str) -> String {
        format!("{}-{part}", self.prefix)
    }

    fn path(&self, part: &str) -> PathBuf {
        Path::new("/run/netns").join(self.name(part))
    }

    fn settings(&self) -> Settings {
        Settings {
            bridge: "pods0".into(),
            mtu: 1400,
            ranges: self.ranges.clone(),
            state: self.state.path().to_owned(),
            nft: "nft".into(),
        }
    }

    /// On a thread in the node's network, whose threads and processes are there too.
    fn on_node<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        inside(&self.path("node"), async |_| {
            Ok(std::thread::scope(|scope| scope.spawn(work).join().expect("no panic")))
        })
        .expect("the node")
    }

    fn request(&self, command: &str, pod: &str, more: &Value) -> Request {
        let mut configuration = serde_json::to_value(self.settings()).expect("settings");
        configuration["cniVersion"] = json!("1.1.0");
        for (key, value) in more.as_object().into_iter().flatten() {
            configuration[key] = value.clone();
        }
        Request {
            command: command.into(),
            container_id: pod.into(),
            namespace: self.path(pod),
            interface: "eth0".into(),
            arguments: format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME={pod}"),
            configuration,
        }
    }

    fn ask(&self, command: &str, pod: &str, more: &Value) -> Result<Value, BridgeError> {
        let request = self.request(command, pod, more);
        self.on_node(|| run(&request))
    }

    fn make_pod(&mut self, pod: &str) {
        ip(&["netns", "add", &self.name(pod)]);
        self.pods.push(pod.into());
    }

    fn add(&mut self, pod: &str, more: &Value) -> Vec<IpAddr> {
        self.make_pod(pod);
        let result = self.ask("ADD", pod, more).expect("an attached pod");
        let ips = result["ips"].as_array().expect("addresses").iter();
        ips.map(|ip| ip["address"].as_str().and_then(|text| text.split('/').next()).expect("one").parse().expect("one"))
            .collect()
    }

    fn links(&self) -> Vec<String> {
        let all = inside(&self.path("node"), async |handle| names(&handle).await).expect("devices");
        all.into_iter().filter(|name| name.starts_with("veth")).collect()
    }

    fn taken(&self) -> usize {
        Records::lock(self.state.path()).expect("records").all().expect("records").len()
    }

    /// Whether a connection from one place reaches a server in another, which says where it sees the client.
    fn reaches(&self, from: &str, to: SocketAddr, server: &str, listening: SocketAddr) -> Option<IpAddr> {
        let listener =
            inside(&self.path(server), async |_| Ok(TcpListener::bind(listening).expect("a port"))).expect("a server");
        let serve = std::thread::spawn(move || {
            let Ok((mut stream, client)) = listener.accept() else { return };
            let _ = stream.write_all(client.ip().to_canonical().to_string().as_bytes());
        });
        let told = inside(&self.path(from), async |_| Ok(TcpStream::connect_timeout(&to, PATIENCE))).expect("a client");
        let mut text = String::new();
        told.ok()?.read_to_string(&mut text).ok()?;
        serve.join().expect("no panic");
        text.parse().ok()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for pod in self.pods.iter().map(String::as_str).chain(["node"]) {
            let _ = Command::new("ip").args(["netns", "del", &self.name(pod)]).status();
        }
    }
}

const BOTH: [&str; 2] = ["10.77.0.0/24", "fd77::/64"];

#[test]
fn pods_have_addresses_of_both_families_and_reach_each_other() {
    let mut lab = Lab::new(&BOTH);
    let (a, b) = (lab.add("a", &json!({})), lab.add("b", &json!({})));
    assert_eq!(a.iter().map(ToString::to_string).collect::<Vec<_>>(), ["10.77.0.2", "fd77::2"]);
    for (own, other) in a.iter().zip(&b) {
        let listening = SocketAddr::new(*other, 8080);
        assert_eq!(lab.reaches("a", listening, "b", listening), Some(*own), "from pod to pod");
        let gateway: IpAddr = if own.is_ipv4() { [10, 77, 0, 1].into() } else { "fd77::1".parse().expect("one") };
        assert_eq!(lab.reaches("node", listening, "b", listening), Some(gateway), "from the node");
        let loopback: IpAddr = if own.is_ipv4() { [127, 0, 0, 1].into() } else { "::1".parse().expect("one") };
        let inside = SocketAddr::new(loopback, 8081);
        assert_eq!(lab.reaches("a", inside, "a", inside), Some(loopback), "its own loopback");
    }
    let mtu = Command::new("ip").args(["-n", &lab.name("a"), "link", "show", "eth0"]).output().expect("ip runs");
    assert!(String::from_utf8_lossy(&mtu.stdout).contains("mtu 1400"));
    let prev = json!({ "prevResult": { "ips": a.iter().map(|ip| json!({ "address": format!("{ip}/24") })).collect::<Vec<_>>() } });
    lab.ask("CHECK", "a", &prev).expect("all is there");
    ip(&["-n", &lab.name("a"), "addr", "del", "10.77.0.2/24", "dev", "eth0"]);
    let error = lab.ask("CHECK", "a", &prev).expect_err("it lost an address").to_string();
    assert!(error.contains("eth0 does not have 10.77.0.2"), "{error}");
}

#[test]
fn host_ports_lead_to_the_pod() {
    let mut lab = Lab::new(&BOTH);
    let port = |number: u16, address: &str| json!({ "hostPort": number, "containerPort": 80, "protocol": "tcp", "hostIP": address });
    let ports = json!({ "runtimeConfig": { "portMappings": [port(8080, ""), port(8081, "10.77.0.1")] } });
    let pod = lab.add("a", &ports);
    lab.add("b", &json!({}));
    for (own, node) in pod.iter().zip(["10.77.0.1", "fd77::1"]) {
        let (node, serving): (IpAddr, _) = (node.parse().expect("one"), SocketAddr::new(*own, 80));
        assert!(lab.reaches("node", SocketAddr::new(node, 8080), "a", serving).is_some(), "from the node to {node}");
        assert!(lab.reaches("b", SocketAddr::new(node, 8080), "a", serving).is_some(), "from a pod to {node}");
        assert!(lab.reaches("a", SocketAddr::new(node, 8080), "a", serving).is_some(), "from itself to {node}");
    }
    let (v4, any) = (SocketAddr::new(pod[0], 80), |port: u16| SocketAddr::from(([10, 77, 0, 1], port)));
    assert!(lab.reaches("node", SocketAddr::from(([127, 0, 0, 1], 8080)), "a", v4).is_some(), "by the loopback");
    assert!(lab.reaches("node", any(8081), "a", v4).is_some(), "by the one address");
    lab.make_pod("c");
    let taken = lab.ask("ADD", "c", &ports).expect_err("the port is taken").to_string();
    assert_eq!(taken, "host port 8080/tcp is taken by pod a/a");
    assert_eq!(lab.links().len(), 2, "nothing is left of it");
    lab.ask("DEL", "a", &json!({})).expect("gone");
    let refused = lab.on_node(|| TcpStream::connect_timeout(&any(8080), PATIENCE));
    assert!(refused.is_err(), "nobody is behind it");
    lab.ask("ADD", "c", &ports).expect("the port is free");
}

/// A pod names an address that others are behind, and the way to it leads over this node.
#[test]
fn host_ports_take_nothing_from_others_addresses() {
    let mut lab = Lab::new(&BOTH);
    let port = |address: &str| json!({ "hostPort": 443, "containerPort": 80, "protocol": "tcp", "hostIP": address });
    let foreign: [IpAddr; 2] = ["10.96.0.1", "fd96::1"].map(|text| text.parse().expect("an address"));
    let ports = json!({ "runtimeConfig": { "portMappings": foreign.map(|address| port(&address.to_string())) } });
    let pod = lab.add("a", &ports);
    lab.add("b", &json!({}));
    for (own, foreign) in pod.iter().zip(foreign) {
        let width = if foreign.is_ipv4() { 32 } else { 128 };
        ip(&["-n", &lab.name("node"), "route", "add", &format!("{foreign}/{width}"), "dev", "pods0"]);
        let (to, serving) = (SocketAddr::new(foreign, 443), SocketAddr::new(*own, 80));
        let listener = inside(&lab.path("a"), async |_| Ok(TcpListener::bind(serving).expect("a port")));
        let listener = listener.expect("a server");
        for from in ["b", "node"] {
            let time = Duration::from_millis(500);
            let told = inside(&lab.path(from), async |_| Ok(TcpStream::connect_timeout(&to, time))).expect("a client");
            assert!(told.is_err(), "from {from} to {foreign}");
        }
        drop(listener);
    }
}

#[test]
fn nothing_leaks() {
    let mut lab = Lab::new(&["10.77.0.0/27", "fd77::/64"]);
    // Many more than the range has addresses.
    for round in 0..4 {
        for number in 0..20 {
            lab.add(&format!("r{round}n{number}"), &json!({}));
        }
        assert_eq!((lab.links().len(), lab.taken()), (20, 40));
        for number in 0..20 {
            let pod = format!("r{round}n{number}");
            lab.ask("DEL", &pod, &json!({})).expect("gone");
            lab.ask("DEL", &pod, &json!({})).expect("again");
        }
        assert_eq!((lab.links().len(), lab.taken()), (0, 0));
    }
    // Their namespaces go, and nobody says so.
    for number in 0..29 {
        lab.add(&format!("lost{number}"), &json!({}));
    }
    lab.make_pod("more");
    let full = lab.ask("ADD", "more", &json!({})).expect_err("no address is left").to_string();
    assert!(full.starts_with("no address is free in 10.77.0.0/27: 29 are taken"), "{full}");
    assert_eq!(lab.links().len(), 29, "nothing is left of it");
    for number in 0..29 {
        ip(&["netns", "del", &lab.name(&format!("lost{number}"))]);
    }
    lab.pods.retain(|pod| !pod.starts_with("lost"));
    until(|| lab.links().is_empty());
    assert_eq!(lab.taken(), 58);
    lab.ask("ADD", "more", &json!({})).expect("an address of one that is gone");
    assert_eq!(lab.taken(), 2, "all of them are back");
    // A process that was killed after the device was made, and one that was killed later.
    lab.add("killed", &json!({}));
    let settings = lab.settings();
    assert_eq!(lab.on_node(move || crate::netlink::block_on(attach::prepare(settings))).expect("again"), 0);
    let valid = json!({ "cni.dev/valid-attachments": [{ "containerID": "more", "ifname": "eth0" }] });
    lab.ask("GC", "", &valid).expect("a collection");
    assert_eq!(lab.links(), [link_name("more", "eth0")]);
    assert_eq!(lab.taken(), 2);
}

/// The kernel takes down namespaces in its own time.
fn until(is_so: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "it does not come to pass");
        std::thread::yield_now();
    }
}

#[test]
fn the_bridge_follows_the_settings() {
    let lab = Lab::new(&["10.77.0.0/24"]);
    lab.ask("STATUS", "", &json!({})).expect("ready");
    let settings = Settings { ranges: vec!["10.78.0.0/24".into(), "fd78::/64".into()], ..lab.settings() };
    lab.on_node(move || crate::netlink::block_on(attach::prepare(settings))).expect("set up again");
    let have = inside(&lab.path("node"), async |handle| {
        let bridge = find(&handle, "pods0").await?.expect("the bridge");
        addresses(&handle, bridge.header.index).await
    });
    let mut have: Vec<String> = have.expect("addresses").iter().filter_map(local).map(|ip| ip.to_string()).collect();
    have.retain(|ip| !ip.starts_with("fe80"));
    have.sort();
    assert_eq!(have, ["10.78.0.1", "fd78::1"]);
    ip(&["-n", &lab.name("node"), "link", "del", "pods0"]);
    let error = lab.ask("STATUS", "", &json!({})).expect_err("not ready");
    assert_eq!(error.to_json("1.1.0", true)["code"], 50);
    for ranges in [json!([]), json!(["10.0.0.0/24", "10.1.0.0/24"]), json!(["10.0.0.0/31"]), json!(["x"])] {
        lab.ask("STATUS", "", &json!({ "ranges": ranges })).expect_err("no ranges");
    }
}

#[test]
fn bandwidth_is_bounded() {
    let mut lab = Lab::new(&BOTH);
    lab.add("a", &json!({ "runtimeConfig": { "bandwidth": { "ingressRate": 8_000_000, "egressRate": 16_000_000 } } }));
    let shown = |namespace: &str, device: &str| {
        let output =
            Command::new("tc").args(["-n", namespace, "qdisc", "show", "dev", device]).output().expect("tc runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let to_pod = shown(&lab.name("node"), &link_name("a", "eth0"));
    assert!(to_pod.contains("tbf") && to_pod.contains("rate 8Mbit"), "{to_pod}");
    let from_pod = shown(&lab.name("a"), "eth0");
    assert!(from_pod.contains("tbf") && from_pod.contains("rate 16Mbit"), "{from_pod}");
}
