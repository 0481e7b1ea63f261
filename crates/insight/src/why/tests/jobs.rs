//! Jobs and CronJobs.

use serde_json::{Value, json};

use super::super::Reason;
use super::{Situation, check_all, one, owned, pod, ready_pod};

#[test]
fn jobs() {
    let failed = |reason: &str| json!({ "spec": { "backoffLimit": 2, "activeDeadlineSeconds": 30 }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": reason, "message": "m" }] } });
    let bad = pod(
        json!({ "status": { "phase": "Failed", "containerStatuses": [{ "name": "c", "state": { "terminated": { "exitCode": 3 } } }] } }),
    );
    let cron = |spec: Value, jobs: Value, status: Value| {
        one("CronJob", json!({ "spec": spec, "status": status }), &[("jobs", jobs)])
    };
    let owner = json!([{ "uid": "x", "controller": true }]);
    let running = json!([{ "kind": "Job", "metadata": { "name": "j", "namespace": "d", "uid": "j", "ownerReferences": owner, "creationTimestamp": "2026-01-01T11:10:00Z" }, "status": { "active": 1 } }]);
    let broken = json!([{ "kind": "Job", "metadata": { "name": "j", "namespace": "d", "uid": "j", "ownerReferences": owner, "creationTimestamp": "2026-01-01T11:59:30Z" }, "status": { "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] } }]);
    let late = json!({ "lastScheduleTime": "2026-01-01T11:10:00Z" });
    let rows: Vec<Situation<'_>> = vec![
        (
            "back-off",
            owned("Job", failed("BackoffLimitExceeded"), std::slice::from_ref(&bad), &[]),
            Reason::BackoffLimit,
            &["backoffLimit=2", "exit code 3", "kubectl delete -n d job/x"],
        ),
        (
            "deadline",
            owned("Job", failed("DeadlineExceeded"), &[], &[]),
            Reason::JobDeadline,
            &["activeDeadlineSeconds of 30 s"],
        ),
        ("policy", owned("Job", failed("PodFailurePolicy"), &[], &[]), Reason::PodFailurePolicy, &["podFailurePolicy"]),
        (
            "suspended",
            owned("Job", json!({ "spec": { "suspend": true } }), &[], &[]),
            Reason::JobSuspended,
            &["nothing holds it up", "kubectl patch job -n d x"],
        ),
        (
            "somebody's",
            owned("Job", json!({ "spec": { "managedBy": "acme.io/queue" } }), &[], &[]),
            Reason::JobManaged,
            &["acme.io/queue"],
        ),
        (
            "none at a time",
            owned("Job", json!({ "spec": { "parallelism": 0 } }), &[], &[]),
            Reason::JobSuspended,
            &["nothing holds it up", "parallelism is 0"],
        ),
        (
            "again at work",
            owned("Job", json!({ "status": { "active": 1 } }), &[bad, ready_pod()], &[]),
            Reason::JobRunning,
            &["on its way", "1 failed attempt so far; backoffLimit is 6"],
        ),
        (
            "cron suspended",
            cron(json!({ "suspend": true, "schedule": "* * * * *" }), json!([]), json!({})),
            Reason::CronSuspended,
            &["nothing holds it up", "kubectl patch cronjob -n d x"],
        ),
        (
            "never",
            cron(json!({ "schedule": "0 0 31 2 *" }), json!([]), json!({})),
            Reason::CronNeverFires,
            &["no day of the calendar"],
        ),
        (
            "forbid",
            cron(json!({ "schedule": "* * * * *", "concurrencyPolicy": "Forbid" }), running.clone(), late.clone()),
            Reason::CronForbid,
            &["job/j still runs", "Forbid", "kubectl delete job -n d j"],
        ),
        (
            "failed",
            cron(json!({ "schedule": "* * * * *" }), broken, json!({ "lastScheduleTime": "2026-01-01T11:59:30Z" })),
            Reason::CronFailed,
            &["its last Job that ended, j, failed", "backoffLimit"],
        ),
        (
            "missed",
            cron(
                json!({ "schedule": "0 * * * *", "startingDeadlineSeconds": 10 }),
                json!([]),
                json!({ "lastScheduleTime": "2026-01-01T10:00:00Z" }),
            ),
            Reason::CronBehind,
            &["has not been started"],
        ),
    ];
    // At 12:00 sharp the Job of 12:00 is due now; a minute later its deadline is over.
    let mut rows = rows;
    if let Some(last) = rows.last_mut() {
        last.1.now = ferry_meta::time::parse("2026-01-01T12:01:00Z").unwrap();
        last.2 = Reason::CronMissed;
        last.3 = &["startingDeadlineSeconds=10"];
    }
    check_all(&rows);
}
