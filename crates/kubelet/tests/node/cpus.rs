//! Node allocatable in real control groups, and CPUs that containers have of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ferry_kubelet::{NodeResources, ResourceStatements};
use ferry_plugins::podresources::pod_resources_lister_client::PodResourcesListerClient;
use ferry_plugins::podresources::{AllocatableResourcesRequest, GetPodResourcesRequest};
use serde_json::{Value, json};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{NODE, Node, is_ready, shell};

const THIS_NODE: &str = "api/v1/nodes||test-node";
const KEPT: i64 = 64 << 20;

/// A group of the test's own, in every hierarchy; gone with it.
struct Group(PathBuf);

impl Group {
    fn new() -> Self {
        Self(PathBuf::from(format!("/ferry-cpus-{}", std::process::id())))
    }

    fn folders(&self, below: &str) -> Vec<PathBuf> {
        let name = self.0.strip_prefix("/").expect("absolute").join(below);
        let mounts = Path::new("/sys/fs/cgroup");
        let hierarchies = fs::read_dir(mounts).into_iter().flatten().flatten().map(|entry| entry.path());
        hierarchies.chain([mounts.to_owned()]).map(|hierarchy| hierarchy.join(&name)).filter(|f| f.is_dir()).collect()
    }

    /// What one of the files says, of whichever hierarchy has one of them.
    fn read(&self, below: &str, names: [&str; 2]) -> String {
        let files = self.folders(below).into_iter().flat_map(|folder| names.map(|name| folder.join(name)));
        let text = files.filter_map(|file| fs::read_to_string(file).ok()).next();
        text.unwrap_or_else(|| panic!("{below} has none of {names:?}")).trim().to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        fn remove(folder: &Path) {
            let inner = fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.path().is_dir());
            inner.for_each(|entry| remove(&entry.path()));
            let _ = fs::remove_dir(folder);
        }
        self.folders("").iter().for_each(|folder| remove(folder));
    }
}

fn statements() -> ResourceStatements {
    ResourceStatements {
        kube_reserved: [("cpu".to_owned(), "500m".to_owned()), ("memory".to_owned(), "64Mi".to_owned())].into(),
        system_reserved: [("pid".to_owned(), "500".to_owned())].into(),
        cpu_manager_policy: Some("static".to_owned()),
        cpu_cfs_quota_period: Some(Duration::from_millis(20)),
        ..ResourceStatements::default()
    }
}

fn amount(node: &Value, list: &str, resource: &str) -> i64 {
    let text = node["status"][list][resource].as_str().expect("an amount");
    match (text.strip_suffix("Ki"), text.strip_suffix('m')) {
        (Some(kibi), _) => kibi.parse::<i64>().expect("a number") * 1024,
        (_, Some(milli)) => milli.parse().expect("a number"),
        _ => text.parse::<i64>().expect("a number") * 1000,
    }
}

/// Tells for ever where it may run.
fn telling(cpu: &str) -> Value {
    let resources = match cpu {
        "" => json!({}),
        cpu => {
            let amounts = json!({"cpu": cpu, "memory": "32Mi"});
            json!({"limits": amounts, "requests": amounts})
        }
    };
    let script = "while true; do grep Cpus_allowed_list /proc/self/status; sleep 0.2; done";
    json!({"containers": [{"name": "main", "command": shell(script), "resources": resources}]})
}

async fn runs_on(node: &Node, pod: &Value, cpus: &str) {
    node.log_with(pod, "main", &format!("Cpus_allowed_list:\t{cpus}\n")).await;
}

/// The newest line of a log tells where the container runs now.
async fn moves_to(node: &Node, pod: &Value, cpus: &str) {
    let moved = async {
        while !node.log(pod, "main", 0).lines().next_back().is_some_and(|line| line.ends_with(&format!("\t{cpus}"))) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), moved).await.unwrap_or_else(|_| panic!("it does not move to {cpus}"));
}

/// The first CPU is reserved; the test gives out all others.
pub(crate) async fn cpus_and_memory_are_kept_and_given_out(api: &Api, containerd: &Containerd) {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("CPUs").trim().to_owned();
    let last: u32 = online.rsplit(['-', ',']).next().and_then(|last| last.parse().ok()).expect("a number");
    if last == 0 || online != format!("0-{last}") {
        return ferry_testkit::skip("CPUs of their own need two CPUs, numbered from 0");
    }
    let others = if last == 1 { "1".to_owned() } else { format!("1-{last}") };
    let group = Group::new();
    let root = group.0.clone();
    let start = || {
        Node::start_with(api, containerd, |config| {
            config.cgroup_root.clone_from(&root);
            config.root_dir = containerd.folder.join("kubelet-cpus");
            config.resources = NodeResources::new(&statements()).expect("resources");
        })
    };
    let node = start().await;
    let known = |object: &Value| is_ready(object) && amount(object, "allocatable", "cpu") % 1000 == 500;
    let registered = api.until(THIS_NODE, "ready", known).await;
    for (resource, kept) in [("cpu", 500), ("memory", KEPT + (100 << 20))] {
        let (all, left) = (amount(&registered, "capacity", resource), amount(&registered, "allocatable", resource));
        assert_eq!(all - left, kept, "{resource}");
    }
    let enforced = async {
        while !node.events_of(NODE).contains(&"NodeAllocatableEnforced".to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), enforced).await.expect("an event");
    let memory = amount(&registered, "capacity", "memory") - KEPT;
    let limit: i64 = group.read("kubepods", ["memory.limit_in_bytes", "memory.max"]).parse().expect("a number");
    // The kernel counts in pages.
    assert!((limit - memory).abs() < 1 << 16, "{limit} instead of {memory}");
    let most: u64 = fs::read_to_string("/proc/sys/kernel/pid_max").expect("it").trim().parse().expect("a number");
    let threads: u64 =
        fs::read_to_string("/proc/sys/kernel/threads-max").expect("it").trim().parse().expect("a number");
    assert_eq!(group.read("kubepods", ["pids.max", "pids.max"]), (most.min(threads) - 500).to_string());

    let shared = node.create("shared", telling("")).await;
    let shared_pod = api.until(&shared, "ready", is_ready).await;
    runs_on(&node, &shared_pod, &online).await;
    let own = node.create("own", telling(&last.to_string())).await;
    let own_pod = api.until(&own, "ready", is_ready).await;
    runs_on(&node, &own_pod, &others).await;
    moves_to(&node, &shared_pod, "0").await;
    // CPUs of its own are the only limit; others have the node's period.
    let uid = own_pod["metadata"]["uid"].as_str().expect("a uid");
    let quota = group.read(&format!("kubepods/pod{uid}"), ["cpu.cfs_quota_us", "cpu.max"]);
    assert!(quota == "-1" || quota.starts_with("max"), "{quota}");
    let part = node.create("part", telling("250m")).await;
    let part_pod = api.until(&part, "ready", is_ready).await;
    runs_on(&node, &part_pod, "0").await;
    let uid = part_pod["metadata"]["uid"].as_str().expect("a uid");
    let quota = group.read(&format!("kubepods/pod{uid}"), ["cpu.cfs_quota_us", "cpu.max"]);
    assert!(["5000", "5000 20000"].contains(&quota.as_str()), "{quota}");
    node.delete(&part).await;

    let late = node.create("late", telling("1")).await;
    let refused = api.until(&late, "refused", |pod| pod["status"]["phase"] == "Failed").await;
    let words = (&refused["status"]["reason"], &refused["status"]["message"]);
    let message = "Pod was rejected: Allocate failed due to not enough cpus available to satisfy request: requested=1, \
                   available=0, which is unexpected";
    assert_eq!(words, (&json!("UnexpectedAdmissionError"), &json!(message)));
    node.delete(&late).await;

    let monitor = ferry_cri::channel(&node.config.root_dir.join("pod-resources/kubelet.sock"));
    let mut monitor = PodResourcesListerClient::new(monitor);
    let ids: Vec<i64> = (1..=last).map(i64::from).collect();
    let all = monitor.get_allocatable_resources(AllocatableResourcesRequest {}).await.expect("an answer").into_inner();
    assert_eq!(all.cpu_ids, ids);
    for (name, want) in [("own", ids), ("shared", Vec::new())] {
        let asked = GetPodResourcesRequest { pod_name: name.into(), pod_namespace: "default".into() };
        let told = monitor.get(asked).await.expect("the pod").into_inner().pod_resources.expect("resources");
        assert_eq!(told.containers[0].cpu_ids, want, "{name}");
    }
    let (_, metrics) = node.certificates.get(node.kubelet.port(), "/metrics").await;
    let count = format!("kubelet_cpu_manager_exclusive_cpu_allocation_count {last}\n");
    assert!(metrics.contains(&count), "{count} in {metrics}");
    let (_, told) = node.certificates.get(node.kubelet.port(), "/configz").await;
    let told: Value = serde_json::from_str(&told).expect("a configuration");
    assert_eq!(told["kubeletconfig"]["kubeReserved"], json!({"cpu": "500m", "memory": "64Mi"}));
    assert_eq!(told["kubeletconfig"]["cpuManagerPolicy"], "static");

    // Another kubelet leaves everybody where they are; one with another policy does not start.
    let state = node.config.root_dir.join("cpu_manager_state");
    let config = node.config.clone();
    node.stop().await;
    let written: Value = serde_json::from_slice(&fs::read(&state).expect("a state")).expect("json");
    assert_eq!((&written["policyName"], &written["defaultCpuSet"]), (&json!("static"), &json!("0")));
    let other = ferry_kubelet::Config { resources: NodeResources::default(), ..config };
    let tasks = ferry_tasks::Tasks::new("kubelet");
    let started = ferry_kubelet::start(other, api.client(), &tasks).await;
    let why = started.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(why.contains("configured policy \"none\" differs from state checkpoint policy \"static\""), "{why}");
    tasks.stop(Duration::from_secs(10)).await;
    let node = start().await;
    moves_to(&node, &shared_pod, "0").await;
    moves_to(&node, &own_pod, &others).await;
    node.delete(&own).await;
    moves_to(&node, &shared_pod, &online).await;
    node.delete(&shared).await;
    node.stop().await;
}
