//! What users get wrong: conditions and events that say so, and no loop that burns.

use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Event, Pod, ResourceQuota};
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use super::{Kit, deployment, is_ready};

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
    tokio::time::timeout(Duration::from_secs(30), quiet).await.expect("at rest");
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
