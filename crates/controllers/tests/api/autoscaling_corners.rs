//! The autoscaler where things are not plain: bounds, no replicas at all, metrics that fail beside others that do not.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferry_testbed::{Kit, deployment, is_ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::autoscaling::{Load, reason, register, serve};

async fn change<K>(kit: &Kit, spec: Value) -> K
where
    K: ferry_client::informer::Cached + kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    let change = Patch::Merge(json!({ "spec": spec }));
    kit.api::<K>().patch("web", &PatchParams::default(), &change).await.unwrap()
}

async fn until_replicas(kit: &Kit, wanted: i32) {
    let is = |one: &Deployment| one.spec.replicas == Some(wanted);
    kit.until(kit.api::<Deployment>(), "replicas", |all| all.iter().any(|one| is(one))).await;
}

/// Waits until the autoscaler has seen its spec as it is, and says so of the condition.
async fn until_says(kit: &Kit, kind: &str, why: &str) -> Arc<HorizontalPodAutoscaler> {
    let seen = |one: &HorizontalPodAutoscaler| {
        one.status.as_ref().and_then(|status| status.observed_generation) == one.metadata.generation
    };
    let all = kit
        .until(kit.api::<HorizontalPodAutoscaler>(), why, |all| {
            all.iter().any(|one| seen(one) && reason(one, kind) == why)
        })
        .await;
    all[0].clone()
}

/// Waits until the autoscaler says that so much of the queue falls to each replica.
async fn until_average(kit: &Kit, wanted: &str) {
    let average = |one: &HorizontalPodAutoscaler| {
        let metrics = one.status.as_ref()?.current_metrics.as_ref()?;
        metrics.first()?.external.as_ref()?.current.average_value.clone()
    };
    kit.until(kit.api::<HorizontalPodAutoscaler>(), wanted, |all| {
        all.iter().any(|one| average(one).is_some_and(|average| average.0 == wanted))
    })
    .await;
}

fn state(autoscaler: &HorizontalPodAutoscaler, kind: &str) -> (String, String) {
    let conditions = autoscaler.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let found = conditions.into_iter().find(|one| one.type_ == kind);
    found.map(|one| (one.status, one.message.unwrap_or_default())).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn autoscalers_keep_to_their_bounds_and_to_metrics_that_work() {
    let kit = Kit::cluster(1).await;
    let load = Arc::new(Load::default());
    let port = serve(&kit, &load).await;
    register(&kit, port).await;
    let mut wanted = deployment("web", 3, "v1");
    wanted["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({ "requests": { "memory": "10Mi" } });
    kit.create::<Deployment>(wanted).await;
    kit.until_pods("three pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 3).await;

    // The version of the target is a hint; a kind that nobody knows is not.
    let target = |kind: &str| json!({ "apiVersion": "apps/v1beta1", "kind": kind, "name": "web" });
    let queue = |amount: &str| json!({ "type": "External", "external": { "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": amount } } });
    let memory = json!({ "type": "ContainerResource", "containerResource": { "name": "memory", "container": "c", "target": { "type": "Utilization", "averageUtilization": 100 } } });
    let hits = json!({ "type": "Object", "object": { "metric": { "name": "hits" }, "describedObject": { "apiVersion": "v1", "kind": "Service", "name": "web" },
        "target": { "type": "Value", "value": "1" } } });
    let broken = json!({ "type": "Pods", "pods": { "metric": { "name": "x" }, "target": { "type": "AverageValue", "averageValue": "1" } } });
    kit.create::<HorizontalPodAutoscaler>(json!({ "metadata": { "name": "web" }, "spec": {
        "scaleTargetRef": target("Nothing"), "maxReplicas": 2, "metrics": [memory],
    } }))
    .await;
    let why = kit.until_event("FailedGetScale").await;
    assert_eq!(why, "no matches for kind \"Nothing\" in group \"apps\"");
    let one = kit
        .until(kit.api::<HorizontalPodAutoscaler>(), "a complaint", |all| {
            all.iter().any(|one| reason(one, "AbleToScale") == "FailedGetScale")
        })
        .await;
    assert_eq!(one[0].status.as_ref().unwrap().observed_generation, None);

    // Above the most: down to it at once, and nothing is said of what was not looked at.
    change::<HorizontalPodAutoscaler>(&kit, json!({ "scaleTargetRef": target("Deployment") })).await;
    until_replicas(&kit, 2).await;
    assert_eq!(
        kit.until_event("SuccessfulRescale").await,
        "New size: 2; reason: Current number of replicas above Spec.MaxReplicas"
    );
    let one = until_says(&kit, "AbleToScale", "SucceededRescale").await;
    assert_eq!(
        (reason(&one, "ScalingLimited"), reason(&one, "ScaledToZero")),
        (String::new(), "NotScaledToZero".into())
    );
    kit.until_pods("two pods", |pods| pods.len() == 2 && pods.iter().all(|pod| is_ready(pod))).await;

    // What was there at first counts as recommended. What is shown is in the units of metrics servers.
    change::<HorizontalPodAutoscaler>(&kit, json!({ "maxReplicas": 9 })).await;
    until_replicas(&kit, 3).await;
    let one = until_says(&kit, "ScalingLimited", "DesiredWithinRange").await;
    let metrics = one.status.as_ref().unwrap().current_metrics.clone().unwrap();
    let shown = &metrics[0].container_resource.as_ref().unwrap().current;
    assert_eq!((shown.average_value.as_ref().unwrap().0.as_str(), shown.average_utilization), ("10Mi", Some(100)));
    let (_, message) = state(&one, "ScalingActive");
    assert!(message.ends_with("from memory container resource utilization (percentage of request)"), "{message}");

    kit.until_pods("three pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 3).await;

    // A metric that fails does not keep the others from growing, twice as many at once and no more.
    load.queue.store(100, Ordering::SeqCst);
    load.requests_milli.store(500, Ordering::SeqCst);
    change::<HorizontalPodAutoscaler>(&kit, json!({ "metrics": [
        { "type": "External", "external": { "metric": { "name": "queue", "selector": { "matchLabels": { "a": "b" } } }, "target": { "type": "AverageValue", "averageValue": "10" } } },
        { "type": "Object", "object": { "metric": { "name": "x" }, "describedObject": { "kind": "Nothing", "name": "web" }, "target": { "type": "Value", "value": "1" } } },
        hits,
    ] }))
    .await;
    until_replicas(&kit, 6).await;
    let one = until_says(&kit, "AbleToScale", "SucceededRescale").await;
    let shown = one.status.as_ref().unwrap().current_metrics.clone().unwrap();
    let kinds: Vec<&str> = shown.iter().map(|metric| metric.type_.as_str()).collect();
    assert_eq!((kinds, reason(&one, "ScalingLimited")), (vec!["External", "", "Object"], "ScaleUpLimit".to_owned()));
    assert_eq!(shown[2].object.as_ref().unwrap().current.value.as_ref().unwrap().0, "500m");
    let (is, message) = state(&one, "ScalingActive");
    let name = "external metric queue(&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},})";
    assert_eq!(
        (is.as_str(), message.strip_prefix("the HPA was able to successfully calculate a replica count from ")),
        ("True", Some(name))
    );
    let why = kit.until_event("FailedGetObjectMetric").await;
    assert_eq!(why, "unable to get metric x on Nothing test/web: no matches for kind \"Nothing\" in group \"\"");
    kit.until_pods("six pods", |pods| pods.iter().filter(|pod| is_ready(pod)).count() == 6).await;

    // But it keeps them from shrinking.
    load.queue.store(0, Ordering::SeqCst);
    let now = json!({ "scaleDown": { "stabilizationWindowSeconds": 0 } });
    change::<HorizontalPodAutoscaler>(&kit, json!({ "metrics": [queue("10"), { "type": "Object", "object": {
        "metric": { "name": "x" }, "describedObject": { "kind": "Nothing", "name": "web" }, "target": { "type": "AverageValue", "averageValue": "1" } } }],
        "behavior": now.clone() }))
    .await;
    let one = until_says(&kit, "ScalingActive", "FailedGetObjectMetric").await;
    assert_eq!(one.status.as_ref().unwrap().desired_replicas, 6);

    // The last replica goes where that is allowed, and comes back when something outside asks for it.
    change::<HorizontalPodAutoscaler>(&kit, json!({ "metrics": [queue("10")], "minReplicas": 0 })).await;
    until_replicas(&kit, 0).await;
    let one = until_says(&kit, "ScaledToZero", "ScaledToZero").await;
    assert_eq!(one.status.as_ref().unwrap().desired_replicas, 0);
    kit.until_pods("no pods", |pods| pods.is_empty()).await;
    load.queue.store(15, Ordering::SeqCst);
    change::<HorizontalPodAutoscaler>(&kit, json!({ "maxReplicas": 8 })).await;
    until_replicas(&kit, 2).await;
    until_says(&kit, "ScaledToZero", "NotScaledToZero").await;

    // Somebody else took the last: it stays at that, whatever the metrics say.
    change::<Deployment>(&kit, json!({ "replicas": 0 })).await;
    change::<HorizontalPodAutoscaler>(&kit, json!({ "maxReplicas": 7, "metrics": [queue("10"), broken] })).await;
    let one = until_says(&kit, "ScalingActive", "ScalingDisabled").await;
    let status = one.status.as_ref().unwrap();
    assert_eq!((status.current_replicas, status.desired_replicas, &status.current_metrics), (None, 0, &None));
    kit.stop().await;
}

/// Nothing in the API changes when a load does: each autoscaler is looked at again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn loads_that_change_are_seen_without_a_change_of_any_object() {
    let settings = ferry_controllers::Autoscaling {
        sync_period: Duration::from_millis(200),
        tolerance: 0.5,
        ..Default::default()
    };
    let kit = Kit::cluster_with(1, |config| ferry_controllers::Config { autoscaling: settings, ..config }).await;
    let load = Arc::new(Load::default());
    load.queue.store(2, Ordering::SeqCst);
    let port = serve(&kit, &load).await;
    register(&kit, port).await;
    kit.create::<Deployment>(deployment("web", 2, "v1")).await;
    let queue = json!({ "type": "External", "external": { "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": "1" } } });
    kit.create::<HorizontalPodAutoscaler>(json!({ "metadata": { "name": "web" }, "spec": {
        "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" }, "maxReplicas": 9, "metrics": [queue],
    } }))
    .await;
    // As many replicas count as the Deployment's status has, as with upstream's; the autoscaler's own status tells how many
    // it saw. Only when it has seen both of them is half as much again tolerated.
    until_average(&kit, "1").await;
    load.queue.store(3, Ordering::SeqCst);
    until_average(&kit, "1500m").await;
    assert_eq!(kit.api::<Deployment>().get("web").await.unwrap().spec.replicas, Some(2));
    load.queue.store(4, Ordering::SeqCst);
    until_replicas(&kit, 4).await;
    kit.stop().await;
}
