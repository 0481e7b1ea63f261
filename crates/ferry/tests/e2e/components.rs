//! The components of a node, each as a process of its own against an API server that runs alone.

use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use crate::alone::{Apiserver, runtime, text};
use crate::cluster::{free_port, http_get_path, until};
use crate::hostile::limited::{JSON, call};

/// No other cluster on this machine has these.
const SERVICES: &str = "--service-cluster-ip-range=10.209.0.0/24";
const TABLE: &str = "ferry-e2e-alone";
const CGROUP_ROOT: &str = "/ferryalone";

/// A process of this binary that is killed when dropped.
pub struct Program(pub Child);

impl Program {
    pub fn start(kubeconfig: &Path, words: &[&str]) -> Self {
        Self::spawn(kubeconfig, words, Stdio::null())
    }

    fn spawn(kubeconfig: &Path, words: &[&str], output: Stdio) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferry"));
        command.args(words).args(["--kubeconfig", text(kubeconfig)]).stdout(output).stderr(Stdio::null());
        Self(command.spawn().expect("ferry runs"))
    }

    /// Waits until it says that it is ready, and returns what it said.
    fn ready(kubeconfig: &Path, words: &[&str]) -> (Self, String) {
        let mut program = Self::spawn(kubeconfig, words, Stdio::piped());
        let mut lines = BufReader::new(program.0.stdout.take().unwrap()).lines();
        let line = lines.next().unwrap_or_else(|| panic!("{words:?} ended: {:?}", program.0.wait())).unwrap();
        assert!(line.starts_with("ready: "), "{line}");
        (program, line)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Bed {
    server: Apiserver,
    kubeconfig: PathBuf,
    client: Client,
    runtime: tokio::runtime::Runtime,
    folder: tempfile::TempDir,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Apiserver::start(&folder.path().join("server"), &[SERVICES]);
        let runtime = runtime();
        let client = runtime.block_on(server.client());
        let kubeconfig = folder.path().join("kubeconfig");
        server.write_kubeconfig(&kubeconfig);
        Self { server, kubeconfig, client, runtime, folder }
    }

    fn create(&self, path: &str, object: &Value) -> Value {
        let (code, made) = self.runtime.block_on(call(&self.client, "POST", path, &[JSON], object));
        assert_eq!(code, 201, "{made}");
        made
    }

    fn get(&self, path: &str) -> Value {
        self.runtime.block_on(call(&self.client, "GET", path, &[], &Value::Null)).1
    }

    /// A Service with one endpoint; the address it got.
    fn service(&self, name: &str) -> Ipv4Addr {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
            "spec": { "ports": [{ "name": "web", "port": 80, "targetPort": 8080 }] },
        });
        let made = self.create("/api/v1/namespaces/default/services", &service);
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": { "name": name, "labels": { "kubernetes.io/service-name": name } },
            "endpoints": [{ "addresses": ["192.0.2.7"], "conditions": { "ready": true } }],
            "ports": [{ "name": "web", "port": 8080, "protocol": "TCP" }],
        });
        self.create("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice);
        made["spec"]["clusterIP"].as_str().unwrap().parse().unwrap()
    }
}

/// A question for the address of a name.
fn question(name: &str) -> Vec<u8> {
    let mut bytes = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

pub fn dns_answers_alone() {
    let bed = Bed::new();
    let address = bed.service("web");
    let resolvers = bed.folder.path().join("resolv.conf");
    std::fs::write(&resolvers, "nameserver 192.0.2.1\n").unwrap();
    let words = ["dns", "--listen=127.0.0.1:0", "--resolv-conf", text(&resolvers)];
    let (_dns, ready) = Program::ready(&bed.kubeconfig, &words);
    let server = ready.rsplit(' ').next().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    until("the Service's name is known", || {
        socket.send_to(&question("web.default.svc.cluster.local"), server).unwrap();
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).ok()?;
        answer[..length].ends_with(&address.octets()).then_some(())
    });
}

/// Rules outlive a proxy; those of a test must not.
struct Table;

impl Table {
    fn text() -> String {
        let output = Command::new("nft").args(["list", "table", "ip", TABLE]).output().expect("nft runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let _ = Command::new("nft").args(["delete", "table", "ip", TABLE]).output();
    }
}

fn needs_root() {
    if !rustix::process::geteuid().is_root() {
        ferry_testkit::cannot_run("a node needs root");
    }
}

pub fn the_proxy_serves_alone() {
    needs_root();
    let bed = Bed::new();
    let before = bed.service("web");
    let (table, port) = (Table, free_port());
    let healthz = format!("--healthz-bind-address=127.0.0.1:{port}");
    let named = format!("--nftables-table={TABLE}");
    let words = ["proxy", &*healthz, "--metrics-bind-address=", &*named, "--hostname-override=alone"];
    let (_proxy, _) = Program::ready(&bed.kubeconfig, &words);
    // What there was when it became ready is in force; what comes later follows.
    let rules = Table::text();
    assert!(rules.contains(&before.to_string()) && rules.contains("192.0.2.7"), "{rules}");
    let later = bed.service("later").to_string();
    until("a new Service has rules", || Table::text().contains(&later).then_some(()));
    until("it is healthy", || http_get_path("127.0.0.1", port, "/healthz"));
    drop(table);
}

/// What `ferry down` takes away of a node.
struct Traces<'a>(&'a Path);

impl Drop for Traces<'_> {
    fn drop(&mut self) {
        ferry_cluster::node::remove::mounts(&[self.0]);
        ferry_cluster::node::remove::control_groups(Path::new(CGROUP_ROOT));
    }
}

pub fn the_kubelet_runs_pods_alone() {
    needs_root();
    let bed = Bed::new();
    let folder = bed.folder.path();
    let traces = Traces(folder);
    let run_dir = tempfile::Builder::new().prefix("ferry-e2e-").tempdir_in("/run").unwrap();
    let registry = std::env::var("FERRY_TEST_REGISTRY").unwrap_or_else(|_| "http://127.0.0.1:5057".into());
    let flags = [
        "--hostname-override=alone".to_owned(),
        "--address=127.0.0.1".to_owned(),
        format!("--port={}", free_port()),
        "--container-runtime-endpoint=embedded".to_owned(),
        format!("--registry-mirror=docker.io={registry}"),
        format!("--registry-mirror=registry.k8s.io={registry}"),
        format!("--root-dir={}", folder.join("kubelet").display()),
        format!("--pod-logs-dir={}", folder.join("logs").display()),
        format!("--run-dir={}", run_dir.path().display()),
        format!("--cgroup-root={CGROUP_ROOT}"),
        "--node-labels=example.com/alone=yes".to_owned(),
    ];
    let words: Vec<&str> = std::iter::once("kubelet").chain(flags.iter().map(String::as_str)).collect();
    let (kubelet, _) = Program::ready(&bed.kubeconfig, &words);
    let node = until("the node is registered", || {
        let node = bed.get("/api/v1/nodes/alone");
        node["status"]["nodeInfo"]["containerRuntimeVersion"].is_string().then_some(node)
    });
    assert_eq!(node["metadata"]["labels"]["example.com/alone"], "yes");
    let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
    bed.create("/api/v1/namespaces/default/serviceaccounts", &account);
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": { "name": "alone" },
        "spec": {
            "nodeName": "alone", "hostNetwork": true, "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
            "tolerations": [{ "operator": "Exists" }],
            "containers": [{ "name": "c", "image": "busybox:1.36", "command": ["sh", "-c", "sleep 3600"] }],
        },
    });
    bed.create("/api/v1/namespaces/default/pods", &pod);
    let path = "/api/v1/namespaces/default/pods/alone";
    until("the pod runs", || {
        let pod = bed.get(path);
        let container = &pod["status"]["containerStatuses"][0];
        (container["state"]["running"].is_object() && container["containerID"].as_str()?.starts_with("ferry://"))
            .then_some(())
    });
    let gone = json!({ "kind": "DeleteOptions", "apiVersion": "v1" });
    bed.runtime.block_on(call(&bed.client, "DELETE", path, &[JSON], &gone));
    until("the pod is gone", || (bed.get(path)["code"] == 404).then_some(()));
    drop(kubelet);
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    // The runtime's own folder is one, whether it has pods or not.
    let (below, own) = (folder.to_string_lossy(), format!(" {} ", folder.join("kubelet/runtime").display()));
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&*below) && !line.contains(&own)).collect();
    assert!(left.is_empty(), "{left:?}");
    drop(traces);
    bed.server.stop();
}
