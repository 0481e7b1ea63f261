//! StatefulSets and DaemonSets: order, partitions, claims, nodes that come, go and are tainted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ferry_client::Api;
use ferry_testbed::{Kit, is_ready};
use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn image(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default()
}

/// Names and images of the pods that are ready.
fn ready(pods: &[&Pod]) -> Vec<(String, String)> {
    let mut list: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).map(|pod| (pod.name_any(), image(pod))).collect();
    list.sort();
    list
}

fn rows(rows: &[(&str, &str)]) -> Vec<(String, String)> {
    rows.iter().map(|(name, image)| ((*name).to_owned(), (*image).to_owned())).collect()
}

fn template(app: &str) -> Value {
    json!({
        "metadata": { "labels": { "app": app } },
        "spec": { "terminationGracePeriodSeconds": 1, "containers": [{ "name": "c", "image": "v1" }] },
    })
}

fn with_image(image: &str) -> Value {
    json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": image }] } } } })
}

async fn change(kit: &Kit, change: Value) {
    kit.api::<StatefulSet>().patch("db", &PatchParams::default(), &Patch::Strategic(change)).await.unwrap();
}

async fn claims(kit: &Kit, what: &str, wanted: &[&str]) {
    kit.until(kit.api::<PersistentVolumeClaim>(), what, |all| {
        all.iter().map(|claim| claim.name_any()).collect::<BTreeSet<_>>()
            == wanted.iter().map(|name| (*name).to_owned()).collect()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_keeps_its_order_its_partition_and_its_claims() {
    let kit = Kit::cluster(2).await;
    for number in 0..4 {
        let volume = json!({ "metadata": { "name": format!("disk-{number}") }, "spec": {
            "capacity": { "storage": "1Gi" }, "accessModes": ["ReadWriteOnce"], "storageClassName": "manual",
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": { "path": "/nowhere" },
        } });
        kit.create_in(Api::<PersistentVolume>::all(kit.client.clone()), volume).await;
    }
    let mut pods = template("db");
    pods["spec"]["containers"][0]["volumeMounts"] = json!([{ "name": "data", "mountPath": "/data" }]);
    let set = json!({ "metadata": { "name": "db" }, "spec": {
        "replicas": 3, "serviceName": "db", "ordinals": { "start": 5 }, "template": pods,
        "selector": { "matchLabels": { "app": "db" } },
        "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Delete", "whenDeleted": "Retain" },
        "volumeClaimTemplates": [{ "metadata": { "name": "data" }, "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "manual", "resources": { "requests": { "storage": "1Gi" } },
        } }],
    } });
    kit.create::<StatefulSet>(set).await;
    kit.until_pods("three pods in order", |pods| {
        let find = |name: &str| pods.iter().find(|pod| pod.name_any() == name);
        for (before, after) in [("db-5", "db-6"), ("db-6", "db-7")] {
            assert!(
                find(after).is_none() || find(before).is_some_and(|pod| is_ready(pod)),
                "{after} came before its time"
            );
        }
        ready(pods) == rows(&[("db-5", "v1"), ("db-6", "v1"), ("db-7", "v1")])
    })
    .await;
    claims(&kit, "a claim for each", &["data-db-5", "data-db-6", "data-db-7"]).await;

    // From the partition on, the new template; a pod below that dies comes back as it was.
    let strategy = |partition: i32| json!({ "spec": { "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "partition": partition } } } });
    change(&kit, strategy(1)).await;
    change(&kit, with_image("v2")).await;
    kit.until_pods("two new pods", |pods| ready(pods) == rows(&[("db-5", "v1"), ("db-6", "v2"), ("db-7", "v2")])).await;
    let victim = kit.api::<Pod>().get("db-5").await.unwrap();
    kit.api::<Pod>().delete("db-5", &DeleteParams::default()).await.unwrap();
    kit.until_pods("the old pod again", |pods| {
        pods.iter().all(|pod| pod.uid() != victim.uid())
            && ready(pods) == rows(&[("db-5", "v1"), ("db-6", "v2"), ("db-7", "v2")])
    })
    .await;
    let revisions = |set: &StatefulSet| {
        let status = set.status.clone().unwrap_or_default();
        (status.current_revision, status.update_revision, status.current_replicas, status.updated_replicas)
    };
    kit.until(kit.api::<StatefulSet>(), "two revisions", |all| {
        let (current, update, old, new) = revisions(&all[0]);
        current != update && (old, new) == (Some(1), Some(2))
    })
    .await;
    change(&kit, strategy(0)).await;
    kit.until(kit.api::<StatefulSet>(), "one revision", |all| {
        let (current, update, old, new) = revisions(&all[0]);
        current == update && (old, new) == (Some(3), Some(3))
    })
    .await;

    // The highest goes first, and its claim with it.
    change(&kit, json!({ "spec": { "replicas": 1 } })).await;
    kit.until_pods("one pod", |pods| {
        let there: BTreeSet<_> = pods.iter().map(|pod| pod.name_any()).collect();
        assert!(there.contains("db-6") || !there.contains("db-7"), "{there:?}");
        ready(pods) == rows(&[("db-5", "v2")]) && pods.len() == 1
    })
    .await;
    claims(&kit, "one claim", &["data-db-5"]).await;

    // The set goes: its claims stay, unless it says otherwise before.
    kit.api::<StatefulSet>().delete("db", &DeleteParams::default()).await.unwrap();
    kit.until_pods("no pod", |pods| pods.is_empty()).await;
    kit.at_rest().await;
    claims(&kit, "the claim that stays", &["data-db-5"]).await;
    kit.stop().await;
}

/// Somebody else's pod has the name: the set says so, and goes on once the name is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_makes_its_pod_once_another_one_of_that_name_is_gone() {
    let kit = Kit::cluster(1).await;
    let other = json!({ "metadata": { "name": "db-0" }, "spec": {
        "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }],
    } });
    kit.create::<Pod>(other).await;
    let set = json!({ "metadata": { "name": "db" }, "spec": {
        "serviceName": "db", "replicas": 1, "selector": { "matchLabels": { "app": "db" } }, "template": template("db"),
    } });
    kit.create::<StatefulSet>(set).await;
    let why = kit.until_event("FailedCreate").await;
    assert_eq!(why, "create Pod db-0 in StatefulSet db failed error: pods \"db-0\" already exists");
    kit.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    kit.until_pods("the set's own pod", |pods| {
        pods.iter().any(|pod| pod.name_any() == "db-0" && pod.labels().get("app").is_some_and(|app| app == "db"))
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parallel_set_is_made_at_once_and_rolls_as_many_as_may_be_away() {
    let kit = Kit::cluster(2).await;
    let mut pods = template("db");
    pods["metadata"]["annotations"] = json!({ ferry_simulator::annotation::READY_AFTER: "never" });
    let set = json!({ "metadata": { "name": "db" }, "spec": {
        "replicas": 4, "serviceName": "db", "podManagementPolicy": "Parallel", "template": pods,
        "selector": { "matchLabels": { "app": "db" } },
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxUnavailable": 2 } },
    } });
    kit.create::<StatefulSet>(set).await;
    // None is ever ready, and yet all are made.
    kit.until_pods("four pods", |pods| pods.len() == 4).await;
    let now = json!({ "metadata": { "annotations": { ferry_simulator::annotation::READY_AFTER: "0s" } } });
    for number in 0..4 {
        let patch = Patch::Merge(now.clone());
        kit.api::<Pod>().patch(&format!("db-{number}"), &PatchParams::default(), &patch).await.unwrap();
    }
    let all =
        |image: &str| -> Vec<(String, String)> { (0..4).map(|n| (format!("db-{n}"), image.to_owned())).collect() };
    kit.until_pods("four ready pods", |pods| ready(pods) == all("v1")).await;

    // The new pods are not ready before they are told: so two are new, and two stay.
    change(&kit, with_image("v2")).await;
    kit.until_pods("two new pods", |pods| {
        let new = pods.iter().filter(|pod| image(pod) == "v2" && pod.metadata.deletion_timestamp.is_none());
        assert!(ready(pods).len() >= 2, "{:?}", ready(pods));
        new.map(|pod| pod.name_any()).collect::<BTreeSet<_>>() == BTreeSet::from(["db-2".into(), "db-3".into()])
    })
    .await;
    kit.at_rest().await;
    let left = kit.api::<Pod>().list(&Default::default()).await.unwrap().items;
    assert_eq!(ready(&left.iter().collect::<Vec<_>>()), rows(&[("db-0", "v1"), ("db-1", "v1")]));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_set_follows_its_nodes_and_their_taints() {
    let kit = Kit::cluster(3).await;
    let set = json!({ "metadata": { "name": "agent" }, "spec": {
        "selector": { "matchLabels": { "app": "agent" } }, "template": template("agent"),
        "updateStrategy": { "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } },
    } });
    kit.create::<DaemonSet>(set).await;
    let on = |pods: &[&Pod]| -> BTreeMap<String, String> {
        let node = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
        pods.iter().filter(|pod| is_ready(pod)).map(|pod| (node(pod), image(pod))).collect()
    };
    let wanted = |nodes: &[&str], image: &str| -> BTreeMap<String, String> {
        nodes.iter().map(|node| ((*node).to_owned(), image.to_owned())).collect()
    };
    const ALL: [&str; 3] = ["node-0", "node-1", "node-2"];
    kit.until_pods("one on each", |pods| on(pods) == wanted(&ALL, "v1") && pods.len() == 3).await;

    // With a surge, no node is ever without a pod that is ready.
    let patch = |change: Value| Patch::Strategic(change);
    let sets = kit.api::<DaemonSet>();
    sets.patch("agent", &PatchParams::default(), &patch(with_image("v2"))).await.unwrap();
    kit.until_pods("the new ones on each", |pods| {
        assert_eq!(on(pods).len(), 3, "a node was without");
        on(pods) == wanted(&ALL, "v2") && pods.len() == 3
    })
    .await;

    // A taint that keeps new pods away leaves those that run; one that drives them out does not.
    let nodes: Api<Node> = Api::all(kit.client.clone());
    let taint = |effect: &str| Patch::Merge(json!({ "spec": { "taints": [{ "key": "x", "effect": effect }] } }));
    nodes.patch("node-0", &PatchParams::default(), &taint("NoSchedule")).await.unwrap();
    nodes.patch("node-1", &PatchParams::default(), &taint("NoExecute")).await.unwrap();
    kit.until_pods("none where they are driven out", |pods| {
        on(pods) == wanted(&["node-0", "node-2"], "v2") && pods.len() == 2
    })
    .await;
    let status = |all: &[Arc<DaemonSet>]| {
        let status = all[0].status.clone().unwrap_or_default();
        (status.desired_number_scheduled, status.number_ready, status.number_misscheduled)
    };
    // One is wanted; the other is where none would be put now.
    kit.until(sets.clone(), "one wanted, one ready, one out of place", |all| status(all) == (1, 1, 1)).await;

    // Nodes that the template no longer selects, and one that goes.
    let none = Patch::Merge(json!({ "spec": { "taints": null }, "metadata": { "labels": { "agent": "yes" } } }));
    nodes.patch("node-1", &PatchParams::default(), &none).await.unwrap();
    let selects = json!({ "spec": { "template": { "spec": { "nodeSelector": { "agent": "yes" } } } } });
    sets.patch("agent", &PatchParams::default(), &patch(selects)).await.unwrap();
    kit.until_pods("one where it is selected", |pods| on(pods) == wanted(&["node-1"], "v2") && pods.len() == 1).await;

    // By hand: a new template waits until somebody deletes the old pod.
    let by_hand = json!({ "spec": { "updateStrategy": { "$retainKeys": ["type"], "type": "OnDelete" } } });
    sets.patch("agent", &PatchParams::default(), &patch(by_hand)).await.unwrap();
    sets.patch("agent", &PatchParams::default(), &patch(with_image("v3"))).await.unwrap();
    kit.until(sets, "seen, and nothing updated", |all| {
        let status = all[0].status.clone().unwrap_or_default();
        status.observed_generation == all[0].metadata.generation
            && status.updated_number_scheduled.unwrap_or_default() == 0
    })
    .await;
    kit.at_rest().await;
    let old = kit.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    assert_eq!(image(&old), "v2");
    kit.api::<Pod>().delete(&old.name_any(), &DeleteParams::default()).await.unwrap();
    kit.until_pods("the new one", |pods| on(pods) == wanted(&["node-1"], "v3") && pods.len() == 1).await;
    kit.stop().await;
}
