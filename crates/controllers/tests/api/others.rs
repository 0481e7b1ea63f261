//! Volumes, certificates, load balancers and hand-written endpoints, through the API.

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::core::v1::{Endpoints, PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::storage::v1::VolumeAttributesClass;
use kube::ResourceExt;
use kube::api::DeleteParams;
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claims_are_bound_protected_and_released() {
    let kit = Kit::cluster(1).await;
    let volumes: Api<PersistentVolume> = Api::all(kit.client.clone());
    let volume = json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "5Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "manual", "hostPath": { "path": "/tmp/disk" },
    } });
    kit.create_in(volumes.clone(), volume).await;
    let claim = json!({ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": { "requests": { "storage": "1Gi" } },
    } });
    kit.create::<PersistentVolumeClaim>(claim).await;
    let phase = |claim: &PersistentVolumeClaim| claim.status.as_ref().and_then(|s| s.phase.clone()).unwrap_or_default();
    let bound = kit
        .until(kit.api(), "a bound claim", |all: &[std::sync::Arc<PersistentVolumeClaim>]| {
            all.iter().any(|c| phase(c) == "Bound")
        })
        .await;
    assert_eq!(bound[0].spec.as_ref().unwrap().volume_name.as_deref(), Some("disk"));
    assert!(bound[0].finalizers().contains(&"kubernetes.io/pvc-protection".to_owned()));

    // A pod holds the claim until it is gone.
    let pod = json!({ "metadata": { "name": "user" }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "d", "persistentVolumeClaim": { "claimName": "data" } }],
    } });
    kit.create::<k8s_openapi::api::core::v1::Pod>(pod).await;
    kit.until_pods("a running pod", |pods| pods.iter().any(|pod| ferry_testbed::is_ready(pod))).await;
    kit.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    let held = kit.api::<PersistentVolumeClaim>().get("data").await.unwrap();
    assert!(held.metadata.deletion_timestamp.is_some());
    kit.api::<k8s_openapi::api::core::v1::Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<PersistentVolumeClaim>(), "no claim", |all| all.is_empty()).await;
    kit.until(volumes, "a released volume", |all| {
        all.iter().any(|volume| volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Released"))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn classes_of_volume_attributes_stay_while_a_claim_names_them() {
    let kit = Kit::cluster(1).await;
    let classes: Api<VolumeAttributesClass> = Api::all(kit.client.clone());
    let class = |name: &str| json!({ "metadata": { "name": name }, "driverName": "example.com", "parameters": { "speed": "1" } });
    kit.create_in(classes.clone(), class("gold")).await;
    kit.create_in(classes.clone(), class("spare")).await;
    kit.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeAttributesClassName": "gold",
        "resources": { "requests": { "storage": "1Gi" } },
    } }))
    .await;
    kit.until(classes.clone(), "protected classes", |all| all.iter().all(|class| !class.finalizers().is_empty())).await;
    for name in ["gold", "spare"] {
        classes.delete(name, &DeleteParams::default()).await.unwrap();
    }
    let left = kit.until(classes.clone(), "one class", |all| all.len() == 1).await;
    assert_eq!(left[0].name_any(), "gold");
    assert!(left[0].metadata.deletion_timestamp.is_some());
    kit.api::<PersistentVolumeClaim>().delete("data", &DeleteParams::default()).await.unwrap();
    kit.until(classes, "no class", |all| all.is_empty()).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_get_addresses_and_hand_written_endpoints_get_slices() {
    let kit = Kit::cluster(2).await;
    let service = |name: &str, kind: &str| json!({ "metadata": { "name": name }, "spec": { "type": kind, "ports": [{ "port": 80 }] } });
    kit.create::<Service>(service("outside", "LoadBalancer")).await;
    kit.until(kit.api::<Service>(), "addresses of the nodes", |all| {
        let ingress =
            all.iter().find_map(|s| s.status.as_ref()?.load_balancer.as_ref()?.ingress.clone()).unwrap_or_default();
        ingress.iter().filter_map(|one| one.ip.as_deref()).collect::<Vec<_>>() == ["198.18.0.1", "198.18.0.2"]
    })
    .await;
    kit.api::<Service>().delete("outside", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<Service>(), "no service", |all| all.is_empty()).await;

    kit.create::<Service>(service("byhand", "ClusterIP")).await;
    kit.create::<Endpoints>(json!({ "metadata": { "name": "byhand" }, "subsets": [{ "addresses": [{ "ip": "192.0.2.7" }], "ports": [{ "port": 80 }] }] })).await;
    kit.until(kit.api::<EndpointSlice>(), "a mirrored slice", |all| {
        all.iter().any(|slice| slice.endpoints.iter().flatten().any(|e| e.addresses == ["192.0.2.7"]))
    })
    .await;
    kit.api::<Endpoints>().delete("byhand", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<EndpointSlice>(), "no slice", |all| all.is_empty()).await;
    kit.stop().await;
}
