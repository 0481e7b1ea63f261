//! From `kubectl apply` to a running, reachable pod, and what must hold after that.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::cluster::{Cluster, Traffic, end, http_get, until};

const DEMO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/nginx-demo.yaml");

fn demo_pods(cluster: &Cluster) -> Vec<Value> {
    cluster.items(&["get", "pods", "-l", "app=nginx-demo"])
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn is_ending(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    pod["metadata"]["deletionTimestamp"].is_null()
        && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
}

fn service_address(cluster: &Cluster) -> String {
    cluster.kubectl(&["get", "service", "nginx-demo", "-o", "jsonpath={.spec.clusterIP}"])
}

/// The pods that answer on the Service's address, with how often each did.
fn answers(address: &str, count: usize) -> BTreeMap<String, usize> {
    let mut seen = BTreeMap::new();
    for _ in 0..count {
        *seen.entry(http_get(address, 80).unwrap_or_else(|| "nobody".into())).or_default() += 1;
    }
    seen
}

fn wait_for_rollout(cluster: &Cluster) {
    cluster.kubectl(&["rollout", "status", "deployment/nginx-demo", "--timeout=180s"]);
}

pub fn three_pods_answer_behind_a_service(cluster: &mut Cluster) {
    cluster.kubectl(&["apply", "-f", DEMO]);
    wait_for_rollout(cluster);
    let pods = demo_pods(cluster);
    assert_eq!(pods.iter().filter(|p| is_ready(p)).count(), 3);
    // Tools that compare what was asked with what is there leave out what upstream's components write, by these names.
    for (what, managers) in
        [("deployment/nginx-demo", "kube-controller-manager"), (&*format!("pod/{}", name(&pods[0])), "kubelet")]
    {
        let path = "jsonpath={.metadata.managedFields[*].manager}";
        let told = cluster.kubectl(&["get", what, "--show-managed-fields", "-o", path]);
        assert!(told.split_whitespace().any(|manager| manager == managers), "{what}: {told}");
        assert!(!told.contains("unknown"), "{what}: {told}");
    }
    let names: BTreeSet<String> = pods.iter().map(name).collect();
    let address = service_address(cluster);
    let host = until("every pod answers from the host", || {
        let seen = answers(&address, 30);
        names.iter().all(|name| seen.contains_key(name)).then_some(seen)
    });
    assert!(!host.contains_key("nobody"), "{host:?}");
    let script = "for i in $(seq 30); do wget -qO- http://nginx-demo.default.svc.cluster.local/ || echo nobody; done; wget -qO- http://nginx-demo/";
    let inside = cluster.kubectl(&["exec", "deployment/nginx-demo", "--", "sh", "-c", script]);
    let seen: BTreeSet<String> = inside.lines().map(str::to_owned).collect();
    assert_eq!(seen, names, "by name from inside a pod");
    let table = cluster.kubectl(&["get", "pods", "-l", "app=nginx-demo"]);
    assert!(
        table.lines().next().is_some_and(|l| l.split_whitespace().eq(["NAME", "READY", "STATUS", "RESTARTS", "AGE"])),
        "{table}"
    );
    assert_eq!(table.lines().filter(|l| l.contains("1/1") && l.contains("Running")).count(), 3, "{table}");
}

pub fn events_tell_the_story_in_order(cluster: &mut Cluster) {
    cluster.apply(r#"{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"story"},"spec":{"replicas":1,"selector":{"matchLabels":{"app":"story"}},
        "template":{"metadata":{"labels":{"app":"story"}},"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"busybox:1.36","command":["sleep","1000"]}]}}}}"#);
    cluster.kubectl(&["rollout", "status", "deployment/story", "--timeout=180s"]);
    let wanted = ["ScalingReplicaSet", "SuccessfulCreate", "Scheduled", "Pulled", "Created", "Started"];
    let reasons = until("all events", || {
        let mut events = cluster.items(&["get", "events"]);
        events.retain(|e| e["involvedObject"]["name"].as_str().is_some_and(|n| n.starts_with("story")));
        events.sort_by_key(|e| e["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()));
        let reasons: Vec<String> = events.iter().map(|e| e["reason"].as_str().unwrap_or_default().to_owned()).collect();
        wanted.iter().all(|w| reasons.iter().any(|r| r == w)).then_some(reasons)
    });
    let story: Vec<&str> = reasons.iter().map(String::as_str).filter(|r| wanted[2..].contains(r)).collect();
    assert_eq!(story, wanted[2..], "the pod's events in the order they were written");
    cluster.kubectl(&["delete", "deployment", "story"]);
    until("the garbage collector takes the ReplicaSet and its pod", || {
        let left = cluster.items(&["get", "replicasets,pods", "-l", "app=story"]);
        left.is_empty().then_some(())
    });
}

pub fn logs_and_exec_reach_the_container(cluster: &mut Cluster) {
    cluster.apply(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"talker"},"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"busybox:1.36","command":["sh","-c","echo one; echo two >&2; sleep 1000"]}]}}"#);
    cluster.kubectl(&["wait", "pod/talker", "--for=condition=Ready", "--timeout=180s"]);
    until("both lines", || {
        let logs = cluster.kubectl(&["logs", "talker"]);
        (logs.contains("one\n") && logs.contains("two\n")).then_some(())
    });
    assert_eq!(cluster.kubectl(&["logs", "talker", "--tail=1"]).lines().count(), 1);
    assert_eq!(cluster.kubectl(&["exec", "talker", "--", "echo", "hello"]), "hello\n");
    assert_eq!(cluster.kubectl(&["exec", "talker", "--", "hostname"]), "talker\n");
    let output = cluster.try_kubectl(&["exec", "talker", "--", "sh", "-c", "exit 7"], "");
    assert_eq!(output.status.code(), Some(7), "{}", String::from_utf8_lossy(&output.stderr));
    cluster.kubectl(&["delete", "pod", "talker", "--wait=true"]);
}

pub fn a_deleted_pod_is_replaced_and_traffic_follows(cluster: &mut Cluster) {
    let victim = name(&demo_pods(cluster)[0]);
    cluster.kubectl(&["delete", "pod", &victim, "--wait=false"]);
    let names = until("three ready pods without the deleted one", || {
        let ready: BTreeSet<String> =
            demo_pods(cluster).iter().filter(|p| is_ready(p) && !is_ending(p)).map(name).collect();
        (ready.len() == 3 && !ready.contains(&victim)).then_some(ready)
    });
    let address = service_address(cluster);
    until("traffic reaches the three and nobody else", || {
        let seen: BTreeSet<String> = answers(&address, 30).into_keys().collect();
        (seen == names).then_some(())
    });
}

pub fn volumes_carry_configuration(cluster: &mut Cluster) {
    cluster.kubectl(&["create", "configmap", "settings", "--from-literal=color=blue"]);
    cluster.kubectl(&["create", "secret", "generic", "hidden", "--from-literal=word=sesame"]);
    cluster.apply(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"reader","labels":{"tier":"one"}},"spec":{"terminationGracePeriodSeconds":1,
      "containers":[{"name":"c","image":"busybox:1.36","command":["sleep","1000"],
        "env":[{"name":"COLOR","valueFrom":{"configMapKeyRef":{"name":"settings","key":"color"}}},{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}],
        "volumeMounts":[{"name":"settings","mountPath":"/settings"},{"name":"hidden","mountPath":"/hidden"},{"name":"scratch","mountPath":"/scratch"},{"name":"all","mountPath":"/all"}]}],
      "volumes":[{"name":"settings","configMap":{"name":"settings"}},{"name":"hidden","secret":{"secretName":"hidden"}},{"name":"scratch","emptyDir":{}},
        {"name":"all","projected":{"sources":[{"configMap":{"name":"settings"}},{"downwardAPI":{"items":[{"path":"tier","fieldRef":{"fieldPath":"metadata.labels['tier']"}}]}}]}}]}}"#);
    cluster.kubectl(&["wait", "pod/reader", "--for=condition=Ready", "--timeout=180s"]);
    let script = "cat /settings/color; echo; cat /hidden/word; echo; cat /all/color; echo; cat /all/tier; echo; echo $COLOR $POD; echo x > /scratch/f && cat /scratch/f; ls /var/run/secrets/kubernetes.io/serviceaccount | tr '\\n' ' '";
    let printed = cluster.kubectl(&["exec", "reader", "--", "sh", "-c", script]);
    assert_eq!(
        printed.lines().collect::<Vec<_>>(),
        ["blue", "sesame", "blue", "one", "blue reader", "x", "ca.crt namespace token "]
    );
    cluster.kubectl(&["delete", "pod/reader", "configmap/settings", "secret/hidden", "--wait=true"]);
}

/// A pod that ends at once may end before the last packet rule leads away from it, here as anywhere: those who must not lose
/// a request let their pods wait.
const WAIT_BEFORE_THE_END: &str = r#"{"spec":{"template":{"spec":{"containers":[{"name":"nginx","lifecycle":{"preStop":{"sleep":{"seconds":3}}}}]}}}}"#;

pub fn a_rollout_loses_no_request(cluster: &mut Cluster) {
    cluster.kubectl(&["patch", "deployment/nginx-demo", "-p", WAIT_BEFORE_THE_END]);
    wait_for_rollout(cluster);
    until("the pods that do not wait are gone", || (demo_pods(cluster).len() == 3).then_some(()));
    let before: BTreeSet<String> = demo_pods(cluster).iter().map(name).collect();
    let traffic = Traffic::start(service_address(cluster), 80);
    cluster.kubectl(&["rollout", "restart", "deployment/nginx-demo"]);
    wait_for_rollout(cluster);
    let (made, failed) = traffic.finish();
    assert!(made > 0);
    assert_eq!(failed, 0, "of {made} requests during the rollout");
    let after: BTreeSet<String> =
        demo_pods(cluster).iter().filter(|p| is_ready(p) && !is_ending(p)).map(name).collect();
    assert_eq!(after.len(), 3);
    assert!(before.is_disjoint(&after), "all pods are new: {before:?} {after:?}");
}

pub fn killed_in_the_middle_nothing_is_lost(cluster: &mut Cluster) {
    cluster.apply(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"survivor"},"spec":{"terminationGracePeriodSeconds":1,"containers":[{"name":"c","image":"busybox:1.36","command":["sleep","100000"]}]}}"#);
    cluster.kubectl(&["wait", "pod/survivor", "--for=condition=Ready", "--timeout=180s"]);
    let container = |cluster: &Cluster| {
        cluster.kubectl(&[
            "get",
            "pod",
            "survivor",
            "-o",
            "jsonpath={.status.containerStatuses[0].containerID}/{.status.containerStatuses[0].restartCount}",
        ])
    };
    let before = container(cluster);
    cluster.kubectl(&["rollout", "restart", "deployment/nginx-demo"]);
    for i in 0..20 {
        cluster.kubectl(&["create", "configmap", &format!("kept-{i}"), "--from-literal=a=b"]);
    }
    cluster.kill();
    // Without Ferry the containers run on, and the packet rules still lead to them.
    cluster.up();
    for i in 0..20 {
        cluster.kubectl(&["get", "configmap", &format!("kept-{i}")]);
    }
    wait_for_rollout(cluster);
    cluster.kubectl(&["wait", "pod/survivor", "--for=condition=Ready", "--timeout=180s"]);
    assert_eq!(container(cluster), before, "the container was neither restarted nor replaced");
    cluster.kubectl(&["delete", "pod", "survivor", "--wait=true"]);
}

pub fn deleting_a_namespace_takes_everything_in_it(cluster: &mut Cluster) {
    cluster.kubectl(&["create", "namespace", "short-lived"]);
    cluster.kubectl(&["create", "deployment", "web", "--image=nginx:1.25", "-n", "short-lived"]);
    cluster.kubectl(&["rollout", "status", "deployment/web", "-n", "short-lived", "--timeout=180s"]);
    cluster.kubectl(&["delete", "namespace", "short-lived", "--timeout=180s"]);
    cluster.kubectl_refused(&["get", "namespace", "short-lived"], "");
    assert!(cluster.items(&["get", "pods,deployments,replicasets", "-n", "short-lived"]).is_empty());
}

pub fn the_kubelet_tells_figures_to_those_who_may_see_them(cluster: &mut Cluster) {
    let summary: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "--raw", "/api/v1/nodes/e2e/proxy/stats/summary"])).unwrap();
    assert_eq!(summary["node"]["nodeName"], "e2e");
    let node = cluster.json(&["get", "node", "e2e"]);
    let addresses = node["status"]["addresses"].as_array().unwrap();
    let host = addresses.iter().find(|a| a["type"] == "InternalIP").unwrap()["address"].as_str().unwrap();
    let port = &node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"];
    assert_eq!(cluster.kubectl(&["get", "--raw", &format!("/api/v1/nodes/e2e:{port}/proxy/healthz")]), "ok");
    let url = format!("https://{host}:{port}/metrics/resource");
    let ask = |header: &str| {
        let output =
            Command::new("curl").args(["-sk", "-w", "\n%{http_code}", "-H", header, &url]).output().expect("curl runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(ask("a: b"), "Unauthorized\n401");
    assert_eq!(ask("authorization: Bearer nonsense"), "Unauthorized\n401");
    for name in ["stranger", "watcher"] {
        cluster.kubectl(&["create", "serviceaccount", name]);
    }
    cluster.kubectl(&["create", "clusterrole", "see-figures", "--verb=get", "--resource=nodes/metrics"]);
    cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        "see-figures",
        "--clusterrole=see-figures",
        "--serviceaccount=default:watcher",
    ]);
    let token = |name: &str| format!("authorization: Bearer {}", cluster.kubectl(&["create", "token", name]).trim());
    let refused = ask(&token("stranger"));
    assert!(
        refused.contains("user=system:serviceaccount:default:stranger, verb=get, resource=nodes")
            && refused.ends_with("403"),
        "{refused}"
    );
    let figures = ask(&token("watcher"));
    assert!(figures.contains("node_memory_working_set_bytes ") && figures.ends_with("200"), "{figures}");
    cluster.kubectl(&[
        "delete",
        "clusterrole/see-figures",
        "clusterrolebinding/see-figures",
        "serviceaccount/stranger",
        "serviceaccount/watcher",
    ]);
}

/// The control groups of a name in every hierarchy.
fn control_groups_named(name: &str) -> impl Iterator<Item = std::path::PathBuf> {
    let mounts = std::path::Path::new("/sys/fs/cgroup");
    let hierarchies = std::fs::read_dir(mounts).unwrap().flatten().map(|entry| entry.path());
    hierarchies.chain([mounts.to_owned()]).map(move |mount| mount.join(name)).filter(|group| group.exists())
}

pub fn a_pod_as_a_whole_is_held_to_its_limits(cluster: &mut Cluster) {
    let container = r#"{"name":"main","image":"busybox:1.36","command":["sleep","3600"],"resources":{"requests":{"cpu":"100m"},"limits":{"memory":"32Mi","cpu":"200m"}}}"#;
    let second = container.replace("main", "second");
    let spec = format!(r#"{{"containers":[{container},{second}],"terminationGracePeriodSeconds":0}}"#);
    cluster.apply(&format!(r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"limited"}},"spec":{spec}}}"#));
    cluster.kubectl(&["wait", "pod/limited", "--for=condition=Ready", "--timeout=180s"]);
    let uid = cluster.json(&["get", "pod", "limited"])["metadata"]["uid"].as_str().unwrap().to_owned();
    let group = format!("ferrytest/kubepods/burstable/pod{uid}");
    let files = [
        ("memory.limit_in_bytes", "67108864"),
        ("memory.max", "67108864"),
        ("cpu.cfs_quota_us", "40000"),
        ("cpu.max", "40000 100000"),
    ];
    let found: Vec<_> = control_groups_named(&group).collect();
    let read = |file: &str| found.iter().find_map(|folder| std::fs::read_to_string(folder.join(file)).ok());
    let seen: Vec<_> = files.iter().filter_map(|(file, expected)| Some((file, *expected, read(file)?))).collect();
    assert_eq!(seen.len(), 2, "one file for memory, one for processor time: {seen:?} in {found:?}");
    for (file, expected, text) in seen {
        assert_eq!(text.trim(), expected, "{file}");
    }
    // Two containers, and the process of the sandbox, which the embedded runtime does without.
    let expected = if cluster.is_embedded() { 2 } else { 3 };
    let inside = found
        .iter()
        .any(|folder| std::fs::read_dir(folder).unwrap().flatten().filter(|e| e.path().is_dir()).count() == expected);
    assert!(inside, "all of the pod is in its group: {found:?}");
    cluster.kubectl(&["delete", "pod", "limited", "--wait=true"]);
    until("the pod's control groups to go", || control_groups_named(&group).next().is_none().then_some(()));
}

pub fn down_leaves_nothing_behind(cluster: &mut Cluster) {
    cluster.apply(r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"last"},"spec":{"containers":[{"name":"main","image":"busybox:1.36","command":["sleep","3600"]}]}}"#);
    cluster.kubectl(&["wait", "pod/last", "--for=condition=Ready", "--timeout=180s"]);
    let read_mounts = || std::fs::read_to_string("/proc/self/mounts").unwrap();
    let namespace = |line: &str| line.starts_with("nsfs ") && line.contains(cluster.run_dir().to_str().unwrap());
    assert!(read_mounts().lines().any(namespace), "the pod's network namespace is kept in the run folder");
    assert!(control_groups_named("ferrytest").next().is_some());
    // The hardest case: nobody is left who could stop the pods.
    let containerd = || std::fs::read_to_string(cluster.run_dir().join("containerd.pid")).unwrap();
    let containerd = (!cluster.is_embedded()).then(|| containerd().trim().parse().unwrap());
    for pid in [cluster.pid()].into_iter().chain(containerd) {
        end(rustix::process::Pid::from_raw(pid).unwrap());
    }
    cluster.down();
    let mounts = read_mounts();
    for folder in [cluster.data_dir(), cluster.run_dir()] {
        let folder = folder.to_str().unwrap();
        assert!(!mounts.contains(folder), "mounts are left: {mounts}");
        let processes = Command::new("pgrep").args(["-af", folder]).output().expect("pgrep runs");
        assert!(processes.stdout.is_empty(), "processes are left: {}", String::from_utf8_lossy(&processes.stdout));
    }
    let groups: Vec<_> = control_groups_named("ferrytest").collect();
    assert!(groups.is_empty(), "control groups are left: {groups:?}");
    assert!(!std::path::Path::new("/sys/class/net/ferrytest0").exists(), "the bridge is left");
    let tables = Command::new("nft").args(["list", "tables"]).output().expect("nft runs");
    assert!(!String::from_utf8_lossy(&tables.stdout).contains("ferrytest0"), "packet rules are left");
    std::fs::create_dir_all(cluster.run_dir()).unwrap();
}
