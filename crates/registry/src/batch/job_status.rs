//! The rules of a Job's status. Most are judged only where what they look at has changed, so that a Job whose spec moved on
//! under its status can still be written.

use std::collections::HashSet;

use ferry_meta::{FieldErrors, time};

use super::job::has_condition;
use super::job_policies::{self, indexes};
use crate::apps::counts;
use crate::cursor::{Cursor, IMMUTABLE, Report};

fn is_finished(job: &Cursor<'_>) -> bool {
    on(job, "Complete") || on(job, "Failed")
}

fn on(job: &Cursor<'_>, kind: &str) -> bool {
    has_condition(job.value, kind)
}

pub(super) fn validate(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (status, was) = (job.get("status"), old.get("status"));
    counts(errors, &status, &["active", "succeeded", "failed", "ready", "terminating"]);
    uncounted(errors, &status);
    conditions(errors, job, old);
    indexes_of(errors, job, old);
    let changed = |key: &str| status.raw(key) != was.raw(key);
    let finished = is_finished(job);
    let newly = finished != is_finished(old);
    if (newly || changed("terminating")) && status.number("terminating") > 0 && finished {
        let detail = "terminating>0 is invalid for finished job";
        errors.invalid(status.at("terminating"), status.number("terminating"), detail);
    }
    let ready = status.int("ready").filter(|ready| *ready > status.number("active"));
    if let Some(ready) = ready.filter(|_| changed("ready") || changed("active")) {
        errors.invalid(status.at("ready"), ready, "cannot set more ready pods than active");
    }
    transitions(errors, job, old);
}

fn uncounted(errors: &mut FieldErrors, status: &Cursor<'_>) {
    let pods = status.get("uncountedTerminatedPods");
    let mut seen: HashSet<&str> = HashSet::new();
    for uid in pods.items("succeeded").into_iter().chain(pods.items("failed")) {
        match uid.as_text() {
            "" => errors.invalid(uid.path, "", "must not be empty"),
            text if seen.contains(&text) => errors.duplicate(uid.path, text),
            text => {
                seen.insert(text);
            }
        }
    }
}

/// What the conditions and times of a Job must be to each other.
fn conditions(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (status, was) = (job.get("status"), old.get("status"));
    let changed = |key: &str| status.raw(key) != was.raw(key);
    let turned = |kind: &str| on(job, kind) != on(old, kind);
    let path = status.at("conditions");
    let mut refuse = |detail: &str| errors.push(job_policies::without_value(&path, detail));
    let complete = on(job, "Complete");
    if (turned("Complete") || turned("Failed")) && complete && on(job, "Failed") {
        refuse("cannot set Complete=True and Failed=true conditions");
    }
    if (turned("Complete") || turned("FailureTarget")) && complete && on(job, "FailureTarget") {
        refuse("cannot set Complete=True and FailureTarget=true conditions");
    }
    let (start, end) = (status.raw("startTime"), status.raw("completionTime"));
    if turned("Complete") || changed("completionTime") {
        let at = status.at("completionTime");
        match (complete, end.is_null()) {
            (false, false) => {
                let detail = "cannot set completionTime when there is no Complete=True condition";
                errors.invalid(at, end.clone(), detail);
            }
            (true, true) => errors.required(at, "completionTime is required for Complete jobs"),
            _ => {}
        }
    }
    let moment = |key: &str| time::parse(status.text(key));
    if (changed("startTime") || changed("completionTime"))
        && let (Some(start), Some(end)) = (moment("startTime"), moment("completionTime"))
        && end < start
    {
        let detail = "must be equal to or after `startTime`";
        errors.invalid(status.at("completionTime"), status.raw("completionTime").clone(), detail);
    }
    let mut refuse = |detail: &str| errors.push(job_policies::without_value(&path, detail));
    if (turned("Failed") || changed("failedIndexes")) && on(job, "Failed") && !on(job, "FailureTarget") {
        refuse("cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && complete && !on(job, "SuccessCriteriaMet") {
        refuse("cannot set Complete=True condition without the SuccessCriteriaMet=true condition");
    }
    let finished = is_finished(job);
    let newly = finished != is_finished(old);
    if (newly || changed("active")) && status.number("active") > 0 && finished {
        errors.invalid(status.at("active"), status.number("active"), "active>0 is invalid for finished job");
    }
    let spec = job.get("spec");
    let nothing_to_do = spec.is_true("suspend") && spec.int("completions") == Some(0);
    if (newly || changed("startTime")) && start.is_null() && finished && !nothing_to_do {
        errors.required(status.at("startTime"), "startTime is required for finished job");
    }
    let pods = status.get("uncountedTerminatedPods");
    let left = !pods.array("failed").is_empty() || !pods.array("succeeded").is_empty();
    if (newly || changed("uncountedTerminatedPods")) && finished && left {
        let error = ferry_meta::FieldError::invalid(&pods.path, pods.value.clone(), "must be empty for finished job");
        errors.push(error.shown_as(crate::internal::show("UncountedTerminatedPods", pods.value)));
    }
}

fn indexes_of(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (status, was, spec) = (job.get("status"), old.get("status"), job.get("spec"));
    let changed = |key: &str| status.raw(key) != was.raw(key);
    let (done, failed) = (status.text("completedIndexes"), status.raw("failedIndexes").as_str());
    let completions = spec.int("completions");
    if let Some(completions) = completions {
        if changed("completedIndexes")
            && let Err(reason) = indexes(done, completions)
        {
            let detail = format!("error parsing completedIndexes: {reason}");
            errors.invalid(status.at("completedIndexes"), done, detail);
        }
        if changed("failedIndexes")
            && spec.has("backoffLimitPerIndex")
            && let Some(failed) = failed
            && let Err(reason) = indexes(failed, completions)
        {
            errors.invalid(status.at("failedIndexes"), failed, format!("error parsing failedIndexes: {reason}"));
        }
    }
    if changed("completedIndexes") && !done.is_empty() && spec.text("completionMode") != "Indexed" {
        let detail = "cannot set non-empty completedIndexes when non-indexed completion mode";
        errors.invalid(status.at("completedIndexes"), done, detail);
    }
    let Some(failed) = failed else { return };
    if changed("failedIndexes") && !spec.has("backoffLimitPerIndex") {
        let detail = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
        errors.invalid(status.at("failedIndexes"), failed, detail);
    }
    if (changed("failedIndexes") || changed("completedIndexes"))
        && let Some(completions) = completions
        && let (Ok(done), Ok(bad)) = (indexes(done, completions), indexes(failed, completions))
    {
        let both = done.iter().flat_map(|(low, high)| {
            let overlaps = bad.iter().filter(move |(from, to)| from.max(low) <= to.min(high));
            overlaps.map(move |(from, _)| *from.max(low))
        });
        if let Some(index) = both.min() {
            let detail = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.invalid(status.at("failedIndexes"), failed, detail);
        }
    }
}

fn transitions(errors: &mut FieldErrors, job: &Cursor<'_>, old: &Cursor<'_>) {
    let (status, was, spec) = (job.get("status"), old.get("status"), job.get("spec"));
    let path = status.at("conditions");
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if on(old, kind) && !on(job, kind) {
            let detail = format!("cannot disable the terminal {kind}=True condition");
            errors.push(job_policies::without_value(&path, &detail));
        }
    }
    let scales = spec.text("completionMode") == "Indexed" && spec.raw("completions") == spec.raw("parallelism");
    for key in ["failed", "succeeded"] {
        if status.number(key) < was.number(key) && (key == "failed" || !scales) {
            errors.invalid(status.at(key), status.number(key), format!("cannot decrease the {key} counter"));
        }
    }
    let (done, was_done) = (status.raw("completionTime"), was.raw("completionTime"));
    if !done.is_null() && !was_done.is_null() && done != was_done {
        errors.invalid(status.at("completionTime"), done.clone(), IMMUTABLE);
    }
    let resuming = on(old, "Suspended")
        && status.items("conditions").iter().any(|c| c.text("type") == "Suspended" && c.text("status") == "False");
    let started = was.has("startTime") && status.raw("startTime") != was.raw("startTime");
    if started && !spec.is_true("suspend") && !resuming {
        let detail = "field is immutable for unsuspended job once set";
        errors.invalid(status.at("startTime"), status.raw("startTime").clone(), detail);
    }
    let mut refuse = |detail: &str| errors.push(job_policies::without_value(&path, detail));
    match (on(old, "SuccessCriteriaMet"), on(job, "SuccessCriteriaMet")) {
        (true, false) => refuse("cannot disable the SuccessCriteriaMet=True condition"),
        (false, true) if on(old, "Complete") => {
            refuse("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_status_is_judged_by_what_changed() {
        let check = |spec: Value, before: Value, status: Value, want: &[&str]| {
            let (new, old) = (json!({"spec": spec, "status": status}), json!({"spec": spec, "status": before}));
            let mut errors = FieldErrors::new();
            validate(&mut errors, &Cursor::root(&new), &Cursor::root(&old));
            let lines: Vec<String> = errors.iter().map(ferry_meta::FieldError::line).collect();
            assert_eq!(lines, want);
        };
        let indexed = json!({"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 1});
        check(indexed.clone(), json!({}), json!({"completedIndexes": "0,2", "failedIndexes": "1"}), &[]);
        check(
            indexed.clone(),
            json!({}),
            json!({"completedIndexes": "x"}),
            &[
                "status.completedIndexes: Invalid value: \"x\": error parsing completedIndexes: cannot convert string to integer for index: \"x\"",
            ],
        );
        check(indexed, json!({"completedIndexes": "x"}), json!({"completedIndexes": "x"}), &[]);
        check(
            json!({}),
            json!({}),
            json!({"ready": 1, "completionTime": "2026-01-01T00:00:00Z"}),
            &[
                "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": cannot set completionTime when there is no Complete=True condition",
                "status.ready: Invalid value: 1: cannot set more ready pods than active",
            ],
        );
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        check(
            json!({}),
            json!({}),
            json!({"conditions": [condition("Complete")]}),
            &[
                "status.completionTime: Required value: completionTime is required for Complete jobs",
                "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
                "status.startTime: Required value: startTime is required for finished job",
            ],
        );
        check(
            json!({}),
            json!({"conditions": [condition("FailureTarget")], "failed": 2}),
            json!({"failed": 1}),
            &[
                "status.conditions: Invalid value: cannot disable the terminal FailureTarget=True condition",
                "status.failed: Invalid value: 1: cannot decrease the failed counter",
            ],
        );
    }
}
