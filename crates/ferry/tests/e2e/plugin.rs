//! Ferry's binary as a CNI plug-in, called as containerd does it: by its name, with a request in the environment.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::cluster_bed::sh;

/// A node that is a network namespace, with a bridge for pods.
struct Node {
    folder: tempfile::TempDir,
    name: String,
}

impl Node {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let node = Self { folder, name: format!("fp{}", std::process::id()) };
        for program in ["ferry-cni", "loopback"] {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ferry"), node.program(program)).expect("a link");
        }
        sh(&format!(
            "ip netns add {0} && ip -n {0} link add pods0 type bridge && ip -n {0} link set pods0 up",
            node.name
        ));
        node
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn pod(&self, pod: &str) -> String {
        format!("{}-{pod}", self.name)
    }

    fn make_pod(&self, pod: &str) {
        sh(&format!("ip netns add {}", self.pod(pod)));
    }

    fn call(&self, program: &str, command: &str, pod: &str, more: &Value) -> Child {
        let mut configuration = json!({
            "cniVersion": "1.1.0", "name": "ferry", "type": "ferry-cni", "bridge": "pods0", "nft": "nft",
            "ranges": ["10.78.0.0/24", "fd78::/64"], "state": self.folder.path().join("state"),
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            configuration[key] = value.clone();
        }
        let mut call = Command::new("ip");
        call.args(["netns", "exec", &self.name]).arg(self.program(program));
        call.env("CNI_COMMAND", command).env("CNI_CONTAINERID", pod).env("CNI_IFNAME", "eth0");
        call.env("CNI_NETNS", format!("/run/netns/{}", self.pod(pod))).env("CNI_PATH", self.folder.path());
        let mut child =
            call.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        child.stdin.take().expect("its input").write_all(configuration.to_string().as_bytes()).expect("it reads");
        child
    }

    fn ask(&self, program: &str, command: &str, pod: &str, more: &Value) -> (bool, Value) {
        let output = self.call(program, command, pod, more).wait_with_output().expect("it ends");
        (output.status.success(), serde_json::from_slice(&output.stdout).unwrap_or_default())
    }

    /// Devices of pods, and addresses that are somebody's.
    fn left(&self) -> (usize, usize) {
        let links = sh(&format!("ip -n {} -o link | grep -c veth || true", self.name));
        let addresses = std::fs::read_dir(self.folder.path().join("state/addresses")).into_iter().flatten().flatten();
        let is_address =
            |name: &std::ffi::OsStr| name.to_str().is_some_and(|text| text.parse::<std::net::IpAddr>().is_ok());
        (links.trim().parse().expect("a number"), addresses.filter(|entry| is_address(&entry.file_name())).count())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let names = format!("ip netns list | grep -o '^{0}[^ ]*' | xargs -r -n1 ip netns del", self.name);
        let _ = Command::new("sh").args(["-c", &names]).status();
    }
}

pub fn the_binary_is_a_plugin_and_leaves_nothing_when_killed() {
    let node = Node::new();
    let none = json!({});
    let (worked, versions) = node.ask("ferry-cni", "VERSION", "", &none);
    let known = versions["supportedVersions"].as_array().expect("versions");
    assert!(worked && known.contains(&json!("1.1.0")) && known.contains(&json!("0.3.1")), "{versions}");
    assert!(node.ask("ferry-cni", "STATUS", "", &none).0);
    let (worked, error) = node.ask("ferry-cni", "STATUS", "", &json!({"bridge": "absent0"}));
    assert!(!worked && error["code"] == 50, "{error}");
    let (worked, error) = node.ask("ferry-cni", "ADD", "x", &json!({"cniVersion": "9.0.0"}));
    assert!(!worked && error["code"] == 1, "{error}");
    let (worked, error) = node.ask("ferry-cni", "ADD", "x", &json!({"ranges": 7}));
    assert!(!worked && error["code"] == 7, "{error}");

    node.make_pod("a");
    assert!(node.ask("loopback", "ADD", "a", &json!({"cniVersion": "0.3.1"})).0);
    let (worked, result) = node.ask("ferry-cni", "ADD", "a", &none);
    assert!(
        worked && result["ips"][0]["address"] == "10.78.0.2/24" && result["ips"][1]["address"] == "fd78::2/64",
        "{result}"
    );
    assert!(node.ask("ferry-cni", "CHECK", "a", &json!({"prevResult": result})).0);
    let (again, _) = node.ask("ferry-cni", "ADD", "a", &none);
    assert!(!again && node.left() == (1, 2), "a pod is attached once");
    assert!(node.ask("ferry-cni", "DEL", "a", &json!({"prevResult": result})).0);
    assert!(node.ask("loopback", "DEL", "a", &json!({"cniVersion": "0.3.1"})).0);
    assert_eq!(node.left(), (0, 0));

    // Killed anywhere: the later, the further it came.
    for number in 0..40 {
        let pod = format!("k{number}");
        node.make_pod(&pod);
        let mut child = node.call(
            "ferry-cni",
            "ADD",
            &pod,
            &json!({"runtimeConfig": {"portMappings": [{"hostPort": 9000 + number, "containerPort": 80}]}}),
        );
        let end = std::time::Instant::now() + Duration::from_millis(number);
        while std::time::Instant::now() < end && child.try_wait().expect("its state").is_none() {
            std::thread::yield_now();
        }
        child.kill().expect("it ends");
        child.wait().expect("it ended");
    }
    // Half of them a runtime takes away; of the others it remembers nothing but that they are not its own.
    for number in (0..40).step_by(2) {
        assert!(node.ask("ferry-cni", "DEL", &format!("k{number}"), &none).0);
    }
    for number in (1..40).step_by(2) {
        sh(&format!("ip netns del {}", node.pod(&format!("k{number}"))));
    }
    until("the kernel has taken the devices away", || (node.left().0 == 0).then_some(()));
    assert!(node.ask("ferry-cni", "GC", "", &json!({"cni.dev/valid-attachments": []})).0);
    assert_eq!(node.left(), (0, 0));
    assert!(!sh(&format!("ip netns exec {} nft list ruleset", node.name)).contains("dport"), "no host port is left");
}

/// The reference plug-ins in a chain of somebody else's, with the folders that `--pod-network cni` reads.
pub fn another_cni_is_used_instead() {
    if !std::path::Path::new("/usr/lib/cni/ptp").exists() {
        ferry_testkit::cannot_run("the CNI reference plug-ins are not installed");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (configuration, hosts) = (folder.path().join("net.d"), folder.path().join("hosts"));
    std::fs::create_dir(&configuration).expect("a folder");
    let list = json!({
        "cniVersion": "1.0.0", "name": "theirs", "plugins": [
            {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": hosts, "subnet": "10.219.0.0/24", "routes": [{"dst": "0.0.0.0/0"}]}},
            {"type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_notify": "1"}},
        ],
    });
    let file = configuration.join("10-theirs.conflist");
    std::fs::write(&file, list.to_string()).expect("a file");
    let cluster = Cluster::start_with(vec![
        "--container-runtime-endpoint=embedded".to_owned(),
        "--pod-network=cni".to_owned(),
        format!("--cni-conf-dir={}", configuration.display()),
        "--cni-bin-dir=/usr/lib/cni".to_owned(),
    ]);
    let pod = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "busybox:1.36", "command": ["sleep", "3600"]}]}}).to_string()
    };
    let address = |name: &str| {
        until(&format!("{name} has an address"), || {
            let pod = cluster.json(&["get", "pod", name, "-o", "json"]);
            pod["status"]["podIP"].as_str().filter(|ip| ip.starts_with("10.219.0.")).map(str::to_owned)
        })
    };
    cluster.apply(&pod("first"));
    let first = address("first");
    assert!(hosts.join("theirs").join(&first).exists());
    assert!(!cluster.data_dir().join("cni").exists(), "nothing of Ferry's own network is made");

    // Without a configuration the node has no network for new pods; the old ones are taken away by that of their beginning.
    std::fs::remove_file(&file).expect("removed");
    let message = until("the node is not ready", || {
        let nodes = cluster.items(&["get", "nodes", "-o", "json"]);
        let conditions = nodes.first()?["status"]["conditions"].as_array()?.clone();
        let ready =
            conditions.into_iter().find(|condition| condition["type"] == "Ready" && condition["status"] == "False")?;
        ready["message"].as_str().map(str::to_owned)
    });
    assert!(message.contains("NetworkPluginNotReady") && message.contains("cni plugin not initialized"), "{message}");
    cluster.kubectl(&["delete", "pod", "first", "--wait=true"]);
    until("its address is given back", || (!hosts.join("theirs").join(&first).exists()).then_some(()));
    std::fs::write(&file, list.to_string()).expect("a file");
    cluster.apply(&pod("second"));
    address("second");
    cluster.kubectl(&["delete", "pod", "second", "--wait=true"]);
    cluster.down();
}
