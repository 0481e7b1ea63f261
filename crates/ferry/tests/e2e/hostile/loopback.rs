//! Frames of a pod that say to be for the node's own loopback.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

use crate::Scenario;
use crate::cluster::{Cluster, free_port, http_get, until};

pub const SCENARIOS: &[Scenario] =
    &[("hostile::loopback::nothing_of_a_pod_reaches_the_nodes_loopback", nothing_of_a_pod_reaches_the_nodes_loopback)];

const BRIDGE: &str = "ferrytest0";

/// The node's address on the bridge of its pods.
fn gateway() -> String {
    let output = Command::new("ip").args(["-4", "-o", "address", "show", "dev", BRIDGE]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let address = text.split_whitespace().skip_while(|word| *word != "inet").nth(1).expect("an address of the bridge");
    address.split('/').next().unwrap().to_owned()
}

/// Two sockets of the node with the same port: one for everybody, one for the node alone.
fn sockets(gateway: &str) -> (UdpSocket, UdpSocket, u16) {
    until("a port is free at both addresses", || {
        let open = UdpSocket::bind((gateway, 0)).unwrap();
        let port = open.local_addr().unwrap().port();
        Some((open, UdpSocket::bind(("127.0.0.1", port)).ok()?, port))
    })
}

/// Where a pod has a host port, the kernel lets packets of 127.0.0.0/8 cross the bridge: its own protection is gone then.
fn nothing_of_a_pod_reaches_the_nodes_loopback(cluster: &mut Cluster) {
    let host_port = free_port();
    cluster.apply(&format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: mapped}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: 'busybox:1.36'
    command: [sh, -c, 'mkdir /w; echo mapped >/w/index.html; httpd -f -p 8080 -h /w']
    ports: [{{containerPort: 8080, hostPort: {host_port}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: framer}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: 'busybox:1.36'
    command: [sleep, '3600']
    securityContext: {{capabilities: {{add: [NET_RAW]}}}}
"
    ));
    for pod in ["mapped", "framer"] {
        until("the pod runs", || (cluster.json(&["get", "pod", pod])["status"]["phase"] == "Running").then_some(()));
    }
    // What the host port is for works, from the node itself as well.
    until("the host port answers", || (http_get("127.0.0.1", host_port)? == "mapped").then_some(()));
    let setting = format!("/proc/sys/net/ipv4/conf/{BRIDGE}/route_localnet");
    assert_eq!(std::fs::read_to_string(setting).unwrap().trim(), "1", "the attack depends on it");

    let gateway = gateway();
    let (open, closed, port) = sockets(&gateway);
    open.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    closed.set_nonblocking(true).unwrap();
    // One datagram out of the pod's interface, to the port behind the one that is named, whatever routes say.
    let base = (port - 1).to_string();
    let send = |target: &str| {
        let probe = ["traceroute", "-i", "eth0", "-n", "-m", "1", "-q", "1", "-w", "1", "-p", &base, target];
        cluster.kubectl(&[&["exec", "framer", "--"], &probe[..]].concat());
    };
    let mut buffer = [0; 256];
    until("what the pod sends comes in", || {
        // Those to the loopback are sent first.
        for target in ["127.0.0.1", "127.255.255.254", &gateway] {
            send(target);
        }
        open.recv(&mut buffer).ok()
    });
    let heard = closed.recv_from(&mut buffer).map_err(|error| error.kind());
    assert_eq!(heard, Err(ErrorKind::WouldBlock), "the node's loopback heard a pod");
    assert_eq!(http_get("127.0.0.1", host_port).as_deref(), Some("mapped"));
    cluster.kubectl(&["delete", "pod", "mapped", "framer", "--wait=true"]);
}
