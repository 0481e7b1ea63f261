//! Caches that are behind one another: what one watch has not told yet must not make a controller take away what is needed.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ferry_client::Api;
use ferry_testbed::{Kit, Lag, NAMESPACE};
use k8s_openapi::api::core::v1::{
    ConfigMap, Node, PersistentVolume, PersistentVolumeClaim, Pod, ResourceQuota, Secret, ServiceAccount,
};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::{Value, json};

fn volume(name: &str, reference: Value) -> Value {
    json!({ "metadata": { "name": name, "annotations": { "pv.kubernetes.io/provisioned-by": "csi.example.com" } }, "spec": {
        "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
        "storageClassName": "manual", "claimRef": reference,
        "csi": { "driver": "csi.example.com", "volumeHandle": format!("handle-{name}") },
    } })
}

fn claim(name: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": { "requests": { "storage": "1Gi" } },
    } })
}

fn phase(volume: &PersistentVolume) -> &str {
    volume.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// A driver makes a volume for a claim that the binder has not heard of: were it released, the driver would delete it, and
/// what is on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_not_released_for_want_of_a_claim_that_is_only_unheard_of() {
    let (kit, lag) = (Kit::new().await, Lag::of("persistentvolumeclaims"));
    lag.controllers(&kit);
    let volumes: Api<PersistentVolume> = Api::all(kit.client.clone());
    let reference =
        |claim: &PersistentVolumeClaim| json!({ "namespace": NAMESPACE, "name": claim.name_any(), "uid": claim.uid() });
    let until = async |what: &str, name: &str, wanted: &str| {
        let is = |volume: &PersistentVolume| volume.name_any() == name && phase(volume) == wanted;
        kit.until(volumes.clone(), what, |all| all.iter().any(|volume| is(volume))).await;
    };
    let first: PersistentVolumeClaim = kit.create(claim("first")).await;
    kit.create_in(volumes.clone(), volume("first", reference(&first))).await;
    until("a bound volume", "first", "Bound").await;

    lag.open.send_replace(false);
    let second: PersistentVolumeClaim = kit.create(claim("second")).await;
    kit.create_in(volumes.clone(), volume("second", reference(&second))).await;
    // One worker takes one after the other: when it has seen this one, it has seen the one before.
    kit.create_in(volumes.clone(), volume("marker", Value::Null)).await;
    until("the next one seen", "marker", "Available").await;
    let seen = volumes.get("second").await.unwrap();
    assert!(!["Released", "Failed"].contains(&phase(&seen)), "{:?}", seen.status);
    lag.open.send_replace(true);
    until("the volume bound", "second", "Bound").await;

    // A claim that is gone is gone, and its volume with it.
    kit.api::<PersistentVolumeClaim>().delete("second", &DeleteParams::default()).await.unwrap();
    until("the volume released", "second", "Released").await;
    kit.stop().await;
}

/// Orphaning takes the owner out of those that the collector knows of; one it does not know would be collected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_orphaned_stays_even_if_nobody_had_heard_of_it() {
    let (kit, lag) = (Kit::new().await, Lag::of("secrets"));
    lag.controllers(&kit);
    let owner: ConfigMap = kit.create(json!({ "metadata": { "name": "owner" } })).await;
    let secret = |name: &str, uid: Option<String>| {
        let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid });
        json!({ "metadata": { "name": name, "ownerReferences": [reference] } })
    };
    // One whose owner never was goes: the collector is at work.
    kit.create::<Secret>(secret("absent", Some("11111111-1111-1111-1111-111111111111".into()))).await;
    kit.until(kit.api::<Secret>(), "the collector at work", |all| all.iter().all(|one| one.name_any() != "absent"))
        .await;

    lag.open.send_replace(false);
    kit.create::<Secret>(secret("kept", owner.uid())).await;
    kit.api::<ConfigMap>().delete("owner", &DeleteParams::orphan()).await.unwrap();
    kit.until(kit.api::<ConfigMap>(), "no owner", |all| all.iter().all(|one| one.name_any() != "owner")).await;
    lag.open.send_replace(true);
    kit.create::<Secret>(secret("absent", owner.uid())).await;
    kit.until(kit.api::<Secret>(), "all looked at", |all| all.iter().all(|one| one.name_any() != "absent")).await;
    kit.at_rest().await;
    let kept = kit.api::<Secret>().get("kept").await.unwrap();
    assert_eq!(kept.metadata.owner_references, None);
    kit.stop().await;
}

/// A list that fails says nothing of what there is: the owner stays until everything was looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_orphaned_stays_even_if_it_could_not_be_listed_at_first() {
    let (kit, lag) = (Kit::new().await, Lag::of("secrets"));
    lag.controllers(&kit);
    let owner: ConfigMap = kit.create(json!({ "metadata": { "name": "owner" } })).await;
    let reference = json!({ "apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.uid() });
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    kit.at_rest().await;
    lag.open.send_replace(false);
    lag.failing.store(1, Ordering::SeqCst);
    kit.create::<Secret>(json!({ "metadata": { "name": "kept", "ownerReferences": [reference] } })).await;
    kit.api::<ConfigMap>().delete("owner", &DeleteParams::orphan()).await.unwrap();
    kit.until(kit.api::<ConfigMap>(), "no owner", |all| all.iter().all(|one| one.name_any() != "owner")).await;
    assert_eq!(lag.failing.load(Ordering::SeqCst), 0, "a list failed");
    let kept = kit.api::<Secret>().get("kept").await.unwrap();
    assert_eq!(kept.metadata.owner_references, None);
    lag.open.send_replace(true);
    kit.stop().await;
}

/// A volume that only one node may have is attached, but nobody has heard of it: another node must not get it, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volume_is_not_attached_twice_because_nobody_hears_of_its_attachment() {
    let (kit, lag) = (Kit::new().await, Lag::of("volumeattachments"));
    lag.controllers(&kit);
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    kit.simulate(2).await;
    let data: PersistentVolumeClaim = kit.create(claim("data")).await;
    let reference = json!({ "namespace": NAMESPACE, "name": "data", "uid": data.uid() });
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), volume("disk", reference)).await;
    let bound = |claim: &PersistentVolumeClaim| claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).is_some();
    kit.until(kit.api::<PersistentVolumeClaim>(), "a bound claim", |all| all.iter().any(|claim| bound(claim))).await;
    kit.at_rest().await;
    lag.open.send_replace(false);
    let user = |name: &str, node: &str| {
        json!({ "metadata": { "name": name }, "spec": {
            "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
            "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
        } })
    };
    let attachments: Api<VolumeAttachment> = Api::all(kit.client.clone());
    let nodes = async || -> Vec<String> {
        let list = attachments.list(&Default::default()).await.unwrap();
        list.items.into_iter().map(|one| one.spec.node_name).collect()
    };
    kit.create::<Pod>(user("first", "node-0")).await;
    kit.until(attachments.clone(), "an attachment", |all| !all.is_empty()).await;
    let before = *lag.asked.borrow();
    let mut asked = lag.asked.subscribe();
    kit.create::<Pod>(user("second", "node-1")).await;
    // Whoever cannot know asks the server.
    tokio::select! {
        _ = asked.wait_for(|asked| *asked > before) => {}
        _ = kit.until(attachments.clone(), "two attachments", |all| all.len() > 1) => {}
    }
    kit.at_rest().await;
    assert_eq!(nodes().await, ["node-0"]);

    lag.open.send_replace(true);
    kit.until_event("FailedAttachVolume").await;
    kit.api::<Pod>().delete("first", &DeleteParams::default()).await.unwrap();
    kit.until(attachments.clone(), "an attachment to the other node", |all| {
        all.iter().map(|one| one.spec.node_name.as_str()).collect::<Vec<_>>() == ["node-1"]
    })
    .await;
    kit.stop().await;
}

/// A watch of leases that is behind says nothing of the nodes: none may be given up for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_renew_their_leases_are_not_lost_because_nobody_hears_of_it() {
    let (kit, lag) = (Kit::new().await, Lag::of("leases"));
    let node_monitor_grace_period = Duration::from_secs(3);
    lag.controllers_with(&kit, ferry_controllers::Config { node_monitor_grace_period, ..kit.config() });
    kit.simulate(1).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let state = |node: &Node, wanted: &str| {
        let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.any(|condition| condition.type_ == "Ready" && condition.status == wanted)
    };
    kit.until(nodes.clone(), "a node that is ready", |all| all.iter().any(|node| state(node, "True"))).await;
    lag.open.send_replace(false);
    let before = *lag.asked.borrow();
    let mut asked = lag.asked.subscribe();
    // Twice the time after which it would be given up.
    tokio::select! {
        _ = asked.wait_for(|asked| *asked >= before + 2) => {}
        _ = kit.until(nodes.clone(), "a node that is lost", |all| all.iter().any(|node| state(node, "Unknown"))) => {}
    }
    assert!(state(&nodes.get("node-0").await.unwrap(), "True"));
    lag.open.send_replace(true);
    kit.stop().await;
}

/// A count of pods that is behind takes back what admission reserved; nobody tells when the caches have caught up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_was_counted_too_early_is_counted_again() {
    let (kit, lag) = (Kit::new().await, Lag::of("pods"));
    lag.controllers(&kit);
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "few" }, "spec": { "hard": { "pods": "3" } } })).await;
    let until = async |wanted: &str| {
        let used = |quota: &ResourceQuota| Some(quota.status.as_ref()?.used.as_ref()?.get("pods")?.0.clone());
        kit.until(kit.api::<ResourceQuota>(), wanted, |all| {
            all.iter().any(|quota| used(quota).as_deref() == Some(wanted))
        })
        .await;
    };
    until("0").await;
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    kit.create::<ConfigMap>(json!({ "metadata": { "name": "counted" } })).await;
    kit.at_rest().await;
    lag.open.send_replace(false);
    let pod = json!({ "metadata": { "name": "unheard" }, "spec": { "containers": [{ "name": "c", "image": "i" }] } });
    kit.create::<Pod>(pod).await;
    until("1").await;
    // Anything that goes makes everything be counted.
    kit.api::<ConfigMap>().delete("counted", &DeleteParams::default()).await.unwrap();
    until("0").await;
    lag.open.send_replace(true);
    until("1").await;
    kit.stop().await;
}
