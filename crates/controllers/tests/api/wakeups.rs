//! Nobody looks at everything again every now and then: each change of something that a controller goes by must wake it.

use ferry_client::Api;
use ferry_testbed::{Kit, is_ready};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{
    Node, PersistentVolume, PersistentVolumeClaim, Pod, ReplicationController, ResourceQuota, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRole;
use k8s_openapi::api::resource::v1::ResourceClaim;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

fn template(app: &str) -> Value {
    json!({ "metadata": { "labels": { "app": app } },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "v1" }] } })
}

fn merge(change: Value) -> (PatchParams, Patch<Value>) {
    (PatchParams::default(), Patch::Merge(change))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sets_and_services_have_made_is_made_again() {
    let kit = Kit::cluster(1).await;
    let selector = |app: &str| json!({ "matchLabels": { "app": app } });
    let set = |app: &str| json!({ "metadata": { "name": app }, "spec": { "selector": selector(app), "template": template(app), "serviceName": app } });
    kit.create::<DaemonSet>(json!({ "metadata": { "name": "agent" }, "spec": { "selector": selector("agent"), "template": template("agent") } })).await;
    kit.create::<StatefulSet>(set("db")).await;
    kit.until_pods("both pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    kit.at_rest().await;
    let revisions = kit.api::<ControllerRevision>();
    let before: Vec<String> =
        revisions.list(&Default::default()).await.unwrap().items.iter().filter_map(|one| one.uid()).collect();
    assert_eq!(before.len(), 2);
    for revision in revisions.list(&Default::default()).await.unwrap().items {
        revisions.delete(&revision.name_any(), &DeleteParams::default()).await.unwrap();
    }
    kit.until(revisions, "two other revisions", |all| {
        all.len() == 2 && all.iter().all(|one| one.uid().is_some_and(|uid| !before.contains(&uid)))
    })
    .await;

    // A slice that was given to another Service is missing here, and too much there.
    kit.create::<Service>(
        json!({ "metadata": { "name": "agent" }, "spec": { "selector": { "app": "agent" }, "ports": [{ "port": 80 }] } }),
    )
    .await;
    let slices = kit.api::<EndpointSlice>();
    const LABEL: &str = "kubernetes.io/service-name";
    let of = |slice: &EndpointSlice| slice.labels().get(LABEL).cloned().unwrap_or_default();
    let full = |slice: &EndpointSlice| slice.endpoints.as_ref().is_some_and(|list| !list.is_empty());
    let made =
        kit.until(slices.clone(), "a slice", |all| all.iter().any(|slice| of(slice) == "agent" && full(slice))).await;
    kit.at_rest().await;
    let name = made.iter().find(|slice| of(slice) == "agent").unwrap().name_any();
    let (parameters, change) = merge(json!({ "metadata": { "labels": { LABEL: "nobody" } } }));
    slices.patch(&name, &parameters, &change).await.unwrap();
    kit.until(slices, "another slice", |all| {
        all.iter().any(|slice| slice.name_any() != name && of(slice) == "agent" && full(slice))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_goes_by_what_its_controllers_want_even_where_no_pod_comes() {
    let kit = Kit::cluster(1).await;
    kit.create::<ReplicationController>(
        json!({ "metadata": { "name": "web" }, "spec": { "replicas": 2, "selector": { "app": "web" }, "template": template("web") } }),
    )
    .await;
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    kit.create::<PodDisruptionBudget>(json!({ "metadata": { "name": "web" }, "spec": {
        "minAvailable": "50%", "selector": { "matchLabels": { "app": "web" } } } }))
        .await;
    let expected = |wanted: i32| {
        let kit = &kit;
        async move {
            kit.until(kit.api::<PodDisruptionBudget>(), "expected pods", |all| {
                all.iter().any(|one| one.status.as_ref().is_some_and(|status| status.expected_pods == Some(wanted)))
            })
            .await;
        }
    };
    expected(2).await;
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "full" }, "spec": { "hard": { "pods": "2" } } })).await;
    kit.until(kit.api::<ResourceQuota>(), "a full quota", |all| {
        let used = |one: &ResourceQuota| one.status.as_ref()?.used.as_ref()?.get("pods").map(|used| used.0.clone());
        all.iter().any(|one| used(one).as_deref() == Some("2"))
    })
    .await;
    let (parameters, change) = merge(json!({ "spec": { "replicas": 6 } }));
    kit.api::<ReplicationController>().patch("web", &parameters, &change).await.unwrap();
    expected(6).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn devices_are_reserved_and_counted_and_volumes_leave_with_their_node() {
    let kit = Kit::cluster(1).await;
    let nodes: Api<Node> = Api::all(kit.client.clone());
    kit.create_in(nodes.clone(), json!({ "metadata": { "name": "brief" } })).await;

    // Counted by class, whoever asks for them.
    const DEVICES: &str = "gpu.example.com.deviceclass.resource.k8s.io/devices";
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "gpus" }, "spec": { "hard": { DEVICES: "3" } } })).await;
    let used = |wanted: &'static str| {
        let kit = &kit;
        async move {
            kit.until(kit.api::<ResourceQuota>(), wanted, |all| {
                let used =
                    |one: &ResourceQuota| one.status.as_ref()?.used.as_ref()?.get(DEVICES).map(|used| used.0.clone());
                all.iter().any(|one| used(one).as_deref() == Some(wanted))
            })
            .await;
        }
    };
    used("0").await;
    let claim = |name: &str| {
        json!({ "metadata": { "name": name }, "spec": { "devices": { "requests": [
        { "name": "two", "exactly": { "deviceClassName": "gpu.example.com", "count": 2 } } ] } } })
    };
    kit.create::<ResourceClaim>(claim("shared")).await;
    used("2").await;
    let second: ResourceClaim = serde_json::from_value(claim("second")).unwrap();
    let refused = kit.api::<ResourceClaim>().create(&PostParams::default(), &second).await.unwrap_err();
    let why = ferry_client::write::short(&refused);
    assert!(
        why.ends_with(&format!(
            "exceeded quota: gpus, requested: {DEVICES}=2, used: {DEVICES}=2, limited: {DEVICES}=3"
        )),
        "{why}"
    );

    // A pod that is on a node already gets what is allocated later.
    let pod = json!({ "metadata": { "name": "user" }, "spec": {
        "nodeName": "node-0", "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
        "resourceClaims": [{ "name": "gpu", "resourceClaimName": "shared" }],
    } });
    kit.create::<Pod>(pod).await;
    kit.until_pods("a pod", |pods| pods.iter().any(|pod| is_ready(pod))).await;
    kit.at_rest().await;
    let result = json!({ "request": "two", "driver": "gpu.example.com", "pool": "node-0", "device": "gpu-0" });
    let (parameters, change) = merge(json!({ "status": { "allocation": { "devices": { "results": [result] } } } }));
    kit.api::<ResourceClaim>().patch_status("shared", &parameters, &change).await.unwrap();
    kit.until(kit.api::<ResourceClaim>(), "a reserved claim", |all| {
        let users = |one: &ResourceClaim| one.status.as_ref()?.reserved_for.clone();
        all.iter().any(|one| users(one).is_some_and(|list| list.iter().any(|user| user.name == "user")))
    })
    .await;
    kit.api::<Pod>().delete("user", &DeleteParams::default()).await.unwrap();
    kit.api::<ResourceClaim>().delete("shared", &DeleteParams::default()).await.unwrap();
    used("0").await;

    // What is attached to a node that goes is detached as soon as its pods are given up, whether or not they are there still.
    let disk = json!({ "metadata": { "name": "disk" }, "spec": {
        "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "manual", "csi": { "driver": "csi.example.com", "volumeHandle": "disk" },
    } });
    kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), disk).await;
    kit.create::<PersistentVolumeClaim>(json!({ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "volumeName": "disk",
        "resources": { "requests": { "storage": "1Gi" } },
    } }))
    .await;
    kit.create::<Pod>(json!({ "metadata": { "name": "held" }, "spec": {
        "nodeName": "brief", "containers": [{ "name": "c", "image": "i" }],
        "volumes": [{ "name": "v", "persistentVolumeClaim": { "claimName": "data" } }],
    } }))
    .await;
    let attachments: Api<VolumeAttachment> = Api::all(kit.client.clone());
    kit.until(attachments.clone(), "an attachment", |all| all.iter().any(|one| one.spec.node_name == "brief")).await;
    kit.at_rest().await;
    nodes.delete("brief", &DeleteParams::default()).await.unwrap();
    kit.until(attachments, "no attachment", |all| all.is_empty()).await;
    let held = kit.api::<Pod>().get_opt("held").await.unwrap();
    assert!(held.is_none_or(|pod| pod.status.and_then(|status| status.phase).as_deref() == Some("Failed")));
    kit.stop().await;
}

/// The collector watches what other servers have as soon as they are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_servers_that_come_are_collected_too() {
    let kit = Kit::cluster(0).await;
    kit.at_rest().await;
    let load = std::sync::Arc::new(super::autoscaling::Load::default());
    let port = super::autoscaling::serve(&kit, &load).await;
    super::autoscaling::register(&kit, port).await;
    tokio::time::timeout(ferry_testbed::PATIENCE / 2, load.asked.notified())
        .await
        .expect("it is asked for its objects");
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sums_of_roles_are_applied() {
    let kit = Kit::cluster(0).await;
    let roles: Api<ClusterRole> = Api::all(kit.client.clone());
    let part = |name: &str, verb: &str| {
        json!({ "metadata": { "name": name, "labels": { "part": "of-it" } },
        "rules": [{ "apiGroups": [""], "resources": ["pods"], "verbs": [verb] }] })
    };
    kit.create_in(roles.clone(), part("part-b", "get")).await;
    kit.create_in(
        roles.clone(),
        json!({ "metadata": { "name": "sum" }, "rules": [{ "apiGroups": [""], "resources": ["x"], "verbs": ["y"] }],
        "aggregationRule": { "clusterRoleSelectors": [{ "matchLabels": { "part": "of-it" } }] } }),
    )
    .await;
    let verbs =
        |role: &ClusterRole| role.rules.iter().flatten().flat_map(|rule| rule.verbs.clone()).collect::<Vec<_>>();
    let until = |wanted: &'static [&'static str]| {
        let (kit, roles) = (&kit, roles.clone());
        async move {
            kit.until(roles, "the sum", |all| all.iter().any(|role| role.name_any() == "sum" && verbs(role) == wanted))
                .await;
        }
    };
    until(&["get"]).await;
    kit.create_in(roles.clone(), part("part-a", "list")).await;
    until(&["list", "get"]).await;
    let managers = roles.get("sum").await.unwrap().metadata.managed_fields.unwrap_or_default();
    let applied: Vec<_> = managers
        .iter()
        .filter(|one| one.operation.as_deref() == Some("Apply"))
        .map(|one| (one.manager.clone().unwrap_or_default(), one.fields_v1.as_ref().map(|fields| fields.0.clone())))
        .collect();
    assert_eq!(applied, [("clusterrole-aggregation-controller".to_owned(), Some(json!({ "f:rules": {} })))]);
    for name in ["part-a", "part-b"] {
        roles.delete(name, &DeleteParams::default()).await.unwrap();
    }
    until(&[]).await;
    kit.stop().await;
}
