//! What ends a Job early or late: policies for failures and successes, limits per index, suspension.

use ferry_client::Api;
use ferry_testbed::Kit;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};

fn job(name: &str, run_for: &str, exit_code: i32, spec: Value) -> Value {
    let mut job = json!({ "metadata": { "name": name }, "spec": { "template": {
        "metadata": { "annotations": {
            ferry_simulator::annotation::RUN_FOR: run_for, ferry_simulator::annotation::EXIT_CODE: exit_code.to_string(),
        } },
        "spec": { "restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [{ "name": "c", "image": "i" }] },
    } } });
    for (name, value) in spec.as_object().unwrap() {
        job["spec"][name] = value.clone();
    }
    job
}

/// Conditions that hold, with their reasons.
fn told(status: &JobStatus) -> Vec<(String, String)> {
    let conditions = status.conditions.iter().flatten().filter(|condition| condition.status == "True");
    conditions.map(|one| (one.type_.clone(), one.reason.clone().unwrap_or_default())).collect()
}

async fn until_job(kit: &Kit, name: &str, what: &str, is: impl Fn(&JobStatus) -> bool) -> JobStatus {
    let status = |job: &Job| job.status.clone().unwrap_or_default();
    let all =
        kit.until(kit.api::<Job>(), what, |all| all.iter().any(|job| job.name_any() == name && is(&status(job)))).await;
    all.iter().find(|job| job.name_any() == name).map(|job| status(job)).unwrap_or_default()
}

/// Waits until the Job has that condition for that reason.
async fn until_ended(kit: &Kit, name: &str, condition: &str, reason: &str) -> JobStatus {
    let wanted = (condition.to_owned(), reason.to_owned());
    until_job(kit, name, &format!("{condition} for {reason}"), |status| told(status).contains(&wanted)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_end_jobs_or_let_failures_pass() {
    let kit = Kit::cluster(2).await;
    let on_code = |action: &str| {
        json!({ "backoffLimit": 6, "podFailurePolicy": { "rules": [
        { "action": action, "onExitCodes": { "operator": "In", "values": [42] } },
    ] } })
    };
    kit.create::<Job>(job("fatal", "0s", 42, on_code("FailJob"))).await;
    let status = until_ended(&kit, "fatal", "Failed", "PodFailurePolicy").await;
    assert_eq!((status.failed, status.active.unwrap_or_default()), (Some(1), 0));
    let message =
        status.conditions.iter().flatten().find(|one| one.type_ == "Failed").and_then(|one| one.message.clone());
    let message = message.unwrap_or_default();
    assert!(
        message.starts_with("Container c for pod test/fatal-")
            && message.ends_with(" failed with exit code 42 matching FailJob rule at index 0"),
        "{message}"
    );

    // Failures that do not count never reach the limit; another code does.
    let mut ignoring = on_code("Ignore");
    ignoring["backoffLimit"] = 0.into();
    kit.create::<Job>(job("patient", "1h", 42, ignoring.clone())).await;
    for _ in 0..2 {
        let pods = kit.until(kit.api::<Pod>(), "a running pod", |all| {
            all.iter().any(|pod| pod.name_any().starts_with("patient-") && ferry_testbed::is_ready(pod))
        });
        let first = pods
            .await
            .iter()
            .find(|pod| pod.name_any().starts_with("patient-") && ferry_testbed::is_ready(pod))
            .cloned()
            .unwrap();
        let now = json!({ "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: "0s" } } });
        kit.api::<Pod>().patch(&first.name_any(), &PatchParams::default(), &Patch::Merge(now)).await.unwrap();
        kit.until(kit.api::<Pod>(), "its successor", |all| {
            all.iter().any(|pod| {
                pod.name_any().starts_with("patient-") && pod.uid() != first.uid() && ferry_testbed::is_ready(pod)
            })
        })
        .await;
    }
    let status = until_job(&kit, "patient", "still going", |status| status.active == Some(1)).await;
    assert_eq!((status.failed.unwrap_or_default(), told(&status).len()), (0, 0));
    kit.create::<Job>(job("plain", "0s", 1, ignoring)).await;
    until_ended(&kit, "plain", "Failed", "BackoffLimitExceeded").await;
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn indexes_fail_by_themselves_and_some_are_enough() {
    let kit = Kit::cluster(2).await;
    let indexed = json!({ "completionMode": "Indexed", "completions": 3, "parallelism": 3 });
    let with = |more: Value| {
        let mut spec = indexed.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };

    // Every index has its own limit, and one that is over it does not end the others.
    kit.create::<Job>(job("each", "0s", 1, with(json!({ "backoffLimitPerIndex": 0 })))).await;
    let status = until_ended(&kit, "each", "Failed", "FailedIndexes").await;
    assert_eq!(status.failed_indexes.as_deref(), Some("0-2"));
    kit.create::<Job>(job("few", "0s", 1, with(json!({ "backoffLimitPerIndex": 0, "maxFailedIndexes": 1 })))).await;
    until_ended(&kit, "few", "Failed", "MaxFailedIndexesExceeded").await;

    // An index that must not be tried again, by the code its pod ended with.
    let once = json!({ "backoffLimitPerIndex": 5, "podFailurePolicy": { "rules": [
        { "action": "FailIndex", "onExitCodes": { "operator": "In", "values": [9] } },
    ] } });
    kit.create::<Job>(job("once", "0s", 9, with(once))).await;
    let status = until_ended(&kit, "once", "Failed", "FailedIndexes").await;
    assert_eq!((status.failed, status.failed_indexes.as_deref()), (Some(3), Some("0-2")));

    // Index 1 is enough; the others are stopped, and nothing counts them as failed.
    let enough = json!({ "successPolicy": { "rules": [{ "succeededIndexes": "1", "succeededCount": 1 }] } });
    kit.create::<Job>(job("enough", "1h", 0, with(enough))).await;
    let of = |pod: &Pod, index: &str| {
        pod.annotations().get("batch.kubernetes.io/job-completion-index").is_some_and(|known| known == index)
            && pod.labels().get("job-name").is_some_and(|name| name == "enough")
    };
    let pods = kit
        .until(kit.api::<Pod>(), "three running pods", |all| {
            ["0", "1", "2"].iter().all(|index| all.iter().any(|pod| of(pod, index) && ferry_testbed::is_ready(pod)))
        })
        .await;
    let leader = pods.iter().find(|pod| of(pod, "1")).unwrap().name_any();
    let now = json!({ "metadata": { "annotations": { ferry_simulator::annotation::RUN_FOR: "0s" } } });
    kit.api::<Pod>().patch(&leader, &PatchParams::default(), &Patch::Merge(now)).await.unwrap();
    let status = until_ended(&kit, "enough", "Complete", "SuccessPolicy").await;
    assert!(told(&status).contains(&("SuccessCriteriaMet".into(), "SuccessPolicy".into())));
    assert_eq!(
        (status.succeeded, status.failed.unwrap_or_default(), status.completed_indexes.as_deref()),
        (Some(1), 0, Some("1"))
    );
    assert_eq!((status.active.unwrap_or_default(), status.terminating.unwrap_or_default()), (0, 0));
    kit.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_job_starts_over_and_a_deleted_pod_is_replaced_once() {
    let kit = Kit::cluster(2).await;
    kit.create::<Job>(job("work", "1h", 0, json!({ "completions": 2, "parallelism": 2, "backoffLimit": 0 }))).await;
    until_job(&kit, "work", "two at work", |status| status.active == Some(2) && status.ready == Some(2)).await;
    let jobs: Api<Job> = kit.api();
    let suspend = |value: bool| Patch::Merge(json!({ "spec": { "suspend": value } }));
    jobs.patch("work", &PatchParams::default(), &suspend(true)).await.unwrap();
    let status = until_ended(&kit, "work", "Suspended", "JobSuspended").await;
    assert_eq!((status.failed.unwrap_or_default(), status.start_time), (0, None));
    kit.until_pods("no pods", |pods| pods.is_empty()).await;
    jobs.patch("work", &PatchParams::default(), &suspend(false)).await.unwrap();
    let status = until_job(&kit, "work", "two at work again", |status| status.ready == Some(2)).await;
    assert!(told(&status).is_empty() && status.start_time.is_some(), "{status:?}");

    // Deleted by hand, a pod counts as failed, as upstream's.
    let victim = kit.api::<Pod>().list(&Default::default()).await.unwrap().items.remove(0);
    kit.api::<Pod>().delete(&victim.name_any(), &DeleteParams::default()).await.unwrap();
    let status = until_ended(&kit, "work", "Failed", "BackoffLimitExceeded").await;
    assert_eq!((status.failed, status.active.unwrap_or_default()), (Some(2), 0));
    kit.stop().await;
}
