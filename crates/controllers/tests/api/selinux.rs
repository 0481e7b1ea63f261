//! Pods that share a volume and cannot share a node are warned, through the API.

use std::time::Duration;

use ferry_client::Api;
use ferry_testbed::{Kit, PATIENCE};
use k8s_openapi::api::core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::CSIDriver;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn pod(name: &str, context: Value, claim: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "securityContext": context, "automountServiceAccountToken": false,
        "containers": [{ "name": "c", "image": "i", "volumeMounts": [{ "name": "v", "mountPath": "/v" }] }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": claim } }],
    } })
}

fn level(level: &str) -> Value {
    json!({ "seLinuxOptions": { "level": level } })
}

/// Waits for what each of the pods named is told.
async fn until_told(kit: &Kit, reason: &str, pods: &[&str]) -> Vec<String> {
    let of = |all: &[std::sync::Arc<Event>], pod: &str| {
        let is = |event: &&std::sync::Arc<Event>| {
            event.reason.as_deref() == Some(reason) && event.involved_object.name.as_deref() == Some(pod)
        };
        all.iter().find(is).and_then(|event| event.message.clone())
    };
    let all = kit.until(kit.api::<Event>(), reason, |all| pods.iter().all(|pod| of(all, pod).is_some())).await;
    pods.iter().filter_map(|pod| of(&all, pod)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shares_a_volume_under_another_label_is_warned() {
    let metrics = ferry_client::Metrics::default();
    let figures = metrics.clone();
    let kit = Kit::cluster_with(1, |config| ferry_controllers::Config {
        controllers: ferry_controllers::Selection::parse("*,selinux-warning-controller").unwrap(),
        metrics,
        ..config
    })
    .await;
    let drivers: Api<CSIDriver> = Api::all(kit.client.clone());
    let driver = json!({ "metadata": { "name": "csi.example.com" }, "spec": { "seLinuxMount": false } });
    kit.create_in(drivers.clone(), driver).await;
    let volume = json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteMany"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "manual", "csi": { "driver": "csi.example.com", "volumeHandle": "disk" },
    } });
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), volume).await;
    kit.create::<Pod>(pod("one", level("s0:c1"), "data")).await;
    kit.create::<Pod>(pod("two", level("s0:c2"), "data")).await;
    let claim = json!({ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteMany"], "storageClassName": "manual", "volumeName": "disk",
        "resources": { "requests": { "storage": "1Gi" } },
    } });
    kit.create::<PersistentVolumeClaim>(claim).await;
    kit.until(kit.api::<PersistentVolumeClaim>(), "a bound claim", |all| {
        all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound")))
    })
    .await;
    kit.at_rest().await;
    let about =
        |all: &[Event]| all.iter().filter(|one| one.reason.as_deref().unwrap_or_default().contains("SELinux")).count();
    let events = kit.api::<Event>().list(&Default::default()).await.unwrap().items;
    assert_eq!(about(&events), 0, "the driver mounts without labels, so that nobody is in the way");

    // The driver learns to mount with a label, and the two pods cannot share a node any more.
    let learns = Patch::Merge(json!({ "spec": { "seLinuxMount": true } }));
    drivers.patch("csi.example.com", &PatchParams::default(), &learns).await.unwrap();
    let message = "SELinuxLabel \":::s0:c1\" conflicts with pod two that uses the same volume as this pod with SELinuxLabel \
                   \":::s0:c2\". If both pods land on the same node, only one of them may access the volume.";
    kit.until(kit.api::<Event>(), "what is in the way", |all| {
        all.iter().any(|event| {
            event.involved_object.name.as_deref() == Some("one") && event.message.as_deref() == Some(message)
        })
    })
    .await;
    until_told(&kit, "SELinuxLabelConflict", &["two"]).await;
    let conflicts = || figures.text().lines().filter(|line| line.starts_with("selinux_warning_controller")).count();
    assert_eq!(conflicts(), 2);

    // Another way to put labels on is in the way too; the label it has not is that of nobody.
    let recursive = json!({ "seLinuxChangePolicy": "Recursive", "seLinuxOptions": { "level": "s0:c1" } });
    kit.create::<Pod>(pod("three", recursive, "data")).await;
    until_told(&kit, "SELinuxChangePolicyConflict", &["one", "two", "three"]).await;

    // One pod, two containers, two labels.
    let mut twice = pod("twice", level("s0:c1"), "data");
    let second = json!({ "name": "d", "image": "i", "volumeMounts": [{ "name": "v", "mountPath": "/v" }],
        "securityContext": { "seLinuxOptions": { "level": "s0:c9" } } });
    twice["spec"]["containers"].as_array_mut().unwrap().push(second);
    kit.create::<Pod>(twice).await;
    let told = until_told(&kit, "MultipleSELinuxLabels", &["twice"]).await;
    assert_eq!(told, ["Volume \"v\" is mounted twice with different SELinux labels inside this pod"]);

    for gone in ["two", "three"] {
        kit.api::<Pod>().delete(gone, &DeleteParams::default()).await.unwrap();
    }
    let quiet = async {
        while conflicts() != 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, quiet).await.expect("nobody is in the way any more");
    kit.stop().await;
}
