//! Nothing is accepted and then silently left out: what a pod asks for it gets, or it does not run and says why.
//!
//! `docs/promises.md` has every field; here are those that only a real node can show.

use serde_json::{Value, json};

use crate::cluster::{Cluster, until};
use crate::{Alone, Scenario};

pub const SCENARIOS: &[Scenario] = &[
    ("hostile::promises::variables_come_from_files_of_the_pod", variables_come_from_files_of_the_pod),
    ("hostile::promises::a_container_is_made_as_it_is_described", a_container_is_made_as_it_is_described),
    ("hostile::promises::what_cannot_be_had_is_not_left_out", what_cannot_be_had_is_not_left_out),
    ("hostile::promises::volumes_without_a_plug_in_hold_the_pod_back", volumes_without_a_plug_in_hold_the_pod_back),
    ("hostile::promises::a_share_without_a_server_holds_the_pod_back", a_share_without_a_server_holds_the_pod_back),
    ("hostile::promises::probes_and_hooks_do_what_they_say", probes_and_hooks_do_what_they_say),
    (
        "hostile::promises::devices_that_nobody_prepares_hold_the_pod_back",
        devices_that_nobody_prepares_hold_the_pod_back,
    ),
];

pub const ALONE: &[Alone] = &[(
    "hostile::promises::the_embedded_runtime_does_what_it_says_it_can",
    the_embedded_runtime_does_what_it_says_it_can,
)];

const IMAGE: &str = "busybox:1.36";

/// A pod on the only node, without the help of the scheduler: what it lacks is the node's to say.
fn pod(name: &str, container: Value, spec: Value) -> Value {
    let mut main = json!({"name": "main", "image": IMAGE, "command": ["sleep", "3600"]});
    for (key, value) in container.as_object().into_iter().flatten() {
        main[key] = value.clone();
    }
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {
        "nodeName": "e2e", "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false,
        "containers": [main]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

fn get(cluster: &Cluster, name: &str) -> Value {
    cluster.json(&["get", "pod", name])
}

fn until_running(cluster: &Cluster, name: &str) -> Value {
    until(&format!("{name} runs"), || {
        let pod = get(cluster, name);
        (pod["status"]["containerStatuses"][0]["ready"] == true).then_some(pod)
    })
}

fn remove(cluster: &Cluster, names: &[&str]) {
    cluster.kubectl(&[&["delete", "pod", "--wait=true", "--grace-period=0", "--force"][..], names].concat());
}

fn shell(cluster: &Cluster, name: &str, script: &str) -> String {
    cluster.kubectl(&["exec", name, "-c", "main", "--", "sh", "-c", script])
}

/// Waits for an event of the pod, and for nothing of it to run.
fn until_told(cluster: &Cluster, name: &str, reason: &str, message: &str) {
    let selector = format!("involvedObject.name={name},reason={reason}");
    until(&format!("{name}: {reason}: {message}"), || {
        let events = cluster.items(&["get", "events", "--field-selector", &selector]);
        let told = events.iter().any(|event| event["message"].as_str().unwrap_or_default().contains(message));
        told.then_some(())
    });
    let status = &get(cluster, name)["status"]["containerStatuses"][0];
    assert!(status["state"]["running"].is_null() && status["lastState"]["terminated"].is_null(), "{name}: {status}");
}

/// Waits until the node has refused the pod for good.
fn until_refused(cluster: &Cluster, name: &str, reason: &str, message: &str) {
    let status = until(&format!("{name} is refused"), || {
        let pod = get(cluster, name);
        (pod["status"]["phase"] == "Failed").then(|| pod["status"].clone())
    });
    assert_eq!(
        (status["reason"].as_str(), status["message"].as_str()),
        (Some(reason), Some(format!("Pod was rejected: {message}").as_str())),
        "{name}"
    );
    assert!(
        status["containerStatuses"].as_array().is_none_or(|all| all.iter().all(|one| one["containerID"].is_null()))
    );
}

fn variables_come_from_files_of_the_pod(cluster: &mut Cluster) {
    let variable = |name: &str, path: &str, key: &str, optional: bool| {
        let source = json!({"volumeName": "shared", "path": path, "key": key, "optional": optional});
        json!({"name": name, "valueFrom": {"fileKeyRef": source}})
    };
    let with = |name: &str, script: &str, variables: Value| {
        let writer = json!({"name": "writer", "image": IMAGE, "command": ["sh", "-c", script],
            "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]});
        let spec = json!({"initContainers": [writer], "volumes": [{"name": "shared", "emptyDir": {}}]});
        cluster.apply(&pod(name, json!({"env": variables}), spec).to_string());
    };
    let file = "mkdir -p /shared/a; printf \"# made here\\nCOLOUR='dark blue'\\nTEXT='one\\ntwo'\\n\" > /shared/a/vars";
    let wanted = json!([
        variable("PAINT", "a/vars", "COLOUR", false), variable("LINES", "a/vars", "TEXT", false),
        variable("ABSENT", "a/vars", "SIZE", true),
        {"name": "BOTH", "value": "$(PAINT)!"},
    ]);
    with("from-file", file, wanted);
    until_running(cluster, "from-file");
    let seen = shell(cluster, "from-file", "echo \"$PAINT|$LINES|${ABSENT-none}|$BOTH\"");
    assert_eq!(seen, "dark blue|one\ntwo|none|dark blue!\n");

    with("no-key", file, json!([variable("SIZE", "a/vars", "SIZE", false)]));
    with("no-file", "true", json!([variable("SIZE", "a/vars", "SIZE", false)]));
    with("bad-file", "echo SIZE=7 > /shared/vars", json!([variable("SIZE", "vars", "SIZE", false)]));
    // What leads out of the volume, and what never ends, is not read.
    with("a-link", "ln -s /etc/machine-id /shared/vars", json!([variable("SIZE", "vars", "SIZE", true)]));
    with("a-pipe", "mkfifo /shared/vars", json!([variable("SIZE", "vars", "SIZE", true)]));
    until_told(cluster, "no-key", "Failed", "Error: environment variable key \"SIZE\" not found in file");
    for name in ["no-file", "bad-file", "a-link", "a-pipe"] {
        until_told(cluster, name, "Failed", "Error: couldn't parse env file");
        let state = get(cluster, name)["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
        assert_eq!(state, "CreateContainerConfigError", "{name}");
    }
    remove(cluster, &["from-file", "no-key", "no-file", "bad-file", "a-link", "a-pipe"]);
}

/// A folder of the node that passes mounts on, whatever the machine's own root does: with systemd it is shared, without it private, and
/// runtimes refuse `HostToContainer` below a private mount.
struct SharedFolder(std::path::PathBuf);

impl SharedFolder {
    fn new(path: std::path::PathBuf) -> Self {
        std::fs::create_dir_all(&path).unwrap();
        mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &path);
        let folder = Self(path);
        mount(&["--make-shared"], &folder.0);
        folder
    }
}

impl Drop for SharedFolder {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("--recursive").arg(&self.0).status();
    }
}

fn mount(arguments: &[&str], target: &std::path::Path) {
    let status = std::process::Command::new("mount").args(arguments).arg(target).status().unwrap();
    assert!(status.success(), "mount {arguments:?} {}: {status}", target.display());
}

/// What conformance does not look at.
fn a_container_is_made_as_it_is_described(cluster: &mut Cluster) {
    let host = SharedFolder::new(cluster.data_dir().join("shared-folder"));
    let context = json!({
        "capabilities": {"add": ["NET_ADMIN"], "drop": ["CHOWN", "KILL"]}, "runAsUser": 0,
        "seccompProfile": {"type": "RuntimeDefault"}, "allowPrivilegeEscalation": false,
    });
    let container = json!({
        "workingDir": "/proc", "stdin": true, "tty": true, "securityContext": context,
        "ports": [{"name": "web", "containerPort": 80, "hostPort": 28080, "protocol": "TCP"}],
        "volumeMounts": [
            {"name": "memory", "mountPath": "/memory"}, {"name": "memory", "mountPath": "/part", "subPath": "part", "readOnly": true},
            {"name": "host", "mountPath": "/host", "readOnly": true, "mountPropagation": "HostToContainer"},
        ],
    });
    let spec = json!({
        "shareProcessNamespace": true, "hostname": "named", "subdomain": "below", "setHostnameAsFQDN": true,
        "dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.53"], "searches": ["example.org"], "options": [{"name": "ndots", "value": "3"}]},
        "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["alias.example.org"]}],
        "enableServiceLinks": false,
        "securityContext": {"fsGroup": 4242, "supplementalGroups": [4343], "runAsUser": 0, "runAsGroup": 4444,
            "sysctls": [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "77"}]},
        "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}}, {"name": "host", "hostPath": {"path": host.0, "type": "Directory"}}],
    });
    cluster.apply(&pod("described", container, spec).to_string());
    until_running(cluster, "described");
    for (script, want) in [
        ("pwd", "/proc"),
        // Processes are shared: the first one is not the container's.
        ("test \"$(cat /proc/1/comm)\" != sleep && echo shared", "shared"),
        ("hostname", "named.below.default.svc.cluster.local"),
        ("cat /etc/resolv.conf", "search example.org\nnameserver 192.0.2.53\noptions ndots:3"),
        ("grep -c alias.example.org /etc/hosts", "1"),
        ("env | grep -c DNS_SERVICE || true", "0"),
        ("id -u; id -g; id -G", "0\n4444\n4444 4242 4343"),
        ("stat -c %g /memory", "4242"),
        ("cat /proc/sys/net/ipv4/ip_unprivileged_port_start", "77"),
        ("grep ' /memory ' /proc/mounts | cut -d' ' -f3", "tmpfs"),
        ("df -k /memory | tail -1 | awk '{print $2}'", "1024"),
        ("touch /part/x 2>/dev/null || echo read-only", "read-only"),
        ("touch /host/x 2>/dev/null || echo read-only", "read-only"),
        ("grep NoNewPrivs /proc/self/status | cut -f2", "1"),
        ("grep Seccomp: /proc/self/status | cut -f2", "2"),
    ] {
        let seen = shell(cluster, "described", script).replace('\r', "");
        assert_eq!(seen.trim_end(), want, "{script}");
    }
    // What the node mounts later is seen, as HostToContainer says.
    let later = host.0.join("later");
    std::fs::create_dir(&later).unwrap();
    mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs"], &later);
    std::fs::write(later.join("word"), "seen").unwrap();
    assert_eq!(shell(cluster, "described", "cat /host/later/word").trim_end(), "seen");
    let bits = shell(cluster, "described", "grep CapBnd /proc/self/status | cut -f2");
    let bits = u64::from_str_radix(bits.trim(), 16).unwrap();
    let has = |number: u32| bits >> number & 1 == 1;
    assert_eq!((has(12), has(0), has(5)), (true, false, false), "NET_ADMIN, CHOWN, KILL of {bits:x}");
    remove(cluster, &["described"]);
}

fn what_cannot_be_had_is_not_left_out(cluster: &mut Cluster) {
    let profile = json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}}});
    let enabled = std::path::Path::new("/sys/kernel/security/apparmor").exists();
    assert!(!enabled, "this scenario is for kernels without AppArmor");
    let strict = json!({"securityContext": {"supplementalGroupsPolicy": "Strict"}});
    let volume = |source: Value| json!({"volumes": [source]});
    let mounted = |name: &str, source: Value| {
        let mut source = source;
        source["name"] = json!("v");
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true}]});
        cluster.apply(&pod(name, mounts, volume(source)).to_string());
    };
    cluster.apply(&pod("apparmor", profile, json!({})).to_string());
    cluster.apply(&pod("strict", json!({}), strict).to_string());
    cluster.apply(&pod("elsewhere", json!({}), json!({"nodeSelector": {"disk": "of-gold"}})).to_string());
    cluster.apply(&pod("windows", json!({}), json!({"os": {"name": "windows"}})).to_string());
    cluster.apply(&pod("users", json!({}), json!({"hostUsers": false})).to_string());
    let never = json!({"image": "registry.invalid/none:1", "imagePullPolicy": "Never"});
    cluster.apply(&pod("never", never, json!({})).to_string());
    let pages = json!({"resources": {"limits": {"hugepages-2Mi": "64Mi", "memory": "64Mi"}}});
    cluster.apply(&pod("pages", pages, json!({})).to_string());
    mounted("huge", json!({"emptyDir": {"medium": "HugePages"}}));
    let recursive =
        json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": "Enabled"}]});
    cluster.apply(&pod("recursive", recursive, volume(json!({"name": "v", "emptyDir": {}}))).to_string());

    until_refused(cluster, "apparmor", "AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host");
    let affinity = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    until_refused(cluster, "elsewhere", "NodeAffinity", affinity);
    let system = "Failed to admit pod as the OS field doesn't match node OS";
    until_refused(cluster, "windows", "PodOSNotSupported", system);
    let lack = "Node didn't have enough resource: hugepages-2Mi, requested: 67108864, used: 0, capacity: 0";
    until_refused(cluster, "pages", "OutOfhugepages-2Mi", lack);
    if cluster.is_embedded() {
        for name in ["strict", "recursive", "users"] {
            // A container that cannot be created leaves its pod Running, too.
            until(&format!("{name} runs"), || {
                get(cluster, name)["status"]["containerStatuses"][0]["state"]["running"].is_object().then_some(())
            });
        }
    } else {
        // containerd 1.6 says nothing of what it can do, and so can do neither.
        let message = "SupplementalGroupsPolicy=Strict is not supported in this node";
        until_refused(cluster, "strict", "SupplementalGroupsPolicyNotSupported", message);
        let message = "Error: volume \"v\" requested recursive read-only mode, but it is not supported by the runtime";
        until_told(cluster, "recursive", "Failed", message);
        let message = "can't set `spec.hostUsers: false`, runtime does not support user namespaces";
        until_told(cluster, "users", "FailedCreatePodSandBox", message);
    }
    let message = "medium HugePages: hugePages storage requested, but there is no resource request for huge pages";
    until_told(cluster, "huge", "FailedMount", message);
    until("the image is not pulled", || {
        let waiting = get(cluster, "never")["status"]["containerStatuses"][0]["state"]["waiting"]["reason"].clone();
        (waiting == "ErrImageNeverPull").then_some(())
    });
    let names = ["apparmor", "strict", "elsewhere", "windows", "users", "pages", "huge", "recursive", "never"];
    remove(cluster, &names);
}

/// Mounted by the node's own programs: their words say why it is not there.
fn a_share_without_a_server_holds_the_pod_back(cluster: &mut Cluster) {
    let volume = |server: &str| json!({"volumes": [{"name": "v", "nfs": {"server": server, "path": "/a b"}}]});
    let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
    cluster.apply(&pod("share", mounts.clone(), volume("127.0.0.1")).to_string());
    cluster.apply(&pod("option", mounts, volume("-oremount")).to_string());
    until_told(cluster, "share", "FailedMount", "MountVolume.SetUp failed for volume \"v\" : mount failed: ");
    until_told(
        cluster,
        "share",
        "FailedMount",
        "\nMounting command: mount\nMounting arguments: -t nfs -- 127.0.0.1:/a b /",
    );
    let refused = "nfs: server \"-oremount\" is neither a host name nor an address";
    until_told(cluster, "option", "FailedMount", refused);
    remove(cluster, &["share", "option"]);
}

/// Those that upstream serves by CSI drivers, by other programs of the node, or not at all any more.
fn volumes_without_a_plug_in_hold_the_pod_back(cluster: &mut Cluster) {
    let sources = [
        ("gcePersistentDisk", json!({"pdName": "x"})),
        ("awsElasticBlockStore", json!({"volumeID": "x"})),
        ("gitRepo", json!({"repository": "https://192.0.2.1/x"})),
        ("iscsi", json!({"targetPortal": "192.0.2.1", "iqn": "iqn.2001-04.com.example:x", "lun": 0})),
        ("glusterfs", json!({"endpoints": "x", "path": "x"})),
        ("rbd", json!({"monitors": ["192.0.2.1"], "image": "x"})),
        ("flexVolume", json!({"driver": "example.com/x"})),
        ("cinder", json!({"volumeID": "x"})),
        ("cephfs", json!({"monitors": ["192.0.2.1"]})),
        ("flocker", json!({"datasetName": "x"})),
        ("fc", json!({"targetWWNs": ["x"], "lun": 0})),
        ("azureFile", json!({"secretName": "x", "shareName": "x"})),
        ("vsphereVolume", json!({"volumePath": "x"})),
        ("quobyte", json!({"registry": "192.0.2.1:1", "volume": "x"})),
        ("azureDisk", json!({"diskName": "x", "diskURI": "https://192.0.2.1/x", "kind": "Shared"})),
        ("photonPersistentDisk", json!({"pdID": "x"})),
        ("portworxVolume", json!({"volumeID": "x"})),
        (
            "scaleIO",
            json!({"gateway": "https://192.0.2.1", "system": "x", "volumeName": "x", "secretRef": {"name": "x"}}),
        ),
        ("storageos", json!({"volumeName": "x"})),
    ];
    let name = |source: &str| source.to_lowercase();
    for (source, body) in &sources {
        let volume = json!({"volumes": [{"name": "v", *source: body}]});
        let mounts = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        cluster.apply(&pod(&name(source), mounts, volume).to_string());
    }
    for (source, _) in &sources {
        until_told(cluster, &name(source), "FailedMount", "no volume plugin matched");
    }
    let names: Vec<String> = sources.iter().map(|(source, _)| name(source)).collect();
    remove(cluster, &names.iter().map(String::as_str).collect::<Vec<_>>());
}

fn probes_and_hooks_do_what_they_say(cluster: &mut Cluster) {
    let events = |name: &str, reason: &str| -> Vec<String> {
        let selector = format!("involvedObject.name={name},reason={reason}");
        let all = cluster.items(&["get", "events", "--field-selector", &selector]);
        all.iter().map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
    };
    // It does not heed its end, and has ten minutes: the probe gives it one second.
    let deaf = ["sh", "-c", "trap '' TERM; while true; do sleep 1; done"];
    let slow = json!({"exec": {"command": ["sleep", "5"]}, "timeoutSeconds": 1, "periodSeconds": 1, "failureThreshold": 2,
        "terminationGracePeriodSeconds": 1});
    let spec = json!({"terminationGracePeriodSeconds": 600});
    cluster.apply(&pod("deaf", json!({"command": deaf, "livenessProbe": slow}), spec).to_string());
    // Ready is who was found so twice in a row.
    let asked = json!({"exec": {"command": ["sh", "-c", "test -f /tmp/go && echo >> /tmp/asked"]}, "periodSeconds": 1, "successThreshold": 2});
    cluster.apply(&pod("twice", json!({"readinessProbe": asked}), json!({})).to_string());
    let tcp = json!({"lifecycle": {"postStart": {"tcpSocket": {"port": 80}}}});
    cluster.apply(&pod("hooked", tcp, json!({})).to_string());
    let sleeps = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}});
    cluster.apply(&pod("sleeper", sleeps, json!({"terminationGracePeriodSeconds": 30})).to_string());

    until("the deaf container is started again", || {
        let pod = get(cluster, "deaf");
        (pod["status"]["containerStatuses"][0]["restartCount"].as_i64() >= Some(1)).then_some(())
    });
    let told = events("deaf", "Unhealthy");
    assert!(told.iter().any(|message| message.contains("Liveness probe failed: command timed out")), "{told:?}");

    let running = until("the other container runs", || {
        let pod = get(cluster, "twice");
        (!pod["status"]["containerStatuses"][0]["state"]["running"].is_null()).then_some(pod)
    });
    assert_eq!(running["status"]["containerStatuses"][0]["ready"], false);
    shell(cluster, "twice", "touch /tmp/go");
    until_running(cluster, "twice");
    let count: usize = shell(cluster, "twice", "wc -l < /tmp/asked").trim().parse().unwrap();
    assert!(count >= 2, "it was ready after {count}");

    until("the hook fails", || (!events("hooked", "FailedPostStartHook").is_empty()).then_some(()));
    until_running(cluster, "sleeper");
    let begin = std::time::Instant::now();
    cluster.kubectl(&["delete", "pod", "sleeper", "--wait=true"]);
    assert!(begin.elapsed().as_secs() >= 3, "its hook was not waited for: {:?}", begin.elapsed());
    remove(cluster, &["deaf", "twice", "hooked"]);
}

/// The scheduler gives the device; no driver on the node prepares it.
fn devices_that_nobody_prepares_hold_the_pod_back(cluster: &mut Cluster) {
    let slice = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "e2e-gpus"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "e2e", "pool": {"name": "e2e", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}]}});
    let claim = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "gpu"}, "spec": {
        "devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}}});
    let class = json!({"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}, "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}});
    for object in [&class, &slice, &claim] {
        cluster.apply(&object.to_string());
    }
    let mut wanting = pod(
        "wanting",
        json!({"resources": {"claims": [{"name": "gpu"}]}}),
        json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
    );
    wanting["spec"]["nodeName"] = Value::Null;
    cluster.apply(&wanting.to_string());
    let message =
        "Failed to prepare dynamic resources: prepare dynamic resources: DRA driver gpu.example.com is not registered";
    until_told(cluster, "wanting", "FailedPrepareDynamicResources", message);
    assert_eq!(get(cluster, "wanting")["status"]["phase"], "Pending");
    remove(cluster, &["wanting"]);
    cluster.kubectl(&["delete", "resourceclaim/gpu", "resourceslice/e2e-gpus", "deviceclass/gpu.example.com"]);
}

/// It says that it can leave out an image's groups and make mounts read-only all the way down.
fn the_embedded_runtime_does_what_it_says_it_can() {
    let cluster = Cluster::start_with(vec!["--container-runtime-endpoint=embedded".to_owned()]);
    let node = cluster.json(&["get", "node", "e2e"]);
    assert_eq!(node["status"]["features"]["supplementalGroupsPolicy"], true, "{}", node["status"]["features"]);
    let handler = node["status"]["runtimeHandlers"].as_array().unwrap().iter().find(|one| one["name"] == "");
    assert_eq!(handler.unwrap()["features"]["recursiveReadOnlyMounts"], true);

    let below = tempfile::tempdir().unwrap();
    let folder = below.path().join("mounted");
    std::fs::create_dir(&folder).unwrap();
    mount(&["-t", "tmpfs", "tmpfs"], &folder);
    let reading = |name: &str, mode: &str| {
        let mounts =
            json!({"volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": true, "recursiveReadOnly": mode}]});
        let volume = json!({"volumes": [{"name": "v", "hostPath": {"path": below.path()}}]});
        cluster.apply(&pod(name, mounts, volume).to_string());
        let mode =
            until_running(&cluster, name)["status"]["containerStatuses"][0]["volumeMounts"][0]["recursiveReadOnly"]
                .clone();
        let seen = shell(
            &cluster,
            name,
            "touch /v/x 2>/dev/null && echo top; touch /v/mounted/x 2>/dev/null && echo below; true",
        );
        (mode.as_str().unwrap_or_default().to_owned(), seen)
    };
    assert_eq!(reading("enabled", "Enabled"), ("Enabled".to_owned(), String::new()));
    assert_eq!(reading("if-possible", "IfPossible"), ("Enabled".to_owned(), String::new()));
    assert_eq!(reading("disabled", "Disabled"), ("Disabled".to_owned(), "below\n".to_owned()));

    let groups = |name: &str, policy: &str| {
        let context = json!({"supplementalGroupsPolicy": policy, "supplementalGroups": [4343], "runAsUser": 0});
        // Whoever is in a group by the image's /etc/group is so here too, unless that is not wanted.
        cluster.apply(&pod(name, json!({}), json!({"securityContext": context})).to_string());
        until_running(&cluster, name);
        shell(&cluster, name, "grep Groups /proc/1/status | cut -f2")
    };
    let (strict, merged) = (groups("strict", "Strict"), groups("merge", "Merge"));
    // The primary group is always among them: files that exclude it stay closed to who is in it.
    assert_eq!(strict.split_whitespace().collect::<Vec<_>>(), ["0", "4343"]);
    assert!(merged.split_whitespace().any(|group| group == "4343"), "{merged}");
    remove(&cluster, &["enabled", "if-possible", "disabled", "strict", "merge"]);
    let status = std::process::Command::new("umount").arg(&folder).status().unwrap();
    assert!(status.success());
    cluster.down();
}
