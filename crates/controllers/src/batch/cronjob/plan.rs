//! Whether a Job is to be started now, which are to go, and when to look again.

use std::sync::Arc;
use std::time::Duration;

use ferry_client::{EventType, owner};
use ferry_semantics::cron::Schedule;
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::tz::TimeZone;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use crate::batch::job::finished;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
const MANY_MISSED: usize = 100;
/// The clock of the queue and that of the schedule may differ a little.
const LEEWAY: Duration = Duration::from_millis(100);

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) create: Option<(Job, Timestamp)>,
    /// Those that run and make room for the new one.
    pub(super) replace: Vec<Arc<Job>>,
    /// Those that have ended, when the status has been written: they may be all that tells that a time was not missed.
    pub(super) delete: Vec<Arc<Job>>,
    pub(super) status: CronJobStatus,
    pub(super) events: Vec<(EventType, &'static str, String)>,
    pub(super) again: Option<Duration>,
}

impl Plan {
    fn warn(&mut self, reason: &'static str, message: String) {
        self.events.push((EventType::Warning, reason, message));
    }

    fn note(&mut self, reason: &'static str, message: String) {
        self.events.push((EventType::Normal, reason, message));
    }
}

/// `jobs` are those the CronJob controls, `started` is the time for which a Job is known to have been started.
pub(super) fn plan(cron: &CronJob, jobs: &[Arc<Job>], started: Option<Timestamp>, now: Timestamp) -> Plan {
    let mut plan = Plan { status: cron.status.clone().unwrap_or_default(), ..Plan::default() };
    plan.status.last_schedule_time = plan.status.last_schedule_time.take().max(started.map(Time));
    take_stock(jobs, &mut plan);
    if cron.metadata.deletion_timestamp.is_some() {
        return plan;
    }
    plan.delete = superfluous(cron, jobs);
    let zone = match &cron.spec.time_zone {
        None => TimeZone::UTC,
        Some(name) => match TimeZone::get(name) {
            Ok(zone) => zone,
            Err(error) => {
                plan.warn("UnknownTimeZone", format!("invalid timeZone: {name:?}: {error}"));
                return plan;
            }
        },
    };
    if cron.spec.suspend == Some(true) {
        return plan;
    }
    match Schedule::parse(&cron.spec.schedule) {
        Ok(schedule) => start(cron, jobs, &schedule, &zone, now, &mut plan),
        Err(error) => {
            plan.warn("UnparseableSchedule", format!("unparseable schedule: {:?} : {error}", cron.spec.schedule));
        }
    }
    plan
}

/// Brings the list of active Jobs up to date.
fn take_stock(jobs: &[Arc<Job>], plan: &mut Plan) {
    let active = plan.status.active.take().unwrap_or_default();
    let mut kept = Vec::new();
    for reference in active {
        match jobs.iter().find(|job| job.metadata.uid == reference.uid) {
            Some(job) => match finished(job) {
                None => kept.push(reference),
                Some(end) => {
                    let message = format!("Saw completed job: {}, condition: {}", job.name_any(), end.type_);
                    plan.note("SawCompletedJob", message);
                }
            },
            None => {
                let name = reference.name.unwrap_or_default();
                plan.note("MissingJob", format!("Active job went missing: {name}"));
            }
        }
    }
    for job in jobs {
        let listed = kept.iter().any(|reference| reference.uid == job.metadata.uid);
        // One that we created a moment before a crash is ours as well.
        let ours = job.annotations().contains_key(SCHEDULED);
        if !listed && finished(job).is_none() {
            if !ours {
                let message = format!("Saw a job that the controller did not create or forgot: {}", job.name_any());
                plan.warn("UnexpectedJob", message);
                continue;
            }
            kept.push(reference_to(job));
        }
    }
    let completions = jobs
        .iter()
        .filter(|job| finished(job).is_some_and(|end| end.type_ == "Complete"))
        .filter_map(|job| job.status.as_ref()?.completion_time.clone());
    plan.status.last_successful_time = completions.chain(plan.status.last_successful_time.take()).max();
    plan.status.active = (!kept.is_empty()).then_some(kept);
}

pub(super) fn reference_to(job: &Job) -> k8s_openapi::api::core::v1::ObjectReference {
    use kube::Resource;
    let mut reference = job.object_ref(&());
    reference.resource_version = job.metadata.resource_version.clone();
    reference
}

/// Ended Jobs beyond the limits of the history, oldest first.
fn superfluous(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<Arc<Job>> {
    let limits = [
        ("Complete", cron.spec.successful_jobs_history_limit.unwrap_or(3)),
        ("Failed", cron.spec.failed_jobs_history_limit.unwrap_or(1)),
    ];
    let mut chosen = Vec::new();
    for (kind, limit) in limits {
        let ended = |job: &&Arc<Job>| {
            finished(job).is_some_and(|end| end.type_ == kind) && job.metadata.deletion_timestamp.is_none()
        };
        let mut list: Vec<&Arc<Job>> = jobs.iter().filter(ended).collect();
        list.sort_by_key(|job| {
            let start = job.status.as_ref().and_then(|status| status.start_time.clone());
            (start.is_none(), start, job.name_any())
        });
        let surplus = list.len().saturating_sub(usize::try_from(limit).unwrap_or_default());
        chosen.extend(list.into_iter().take(surplus).cloned());
    }
    chosen
}

fn start(cron: &CronJob, jobs: &[Arc<Job>], schedule: &Schedule, zone: &TimeZone, now: Timestamp, plan: &mut Plan) {
    let last = plan.status.last_schedule_time.as_ref().map(|time| time.0);
    let created = cron.metadata.creation_timestamp.as_ref().map(|time| time.0).unwrap_or(now);
    let mut since = last.unwrap_or(created);
    let deadline = cron.spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    if let Some(earliest) = deadline.and_then(|deadline| now.checked_sub(deadline).ok()) {
        since = since.max(earliest);
    }
    let anchor = last.unwrap_or(created);
    let due = schedule.latest(since, now, zone);
    let next = |from: Timestamp| {
        let next = schedule.next(from, zone)?;
        Some(Duration::try_from(next.duration_since(now)).unwrap_or_default() + LEEWAY)
    };
    // Upstream's words for a time that never comes, such as the 31st of February.
    if due.is_none() && schedule.next(since, zone).is_none() {
        let why = "time difference between two schedules is less than 1 second";
        plan.warn("InvalidSchedule", format!("invalid schedule: {} : {why}", cron.spec.schedule));
        return;
    }
    let Some(due) = due else {
        plan.again = next(if schedule.is_interval() { anchor } else { now });
        return;
    };
    plan.again = next(due.max(now));
    let missed = std::iter::successors(schedule.next(since, zone), |at| schedule.next(*at, zone));
    if missed.take(MANY_MISSED + 1).take_while(|at| *at <= now).count() > MANY_MISSED {
        let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
        plan.warn("TooManyMissedTimes", message.into());
    }
    let name = format!("{}-{}", cron.name_any(), due.as_second().div_euclid(60));
    let active = plan.status.active.clone().unwrap_or_default();
    if active.iter().any(|job| job.name.as_ref() == Some(&name)) || last == Some(due) {
        return;
    }
    // Created before a crash, or by somebody who did not get to say so.
    if jobs.iter().any(|job| job.name_any() == name) {
        plan.status.last_schedule_time = Some(Time(due));
        return;
    }
    match cron.spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
            plan.note("JobAlreadyActive", message.into());
            return;
        }
        Some("Replace") => {
            let running = jobs.iter().filter(|job| active.iter().any(|known| known.uid == job.metadata.uid));
            plan.replace.extend(running.cloned());
            plan.status.active = None;
        }
        _ => {}
    }
    plan.create = Some((make(cron, name, due, zone), due));
}

fn make(cron: &CronJob, name: String, due: Timestamp, zone: &TimeZone) -> Job {
    let template = cron.spec.job_template.clone();
    let meta = template.metadata.unwrap_or_default();
    let mut annotations = meta.annotations.unwrap_or_default();
    let local = due.to_zoned(zone.clone());
    let text = if local.offset().is_zero() {
        due.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    } else {
        local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()
    };
    annotations.insert(SCHEDULED.into(), text);
    Job {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: cron.metadata.namespace.clone(),
            labels: meta.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![owner::controller_reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn cron(spec: Value, status: Value) -> CronJob {
        let mut json = json!({
            "metadata": { "name": "c", "namespace": "a", "uid": "u", "creationTimestamp": "2026-01-01T00:00:30Z" },
            "spec": { "schedule": "*/10 * * * *", "jobTemplate": { "spec": { "template": {} } } },
            "status": status,
        });
        for (key, value) in spec.as_object().expect("a spec") {
            json["spec"][key] = value.clone();
        }
        serde_json::from_value(json).expect("a CronJob")
    }

    fn job(name: &str, end: Option<&str>) -> Arc<Job> {
        let conditions: Vec<Value> = end.map(|kind| json!({ "type": kind, "status": "True" })).into_iter().collect();
        let json = json!({
            "metadata": { "name": name, "uid": name, "annotations": { SCHEDULED: "" } },
            "status": { "conditions": conditions, "completionTime": end.map(|_| "2026-01-01T00:05:00Z") },
        });
        Arc::new(serde_json::from_value(json).expect("a job"))
    }

    fn check(spec: Value, status: Value, jobs: &[Arc<Job>], now: &str, expected: &str) {
        let made = plan(&cron(spec.clone(), status), jobs, None, now.parse().expect("a time"));
        let mut words: Vec<String> = Vec::new();
        words.extend(made.create.as_ref().map(|(job, _)| format!("+{}", job.name_any())));
        words.extend(made.replace.iter().chain(&made.delete).map(|job| format!("-{}", job.name_any())));
        words.extend(made.events.iter().map(|(_, reason, _)| (*reason).to_owned()));
        words.extend(made.again.map(|again| format!("@{}", again.as_secs())));
        assert_eq!(words.join(" "), expected, "{spec} at {now}");
    }

    #[test]
    fn jobs_start_by_the_clock() {
        check(json!({}), json!({}), &[], "2026-01-01T00:09:00Z", "@60");
        check(json!({}), json!({}), &[], "2026-01-01T00:10:01Z", "+c-29453770 @599");
        let done = json!({ "lastScheduleTime": "2026-01-01T00:10:00Z" });
        check(json!({}), done.clone(), &[], "2026-01-01T00:10:02Z", "@598");
        check(json!({ "suspend": true }), json!({}), &[], "2026-01-01T00:10:02Z", "");
        check(json!({ "schedule": "nonsense" }), json!({}), &[], "2026-01-01T00:10:02Z", "UnparseableSchedule");
        check(json!({ "schedule": "0 0 31 2 *" }), json!({}), &[], "2026-01-01T00:10:02Z", "InvalidSchedule");
        check(json!({ "timeZone": "Nowhere" }), json!({}), &[], "2026-01-01T00:10:02Z", "UnknownTimeZone");
        check(json!({ "startingDeadlineSeconds": 30 }), json!({}), &[], "2026-01-01T00:11:00Z", "@540");
        check(json!({}), json!({}), &[], "2026-01-02T00:00:00Z", "+c-29455200 TooManyMissedTimes @600");
    }

    /// The cache does not show yet what was written, and the Job has come and gone since.
    #[test]
    fn a_time_is_not_started_twice() {
        let at = |text: &str| text.parse::<Timestamp>().expect("a time");
        let stale = cron(json!({}), json!({ "lastScheduleTime": "2026-01-01T00:00:00Z" }));
        let made = plan(&stale, &[], Some(at("2026-01-01T00:10:00Z")), at("2026-01-01T00:10:05Z"));
        assert!(made.create.is_none());
        assert_eq!(made.status.last_schedule_time, Some(Time(at("2026-01-01T00:10:00Z"))));
        let later = plan(&stale, &[], Some(at("2026-01-01T00:10:00Z")), at("2026-01-01T00:20:00Z"));
        assert!(later.create.is_some());
        // Nor when the status was never written: the Job that has ended tells.
        let spec = json!({ "successfulJobsHistoryLimit": 0 });
        let ended = [job("c-29453770", Some("Complete"))];
        check(spec.clone(), json!({}), &ended, "2026-01-01T00:10:05Z", "-c-29453770 @595");
        let made = plan(&cron(spec, json!({})), &ended, None, at("2026-01-01T00:10:05Z"));
        assert_eq!(made.status.last_schedule_time, Some(Time(at("2026-01-01T00:10:00Z"))));
    }

    #[test]
    fn concurrency_and_history() {
        let running = json!({ "active": [{ "name": "old", "uid": "old" }] });
        let jobs = [job("old", None)];
        check(json!({}), running.clone(), &jobs, "2026-01-01T00:10:00Z", "+c-29453770 @600");
        check(
            json!({ "concurrencyPolicy": "Forbid" }),
            running.clone(),
            &jobs,
            "2026-01-01T00:10:00Z",
            "JobAlreadyActive @600",
        );
        check(
            json!({ "concurrencyPolicy": "Replace" }),
            running.clone(),
            &jobs,
            "2026-01-01T00:10:00Z",
            "+c-29453770 -old @600",
        );
        check(json!({}), running.clone(), &[], "2026-01-01T00:09:00Z", "MissingJob @60");
        check(json!({}), running, &[job("old", Some("Complete"))], "2026-01-01T00:09:00Z", "SawCompletedJob @60");
        let ended = [job("a", Some("Failed")), job("b", Some("Failed")), job("c", Some("Complete"))];
        check(json!({}), json!({}), &ended, "2026-01-01T00:09:00Z", "-a @60");
    }
}
