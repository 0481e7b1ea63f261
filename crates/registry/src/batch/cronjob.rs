//! CronJobs.

use ferry_meta::{FieldErrors, object};
use ferry_semantics::cron::Schedule;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::job;
use crate::apps::{counts, default_template, name_warning};
use crate::cells;
use crate::check;
use crate::cursor::{Cursor, Report, default_to, map_mut, object_at};
use crate::plain::Plain;
use crate::strategy::{Context, Strategy, common};

pub struct CronJob(pub Plain);

impl Strategy for CronJob {
    fn plain(&self) -> &Plain {
        &self.0
    }

    fn default(&self, object: &mut Value) {
        let spec = object_at(object, &["spec"]);
        default_to(spec, "concurrencyPolicy", "Allow");
        default_to(spec, "suspend", false);
        default_to(spec, "successfulJobsHistoryLimit", 3);
        default_to(spec, "failedJobsHistoryLimit", 1);
        spec.entry("jobTemplate").or_insert_with(|| json!({}));
        if let Some(template) = map_mut(spec, "jobTemplate") {
            template.entry("spec").or_insert_with(|| json!({}));
            if let Some(job) = map_mut(template, "spec") {
                default_template(job);
                job::default_failure_policy(job);
            }
        }
    }

    fn validate_create(&self, _context: &Context<'_>, object: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        let cron = Cursor::root(object);
        validate_spec(&mut errors, &cron.get("spec"), None);
        let name = cron.get("metadata").text("name");
        if name.len() > 52 {
            errors.invalid(cron.at("metadata").child("name"), name, "must be no more than 52 characters");
        }
        errors
    }

    fn validate_update(&self, context: &Context<'_>, object: &Value, old: &Value) -> FieldErrors {
        let mut errors = FieldErrors::new();
        if context.subresource.is_empty() {
            validate_spec(&mut errors, &Cursor::root(object).get("spec"), Some(&Cursor::root(old).get("spec")));
        }
        errors
    }

    fn warnings(&self, context: &Context<'_>, object: &Value, old: Option<&Value>) -> Vec<String> {
        if context.subresource == "status" {
            return Vec::new();
        }
        let spec = Cursor::root(object).get("spec");
        let mut found: Vec<String> = name_warning(object).filter(|_| old.is_none()).into_iter().collect();
        if old.is_none_or(|old| common::generation(old) != common::generation(object)) {
            found.extend(job::spec_warnings(&spec.get("jobTemplate").get("spec")));
        }
        // Only objects of earlier releases have such a schedule.
        if old.is_some() && spec.text("schedule").contains("TZ") {
            found.push(format!(
                "cannot use TZ or CRON_TZ in {}, use timeZone instead, see https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details",
                spec.at("spec.schedule")
            ));
        }
        found
    }

    fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cron = Cursor::root(object);
        let (spec, status) = (cron.get("spec"), cron.get("status"));
        let last = match status.text("lastScheduleTime") {
            "" => "<none>".to_owned(),
            time => cells::since(time, now),
        };
        let suspended = spec.flag("suspend").map_or("<unset>", |on| if on { "True" } else { "False" });
        let job = spec.get("jobTemplate").get("spec");
        let pod = job.get("template").get("spec");
        let column = |key: &str| {
            pod.array("containers").iter().map(|c| c[key].as_str().unwrap_or_default()).collect::<Vec<_>>().join(",")
        };
        vec![
            object::name(object).into(),
            spec.text("schedule").into(),
            (if spec.has("timeZone") { spec.text("timeZone") } else { "<none>" }).into(),
            suspended.into(),
            status.array("active").len().into(),
            last.into(),
            cells::age(object, now).into(),
            column("name").into(),
            column("image").into(),
            cells::none_if_empty(cells::selector(Some(job.raw("selector")))).into(),
        ]
    }
}

fn validate_spec(errors: &mut FieldErrors, spec: &Cursor<'_>, old: Option<&Cursor<'_>>) {
    let text = spec.text("schedule");
    if !text.is_empty() {
        if let Err(reason) = Schedule::parse(text) {
            errors.invalid(spec.at("schedule"), text, reason);
        }
        let zoned_before = old.is_some_and(|old| old.text("schedule").contains("TZ"));
        if text.contains("TZ") && !zoned_before {
            let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
            errors.invalid(spec.at("schedule"), text, detail);
        } else if text.contains("TZ") && spec.has("timeZone") {
            let detail = "cannot use both timeZone field and TZ or CRON_TZ in schedule";
            errors.invalid(spec.at("schedule"), text, detail);
        }
    }
    counts(errors, spec, &["startingDeadlineSeconds"]);
    if old.is_none_or(|old| old.raw("timeZone") != spec.raw("timeZone")) {
        time_zone(errors, spec);
    }
    errors.one_of(spec.at("concurrencyPolicy"), spec.text("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let job = spec.get("jobTemplate").get("spec");
    job::validate_spec(errors, &job);
    let selector = job.get("selector");
    if selector.exists() {
        check::bad_selector(errors, &selector, "`selector` will be auto-generated");
    }
    if job.is_true("manualSelector") {
        errors.unsupported(job.at("manualSelector"), true, &["nil", "false"]);
    }
    counts(errors, spec, &["successfulJobsHistoryLimit", "failedJobsHistoryLimit"]);
    // What is missing altogether is found by a later pass.
    if text.is_empty() {
        errors.required(spec.at("schedule"), "");
    }
}

fn time_zone(errors: &mut FieldErrors, spec: &Cursor<'_>) {
    let Some(zone) = spec.raw("timeZone").as_str() else { return };
    let path = || spec.at("timeZone");
    if zone.is_empty() {
        return errors.invalid(path(), zone, "timeZone must be nil or non-empty string");
    }
    let unknown = format!("unknown time zone {zone}");
    let odd = |part: &str| {
        part == "."
            || part == ".."
            || part.starts_with('-')
            || part.is_empty()
            || !part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+'))
    };
    if zone.split('/').any(odd) {
        return errors.invalid(path(), zone, unknown);
    }
    if zone.eq_ignore_ascii_case("Local") {
        let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
        errors.invalid(path(), zone, detail);
        return;
    }
    if zone != "UTC" && jiff::tz::TimeZone::get(zone).is_err() {
        errors.invalid(path(), zone, unknown);
    }
}

#[cfg(test)]
mod tests {
    use ferry_meta::UserInfo;

    use super::*;

    #[test]
    fn conditions_of_pods_that_fail_are_true_by_default() {
        let strategy = CronJob(<Plain as Default>::default());
        let policy = json!({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]});
        let mut cron = json!({"spec": {"jobTemplate": {"spec": {"podFailurePolicy": policy}}}});
        strategy.default(&mut cron);
        let condition = "/spec/jobTemplate/spec/podFailurePolicy/rules/0/onPodConditions/0/status";
        assert_eq!(cron.pointer(condition), Some(&json!("True")));
    }

    #[test]
    fn what_is_doubtful_is_told_when_the_spec_changes() {
        let user = UserInfo::new("u", &[]);
        let strategy = CronJob(<Plain as Default>::default());
        let context = Context { user: &user, subresource: "", dry_run: false, patch: false, reader: None };
        let cron = |generation: i64, schedule: &str| {
            let job = json!({"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001});
            json!({"metadata": {"name": "a", "generation": generation},
                "spec": {"schedule": schedule, "jobTemplate": {"spec": job}}})
        };
        let of_jobs = "spec.jobTemplate.spec: In Indexed Jobs";
        let of_schedule = "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead";
        for (new, old, wanted) in [
            (cron(1, "@daily"), None, vec![of_jobs]),
            (cron(1, "@daily"), Some(cron(1, "@daily")), vec![]),
            (cron(2, "@daily"), Some(cron(1, "@daily")), vec![of_jobs]),
            (cron(1, "TZ=UTC @daily"), Some(cron(1, "TZ=UTC @daily")), vec![of_schedule]),
        ] {
            let found = strategy.warnings(&context, &new, old.as_ref());
            assert_eq!(found.len(), wanted.len(), "{found:?}");
            assert!(found.iter().zip(wanted).all(|(found, wanted)| found.starts_with(wanted)), "{found:?}");
        }
    }
}
