//! Volumes of drivers, claims that pods bring along, claims that grow, and classes that are in use: through the API.

use std::sync::Arc;

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::{StorageClass, VolumeAttachment, VolumeAttributesClass};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn volume(name: &str, class: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": class, "csi": { "driver": "csi.example.com", "volumeHandle": format!("handle-{name}") },
    } })
}

fn claim(name: &str, volume: &str, class: &str) -> Value {
    json!({ "metadata": { "name": name }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": class, "volumeName": volume,
        "resources": { "requests": { "storage": "1Gi" } },
    } })
}

fn pod(name: &str, node: &str, source: Value) -> Value {
    let mut volume = source;
    volume["name"] = "v".into();
    json!({ "metadata": { "name": name }, "spec": {
        "nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }], "volumes": [volume],
    } })
}

/// What a claim says of whether pods need it.
async fn until_unused(kit: &Kit, name: &str, wanted: &str) {
    let says = |claim: &PersistentVolumeClaim| {
        let mut conditions = claim.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let found = conditions.find(|condition| condition.type_ == "Unused")?;
        Some(format!("{}/{}", found.status, found.reason.clone().unwrap_or_default()))
    };
    kit.until(kit.api::<PersistentVolumeClaim>(), wanted, |all| {
        all.iter().any(|claim| claim.name_any() == name && says(claim).as_deref() == Some(wanted))
    })
    .await;
}

/// A pod that has ended left something on its volume, and may be looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_say_whether_they_are_used_and_stay_for_pods_that_ended() {
    let kit = Kit::cluster(1).await;
    let (mut disk, mut data) = (volume("disk", "manual"), claim("data", "disk", "manual"));
    for object in [&mut disk, &mut data] {
        object["spec"]["volumeAttributesClassName"] = "gold".into();
    }
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), disk).await;
    kit.create::<PersistentVolumeClaim>(data).await;
    until_unused(&kit, "data", "True/NoPodsUsingPVC").await;
    let status = kit.api::<PersistentVolumeClaim>().get("data").await.unwrap().status.unwrap();
    assert_eq!(status.current_volume_attributes_class_name.as_deref(), Some("gold"));
    kit.create::<Pod>(pod("user", "node-0", json!({ "persistentVolumeClaim": { "claimName": "data" } }))).await;
    until_unused(&kit, "data", "False/PodUsingPVC").await;
    let ended = Patch::Merge(json!({ "status": { "phase": "Succeeded" } }));
    kit.api::<Pod>().patch_status("user", &PatchParams::default(), &ended).await.unwrap();
    until_unused(&kit, "data", "True/NoPodsUsingPVC").await;

    let claims = kit.api::<PersistentVolumeClaim>();
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    kit.at_rest().await;
    assert!(claims.get("data").await.unwrap().metadata.deletion_timestamp.is_some());
    kit.api::<Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    kit.until(claims, "no claim", |all| all.is_empty()).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_drivers_are_attached_to_one_node_at_a_time() {
    const MOUNTED: &str = "kubernetes.io/csi/csi.example.com^handle-disk";
    let kit = Kit::cluster(2).await;
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), volume("disk", "manual")).await;
    kit.create::<PersistentVolumeClaim>(claim("data", "disk", "manual")).await;
    let of_claim = || json!({ "persistentVolumeClaim": { "claimName": "data" } });
    kit.create::<Pod>(pod("first", "node-0", of_claim())).await;
    let attachments: Api<VolumeAttachment> = Api::all(kit.client.clone());
    let made = kit.until(attachments.clone(), "an attachment", |all| !all.is_empty()).await;
    assert_eq!(made[0].spec.attacher, "csi.example.com");
    assert_eq!(
        (made[0].spec.node_name.as_str(), made[0].spec.source.persistent_volume_name.as_deref()),
        ("node-0", Some("disk"))
    );

    // The driver attaches; the node's status tells, and the kubelet mounts.
    let attached = Patch::Merge(json!({ "status": { "attached": true } }));
    attachments.patch_status(&made[0].name_any(), &PatchParams::default(), &attached).await.unwrap();
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let tells = |node: &Node| {
        let list = node.status.as_ref().and_then(|status| status.volumes_attached.clone()).unwrap_or_default();
        list.into_iter().map(|volume| volume.name).collect::<Vec<_>>()
    };
    kit.until(nodes.clone(), "an attached volume", |all| {
        all.iter().any(|node| node.name_any() == "node-0" && tells(node) == [MOUNTED])
    })
    .await;
    let told = kit.until_event("SuccessfulAttachVolume").await;
    assert_eq!(told, "AttachVolume.Attach succeeded for volume \"disk\" ");
    until_unused(&kit, "data", "False/PodUsingPVC").await;
    let in_use = |list: Value| Patch::Merge(json!({ "status": { "volumesInUse": list } }));
    nodes.patch_status("node-0", &PatchParams::default(), &in_use(json!([MOUNTED]))).await.unwrap();

    // Another node has to wait, and its pod says why.
    kit.create::<Pod>(pod("second", "node-1", of_claim())).await;
    let why = kit.until_event("FailedAttachVolume").await;
    assert_eq!(why, "Multi-Attach error for volume \"disk\" Volume is already used by pod(s) first");

    // The pod is gone, but the kubelet has it mounted: it stays until it is not.
    kit.api::<Pod>().delete("first", &DeleteParams::default()).await.unwrap();
    kit.until_pods("no first pod", |pods| pods.iter().all(|pod| pod.name_any() != "first")).await;
    kit.at_rest().await;
    assert_eq!(attachments.list(&Default::default()).await.unwrap().items[0].spec.node_name, "node-0");
    nodes.patch_status("node-0", &PatchParams::default(), &in_use(json!([]))).await.unwrap();
    kit.until(attachments, "an attachment to the other node", |all| {
        all.iter().map(|one| one.spec.node_name.as_str()).collect::<Vec<_>>() == ["node-1"]
    })
    .await;
    kit.until(nodes, "nothing attached to the first", |all| {
        all.iter().any(|node| node.name_any() == "node-0" && tells(node).is_empty())
    })
    .await;
    kit.stop().await;
}

/// Deleting a Node stops nothing on the machine: whoever had the volume next would write beside those that use it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_stay_attached_to_a_deleted_node_while_they_may_be_in_use() {
    let kit = Kit::cluster(0).await;
    let (volumes, nodes) = (Api::<PersistentVolume>::all(kit.client.clone()), Api::<Node>::all(kit.client.clone()));
    let attachments: Api<VolumeAttachment> = Api::all(kit.client.clone());
    let names = |all: &[Arc<VolumeAttachment>]| {
        let mut names: Vec<String> =
            all.iter().filter_map(|one| one.spec.source.persistent_volume_name.clone()).collect();
        names.sort();
        names
    };
    let mounted = json!({ "volumesInUse": ["kubernetes.io/csi/csi.example.com^handle-mounted"] });
    let node: Node = kit.create_in(nodes.clone(), json!({ "metadata": { "name": "bare" } })).await;
    for name in ["idle", "mounted"] {
        kit.create_in(volumes.clone(), volume(name, "manual")).await;
        kit.create::<PersistentVolumeClaim>(claim(name, name, "manual")).await;
        kit.create::<Pod>(pod(name, "bare", json!({ "persistentVolumeClaim": { "claimName": name } }))).await;
    }
    kit.until(attachments.clone(), "two attachments", |all| names(all) == ["idle", "mounted"]).await;
    let status = Patch::Merge(json!({ "status": mounted }));
    nodes.patch_status(&node.name_any(), &PatchParams::default(), &status).await.unwrap();
    nodes.delete("bare", &DeleteParams::default()).await.unwrap();
    kit.at_rest().await;
    kit.until(attachments.clone(), "both attachments", |all| names(all) == ["idle", "mounted"]).await;

    // Without its pod, one goes that was not mounted; the other one may be in use until somebody unmounts it.
    let by_force = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    for name in ["idle", "mounted"] {
        kit.api::<Pod>().delete(name, &by_force).await.unwrap();
    }
    kit.until(attachments.clone(), "one attachment", |all| names(all) == ["mounted"]).await;
    kit.at_rest().await;
    kit.until(attachments.clone(), "the same attachment", |all| names(all) == ["mounted"]).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_waits_for_its_first_pod_goes_where_both_can_be() {
    let kit = Kit::cluster(2).await;
    let class = json!({ "metadata": { "name": "local" }, "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer" });
    kit.create_in(Api::<StorageClass>::all(kit.client.clone()), class).await;
    let mut local = volume("disk", "local");
    local["spec"]["nodeAffinity"] = json!({ "required": { "nodeSelectorTerms": [{ "matchExpressions": [
        { "key": "kubernetes.io/hostname", "operator": "In", "values": ["node-1"] },
    ] }] } });
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), local).await;
    let mut waiting = claim("data", "", "local");
    waiting["spec"]["volumeName"] = Value::Null;
    kit.create::<PersistentVolumeClaim>(waiting).await;
    let why = kit.until_event("WaitForFirstConsumer").await;
    assert_eq!(why, "waiting for first consumer to be created before binding");
    let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|status| status.phase.clone());
    kit.at_rest().await;
    assert_eq!(phase(&kit.api::<PersistentVolumeClaim>().get("data").await.unwrap()).as_deref(), Some("Pending"));

    // Nobody says where the pod goes; the volume does.
    let mut first = pod("first", "", json!({ "persistentVolumeClaim": { "claimName": "data" } }));
    first["spec"]["nodeName"] = Value::Null;
    kit.create::<Pod>(first).await;
    kit.until(kit.api::<PersistentVolumeClaim>(), "a bound claim", |all| {
        all.iter().any(|claim| phase(claim).as_deref() == Some("Bound"))
    })
    .await;
    kit.until_pods("the pod beside its volume", |pods| {
        pods.iter().any(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some("node-1"))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_come_and_go_with_their_pods() {
    let kit = Kit::cluster(1).await;
    let brought = || {
        json!({ "ephemeral": { "volumeClaimTemplate": { "metadata": { "labels": { "of": "pod" } }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": { "requests": { "storage": "1Gi" } },
        } } } })
    };
    kit.create::<Pod>(pod("own", "node-0", brought())).await;
    let made = kit
        .until(kit.api::<PersistentVolumeClaim>(), "a claim", |all| all.iter().any(|one| one.name_any() == "own-v"))
        .await;
    assert_eq!(made[0].owner_references()[0].name, "own");
    assert_eq!(made[0].labels().get("of").map(String::as_str), Some("pod"));
    kit.api::<Pod>().delete("own", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<PersistentVolumeClaim>(), "no claim", |all| all.is_empty()).await;

    // A claim that somebody else made under that name is nobody's but theirs.
    let foreign = json!({ "metadata": { "name": "other-v" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": { "requests": { "storage": "1Gi" } },
    } });
    kit.create::<PersistentVolumeClaim>(foreign).await;
    kit.create::<Pod>(pod("other", "node-0", brought())).await;
    // The claim itself has such an event too: there is no volume for it.
    let of_pod = |event: &Event| {
        event.reason.as_deref() == Some("FailedBinding") && event.involved_object.kind.as_deref() == Some("Pod")
    };
    let events = kit.until(kit.api::<Event>(), "the pod's event", |all| all.iter().any(|one| of_pod(one))).await;
    let why = events.iter().find(|one| of_pod(one)).and_then(|one| one.message.as_deref());
    assert_eq!(why, Some("ephemeral volume v: PVC test/other-v was not created for pod test/other (pod is not owner)"));
    let kept = kit.api::<PersistentVolumeClaim>().get("other-v").await.unwrap();
    assert_eq!(kept.owner_references(), []);
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_grows_a_claim_is_told_and_classes_in_use_stay() {
    let kit = Kit::cluster(1).await;
    let class =
        json!({ "metadata": { "name": "growing" }, "provisioner": "csi.example.com", "allowVolumeExpansion": true });
    kit.create_in(Api::<StorageClass>::all(kit.client.clone()), class).await;
    let classes: Api<VolumeAttributesClass> = Api::all(kit.client.clone());
    let fast =
        json!({ "metadata": { "name": "fast" }, "driverName": "csi.example.com", "parameters": { "iops": "9" } });
    kit.create_in(classes.clone(), fast).await;
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), volume("disk", "growing")).await;
    let mut wanted = claim("data", "disk", "growing");
    wanted["spec"]["volumeAttributesClassName"] = "fast".into();
    kit.create::<PersistentVolumeClaim>(wanted).await;
    kit.until(classes.clone(), "a protected class", |all| {
        all.iter().any(|class| class.finalizers() == ["kubernetes.io/vac-protection"])
    })
    .await;

    let why = kit.until_event("VolumeMismatch").await;
    assert_eq!(why, "Cannot bind to requested volume \"disk\": volumeAttributesClassName does not match");
    // Bound by whoever moves volumes between classes; here by hand.
    let bound = Patch::Merge(json!({ "status": { "phase": "Bound", "capacity": { "storage": "5Gi" } } }));
    let claims = kit.api::<PersistentVolumeClaim>();
    claims.patch_status("data", &PatchParams::default(), &bound).await.unwrap();
    let more = Patch::Merge(json!({ "spec": { "resources": { "requests": { "storage": "9Gi" } } } }));
    claims.patch("data", &PatchParams::default(), &more).await.unwrap();
    let told = kit.until_event("ExternalExpanding").await;
    assert_eq!(told, "waiting for an external controller to expand this PVC");

    classes.delete("fast", &DeleteParams::default()).await.unwrap();
    kit.at_rest().await;
    assert!(classes.get("fast").await.unwrap().metadata.deletion_timestamp.is_some());
    claims.delete("data", &DeleteParams::default()).await.unwrap();
    kit.until(classes, "no class", |all| all.is_empty()).await;
    kit.stop().await;
}
