//! The local-path provisioner with the rights that a cluster gives it, and nodes that make no folders.

use ferry_client::Api;
use ferry_controllers::local_path::{ACCOUNT, rules};
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

const CLASS: &str = "local-path";
const PROVISIONER: &str = "ferry.dev/local-path";
const FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

async fn a_cluster(serves: bool) -> Kit {
    let kit = Kit::cluster_with(1, |config| ferry_controllers::Config { local_path: Some(serves), ..config }).await;
    let role = json!({ "metadata": { "name": "provisioner" }, "rules": rules() });
    kit.create_in(Api::<ClusterRole>::all(kit.client.clone()), role).await;
    let binding = json!({
        "metadata": { "name": "provisioner" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "provisioner" },
        "subjects": [{ "kind": "ServiceAccount", "name": ACCOUNT, "namespace": "kube-system" }],
    });
    kit.create_in(Api::<ClusterRoleBinding>::all(kit.client.clone()), binding).await;
    let class = json!({
        "metadata": { "name": CLASS }, "provisioner": PROVISIONER, "volumeBindingMode": "WaitForFirstConsumer",
    });
    kit.create_in(Api::<StorageClass>::all(kit.client.clone()), class).await;
    kit
}

/// A claim and a pod that uses it, both of that name.
async fn used(kit: &Kit, name: &str, mode: &str) {
    kit.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": name }, "spec": {
        "accessModes": [mode], "storageClassName": CLASS, "resources": { "requests": { "storage": "1Gi" } },
    } }))
    .await;
    kit.create::<Pod>(json!({ "metadata": { "name": name }, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": name } }],
    } }))
    .await;
}

async fn gone(kit: &Kit, name: &str) {
    kit.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
    kit.api::<PersistentVolumeClaim>().delete(name, &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<PersistentVolumeClaim>(), "no claim", |all| all.iter().all(|claim| claim.name_any() != name))
        .await;
}

async fn until_told(kit: &Kit, namespace: &str, name: &str, text: &str) {
    let says = |event: &Event| {
        event.involved_object.name.as_deref() == Some(name)
            && event.message.as_deref().is_some_and(|message| message.contains(text))
    };
    let events = Api::<Event>::namespaced(kit.client.clone(), namespace);
    kit.until(events, text, |all| all.iter().any(|event| says(event))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_that_get_no_folder_are_told_why() {
    let kit = a_cluster(true).await;
    used(&kit, "many", "ReadWriteMany").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "many", "access mode ReadWriteMany is not supported").await;
    gone(&kit, "many").await;

    // The simulated node is nobody's who makes folders.
    used(&kit, "foreign", "ReadWriteOnce").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "foreign", "makes no local volumes: its kubelet is not Ferry's").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "foreign", "provisioning failed for PVC").await;
    gone(&kit, "foreign").await;

    // It says that it makes them, and cannot be reached.
    let says = Patch::Merge(json!({ "metadata": { "annotations": { "ferry.dev/local-volumes": "/x" } } }));
    let nodes = Api::<Node>::all(kit.client.clone());
    nodes.patch("node-0", &PatchParams::default(), &says).await.unwrap();
    used(&kit, "unreached", "ReadWriteOnce").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "unreached", "node node-0: this server has no credentials").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "unreached", "provisioning failed for PVC").await;
    gone(&kit, "unreached").await;
    kit.stop().await;
}

fn a_volume(name: &str, node: &str, policy: &str) -> Value {
    let term = json!({ "matchExpressions": [{ "key": "kubernetes.io/hostname", "operator": "In", "values": [node] }] });
    json!({
        "metadata": { "name": name, "finalizers": [FINALIZER], "annotations": { "pv.kubernetes.io/provisioned-by": PROVISIONER } },
        "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": policy,
            "storageClassName": CLASS, "local": { "path": format!("/x/{name}") },
            "claimRef": { "kind": "PersistentVolumeClaim", "namespace": "default", "name": "c", "uid": "none" },
            "nodeAffinity": { "required": { "nodeSelectorTerms": [term] } },
        },
    })
}

/// Turned off: what is there is cleaned up all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volumes_of_nodes_that_are_gone_can_be_deleted() {
    const LOST: &str = "pvc-0f8fad5b-d9cb-469f-a165-70867728950e";
    const KEPT: &str = "pvc-1f8fad5b-d9cb-469f-a165-70867728950e";
    const THERE: &str = "pvc-2f8fad5b-d9cb-469f-a165-70867728950e";
    let kit = a_cluster(false).await;
    used(&kit, "off", "ReadWriteOnce").await;
    until_told(&kit, ferry_testbed::NAMESPACE, "off", "turned off (--local-path=false)").await;

    let volumes = Api::<PersistentVolume>::all(kit.client.clone());
    for (name, node, policy) in [(LOST, "gone", "Delete"), (KEPT, "gone", "Retain"), (THERE, "node-0", "Delete")] {
        kit.create_in(volumes.clone(), a_volume(name, node, policy)).await;
    }
    until_told(&kit, "default", LOST, "node gone has left the cluster").await;
    until_told(&kit, "default", THERE, "node node-0: this server has no credentials").await;
    kit.until(volumes.clone(), "all are kept", |all| all.len() == 3).await;
    for name in [LOST, KEPT] {
        volumes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    kit.until(volumes, "two are gone", |all| all.len() == 1 && all[0].name_any() == THERE).await;
    kit.stop().await;
}
