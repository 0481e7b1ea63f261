//! StatefulSets, DaemonSets, Jobs and CronJobs.

use serde_json::Value;

use super::apps::pods_status;
use super::parts::{controller, date, head, list, marks, pairs, selector, text};
use super::pod::template;
use crate::error::Result;
use crate::print::go_value::show;
use crate::print::table::show_labels;
use crate::session::Context;
use crate::text::human_duration;

fn number(value: &Value, field: &str) -> i64 {
    value[field].as_i64().unwrap_or(0)
}

/// The number of a field, or that there is none.
fn or_unset(value: &Value, unit: &str) -> String {
    value.as_i64().map_or_else(|| "<unset>".to_owned(), |number| format!("{number}{unit}"))
}

pub async fn stateful_set(context: &Context, object: &Value) -> Result<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    out.push_str(&format!("CreationTimestamp:\t{}\n", date(text(&object["metadata"], "creationTimestamp"))));
    out.push_str(&format!("Selector:\t{}\n", selector(&spec["selector"])));
    out.push_str(&marks(object));
    for (title, field) in [("Service Name", "serviceName"), ("Pod Management Policy", "podManagementPolicy")] {
        if !text(spec, field).is_empty() {
            out.push_str(&format!("{title}:\t{}\n", text(spec, field)));
        }
    }
    let (desired, total) = (number(spec, "replicas"), number(status, "replicas"));
    out.push_str(&format!("Replicas:\t{desired} desired | {total} total\n"));
    out.push_str(&format!("Update Strategy:\t{}\n", text(&spec["updateStrategy"], "type")));
    let rolling = &spec["updateStrategy"]["rollingUpdate"];
    if let Some(partition) = rolling["partition"].as_i64() {
        out.push_str(&format!("  Partition:\t{partition}\n"));
        if !rolling["maxUnavailable"].is_null() {
            out.push_str(&format!("  MaxUnavailable:\t{}\n", show(&rolling["maxUnavailable"])));
        }
    }
    let kept = &spec["persistentVolumeClaimRetentionPolicy"];
    if kept.is_object() {
        out.push_str("Persistent Volume Claim Retention Policy:\n");
        out.push_str(&format!(
            "  WhenDeleted:\t{}\n  WhenScaled:\t{}\n",
            text(kept, "whenDeleted"),
            text(kept, "whenScaled")
        ));
    }
    out.push_str(&pods_status(context, object).await);
    out.push_str(&template(&spec["template"]));
    out.push_str(&claims(&spec["volumeClaimTemplates"]));
    Ok(out)
}

fn claims(all: &Value) -> String {
    if list(all).is_empty() {
        return "Volume Claims:\t<none>\n".to_owned();
    }
    let mut out = "Volume Claims:\n".to_owned();
    for claim in list(all) {
        let (metadata, spec) = (&claim["metadata"], &claim["spec"]);
        out.push_str(&format!(
            "  Name:\t{}\n  StorageClass:\t{}\n",
            text(metadata, "name"),
            text(spec, "storageClassName")
        ));
        out.push_str(&pairs("  Labels", &metadata["labels"]));
        out.push_str(&pairs("  Annotations", &metadata["annotations"]));
        let capacity = spec["resources"]["requests"]["storage"].as_str().unwrap_or("<default>");
        out.push_str(&format!("  Capacity:\t{capacity}\n  Access Modes:\t{}\n", show(&spec["accessModes"])));
    }
    out
}

pub async fn daemon_set(context: &Context, object: &Value) -> Result<String> {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    out.push_str(&format!("Selector:\t{}\n", selector(&spec["selector"])));
    out.push_str(&format!("Node-Selector:\t{}\n", show_labels(&spec["template"]["spec"]["nodeSelector"])));
    out.push_str(&marks(object));
    for (title, field) in [
        ("Desired Number of Nodes Scheduled", "desiredNumberScheduled"),
        ("Current Number of Nodes Scheduled", "currentNumberScheduled"),
        ("Number of Nodes Scheduled with Up-to-date Pods", "updatedNumberScheduled"),
        ("Number of Nodes Scheduled with Available Pods", "numberAvailable"),
        ("Number of Nodes Misscheduled", "numberMisscheduled"),
    ] {
        out.push_str(&format!("{title}: {}\n", number(status, field)));
    }
    out.push_str(&pods_status(context, object).await);
    out.push_str(&template(&spec["template"]));
    Ok(out)
}

pub fn job(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true);
    out.push_str(&format!("Selector:\t{}\n", selector(&spec["selector"])));
    out.push_str(&marks(object));
    if let Some(owner) = controller(object) {
        out.push_str(&format!("Controlled By:\t{owner}\n"));
    }
    if !spec["parallelism"].is_null() {
        out.push_str(&format!("Parallelism:\t{}\n", number(spec, "parallelism")));
    }
    out.push_str(&format!("Completions:\t{}\n", or_unset(&spec["completions"], "")));
    for (title, field) in [
        ("Completion Mode", "completionMode"),
        ("Suspend", "suspend"),
        ("Backoff Limit", "backoffLimit"),
        ("TTL Seconds After Finished", "ttlSecondsAfterFinished"),
    ] {
        if !spec[field].is_null() {
            out.push_str(&format!("{title}:\t{}\n", show(&spec[field])));
        }
    }
    for (title, field) in [("Start Time", "startTime"), ("Completed At", "completionTime")] {
        if !status[field].is_null() {
            out.push_str(&format!("{title}:\t{}\n", date(text(status, field))));
        }
    }
    let at = |field: &str| ferry_meta::time::parse(text(status, field));
    if let (Some(begin), Some(end)) = (at("startTime"), at("completionTime")) {
        out.push_str(&format!("Duration:\t{}\n", human_duration(end.as_second() - begin.as_second())));
    }
    if !spec["activeDeadlineSeconds"].is_null() {
        out.push_str(&format!("Active Deadline Seconds:\t{}s\n", number(spec, "activeDeadlineSeconds")));
    }
    let ready = status["ready"].as_i64().map(|ready| format!(" ({ready} Ready)")).unwrap_or_default();
    out.push_str(&format!(
        "Pods Statuses:\t{} Active{ready} / {} Succeeded / {} Failed\n",
        number(status, "active"),
        number(status, "succeeded"),
        number(status, "failed")
    ));
    if spec["completionMode"] == "Indexed" {
        let indexes = text(status, "completedIndexes");
        out.push_str(&format!("Completed Indexes:\t{}\n", if indexes.is_empty() { "<none>" } else { indexes }));
    }
    out.push_str(&template(&spec["template"]));
    out
}

pub fn cron_job(object: &Value) -> String {
    let (spec, status) = (&object["spec"], &object["status"]);
    let mut out = head(object, true) + &marks(object);
    out.push_str(&format!("Schedule:\t{}\n", text(spec, "schedule")));
    out.push_str(&format!("Concurrency Policy:\t{}\n", text(spec, "concurrencyPolicy")));
    out.push_str(&format!("Suspend:\t{}\n", super::policy::truth(&spec["suspend"])));
    out.push_str(&format!("Time Zone:\t{}\n", spec["timeZone"].as_str().unwrap_or("<unset>")));
    for (title, field, unit) in [
        ("Successful Job History Limit", "successfulJobsHistoryLimit", ""),
        ("Failed Job History Limit", "failedJobsHistoryLimit", ""),
        ("Starting Deadline Seconds", "startingDeadlineSeconds", "s"),
    ] {
        out.push_str(&format!("{title}:\t{}\n", or_unset(&spec[field], unit)));
    }
    let job = &spec["jobTemplate"]["spec"];
    let of = if job["selector"].is_null() { "<unset>".to_owned() } else { selector(&job["selector"]) };
    out.push_str(&format!("Selector:\t{of}\n"));
    out.push_str(&format!("Parallelism:\t{}\n", or_unset(&job["parallelism"], "")));
    out.push_str(&format!("Completions:\t{}\n", or_unset(&job["completions"], "")));
    if !job["activeDeadlineSeconds"].is_null() {
        out.push_str(&format!("Active Deadline Seconds:\t{}s\n", number(job, "activeDeadlineSeconds")));
    }
    out.push_str(&template(&job["template"]));
    let last = status["lastScheduleTime"].as_str().map_or_else(|| "<unset>".to_owned(), date);
    out.push_str(&format!("Last Schedule Time:\t{last}\n"));
    let active: Vec<&str> = list(&status["active"]).iter().map(|job| text(job, "name")).collect();
    out.push_str(&format!(
        "Active Jobs:\t{}\n",
        if active.is_empty() { "<none>".to_owned() } else { active.join(", ") }
    ));
    out
}
