//! A kubelet on a real containerd, against an API server in memory.
//!
//! Needs root and what `hack/setup.sh --test` installs; is recorded as skipped where something of it is missing.

mod api;
mod claims;
mod containerd;
mod cpus;
mod devices;
mod endings;
mod evictions;
mod files;
mod remote;
mod shutdown;
mod volumes;

use std::time::Duration;

use api::Api;
use containerd::Containerd;
use ferry_kubelet::{Config, Kubelet};
use ferry_tasks::Tasks;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

const NODE: &str = "test-node";

struct Node {
    api: Api,
    config: Config,
    tasks: Tasks,
    kubelet: Kubelet,
    certificates: remote::Certificates,
}

impl Node {
    async fn start(api: &Api, containerd: &Containerd) -> Self {
        Self::start_with(api, containerd, |_| {}).await
    }

    async fn start_with(api: &Api, containerd: &Containerd, change: impl FnOnce(&mut Config)) -> Self {
        let address = "127.0.0.1".parse().expect("an address");
        let mut config = Config::new(NODE, address, &containerd.socket(), containerd.folder.join("kubelet"));
        config.log_dir = containerd.folder.join("logs");
        config.cluster_dns = vec!["10.96.0.10".parse().expect("an address")];
        let certificates = remote::certificates();
        config.tls = Some(certificates.tls.clone());
        config.port = 0;
        // The machine's own disk may be as full as it likes.
        config.eviction.enough_room = Some(1 << 20);
        change(&mut config);
        let tasks = Tasks::new("kubelet");
        let kubelet = ferry_kubelet::start(config.clone(), api.client(), &tasks).await.expect("a kubelet");
        Self { api: api.clone(), config, tasks, kubelet, certificates }
    }

    async fn stop(self) {
        assert!(self.tasks.stop(Duration::from_secs(10)).await, "all tasks end");
    }

    fn pods(&self) -> ferry_client::Api<Pod> {
        ferry_client::Api::namespaced(self.api.client(), "default")
    }

    async fn create(&self, name: &str, mut spec: Value) -> String {
        spec["nodeName"] = json!(NODE);
        if spec["terminationGracePeriodSeconds"].is_null() {
            spec["terminationGracePeriodSeconds"] = json!(1);
        }
        for list in ["containers", "initContainers"] {
            for container in spec[list].as_array_mut().into_iter().flatten() {
                container["terminationMessagePath"] = json!("/dev/termination-log");
                if container["image"].is_null() {
                    container["image"] = json!("test.local/busybox:1");
                }
            }
        }
        let pod = json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec});
        let pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.expect("created");
        format!("api/v1/pods|default|{name}")
    }

    async fn delete(&self, key: &str) {
        let name = key.rsplit('|').next().expect("a name");
        self.pods().delete(name, &DeleteParams::default()).await.expect("deleted");
        self.api.until(key, "gone", Value::is_null).await;
    }

    fn log(&self, pod: &Value, container: &str, restart: u32) -> String {
        let text = |field: &str| pod["metadata"][field].as_str().expect("text").to_owned();
        let folder = format!("{}_{}_{}", text("namespace"), text("name"), text("uid"));
        let path = self.config.log_dir.join(folder).join(container).join(format!("{restart}.log"));
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The log once it has that text: a process may say something long after it has started.
    async fn log_with(&self, pod: &Value, container: &str, text: &str) -> String {
        let wait = async {
            loop {
                let log = self.log(pod, container, 0);
                if log.contains(text) {
                    return log;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), wait).await.expect(text)
    }

    fn events_of(&self, name: &str) -> Vec<String> {
        let all = self.api.all("api/v1/events");
        let mut own: Vec<&Value> = all.iter().filter(|e| e["involvedObject"]["name"] == name).collect();
        own.sort_by_key(|e| e["metadata"]["resourceVersion"].as_str().and_then(|v| v.parse::<u64>().ok()));
        own.iter().filter_map(|e| e["reason"].as_str().map(str::to_owned)).collect()
    }
}

fn condition(object: &Value, kind: &str) -> String {
    let list = object["status"]["conditions"].as_array();
    let found = list.into_iter().flatten().find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default().to_owned()
}

fn condition_since(object: &Value, kind: &str) -> Value {
    let list = object["status"]["conditions"].as_array();
    list.into_iter().flatten().find(|c| c["type"] == kind).map(|c| c["lastTransitionTime"].clone()).unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready") == "True"
}

fn waiting(pod: &Value) -> &str {
    pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap_or_default()
}

fn shell(script: &str) -> Value {
    json!(["sh", "-c", script])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_live_and_die_on_a_real_node() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(containerd) = Containerd::start(folder.path()).await else { return };
    let api = Api::new();
    let services: ferry_client::Api<k8s_openapi::api::core::v1::Service> =
        ferry_client::Api::namespaced(api.client(), "default");
    let service =
        json!({"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": "10.96.0.1", "ports": [{"port": 443}]}});
    let service = serde_json::from_value(service).expect("a service");
    services.create(&PostParams::default(), &service).await.expect("created");
    // However slow the machine is.
    let slow = |config: &mut Config| config.settings.replaced_told_after = Duration::from_secs(3600);
    let node = Node::start_with(&api, &containerd, slow).await;
    let registered = api.until("api/v1/nodes||test-node", "ready", is_ready).await;
    assert_eq!(registered["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
    let leased = |l: &Value| l["spec"]["holderIdentity"] == NODE;
    api.until("apis/coordination.k8s.io/v1/leases|kube-node-lease|test-node", "held", leased).await;

    tokio::join!(
        a_pod_runs_with_its_environment(&node),
        a_job_runs_to_its_end(&node),
        a_crashing_container_backs_off(&node),
        a_missing_image_is_reported(&node),
        a_name_that_is_none_and_a_missing_secret_are_told(&node),
        probes_decide(&node),
        a_new_image_is_started_without_an_absence(&node),
        volumes_follow_their_objects(&node),
        the_server_answers(&node),
        evictions::a_pod_over_its_own_limits_goes(&node),
        endings::hooks_of_sidecars_run_at_once(&node),
        endings::a_pod_that_ends_tells_when_it_is_not_ready(&node),
    );
    a_dead_sandbox_is_replaced(&node, &containerd).await;
    let node = containers_outlive_the_kubelet(node, &containerd).await;
    node.stop().await;
    files::a_pod_in_a_file_runs_and_is_shown(&api, &containerd).await;
    volumes::disks_and_shares_are_mounted_by_programs_of_the_node(&api, &containerd).await;
    devices::devices_are_given_out_and_taken_back(&api, &containerd).await;
    claims::claimed_devices_are_prepared_and_given_back(&api, &containerd).await;
    evictions::a_node_short_of_memory_lets_pods_go(&api, &containerd).await;
    shutdown::pods_end_before_the_machine(&api, &containerd).await;
    cpus::cpus_and_memory_are_kept_and_given_out(&api, &containerd).await;
}

async fn a_pod_runs_with_its_environment(node: &Node) {
    let script = "echo $GREETING; echo host $(hostname); cat /etc/resolv.conf /etc/hosts; env; trap 'exit 0' TERM; \
                  sleep 1000 & wait";
    let key = node
        .create(
            "plain",
            json!({"containers": [{"name": "main", "command": shell(script), "env": [
                {"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "GREETING", "value": "hello $(WHO)"}]}]}),
        )
        .await;
    let pod = node.api.until(&key, "ready", is_ready).await;
    assert_eq!(pod["status"]["phase"], "Running");
    assert!(pod["status"]["podIP"].as_str().is_some_and(|ip| ip.starts_with("10.88.")));
    assert_eq!(pod["status"]["qosClass"], "BestEffort");
    let log = node.log_with(&pod, "main", "F KUBERNETES_SERVICE_HOST=10.96.0.1").await;
    for text in [
        "stdout F hello plain",
        "F host plain",
        "F nameserver 10.96.0.10",
        "F search default.svc.cluster.local svc.cluster.local cluster.local",
        "F options ndots:5",
        "F # Kubernetes-managed hosts file.",
    ] {
        assert!(log.contains(text), "{text} is not in {log}");
    }
    assert_eq!(node.events_of("plain"), ["Pulled", "Created", "Started"]);
    node.delete(&key).await;
    assert!(node.events_of("plain").contains(&"Killing".to_owned()));
}

async fn a_job_runs_to_its_end(node: &Node) {
    let key = node
        .create(
            "job",
            json!({"restartPolicy": "Never",
                "initContainers": [{"name": "first", "command": shell("echo one > /shared/x"),
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
                "containers": [{"name": "main", "command": shell("cat /shared/x; echo bye > /dev/termination-log; exit 3"),
                    "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}],
                "volumes": [{"name": "shared", "emptyDir": {}}]}),
        )
        .await;
    let pod = node.api.until(&key, "failed", |p| p["status"]["phase"] == "Failed").await;
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["message"]), (&json!(3), &json!("bye\n")));
    assert_eq!(pod["status"]["initContainerStatuses"][0]["ready"], true);
    assert!(node.log(&pod, "main", 0).contains("F one"));
    node.delete(&key).await;
}

async fn a_crashing_container_backs_off(node: &Node) {
    let key = node.create("crash", json!({"containers": [{"name": "main", "command": shell("exit 1")}]})).await;
    let pod = node.api.until(&key, "backing off", |p| waiting(p) == "CrashLoopBackOff").await;
    assert_eq!(pod["status"]["phase"], "Running");
    let container = &pod["status"]["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 1);
    node.delete(&key).await;
}

async fn a_missing_image_is_reported(node: &Node) {
    let key = node.create("unpulled", json!({"containers": [{"name": "main", "image": "127.0.0.1:1/none:1"}]})).await;
    let pod = node.api.until(&key, "not pulled", |p| waiting(p) == "ErrImagePull").await;
    assert_eq!(pod["status"]["phase"], "Pending");
    node.api.until(&key, "backing off", |p| waiting(p) == "ImagePullBackOff").await;
    let events = node.events_of("unpulled");
    assert_eq!(events[..2], ["Pulling", "Failed"]);
    node.delete(&key).await;
}

async fn a_name_that_is_none_and_a_missing_secret_are_told(node: &Node) {
    let spec =
        json!({"imagePullSecrets": [{"name": "absent"}], "containers": [{"name": "main", "image": "Not An Image"}]});
    let key = node.create("unnamed", spec).await;
    let pod = node.api.until(&key, "refused", |p| waiting(p) == "InvalidImageName").await;
    let message = pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().unwrap_or_default();
    let want = "Failed to apply default image tag \"Not An Image\": couldn't parse image name \"Not An Image\": \
                invalid reference format: repository name (library/Not An Image) must be lowercase";
    assert_eq!(message, want);
    let told = async {
        let wanted = ["FailedToRetrieveImagePullSecret", "InspectFailed"].map(str::to_owned);
        while !wanted.iter().all(|reason| node.events_of("unnamed").contains(reason)) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // Events follow behind.
    tokio::time::timeout(Duration::from_secs(60), told).await.expect("both are told");
    node.delete(&key).await;
}

async fn probes_decide(node: &Node) {
    let key = node
        .create(
            "probed",
            json!({"containers": [{"name": "main",
                "command": shell("mkdir /www; echo hi > /www/index.html; httpd -f -p 8080 -h /www"),
                "readinessProbe": {"httpGet": {"path": "/index.html", "port": 8080}, "periodSeconds": 1},
                "livenessProbe": {"exec": {"command": ["test", "!", "-e", "/dead"]}, "periodSeconds": 1, "failureThreshold": 1},
                "lifecycle": {"postStart": {"exec": {"command": ["touch", "/started"]}}}}]}),
        )
        .await;
    let pod = node.api.until(&key, "ready", is_ready).await;
    assert_eq!(pod["status"]["containerStatuses"][0]["started"], true);
    let get = b"GET /index.html HTTP/1.0\r\n\r\n";
    for wrapped in [false, true] {
        let port = node.kubelet.port();
        let answer = node.certificates.forward(port, "/portForward/default/probed", "8080", wrapped, get).await;
        assert!(answer.contains(" 200 OK") && answer.ends_with("hi\n"), "{wrapped}: {answer}");
    }
    node.delete(&key).await;
    let key = node
        .create(
            "unhealthy",
            json!({"containers": [{"name": "main", "command": shell("sleep 1000"),
                "livenessProbe": {"exec": {"command": ["false"]}, "periodSeconds": 1, "failureThreshold": 1}}]}),
        )
        .await;
    node.api.until(&key, "restarted", |p| p["status"]["containerStatuses"][0]["restartCount"] == 1).await;
    assert!(node.events_of("unhealthy").contains(&"Unhealthy".to_owned()));
    node.delete(&key).await;
}

/// Upstream's kubelet does not see that a container is away which it starts anew, and clients rely on a pod that stays ready.
async fn a_new_image_is_started_without_an_absence(node: &Node) {
    let command = ["/bin/busybox", "sh", "-c", "trap 'exit 0' TERM; /bin/busybox sleep 1000 & wait"];
    let key = node.create("replaced", json!({"containers": [{"name": "main", "command": command}]})).await;
    node.api.until(&key, "ready", is_ready).await;
    let seen = node.api.changes_of(&key);
    let mut pod = node.api.get(&key).expect("a pod");
    pod["spec"]["containers"][0]["image"] = json!("test.local/pause:1");
    let spec = Patch::Merge(json!({"spec": {"containers": pod["spec"]["containers"]}}));
    node.pods().patch("replaced", &PatchParams::default(), &spec).await.expect("changed");
    let again = |p: &Value| p["status"]["containerStatuses"][0]["restartCount"] == 1 && is_ready(p);
    let before = condition_since(&pod, "Ready");
    let pod = node.api.until(&key, "ready again", again).await;
    assert_eq!(condition_since(&pod, "Ready"), before);
    for pod in seen() {
        assert!(is_ready(&pod), "{}", pod["status"]);
    }
    node.delete(&key).await;
}

async fn volumes_follow_their_objects(node: &Node) {
    let maps: ferry_client::Api<ConfigMap> = ferry_client::Api::namespaced(node.api.client(), "default");
    let script = "cat /c/key /p/token /p/labels /one; while ! grep -q new /c/key; do sleep 0.1; done; exit 0";
    let key = node
        .create(
            "volumes",
            json!({"restartPolicy": "Never",
                "containers": [{"name": "main", "command": shell(script), "volumeMounts": [
                    {"name": "map", "mountPath": "/c"}, {"name": "all", "mountPath": "/p"},
                    {"name": "map", "mountPath": "/one", "subPath": "key"}, {"name": "memory", "mountPath": "/m"}]}],
                "volumes": [{"name": "map", "configMap": {"name": "cm"}}, {"name": "memory", "emptyDir": {"medium": "Memory"}},
                    {"name": "all", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}},
                        {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}}]}}]}),
        )
        .await;
    // Nothing starts before the object is there.
    let failed = async {
        while !node.events_of("volumes").contains(&"FailedMount".to_owned()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), failed).await.expect("a FailedMount event");
    let map = serde_json::from_value(json!({"metadata": {"name": "cm"}, "data": {"key": "old\n"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    node.api.until(&key, "running", |p| p["status"]["phase"] == "Running").await;
    let change = Patch::Merge(json!({"data": {"key": "new\n"}}));
    maps.patch("cm", &PatchParams::default(), &change).await.expect("changed");
    let pod = node.api.until(&key, "done", |p| p["status"]["phase"] == "Succeeded").await;
    let log = node.log(&pod, "main", 0);
    assert!(log.contains("old") && log.contains("a-token") && log.contains("app=\"volumes\""), "{log}");
    node.delete(&key).await;
}

async fn the_server_answers(node: &Node) {
    let script = "echo out; echo err >&2; sleep 0.5; echo late; trap 'exit 0' TERM; sleep 1000 & wait";
    let key = node.create("served", json!({"containers": [{"name": "main", "command": shell(script)}]})).await;
    node.api.until(&key, "ready", is_ready).await;
    let (certificates, port) = (&node.certificates, node.kubelet.port());
    assert_eq!(certificates.get(port, "/healthz").await, (200, "ok".to_owned()));
    assert_eq!(certificates.get_as_stranger(port, "/healthz").await.0, 403);
    let (code, text) = certificates.get(port, "/stats/summary").await;
    let summary: Value = serde_json::from_str(&text).expect("a summary");
    let of_pod = |pod: &&Value| pod["podRef"]["name"] == "served";
    let used = summary["pods"].as_array().expect("pods").iter().find(of_pod).expect("the pod");
    assert!(code == 200 && used["memory"]["workingSetBytes"].as_u64() > Some(0), "{used}");
    assert_eq!(used["containers"][0]["name"], "main");
    assert!(used["ephemeral-storage"]["usedBytes"].as_u64() > Some(0), "{used}");
    assert!(summary["node"]["runtime"]["imageFs"]["inodesFree"].as_u64() > Some(0), "{}", summary["node"]);
    let (_, metrics) = certificates.get(port, "/metrics/resource").await;
    for line in [
        "container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"served\"}",
        "node_cpu_usage_seconds_total ",
        "resource_scrape_error 0",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }

    // Following ends with the container.
    let logs = "/containerLogs/default/served/main";
    let follow = format!("{logs}?follow=true");
    let followed = certificates.get(port, &follow);
    let others = async {
        let (code, text) = certificates.get(port, &format!("{logs}?tailLines=1&stream=Stderr&limitBytes=2")).await;
        assert!(code == 200 && (text.is_empty() || text == "er"), "{text}");
        let (code, text) = certificates.get(port, "/containerLogs/default/served/none").await;
        assert_eq!((code, text.trim()), (404, "container \"none\" not found in pod \"served\""));
        let exec = "/exec/default/served/main?command=cat&input=1&output=1&error=1";
        let seen = certificates.session(port, exec, "v5.channel.k8s.io", &[b"\0hello", &[255, 0]]).await;
        let text = |channel: u8| seen.iter().find(|(c, _)| *c == channel).map(|(_, t)| t.as_str()).unwrap_or_default();
        assert_eq!(text(1), "hello");
        assert!(text(3).contains("\"status\":\"Success\""), "{seen:?}");
        let exec = "/exec/default/served/main?command=sh&command=-c&command=exit%207&output=1&error=1";
        for protocol in ["v5.channel.k8s.io", "v4.channel.k8s.io"] {
            let seen = certificates.session(port, exec, protocol, &[]).await;
            let verdict = seen.iter().find(|(c, _)| *c == 3).map(|(_, t)| t.as_str()).unwrap_or_default();
            assert!(verdict.contains("NonZeroExitCode") && verdict.contains("\"7\""), "{protocol}: {seen:?}");
        }
        node.delete(&key).await;
    };
    let ((code, text), ()) = tokio::join!(followed, others);
    // The two streams reach the log in any order.
    assert!(code == 200 && ["out\nerr\nlate\n", "err\nout\nlate\n"].contains(&text.as_str()), "{code} {text}");
}

/// What a reboot leaves behind: a sandbox whose process is gone, and its containers with it.
async fn a_dead_sandbox_is_replaced(node: &Node, containerd: &Containerd) {
    let command = shell("test -r /c/key && ! echo x > /c/key; trap 'exit 0' TERM; sleep 1000 & wait");
    let key = node
        .create(
            "rebooted",
            json!({"containers": [{"name": "main", "command": command, "volumeMounts": [{"name": "map", "mountPath": "/c"}]}],
                "initContainers": [{"name": "first", "command": ["true"]}],
                "volumes": [{"name": "map", "configMap": {"name": "cm"}}]}),
        )
        .await;
    let before = node.api.until(&key, "ready", is_ready).await;
    let log = node.log_with(&before, "main", "Read-only file system").await;
    assert!(log.contains("can't create /c/key"), "{log}");
    containerd.kill_all();
    let restarted = |pod: &Value| is_ready(pod) && pod["status"]["containerStatuses"][0]["restartCount"] == 1;
    let after = node.api.until(&key, "restarted", restarted).await;
    assert_eq!(after["status"]["initContainerStatuses"][0]["restartCount"], 1);
    assert!(node.events_of("rebooted").contains(&"SandboxChanged".to_owned()));
    node.delete(&key).await;
}

/// A new kubelet takes over what runs, and removes what nobody wants any more.
async fn containers_outlive_the_kubelet(node: Node, containerd: &Containerd) -> Node {
    let spec = json!({"containers": [{"name": "main", "command": shell("sleep 1000")}]});
    let kept = node.create("kept", spec.clone()).await;
    let lost = node.create("lost", spec).await;
    let before = node.api.until(&kept, "ready", is_ready).await;
    node.api.until(&lost, "ready", is_ready).await;
    let api = node.api.clone();
    node.stop().await;
    let pods: ferry_client::Api<Pod> = ferry_client::Api::namespaced(api.client(), "default");
    pods.delete("lost", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    let node = Node::start(&api, containerd).await;
    let gone = async {
        let mut folders = std::fs::read_dir(node.config.root_dir.join("pods")).expect("a folder").flatten().count();
        while folders > 1 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            folders = std::fs::read_dir(node.config.root_dir.join("pods")).expect("a folder").flatten().count();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the orphan's folder is removed");
    let after = api.get(&kept).expect("a pod");
    assert_eq!(before["status"]["containerStatuses"], after["status"]["containerStatuses"]);
    node.delete(&kept).await;
    node
}
