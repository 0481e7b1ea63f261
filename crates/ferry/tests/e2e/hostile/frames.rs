//! A pod that takes its neighbour's place on the bridge.

use crate::Scenario;
use crate::cluster::{Cluster, until};

pub const SCENARIOS: &[Scenario] =
    &[("hostile::frames::nobody_takes_a_neighbours_address", nobody_takes_a_neighbours_address)];

fn pod(name: &str, command: &str, more: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {{name: main, image: 'busybox:1.36', command: [sh, -c, '{command}']{more}}}
---"
    )
}

fn nobody_takes_a_neighbours_address(cluster: &mut Cluster) {
    let serve = |text: &str| format!("mkdir /w; echo {text} >/w/index.html; httpd -f -p 8080 -h /w");
    // With this right the kernel of the thief answers for the address by itself, as a forger of frames would.
    let more = ", securityContext: {capabilities: {add: [NET_ADMIN, NET_RAW]}}";
    cluster.apply(
        &[pod("owner", &serve("owner"), ""), pod("thief", &serve("thief"), more), pod("caller", "sleep 3600", "")]
            .concat(),
    );
    let address = |name: &str| {
        until("the pod runs", || {
            let pod = cluster.json(&["get", "pod", name]);
            let running = pod["status"]["phase"] == "Running";
            pod["status"]["podIP"].as_str().filter(|_| running).map(str::to_owned)
        })
    };
    let (owner, thief) = (address("owner"), address("thief"));
    address("caller");
    let inside = |pod: &str, words: &[&str]| {
        let output = cluster.try_kubectl(&[&["exec", pod, "--"], words].concat(), "");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let ask =
        |address: &str| inside("caller", &["timeout", "10", "wget", "-q", "-O-", &format!("http://{address}:8080/")]);
    until("the owner answers", || (ask(&owner) == "owner").then_some(()));
    until("the thief answers", || (ask(&thief) == "thief").then_some(()));

    cluster.kubectl(&["exec", "thief", "--", "ip", "address", "add", &format!("{owner}/32"), "dev", "eth0"]);
    for _ in 0..3 {
        // It says so to everybody, and answers whoever asks.
        inside("thief", &["arping", "-A", "-c", "2", "-I", "eth0", &owner]);
        inside("thief", &["arping", "-U", "-c", "2", "-I", "eth0", &owner]);
        assert_eq!(ask(&owner), "owner", "somebody else answers for the address");
    }
    // Under the stolen address nothing gets through; under its own, everything.
    let sent = inside("thief", &["ping", "-c", "2", "-W", "2", "-I", &owner, &address("caller")]);
    assert!(sent.contains("0 packets received"), "{sent}");
    assert_eq!(ask(&thief), "thief");
    cluster.kubectl(&["delete", "pod", "owner", "thief", "caller", "--wait=false"]);
}
