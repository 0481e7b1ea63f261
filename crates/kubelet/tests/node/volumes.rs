//! Volumes that the node mounts with its own programs: a disk, and a share whose server does not answer.

use std::process::Command;
use std::time::Duration;

use ferry_client::Api as Objects;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::api::PostParams;
use serde_json::{Value, json};

use crate::api::Api;
use crate::containerd::Containerd;
use crate::{NODE, Node, is_ready, shell};

/// A device of this machine's own.
struct Loop(String);

impl Loop {
    fn new(node: &Node) -> Option<Self> {
        let file = node.config.root_dir.join("disk");
        std::fs::File::create(&file).and_then(|file| file.set_len(32 << 20)).expect("a file");
        // Somebody else may be given the same free one.
        (0..20).find_map(|_| {
            let made = Command::new("losetup").args(["-f", "--show"]).arg(&file).output().ok()?;
            made.status.success().then(|| Self(String::from_utf8_lossy(&made.stdout).trim().to_owned()))
        })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A volume, and the claim that it is bound to.
async fn bound(node: &Node, name: &str, spec: Value) {
    let (params, client) = (PostParams::default(), node.api.client());
    let claim = json!({"metadata": {"name": name}, "spec": {"volumeName": name}, "status": {"phase": "Bound"}});
    let claim: PersistentVolumeClaim = serde_json::from_value(claim).expect("a claim");
    let claims: Objects<PersistentVolumeClaim> = Objects::namespaced(client.clone(), "default");
    let claim = claims.create(&params, &claim).await.expect("created");
    let mut volume = json!({"metadata": {"name": name}, "spec": spec});
    volume["spec"]["claimRef"] = json!({"name": name, "namespace": "default", "uid": claim.metadata.uid});
    let volume: PersistentVolume = serde_json::from_value(volume).expect("a volume");
    Objects::all(client).create(&params, &volume).await.expect("created");
}

fn user(claim: &str, script: &str, read_only: bool) -> Value {
    json!({
        "securityContext": {"fsGroup": 4321},
        "containers": [{"name": "main", "command": shell(&format!("{script}; trap 'exit 0' TERM; sleep 1000 & wait")),
            "volumeMounts": [{"name": "v", "mountPath": "/disk"}]}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim, "readOnly": read_only}}],
    })
}

fn is_mounted(device: &str) -> bool {
    let table = std::fs::read_to_string("/proc/self/mountinfo").expect("a table");
    table.lines().any(|line| line.contains(&format!(" {device} ")))
}

async fn told(node: &Node, pod: &str, words: &str) {
    let says = |event: &Value| {
        let message = event["message"].as_str().unwrap_or_default();
        event["involvedObject"]["name"] == pod && event["reason"] == "FailedMount" && message.contains(words)
    };
    let told = async {
        while !node.api.all("api/v1/events").iter().any(says) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(180), told).await.expect(words);
}

pub(crate) async fn disks_and_shares_are_mounted_by_programs_of_the_node(api: &Api, containerd: &Containerd) {
    let node = Node::start(api, containerd).await;
    shares(&node).await;
    let Some(device) = Loop::new(&node) else {
        ferry_testkit::skip("there are no loop devices");
        return node.stop().await;
    };
    let spec = json!({"local": {"path": device.0}, "mountOptions": ["noatime"], "volumeMode": "Filesystem"});
    bound(&node, "disk", spec).await;
    let writes = "umask 7; echo kept > /disk/data; stat -c 'group %g' /disk /disk/data; grep ' /disk ' /proc/mounts";
    let writer = node.create("disk-writer", user("disk", writes, false)).await;
    let pod = api.until(&writer, "ready", is_ready).await;
    let log = node.log_with(&pod, "main", &format!("F {} /disk ext4 rw,noatime", device.0)).await;
    assert_eq!(log.matches("F group 4321").count(), 2, "{log}");

    let reads = "cat /disk/data; echo > /disk/data || echo refused; sleep 1";
    let reader = node.create("disk-reader", user("disk", reads, true)).await;
    let pod = api.until(&reader, "ready", is_ready).await;
    let log = node.log_with(&pod, "main", "F refused").await;
    assert!(log.contains("F kept"), "{log}");
    node.delete(&writer).await;
    assert!(is_mounted(&device.0), "a pod of node {NODE} uses it");

    // A kubelet that starts anew knows what is mounted, and unmounts it with the last pod.
    node.stop().await;
    let node = Node::start(api, containerd).await;
    node.delete(&reader).await;
    let unmounted = async {
        while is_mounted(&device.0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), unmounted).await.expect("unmounted");
    node.stop().await;
}

async fn shares(node: &Node) {
    let share = json!({"server": "127.0.0.1", "path": "/a b"});
    bound(node, "share", json!({"nfs": share, "mountOptions": ["vers=4"]})).await;
    let claimed = node.create("share-claimed", user("share", "true", true)).await;
    let mut inline = user("share", "true", false);
    inline["volumes"] = json!([{"name": "v", "nfs": share}]);
    let inline = node.create("share-inline", inline).await;
    let words = "\nMounting command: mount\nMounting arguments: -t nfs -o ro,vers=4 -- 127.0.0.1:/a b /";
    told(node, "share-claimed", words).await;
    told(node, "share-inline", "MountVolume.SetUp failed for volume \"v\" : mount failed: ").await;
    told(node, "share-inline", "Mounting arguments: -t nfs -- 127.0.0.1:/a b /").await;
    for key in [claimed, inline] {
        node.delete(&key).await;
    }
}
