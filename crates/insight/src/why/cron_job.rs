//! CronJobs that do not fire, or whose Jobs fail.

use ferry_meta::object;
use ferry_semantics::cron::Schedule;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::admission::Refusal;
use super::{Finding, Reason, job, said};
use crate::world::{World, event_time, number, standing, time_at, word};

/// The controller needs no more than this after the time has come.
const SLACK_SECONDS: i64 = 30;
const HOUR_SECONDS: i64 = 3600;

pub(super) fn findings(world: &World, target: &Value) -> Vec<Finding> {
    let (namespace, name) = (object::namespace(target), object::name(target));
    let finding = |reason: Reason, cause: String| Finding::new(reason, target, cause);
    let edit = format!("kubectl edit -n {namespace} cronjob/{name}");
    if target.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true) {
        let command = format!("kubectl patch cronjob -n {namespace} {name} -p '{{\"spec\":{{\"suspend\":false}}}}'");
        return vec![
            finding(Reason::CronSuspended, "it is suspended (spec.suspend), and starts no Jobs".into())
                .note()
                .advise(command),
        ];
    }
    let (line, zone_name) = (object::text(target, "/spec/schedule"), object::text(target, "/spec/timeZone"));
    if let Some(event) = world.event(target, &["UnknownTimeZone"]) {
        let cause = format!("it starts no Jobs: its timeZone {zone_name:?} is not known");
        return vec![finding(Reason::CronZone, cause).detail(said(event)).advise(format!("correct it: {edit}"))];
    }
    let zone = if zone_name.is_empty() { TimeZone::UTC } else { TimeZone::get(zone_name).unwrap_or(TimeZone::UTC) };
    let schedule = match Schedule::parse(line) {
        Ok(schedule) => schedule,
        Err(why) => {
            let cause = format!("it starts no Jobs: its schedule {line:?} cannot be read");
            return vec![finding(Reason::CronNeverFires, cause).detail(why).advise(format!("correct it: {edit}"))];
        }
    };
    if schedule.next(world.now, &zone).is_none() {
        let cause = format!("it never starts a Job: no day of the calendar fits its schedule {line:?}");
        return vec![finding(Reason::CronNeverFires, cause).advise(format!("correct it: {edit}"))];
    }
    let jobs: Vec<&Value> = world.owned("jobs", target).collect();
    let newest = jobs.iter().copied().max_by_key(|job| time_at(job, "/metadata/creationTimestamp"));
    if let Some(held) = forbidden(world, target, &jobs, &schedule, &zone) {
        return vec![held];
    }
    // A Job that has just begun tells nothing yet: the last one that ended does.
    let over = |job: &&&Value| standing(job, "Complete", "True").or_else(|| standing(job, "Failed", "True")).is_some();
    let ended = jobs.iter().filter(over).max_by_key(|job| time_at(job, "/metadata/creationTimestamp"));
    if let Some(last) = ended.filter(|job| standing(job, "Failed", "True").is_some())
        && let Some(inner) = job::findings(world, last).into_iter().next()
    {
        let cause = format!("its last Job that ended, {}, failed", object::name(last));
        return vec![finding(Reason::CronFailed, cause).because_of(inner)];
    }
    if let Some(newest) = newest {
        // A Job at work is as it should be; one that is stuck is not.
        let stuck = job::findings(world, newest).into_iter();
        let stuck: Vec<Finding> = stuck.filter(|inner| !inner.underway && !inner.note).collect();
        if !stuck.is_empty() {
            return stuck;
        }
    }
    let missed = refused(world, target, newest).or_else(|| missed(world, target, newest, &schedule, &zone));
    let missed = missed.or_else(|| not_kept(world, target, &jobs));
    missed.or_else(|| replaced(world, target, &jobs)).into_iter().collect()
}

/// The API server takes no Job of it.
fn refused(world: &World, target: &Value, newest: Option<&Value>) -> Option<Finding> {
    let refused = world.event(target, &["FailedCreate"])?;
    // One that could be made later shows that what was in the way is gone.
    if newest.is_some_and(|job| time_at(job, "/metadata/creationTimestamp") > event_time(refused)) {
        return None;
    }
    let edit = format!("kubectl edit -n {} cronjob/{}", object::namespace(target), object::name(target));
    let told = object::text(refused, "/message");
    let (cause, advice) = match Refusal::read(told) {
        Refusal::QuotaExceeded { quota } => {
            let namespace = object::namespace(target);
            let cause = format!(
                "its Jobs are refused: the ResourceQuota {quota:?} of namespace {namespace} does not allow them"
            );
            (cause, format!("raise it: kubectl edit -n {namespace} resourcequota/{}", word(&quota)))
        }
        _ => (
            "its Jobs are refused by the API server".to_owned(),
            format!("change the template as the message says: {edit}"),
        ),
    };
    Some(Finding::new(Reason::CronRefused, target, cause).detail(told).advise(advice))
}

/// Jobs that failed may be gone at once (failedJobsHistoryLimit, ttlSecondsAfterFinished): what its controller saw is left.
fn not_kept(world: &World, target: &Value, jobs: &[&Value]) -> Option<Finding> {
    let began = time_at(target, "/status/lastScheduleTime")?;
    let done = time_at(target, "/status/lastSuccessfulTime");
    if !jobs.is_empty() || world.seen("jobs").is_none() || done.is_some_and(|done| done >= began) {
        return None;
    }
    let saw = world.event(target, &["SawCompletedJob"]).filter(|event| event_time(event) >= Some(began))?;
    let told = object::text(saw, "/message");
    // `Saw completed job: NAME, condition: Failed`; before, `status`.
    told.ends_with(": Failed").then(|| {
        let edit = format!("kubectl edit -n {} cronjob/{}", object::namespace(target), object::name(target));
        Finding::new(Reason::CronFailed, target, "its last Job failed, and is not kept")
            .probably()
            .detail(said(saw))
            .advise(format!(
                "to see why, keep those that fail: failedJobsHistoryLimit: 1, and no ttlSecondsAfterFinished: {edit}"
            ))
    })
}

/// Each Job is ended for the next one before it has done its work.
fn replaced(world: &World, target: &Value, jobs: &[&Value]) -> Option<Finding> {
    if object::text(target, "/spec/concurrencyPolicy") != "Replace" {
        return None;
    }
    let ended =
        world.events(target).into_iter().filter(|event| object::text(event, "/reason") == "SuccessfulDelete").count();
    let done = time_at(target, "/status/lastSuccessfulTime");
    let began = time_at(target, "/status/lastScheduleTime")?;
    let over = |job: &Value| standing(job, "Complete", "True").or_else(|| standing(job, "Failed", "True")).is_some();
    let finishes = jobs.iter().any(|job| over(job));
    // One that is replaced now and then is what the policy is for; where none ever ends, nothing is done.
    if ended < 2 || finishes || done.is_some_and(|done| began.as_second() - done.as_second() < HOUR_SECONDS) {
        return None;
    }
    let never = if done.is_none() {
        "none of its Jobs has ever ended well"
    } else {
        "none of its Jobs has ended well for long"
    };
    let cause = format!("{never}: each is replaced by the next one before it is done (concurrencyPolicy Replace)");
    let edit = format!("kubectl edit -n {} cronjob/{}", object::namespace(target), object::name(target));
    Some(
        Finding::new(Reason::CronReplaces, target, cause)
            .detail(format!("its schedule is {:?}", object::text(target, "/spec/schedule")))
            .advise(format!("let it fire less often, or use concurrencyPolicy: Forbid: {edit}")),
    )
}

/// When the next Job is due, as far as its schedule can be read.
pub(crate) fn next(world: &World, target: &Value) -> Option<Timestamp> {
    let zone = match object::text(target, "/spec/timeZone") {
        "" => TimeZone::UTC,
        name => TimeZone::get(name).ok()?,
    };
    let suspended = target.pointer("/spec/suspend").and_then(Value::as_bool) == Some(true);
    let schedule = Schedule::parse(object::text(target, "/spec/schedule")).ok().filter(|_| !suspended)?;
    schedule.next(world.now, &zone)
}

/// When the last Job was due, since it was last seen to.
fn due(world: &World, target: &Value, schedule: &Schedule, zone: &TimeZone) -> Option<Timestamp> {
    let since =
        time_at(target, "/status/lastScheduleTime").or_else(|| time_at(target, "/metadata/creationTimestamp"))?;
    schedule.latest(since, world.now, zone)
}

/// The Job before still runs, and no second may run beside it.
fn forbidden(world: &World, target: &Value, jobs: &[&Value], schedule: &Schedule, zone: &TimeZone) -> Option<Finding> {
    if object::text(target, "/spec/concurrencyPolicy") != "Forbid" {
        return None;
    }
    let over = |job: &Value| standing(job, "Complete", "True").or_else(|| standing(job, "Failed", "True")).is_some();
    let running = jobs.iter().find(|job| !over(job))?;
    let due = due(world, target, schedule, zone)?;
    let name = object::name(running);
    let cause = format!(
        "it skips its times (the last at {}): job/{name} still runs, and concurrencyPolicy is Forbid",
        ferry_meta::time::time(due)
    );
    let finding = Finding::new(Reason::CronForbid, target, cause);
    let finding = match job::findings(world, running).into_iter().next() {
        Some(inner) => Finding { underway: false, ..finding.because_of(inner) },
        None => finding,
    };
    Some(finding.advise(format!("let it end, or end it: kubectl delete job -n {} {name}", object::namespace(target))))
}

fn missed(
    world: &World,
    target: &Value,
    newest: Option<&Value>,
    schedule: &Schedule,
    zone: &TimeZone,
) -> Option<Finding> {
    let due = due(world, target, schedule, zone)?;
    let late = world.now.as_second() - due.as_second();
    if late <= SLACK_SECONDS || newest.is_some_and(|job| time_at(job, "/metadata/creationTimestamp") >= Some(due)) {
        return None;
    }
    let edit = format!("kubectl edit -n {} cronjob/{}", object::namespace(target), object::name(target));
    let event = world
        .event(target, &["MissSchedule", "TooManyMissedTimes", "FailedNeedsStart", "FailedCreate", "UnexpectedJob"]);
    let deadline = number(target, "/spec/startingDeadlineSeconds");
    let when = ferry_meta::time::time(due);
    if deadline > 0 && late > deadline {
        let cause =
            format!("its Job of {when} was not started within startingDeadlineSeconds={deadline}, and is left out");
        return Some(
            Finding::new(Reason::CronMissed, target, cause)
                .detail(event.map(said).unwrap_or_default())
                .advise(format!("raise startingDeadlineSeconds, or take it away: {edit}")),
        );
    }
    let cause = format!("its Job of {when} has not been started");
    Some(
        Finding::new(Reason::CronBehind, target, cause)
            .detail(event.map(said).unwrap_or_default())
            .advise("see that the controllers run: ferry up, ferry controller-manager or kube-controller-manager"),
    )
}
