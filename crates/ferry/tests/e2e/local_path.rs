//! Claims of the default StorageClass: folders of the node, with data that outlives pods and Ferry, and goes with the claim.

use std::path::{Path, PathBuf};

use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::cluster::{Cluster, until};
use crate::cluster_bed::{Bed, is};

const CLASS: &str = "local-path";
const PROVISIONER: &str = "system:serviceaccount:kube-system:local-path-provisioner";

const STATEFUL_SET: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: kept}
spec:
  replicas: 2
  serviceName: kept
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {runAsUser: 4711}
      containers:
      - name: c
        image: busybox:1.36
        command: [sleep, "100000"]
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
"#;

fn claim(name: &str, class: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{storageClassName: {class}, \
         resources: {{requests: {{storage: 16Mi}}}}{more}}}}}"
    )
}

const ONCE: &str = ", accessModes: [ReadWriteOnce]";

/// A pod that has the claim of its own name at `/data`.
fn user(name: &str, more: &str) -> String {
    format!(
        "---\n{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{terminationGracePeriodSeconds: 1, {more}\
         containers: [{{name: c, image: 'busybox:1.36', command: [sleep, '100000'], volumeMounts: [{{name: v, mountPath: /data}}]}}], \
         volumes: [{{name: v, persistentVolumeClaim: {{claimName: {name}}}}}]}}}}"
    )
}

fn ready(cluster: &Cluster, pod: &str) {
    cluster.kubectl(&["wait", &format!("pod/{pod}"), "--for=condition=Ready", "--timeout=180s"]);
}

fn inside(cluster: &Cluster, pod: &str, line: &str) -> String {
    cluster.kubectl(&["exec", pod, "--", "sh", "-c", line]).trim().to_owned()
}

/// The volume of a claim, and its folder on this machine.
fn volume_of(cluster: &Cluster, claim: &str) -> (String, PathBuf) {
    let claim = cluster.json(&["get", "pvc", claim]);
    let name = claim["spec"]["volumeName"].as_str().expect("a volume").to_owned();
    let path = cluster.json(&["get", "pv", &name])["spec"]["local"]["path"].as_str().expect("a path").to_owned();
    (name, path.into())
}

/// What the Events of an object say under a reason.
fn told(cluster: &Cluster, object: &str, reason: &str) -> Vec<String> {
    let selector = format!("--field-selector=involvedObject.name={object},reason={reason}");
    let events = cluster.items(&["get", "events", "-A", &selector]);
    events.iter().map(|event| event["message"].as_str().unwrap_or_default().to_owned()).collect()
}

fn until_told(cluster: &Cluster, object: &str, reason: &str, text: &str) {
    until(&format!("{object} is told: {text}"), || {
        told(cluster, object, reason).iter().any(|message| message.contains(text)).then_some(())
    });
}

fn until_gone(what: &str, path: &Path) {
    until(what, || (!path.exists()).then_some(()));
}

pub fn a_stateful_set_keeps_its_data(cluster: &mut Cluster) {
    let class = cluster.json(&["get", "storageclass", CLASS]);
    assert_eq!(class["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"], "true");
    cluster.apply(STATEFUL_SET);
    cluster.kubectl(&["rollout", "status", "statefulset/kept", "--timeout=180s"]);
    let (name, folder) = volume_of(cluster, "data-kept-0");
    assert_eq!(folder, cluster.data_dir().canonicalize().unwrap().join("local-path").join(&name));
    until_told(cluster, "data-kept-0", "ProvisioningSucceeded", &name);
    let volume = cluster.json(&["get", "pv", &name]);
    assert_eq!(volume["spec"]["capacity"]["storage"], "16Mi");
    assert_eq!(volume["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"], "ferry.dev/local-path");

    // A user that is not root writes, and the data is there for the next pod of the name.
    inside(cluster, "kept-0", "echo word > /data/word");
    cluster.kubectl(&["delete", "pod", "kept-0", "--wait=true"]);
    until("the pod is made again", || {
        cluster.try_kubectl(&["get", "pod", "kept-0"], "").status.success().then_some(())
    });
    ready(cluster, "kept-0");
    assert_eq!(inside(cluster, "kept-0", "cat /data/word"), "word");

    // Through the end of Ferry. A class that somebody deleted is not made again; what an attempt left behind is removed.
    let before = cluster.kubectl(&["get", "storageclass", CLASS, "-o", "json"]);
    cluster.kubectl(&["delete", "storageclass", CLASS]);
    let root = folder.parent().unwrap();
    let left = root.join("pvc-0f8fad5b-d9cb-469f-a165-70867728950e");
    let full = root.join("pvc-1f8fad5b-d9cb-469f-a165-70867728950e");
    for folder in [&left, &full] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::write(full.join("data"), "somebody's").unwrap();
    cluster.kill();
    cluster.up();
    assert_eq!(inside(cluster, "kept-0", "cat /data/word"), "word");
    until_gone("the folder that no volume has", &left);
    assert!(full.join("data").exists(), "what has data in it is kept");
    std::fs::remove_dir_all(full).unwrap();
    cluster.kubectl_refused(&["get", "storageclass", CLASS], "");
    cluster.apply(&before);

    // The data goes with the claim, and nothing that a link in it names.
    let beside = cluster.data_dir().join("beside");
    std::fs::write(&beside, "not the pod's").unwrap();
    inside(
        cluster,
        "kept-0",
        &format!("ln -s {} /data/link; ln -s / /data/root; mkdir -p /data/a/b/c", beside.display()),
    );
    cluster.kubectl(&["delete", "statefulset/kept", "pod/kept-0", "pod/kept-1", "--wait=true", "--ignore-not-found"]);
    assert!(folder.join("word").exists());
    cluster.kubectl(&["delete", "pvc/data-kept-0", "pvc/data-kept-1", "--wait=true"]);
    until_gone("the data", &folder);
    until("the volume is gone", || (!cluster.try_kubectl(&["get", "pv", &name], "").status.success()).then_some(()));
    assert!(beside.exists());
    std::fs::remove_file(beside).unwrap();
}

pub fn volumes_are_kept_where_the_class_says_so(cluster: &mut Cluster) {
    cluster.apply("---\n{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {name: retain}, provisioner: ferry.dev/local-path, reclaimPolicy: Retain, volumeBindingMode: WaitForFirstConsumer}");
    cluster.apply(&claim("retained", "retain", ", accessModes: [ReadWriteOncePod]"));
    cluster.apply(&user("retained", "securityContext: {runAsUser: 1000, fsGroup: 4712}, "));
    ready(cluster, "retained");
    let (name, folder) = volume_of(cluster, "retained");
    inside(cluster, "retained", "echo word > /data/word");
    assert_eq!(std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(folder.join("word")).unwrap()), 4712);

    // What a pod uses is not removed under it, whatever becomes of the objects.
    let path = format!("/ferry/v1/local-volumes/e2e/{name}");
    let used = cluster.kubectl_refused(&["delete", "--raw", &path], "");
    assert!(used.contains("still uses it"), "{used}");
    cluster.kubectl(&["delete", "pod/retained", "pvc/retained", "--wait=true"]);
    until("the volume is released", || {
        (cluster.json(&["get", "pv", &name])["status"]["phase"] == "Released").then_some(())
    });
    cluster.kubectl(&["delete", "pv", &name, "--wait=true"]);
    assert_eq!(std::fs::read_to_string(folder.join("word")).unwrap().trim(), "word");
    std::fs::remove_dir_all(folder).unwrap();
    cluster.kubectl(&["delete", "storageclass", "retain"]);
}

pub fn what_a_folder_cannot_be_is_refused(cluster: &mut Cluster) {
    let class = |name: &str, more: &str| {
        cluster.apply(&format!(
            "---\n{{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {{name: {name}}}, provisioner: ferry.dev/local-path{more}}}"
        ));
    };
    let waits = ", volumeBindingMode: WaitForFirstConsumer";
    class("odd", &format!("{waits}, parameters: {{nodePath: ../../etc}}"));
    class("now", "");
    cluster.apply(&claim("many", CLASS, ", accessModes: [ReadWriteMany]"));
    cluster.apply(&claim("block", CLASS, ", accessModes: [ReadWriteOnce], volumeMode: Block"));
    cluster.apply(&claim("odd", "odd", ONCE));
    cluster.apply(&claim("now", "now", ONCE));
    let big = claim("big", CLASS, ONCE).replace("16Mi", "1Ei");
    cluster.apply(&big);
    for name in ["many", "odd", "big"] {
        cluster.apply(&user(name, ""));
    }
    let block = user("block", "")
        .replace("volumeMounts: [{name: v, mountPath: /data}]", "volumeDevices: [{name: v, devicePath: /dev/x}]");
    cluster.apply(&block);
    for (name, why) in [
        ("many", "access mode ReadWriteMany is not supported: the volume is on one node"),
        ("block", "volumeMode Block is not supported"),
        ("odd", "the StorageClass odd has unknown parameters: \"nodePath\""),
        ("now", "the StorageClass now has no volumeBindingMode: WaitForFirstConsumer"),
        ("big", "its disk has"),
    ] {
        until_told(cluster, name, "ProvisioningFailed", why);
    }
    let why =
        cluster.ferry().args(["why", "pvc/big"]).env("KUBECONFIG", cluster.data_dir().join("kubeconfig")).output();
    let why = String::from_utf8_lossy(&why.unwrap().stdout).into_owned();
    assert!(
        why.contains("could not make its volume") && why.contains("i free, and the claim requests 1073741824Gi"),
        "{why}"
    );
    let names = ["many", "block", "odd", "big", "now"];
    let pods: Vec<String> = names[..4].iter().map(|name| format!("pod/{name}")).collect();
    let claims: Vec<String> = names.iter().map(|name| format!("pvc/{name}")).collect();
    let all: Vec<&str> = ["delete", "storageclass/odd", "storageclass/now"]
        .into_iter()
        .chain(pods.iter().chain(&claims).map(String::as_str))
        .collect();
    cluster.kubectl(&all);

    // Nobody reaches folders without the right to, and the provisioner reaches nothing else of a node.
    let denied = cluster.kubectl_refused(&["get", "--raw", "/ferry/v1/local-volumes/e2e", "--as=jane"], "");
    assert!(denied.contains("orbidden"), "{denied}");
    cluster.kubectl(&["get", "--raw", "/ferry/v1/local-volumes/e2e", &format!("--as={PROVISIONER}")]);
    let may = cluster.try_kubectl(&["auth", "can-i", "create", "nodes/proxy", &format!("--as={PROVISIONER}")], "");
    assert_eq!(String::from_utf8_lossy(&may.stdout).trim(), "no");
    for path in ["e2e/etc", "e2e/pvc-", "e2e/..%2F..%2Fetc", "nobody/pvc-0f8fad5b-d9cb-469f-a165-70867728950e"] {
        cluster.kubectl_refused(&["delete", "--raw", &format!("/ferry/v1/local-volumes/{path}")], "");
    }
}

/// A volume's data is on one node: it waits for that node, and is given up with it.
pub fn data_goes_from_the_node_that_has_it() {
    let bed = Bed::new("p");
    bed.create(&["--nodes", "2"]);
    let (near, far) = (bed.node(0), bed.node(1));
    for name in ["first", "second"] {
        bed.apply(&claim(name, CLASS, ONCE));
        bed.apply(&user(
            name,
            &format!("nodeSelector: {{kubernetes.io/hostname: {far}}}, tolerations: [{{operator: Exists}}], "),
        ));
    }
    let volume = |claim: &str| {
        until("the pod has its volume", || is(&bed.json(&["get", "pod", claim]), "Ready", "True").then_some(()));
        let name = bed.json(&["get", "pvc", claim])["spec"]["volumeName"].as_str().unwrap().to_owned();
        bed.kubectl(&["exec", claim, "--", "sh", "-c", "echo word > /data/word"]);
        let volume = bed.json(&["get", "pv", &name]);
        let affinity = volume["spec"]["nodeAffinity"].to_string();
        assert!(affinity.contains(&far) && !affinity.contains(&near), "{affinity}");
        (name, volume["spec"]["local"]["path"].as_str().unwrap().to_owned())
    };
    let ((first, path), (second, _)) = (volume("first"), volume("second"));
    // Nodes of this bed have the machine's files.
    let is_there = || Path::new(&path).join("word").exists();
    assert!(is_there());
    let until_told = |object: &str, text: &str| {
        let selector = format!("--field-selector=involvedObject.name={object},reason=VolumeFailedDelete");
        until(text, || {
            let events = bed.json(&["get", "events", "-A", &selector]);
            let all = events["items"].as_array().cloned().unwrap_or_default();
            all.iter().any(|event| event["message"].as_str().is_some_and(|said| said.contains(text))).then_some(())
        });
    };

    // The node does not answer when its claim goes.
    let ferry = bed.ferry_pid(&far).unwrap();
    kill_process(ferry, Signal::STOP).unwrap();
    until("the node counts as lost", || {
        let conditions = bed.json(&["get", "node", &far])["status"]["conditions"].clone();
        let ready = |one: &&Value| one["type"] == "Ready";
        (conditions.as_array()?.iter().find(ready)?["status"] == "Unknown").then_some(())
    });
    bed.kubectl(&["delete", "pod", "first", "--force", "--grace-period=0"]);
    bed.kubectl(&["delete", "pvc", "first", "--wait=true"]);
    until_told(&first, "is not ready. Its data is removed when the node is back");
    assert!(is_there());
    kill_process(ferry, Signal::CONT).unwrap();
    until("the volume is gone", || (!bed.try_kubectl(&["get", "pv", &first], "").status.success()).then_some(()));
    assert!(!is_there());

    // The node never comes back.
    bed.kubectl(&["delete", "pod", "second", "--wait=true"]);
    print!("{}", bed.ferry(&["node", "remove", &far, "--force"]));
    bed.kubectl(&["delete", "pvc", "second", "--wait=true"]);
    until_told(&second, "has left the cluster");
    bed.kubectl(&["delete", "pv", &second, "--wait=true"]);
    bed.ferry(&["cluster", "delete", &bed.name]);
}
