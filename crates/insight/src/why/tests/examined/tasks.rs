//! Jobs and CronJobs.

use serde_json::json;

use super::*;

fn job(parts: Value) -> Value {
    with(
        made(
            "Job",
            "j",
            json!({ "spec": { "parallelism": 2, "completions": 5, "backoffLimit": 6 }, "status": { "active": 1 } }),
        ),
        &parts,
    )
}

fn attempt(name: &str, phase: &str, code: i64) -> Value {
    let ended = json!({ "metadata": { "name": name, "uid": name }, "status": { "phase": phase, "containerStatuses": [{ "name": "c", "restartCount": 0, "state": { "terminated": { "exitCode": code, "reason": "Error" } } }] } });
    let running = json!({ "metadata": { "name": name, "uid": name } });
    let pod = if phase == "Running" { serving(running) } else { pod(ended) };
    with(pod, &with(owner("batch/v1", "Job", "j"), &json!({ "spec": { "restartPolicy": "Never" } })))
}

#[test]
fn what_ends() {
    let indexed =
        json!({ "spec": { "completionMode": "Indexed", "backoffLimitPerIndex": 1, "backoffLimit": 2147483647 } });
    let done = json!({ "status": { "conditions": [{ "type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy", "message": "Matched rules at index 0" }, { "type": "Complete", "status": "True", "reason": "SuccessPolicy" }], "succeeded": 1 } });
    let cron = |parts: Value| {
        with(
            made(
                "CronJob",
                "c",
                json!({ "spec": { "schedule": "0 * * * *", "jobTemplate": {} }, "status": { "lastScheduleTime": "2026-01-01T11:00:00Z" } }),
            ),
            &parts,
        )
    };
    let completed = |told: &str| {
        with(
            warned("CronJob/c", "SawCompletedJob", told),
            &json!({ "type": "Normal", "lastTimestamp": "2026-01-01T11:02:00Z" }),
        )
    };
    let cases: Vec<Case<'_>> = vec![
        (
            "an index that has failed for good",
            "job/j",
            json!([
                job(with(indexed.clone(), &json!({ "status": { "failedIndexes": "1,3", "completedIndexes": "0" } }))),
                attempt("j-1-aaaaa", "Failed", 3),
                attempt("j-2-bbbbb", "Running", 0)
            ]),
            Stuck(Reason::FailedIndexes),
            &["1,3", "backoffLimitPerIndex", "exit code 3"],
        ),
        (
            "an index that is tried again",
            "job/j",
            json!([job(indexed), attempt("j-1-aaaaa", "Failed", 3), attempt("j-2-bbbbb", "Running", 0)]),
            Way(Reason::JobRunning),
            &["backoffLimitPerIndex is 1", "!2147483647"],
        ),
        ("enough of it is done", "job/j", json!([job(done)]), Well, &[]),
        (
            "every attempt failed, and the next waits",
            "job/j",
            json!([
                job(json!({ "status": { "active": 0, "failed": 2 } })),
                attempt("j-aaaaa", "Failed", 3),
                attempt("j-bbbbb", "Failed", 3)
            ]),
            Stuck(Reason::JobRunning),
            &["each of its 2 pods so far has failed"],
        ),
        (
            "its failed Jobs are not kept",
            "cronjob/c",
            json!([
                cron(json!({ "spec": { "failedJobsHistoryLimit": 0 } })),
                completed("Saw completed job: c-29, condition: Failed")
            ]),
            Stuck(Reason::CronFailed),
            &["probably", "condition: Failed"],
        ),
        (
            "its Jobs are done and not kept",
            "cronjob/c",
            json!([
                cron(
                    json!({ "spec": { "successfulJobsHistoryLimit": 0 }, "status": { "lastSuccessfulTime": "2026-01-01T11:02:00Z" } })
                ),
                completed("Saw completed job: c-29, condition: Complete")
            ]),
            Well,
            &[],
        ),
        (
            "failed before, and done since",
            "cronjob/c",
            json!([
                cron(json!({ "status": { "lastSuccessfulTime": "2026-01-01T11:03:00Z" } })),
                completed("Saw completed job: c-29, condition: Failed")
            ]),
            Well,
            &[],
        ),
        (
            "kept by a queue",
            "job/j",
            json!([job(
                json!({ "spec": { "suspend": true }, "metadata": { "labels": { "kueue.x-k8s.io/queue-name": "team-a" } }, "status": { "active": 0 } })
            )]),
            Note(Reason::JobSuspended),
            &["kueue.x-k8s.io/queue-name", "!kubectl patch job"],
        ),
        (
            "suspended by hand",
            "job/j",
            json!([job(json!({ "spec": { "suspend": true } }))]),
            Note(Reason::JobSuspended),
            &["kubectl patch job -n d j"],
        ),
        (
            "an exit code that ends it",
            "job/j",
            json!([
                job(
                    json!({ "spec": { "podFailurePolicy": { "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }] } }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "PodFailurePolicy", "message": "Container c for pod d/j-aaaaa failed with exit code 42 matching FailJob rule at index 0" }] } })
                ),
                attempt("j-aaaaa", "Failed", 42)
            ]),
            Stuck(Reason::PodFailurePolicy),
            &["exit code 42", "rule at index 0"],
        ),
    ];
    examine(&cases);
}
