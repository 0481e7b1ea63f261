//! What users get wrong: conditions and events that say so, and no loop that burns.

use std::time::Duration;

use ferry_testbed::{Kit, PATIENCE, deployment, is_ready};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod, ResourceQuota};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_ends_mid_rollout_is_told_and_waited_for() {
    let kit = Kit::cluster(1).await;
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "few" }, "spec": { "hard": { "pods": "3" } } })).await;
    kit.until(kit.api::<ResourceQuota>(), "a counted quota", |all| {
        all.iter().any(|quota| quota.status.as_ref().is_some_and(|status| status.hard.is_some()))
    })
    .await;
    kit.create::<Deployment>(deployment("web", 5, "v1")).await;
    kit.until(kit.api::<Deployment>(), "ReplicaFailure", |all| {
        let conditions = all.iter().filter_map(|d| d.status.as_ref()?.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| {
            let text = condition.message.as_deref().unwrap_or_default();
            condition.type_.as_deref() == Some("ReplicaFailure")
                && condition.status.as_deref() == Some("True")
                && text.contains("exceeded quota: few")
        })
    })
    .await;
    kit.until(kit.api::<Event>(), "FailedCreate", |all| {
        all.iter().any(|event| event.reason.as_deref() == Some("FailedCreate"))
    })
    .await;
    assert_eq!(kit.api::<Pod>().list(&Default::default()).await.unwrap().items.len(), 3);
    let more = Patch::Merge(json!({ "spec": { "hard": { "pods": "9" } } }));
    kit.api::<ResourceQuota>().patch("few", &PatchParams::default(), &more).await.unwrap();
    kit.until_pods("five pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 5).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_on_the_number_of_a_kind_gives_back_what_was_deleted() {
    let kit = Kit::cluster(1).await;
    let hard = json!({ "count/leases.coordination.k8s.io": "2" });
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "few" }, "spec": { "hard": hard } })).await;
    let used = |wanted: &'static str| {
        move |all: &[std::sync::Arc<ResourceQuota>]| {
            all.iter()
                .filter_map(|quota| quota.status.as_ref()?.used.as_ref())
                .any(|used| used.values().any(|q| q.0 == wanted))
        }
    };
    kit.until(kit.api::<ResourceQuota>(), "a counted quota", used("0")).await;
    kit.create::<Lease>(json!({ "metadata": { "name": "one" }, "spec": {} })).await;
    kit.until(kit.api::<ResourceQuota>(), "one in use", used("1")).await;
    kit.api::<Lease>().delete("one", &DeleteParams::default()).await.unwrap();
    kit.until(kit.api::<ResourceQuota>(), "none in use", used("0")).await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_selectors_and_hand_edits_come_to_rest() {
    let kit = Kit::cluster(1).await;
    let set = |name: &str| {
        let mut set = deployment("same", 2, "v1");
        set["metadata"]["name"] = name.into();
        set
    };
    kit.create::<ReplicaSet>(set("one")).await;
    kit.create::<ReplicaSet>(set("other")).await;
    kit.create::<Deployment>(deployment("web", 2, "v1")).await;
    kit.until_pods("two pods of each", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 6).await;

    // Edited against its Deployment, the set is put back.
    let sets = kit.api::<ReplicaSet>();
    let owned = sets
        .list(&Default::default())
        .await
        .unwrap()
        .items
        .into_iter()
        .find(|set| set.name_any().starts_with("web"))
        .unwrap();
    let edit = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    sets.patch(&owned.name_any(), &PatchParams::default(), &edit).await.unwrap();
    kit.until(kit.api::<ReplicaSet>(), "two replicas again", |all| {
        let set = all.iter().find(|set| set.name_any() == owned.name_any());
        set.is_some_and(|set| {
            set.spec.replicas == Some(2) && set.status.as_ref().and_then(|s| s.ready_replicas) == Some(2)
        })
    })
    .await;

    // At rest: nothing is written while nothing happens.
    kit.until_pods("six pods", |pods| pods.len() == 6 && pods.iter().all(|pod| is_ready(pod))).await;
    let revisions = async || {
        let mut all: Vec<String> = Vec::new();
        all.extend(sets.list(&Default::default()).await.unwrap().items.iter().filter_map(|set| set.resource_version()));
        all.extend(
            kit.api::<Pod>()
                .list(&Default::default())
                .await
                .unwrap()
                .items
                .iter()
                .filter_map(|pod| pod.resource_version()),
        );
        all
    };
    let mut before = revisions().await;
    // Statuses may still be on their way; what burns would never stop changing.
    let quiet = async {
        loop {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let after = revisions().await;
            if after == before {
                return;
            }
            before = after;
        }
    };
    tokio::time::timeout(PATIENCE, quiet).await.expect("at rest");
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn absurd_schedules_are_refused() {
    let kit = Kit::new().await;
    for schedule in [
        "",
        "* * * *",
        "61 * * * *",
        "* * * * * * *",
        "@sometimes",
        "*/0 * * * *",
        "5-1 * * * *",
        "CRON_TZ=Nowhere * * * * *",
    ] {
        let cron: CronJob = serde_json::from_value(json!({ "metadata": { "name": "absurd" }, "spec": {
            "schedule": schedule, "jobTemplate": { "spec": { "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "c", "image": "i" }] } } } },
        } }))
        .unwrap();
        let refused = kit.api::<CronJob>().create(&PostParams::default(), &cron).await.unwrap_err();
        assert!(ferry_client::write::is_invalid(&refused), "{schedule:?}: {refused}");
    }
    kit.stop().await;
}

/// How long a key waits after so many failures: doubling from five milliseconds.
fn backoff(failures: u32) -> Duration {
    Duration::from_millis(5) * 2u32.pow(failures - 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_stays_exhausted_is_asked_less_and_less() {
    let kit = Kit::cluster(1).await;
    kit.create::<ResourceQuota>(json!({ "metadata": { "name": "none" }, "spec": { "hard": { "pods": "0" } } })).await;
    kit.until(kit.api::<ResourceQuota>(), "a counted quota", |all| {
        all.iter().any(|quota| quota.status.as_ref().is_some_and(|status| status.hard.is_some()))
    })
    .await;
    kit.create::<Deployment>(deployment("web", 50, "v1")).await;
    kit.until_event("FailedCreate").await;
    kit.until(kit.api::<ReplicaSet>(), "ReplicaFailure", |all| {
        let conditions = all.iter().filter_map(|set| set.status.as_ref()?.conditions.as_ref()).flatten();
        conditions.into_iter().any(|condition| {
            (condition.type_.as_deref(), condition.status.as_deref()) == (Some("ReplicaFailure"), Some("True"))
        })
    })
    .await;
    // One pod is tried at a time, not fifty, and after each failure it takes twice as long at least: whatever else the
    // machine does, that makes it longer only. What the first failures write into statuses wakes the controller a few times.
    let attempts = kit.witness.attempts("replicaset-controller", "pods", 12).await;
    let gaps = attempts.windows(2).map(|pair| pair[1] - pair[0]);
    let early: Vec<_> = gaps.zip(1..).filter(|(gap, failures)| *gap < backoff(*failures)).collect();
    assert!(early.len() <= 4, "after so few milliseconds though it failed so often: {early:?}");
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finalizers_that_never_go_and_owners_that_own_each_other_burn_nothing() {
    let kit = Kit::cluster(1).await;
    // Held for ever: by a finalizer that nobody knows, below an owner that waits for it.
    let mut wanted = deployment("held", 2, "v1");
    wanted["spec"]["template"]["metadata"]["finalizers"] = json!(["example.com/never"]);
    kit.create::<Deployment>(wanted).await;
    kit.until_pods("two pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 2).await;
    kit.api::<Deployment>().delete("held", &DeleteParams::foreground()).await.unwrap();
    kit.until_pods("pods being deleted", |pods| pods.iter().all(|pod| pod.metadata.deletion_timestamp.is_some())).await;

    // Each the owner of the other, deleted in the foreground: whoever waits for its dependents would wait for itself.
    let maps = kit.api::<ConfigMap>();
    let map = |name: &str| json!({ "metadata": { "name": name } });
    let first = kit.create::<ConfigMap>(map("first")).await;
    let second = kit.create::<ConfigMap>(map("second")).await;
    let owned_by = |owner: &ConfigMap| {
        Patch::Merge(json!({ "metadata": { "ownerReferences": [{
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid().unwrap(), "blockOwnerDeletion": true,
        }] } }))
    };
    maps.patch("first", &PatchParams::default(), &owned_by(&second)).await.unwrap();
    maps.patch("second", &PatchParams::default(), &owned_by(&first)).await.unwrap();
    maps.delete("first", &DeleteParams::foreground()).await.unwrap();
    kit.until(maps, "no maps but the root's", |all| {
        all.iter().all(|map| !["first", "second"].contains(&map.name_any().as_str()))
    })
    .await;

    kit.at_rest_for(Duration::from_secs(5)).await;
    let waiting = kit.api::<Deployment>().get("held").await.unwrap();
    assert_eq!(waiting.finalizers(), ["foregroundDeletion"]);
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_edited_against_its_controller_is_put_back_without_a_fight() {
    let kit = Kit::cluster(1).await;
    kit.create::<Deployment>(deployment("web", 3, "v1")).await;
    kit.until_pods("three pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 3).await;
    kit.at_rest().await;

    // A pod whose label is taken away is released and replaced; given back, it is adopted and one too many goes.
    let pods = kit.api::<Pod>();
    let name = pods.list(&Default::default()).await.unwrap().items[0].name_any();
    let label = |value: Option<&str>| Patch::Merge(json!({ "metadata": { "labels": { "app": value } } }));
    pods.patch(&name, &PatchParams::default(), &label(Some("mine"))).await.unwrap();
    let released = |pods: &[&Pod]| {
        pods.len() == 4
            && pods.iter().any(|pod| pod.name_any() == name && pod.owner_references().is_empty())
            && pods.iter().filter(|pod| is_ready(pod)).count() == 4
    };
    kit.until_pods("a released pod and its replacement", released).await;
    pods.patch(&name, &PatchParams::default(), &label(Some("web"))).await.unwrap();
    kit.until_pods("three pods", |pods| {
        pods.len() == 3 && pods.iter().all(|pod| is_ready(pod) && pod.owner_references().len() == 1)
    })
    .await;

    // Statuses written by hand are corrected.
    let lie = Patch::Merge(json!({ "status": { "replicas": 77, "readyReplicas": 77 } }));
    kit.api::<Deployment>().patch_status("web", &PatchParams::default(), &lie).await.unwrap();
    kit.until(kit.api::<Deployment>(), "the truth", |all| {
        all.len() == 1 && all[0].status.as_ref().and_then(|status| status.ready_replicas) == Some(3)
    })
    .await;
    kit.at_rest_for(Duration::from_secs(3)).await;
    kit.stop().await;
}
