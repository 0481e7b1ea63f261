//! Corner cases of the workload controllers: caches that lag, pods of nobody, claims that vanish.

use std::sync::Arc;

use ferry_client::{Api, Informers};
use ferry_meta::UserInfo;
use ferry_testbed::{Kit, deployment, is_ready};
use futures::StreamExt;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use k8s_openapi::api::apps::v1::{DaemonSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::client::Body;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;

const TRACKED: &str = "batch.kubernetes.io/job-tracking";

/// A client whose watches of one resource say nothing more while they are held.
fn holding(inner: Client, resource: &'static str, held: watch::Receiver<bool>) -> Client {
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (inner, held) = (inner.clone(), held.clone());
        async move {
            let watches = request.uri().query().is_some_and(|query| query.contains("watch=true"))
                && request.uri().path().ends_with(resource);
            let response = inner.send(request).await?;
            Ok::<_, kube::Error>(response.map(|body| {
                let frames = BodyStream::new(body).then(move |frame| {
                    let mut held = held.clone();
                    async move {
                        if watches {
                            let _ = held.wait_for(|held| !held).await;
                        }
                        frame
                    }
                });
                BodyExt::boxed_unsync(StreamBody::new(frames))
            }))
        }
    });
    Client::new(service, "default")
}

/// A cluster whose controllers do not hear of one resource while it is held.
async fn cluster_that_lags(resource: &'static str) -> (Kit, watch::Sender<bool>) {
    let kit = Kit::new().await;
    let (hold, held) = watch::channel(false);
    let shared = holding(kit.door.client(UserInfo::new("system:kube-controller-manager", &[])), resource, held);
    let (informers, clients) = (Informers::new(shared, kit.tasks.clone()), kit.door.clients());
    let witness = kit.witness.clone();
    let account = move |name: &str| witness.watch(name, clients(UserInfo::service_account("kube-system", name, "")));
    ferry_controllers::start(&informers, account, &kit.tasks, kit.config());
    let scheduler = kit.door.client(UserInfo::new("system:kube-scheduler", &[]));
    let own = Informers::new(kit.client.clone(), kit.tasks.clone());
    ferry_scheduler::start(ferry_scheduler::Config::new(&scheduler), scheduler, &own, &kit.tasks).await.unwrap();
    kit.simulate(1).await;
    kit.until(kit.api::<ServiceAccount>(), "the default account", |all| !all.is_empty()).await;
    // All caches are filled once a controller that needs this one has done something.
    kit.create::<DaemonSet>(daemons("first")).await;
    kit.until_pods("a first daemon", |pods| pods.iter().any(|pod| is_ready(pod))).await;
    kit.create::<Job>(json!({ "metadata": { "name": "first" }, "spec": { "template": task() } })).await;
    kit.until(kit.api::<Job>(), "a first job", |all| all.iter().any(|job| job.status.is_some())).await;
    kit.at_rest().await;
    hold.send_replace(true);
    (kit, hold)
}

fn daemons(name: &str) -> Value {
    let mut set = deployment(name, 1, "v1");
    set["spec"].as_object_mut().unwrap().remove("replicas");
    set
}

fn task() -> Value {
    json!({
        "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: "1h" } },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }] },
    })
}

fn bare(name: &str, meta: Value) -> Value {
    let mut pod = json!({
        "metadata": { "name": name, "labels": { "app": "bare" } },
        "spec": { "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "v1" }] },
    });
    for (field, value) in meta.as_object().unwrap() {
        pod["metadata"][field] = value.clone();
    }
    pod
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stateful_set_stays_at_its_revision_when_revisions_are_seen_late() {
    let (kit, hold) = cluster_that_lags("/controllerrevisions").await;
    let mut set = deployment("db", 1, "v1");
    set["spec"]["serviceName"] = "db".into();
    set["spec"]["updateStrategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": { "partition": 1 } });
    kit.create::<StatefulSet>(set).await;
    let of = |all: &[Arc<Pod>]| all.iter().find(|pod| pod.name_any() == "db-0" && is_ready(pod)).cloned();
    let first = of(&kit.until(kit.api::<Pod>(), "the first pod", |all| of(all).is_some()).await).unwrap();
    kit.until(kit.api::<StatefulSet>(), "a current revision", |all| {
        all[0].status.as_ref().is_some_and(|status| status.current_revision.is_some())
    })
    .await;

    // Below the partition nothing is updated, even what is made again.
    let image = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "c", "image": "v2" }] } } } });
    kit.api::<StatefulSet>().patch("db", &PatchParams::default(), &Patch::Strategic(image)).await.unwrap();
    kit.until(kit.api::<StatefulSet>(), "the new template seen", |all| {
        let status = all[0].status.clone().unwrap_or_default();
        status.observed_generation == all[0].metadata.generation
    })
    .await;
    kit.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    let again = |all: &[Arc<Pod>]| of(all).filter(|pod| pod.uid() != first.uid());
    let second = again(&kit.until(kit.api::<Pod>(), "its successor", |all| again(all).is_some()).await).unwrap();
    assert_eq!(second.spec.as_ref().unwrap().containers[0].image.as_deref(), Some("v1"));
    hold.send_replace(false);
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_of_a_job_that_is_seen_late_or_managed_by_another_keep_their_finalizer() {
    let (kit, hold) = cluster_that_lags("/jobs").await;
    let spec = json!({ "managedBy": "example.com/other", "template": task() });
    let job = kit.create::<Job>(json!({ "metadata": { "name": "late" }, "spec": spec })).await;
    let owned = |uid: Option<String>| {
        let owner = json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "late", "uid": uid, "controller": true });
        json!({ "finalizers": [TRACKED], "ownerReferences": [owner] })
    };
    let tracked = |pod: &Pod| pod.finalizers().iter().any(|known| known == TRACKED);
    kit.create::<Pod>(bare("late-pod", owned(job.uid()))).await;
    // Another Job of that name, long gone: its pods are let go. Once that is done the first has been looked at.
    for turn in 0..5 {
        let name = format!("orphan-{turn}");
        kit.create::<Pod>(bare(&name, owned(Some(format!("gone-{turn}"))))).await;
        kit.until_pods("an orphan let go", |pods| pods.iter().all(|pod| pod.name_any() != name || !tracked(pod))).await;
    }
    assert!(tracked(&kit.api::<Pod>().get("late-pod").await.unwrap()));

    // Whoever manages a Job counts its pods, even when it has ended.
    hold.send_replace(false);
    let ended = json!({ "status": { "startTime": "2026-01-01T00:00:00Z", "conditions": [
        { "type": "FailureTarget", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
        { "type": "Failed", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" },
    ] } });
    kit.api::<Job>().patch_status("late", &PatchParams::default(), &Patch::Merge(ended)).await.unwrap();
    kit.at_rest().await;
    let touch = json!({ "metadata": { "labels": { "touched": "yes" } } });
    kit.api::<Pod>().patch("late-pod", &PatchParams::default(), &Patch::Merge(touch)).await.unwrap();
    kit.at_rest().await;
    assert!(tracked(&kit.api::<Pod>().get("late-pod").await.unwrap()));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_of_pods_of_nobody_say_so_and_count_the_others() {
    let kit = Kit::cluster(1).await;
    let budget = |name: &str, app: &str| json!({ "metadata": { "name": name }, "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": app } } } });
    kit.create::<Pod>(bare("alone", json!({}))).await;
    kit.create::<PodDisruptionBudget>(budget("one", "bare")).await;
    let message = kit.until_event("UnmanagedPods").await;
    let start = "Pods selected by this PodDisruptionBudget (selector: &LabelSelector{MatchLabels:map[string]string{app: bare,},\
                 MatchExpressions:[]LabelSelectorRequirement{},}) were found to be unmanaged. As a result,";
    assert!(message.starts_with(start), "{message}");
    let all = kit
        .until(kit.api::<PodDisruptionBudget>(), "a status", |all| {
            all[0].status.as_ref().is_some_and(|status| status.current_healthy == Some(1))
        })
        .await;
    let status = all[0].status.clone().unwrap();
    let numbers =
        (status.expected_pods, status.desired_healthy, status.disruptions_allowed, status.observed_generation);
    assert_eq!(numbers, (Some(0), Some(0), Some(0), Some(1)));
    assert_eq!(status.conditions.unwrap()[0].reason, "InsufficientPods");

    // Two budgets for one pod.
    kit.create::<PodDisruptionBudget>(budget("two", "bare")).await;
    kit.at_rest().await;
    kit.create::<Pod>(bare("shared", json!({}))).await;
    let message = kit.until_event("MultiplePodDisruptionBudgets").await;
    assert!(message.ends_with("matches multiple PodDisruptionBudgets.  Chose \"one\" arbitrarily."), "{message}");

    // Pods of somebody who has no scale.
    let mut template = task();
    template["metadata"]["labels"] = json!({ "app": "batch" });
    kit.create::<Job>(json!({ "metadata": { "name": "batch" }, "spec": { "template": template } })).await;
    kit.until_pods("a pod of the job", |pods| pods.iter().any(|pod| pod.labels()["app"] == "batch")).await;
    kit.create::<PodDisruptionBudget>(budget("three", "batch")).await;
    let message = kit.until_event("CalculateExpectedPodCountFailed").await;
    let why = "jobs.batch does not implement the scale subresource";
    assert_eq!(message, format!("Failed to calculate the number of expected pods: {why}"));
    kit.until(kit.api::<PodDisruptionBudget>(), "why nothing is allowed", |all| {
        let three = all.iter().find(|budget| budget.name_any() == "three");
        let conditions = three.and_then(|budget| budget.status.clone()?.conditions).unwrap_or_default();
        conditions.iter().any(|one| one.reason == "SyncFailed" && one.message == why)
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_that_vanishes_from_under_a_waiting_pod_is_made_again() {
    let kit = Kit::cluster(1).await;
    let mut set = deployment("db", 1, "v1");
    set["spec"]["serviceName"] = "db".into();
    set["spec"]["volumeClaimTemplates"] = json!([{ "metadata": { "name": "data" }, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "none", "resources": { "requests": { "storage": "1Gi" } },
    } }]);
    kit.create::<StatefulSet>(set).await;
    kit.until_pods("a pod that waits", |pods| pods.len() == 1).await;
    let claims: Api<PersistentVolumeClaim> = kit.api();
    let first = claims.get("data-db-0").await.unwrap();
    kit.at_rest().await;
    claims.delete("data-db-0", &DeleteParams::default()).await.unwrap();
    kit.until(claims, "another claim", |all| {
        all.iter().any(|claim| claim.uid() != first.uid() && claim.metadata.deletion_timestamp.is_none())
    })
    .await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_that_was_let_go_comes_back() {
    let kit = Kit::cluster(1).await;
    kit.create::<DaemonSet>(daemons("agent")).await;
    let pods = kit.until(kit.api::<Pod>(), "a daemon", |all| all.iter().any(|pod| is_ready(pod))).await;
    let (name, uid) = (pods[0].name_any(), pods[0].uid());
    let api: Api<Pod> = kit.api();
    let label = |app: &str| Patch::Merge(json!({ "metadata": { "labels": { "app": app } } }));
    api.patch(&name, &PatchParams::default(), &label("other")).await.unwrap();
    let is_free = |pod: &Pod| pod.uid() == uid && pod.owner_references().is_empty();
    kit.until(api.clone(), "the daemon let go, and another", |all| {
        all.len() == 2 && all.iter().any(|pod| is_free(pod))
    })
    .await;
    // Back again, it is one too many: which of two of the same second stays is up to their names.
    api.patch(&name, &PatchParams::default(), &label("agent")).await.unwrap();
    kit.until(api.clone(), "one daemon", |all| all.len() == 1).await;
    kit.stop().await;
}
