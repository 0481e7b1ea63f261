//! `kubectl rollout history` and `undo`.

use serde_json::{Value, json};

use super::common::{self, DryRun, JSON_PATCH, Report, STRATEGIC};
use super::record::CAUSE;
use super::rollout::targets;
use crate::describe::{replica_sets, template};
use crate::error::{Error, Result};
use crate::print::tabs;
use crate::resource::{Info, Selection, list};
use crate::session::Context;
use crate::text::{line, print, warn};

const REVISION: &str = "deployment.kubernetes.io/revision";

/// A past template: its revision, its cause and the template, or the patch that brings it back.
struct Past {
    revision: i64,
    cause: String,
    template: Value,
    data: Value,
    /// What `-o` shows: the ReplicaSet, or the object as it was.
    object: Value,
}

async fn pasts(context: &Context, info: &Info) -> Result<Vec<Past>> {
    let object = &info.object;
    let cause = |value: &Value| {
        value["metadata"]["annotations"][CAUSE].as_str().filter(|c| !c.is_empty()).unwrap_or("<none>").to_owned()
    };
    let mut found: Vec<Past> = match &*info.resource.kind {
        "Deployment" => {
            let sets = replica_sets(context, object).await?;
            let revision = |set: &Value| set["metadata"]["annotations"][REVISION].as_str().and_then(|r| r.parse().ok());
            sets.iter()
                .filter_map(|set| {
                    let template = set["spec"]["template"].clone();
                    let (revision, cause, object) = (revision(set)?, cause(set), set.clone());
                    Some(Past { revision, cause, template, data: Value::Null, object })
                })
                .collect()
        }
        "DaemonSet" | "StatefulSet" => {
            let resource = context.kind("apps/v1", "ControllerRevision").await?;
            let labels = super::selector_of(object).unwrap_or_default();
            let selection = Selection { resource, namespace: info.namespace.clone(), labels, fields: String::new() };
            let uid = &object["metadata"]["uid"];
            let all = list(context, &selection, 500).await?;
            let mine = all.into_iter().filter(|revision| {
                revision["metadata"]["ownerReferences"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .any(|owner| owner["uid"] == *uid)
            });
            mine.map(|revision| {
                let past = super::apply::merged(info, STRATEGIC, object, &revision["data"]);
                Past {
                    revision: revision["revision"].as_i64().unwrap_or(0),
                    cause: cause(&revision),
                    template: revision["data"]["spec"]["template"].clone(),
                    data: revision["data"].clone(),
                    object: past,
                }
            })
            .collect()
        }
        kind => {
            let undo = context.path.ends_with("undo");
            let resource = &info.resource;
            let full = crate::text::quote(&crate::discovery::qualified(kind, &resource.group));
            if !["ReplicaSet", "ReplicationController", "Pod", "Job", "CronJob"].contains(&kind) {
                let what = if undo { "rollbacker" } else { "history" };
                let element = format!("{{{} {kind}}}", resource.group);
                return Err(Error::say(format!(
                    "error retrieving {what} for {full}, no visitor method exists for {element}"
                )));
            }
            let what = if undo { "rollbacker" } else { "history viewer" };
            return Err(Error::say(format!("no {what} has been implemented for {}", crate::text::quote(kind))));
        }
    };
    found.sort_by_key(|past| past.revision);
    Ok(found)
}

pub async fn history(context: &Context) -> Result<()> {
    let wanted = context.flags.int("revision");
    if wanted < 0 {
        return Err(Error::say(format!("revision must be a positive integer: {wanted}")));
    }
    let (infos, errors) = targets(context).await?;
    Error::all(errors)?;
    let report = Report::of_reading(context)?;
    for info in infos {
        let found = pasts(context, &info).await?;
        if context.flags.given("output").is_some() {
            let shown: Vec<&Past> = found.iter().filter(|past| wanted == 0 || past.revision == wanted).collect();
            if wanted > 0 && shown.is_empty() {
                return Err(Error::say("unable to find the specified revision"));
            }
            for past in shown {
                report.made(&info, &common::normalized(past.object.clone()), "")?;
            }
            continue;
        }
        if wanted > 0 && found.is_empty() {
            line(format!("{} with revision #{wanted}\nNo rollout history found.", info.shown()));
            continue;
        }
        if wanted > 0 {
            let past = found
                .iter()
                .find(|past| past.revision == wanted)
                .ok_or_else(|| Error::say("unable to find the specified revision"))?;
            line(format!("{} with revision #{wanted}", info.shown()));
            print(tabs::align(&template(&past.template), 0, 2));
            continue;
        }
        line(format!("{} ", info.shown()));
        if found.is_empty() {
            line("No rollout history found.");
            continue;
        }
        let mut text = "REVISION\tCHANGE-CAUSE\n".to_owned();
        for past in &found {
            text.push_str(&format!("{}\t{}\n", past.revision, past.cause));
        }
        print(tabs::align(&text, 0, 2));
        print("\n");
    }
    Ok(())
}

pub async fn undo(context: &Context) -> Result<()> {
    let report = Report::of(context)?.each_alone();
    let (infos, mut errors) = targets(context).await?;
    for info in infos {
        match back(context, &info, report.dry_run).await {
            Ok((object, what)) => report.done(&info, &object, what)?,
            Err(error) => errors.push(error),
        }
    }
    Error::all(errors)
}

async fn back(context: &Context, info: &Info, dry_run: DryRun) -> Result<(Value, &'static str)> {
    let wanted = context.flags.int("to-revision");
    if info.object["metadata"]["annotations"][super::LAST_APPLIED].is_string() {
        warn(format!(
            "Warning: resource {}/{} was previously managed with 'kubectl apply'. Rolling back will not update the {} annotation, which may cause unexpected behavior on future 'kubectl apply' operations. Consider using 'kubectl apply' with your previous configuration file instead.",
            info.resource.plural,
            info.name,
            super::LAST_APPLIED
        ));
    }
    let found = pasts(context, info).await?;
    let past = match wanted {
        0 => found.len().checked_sub(2).and_then(|at| found.get(at)),
        number => found.iter().find(|past| past.revision == number),
    };
    let Some(past) = past else {
        return Err(Error::say(match wanted {
            0 if info.resource.kind != "Deployment" => "no last revision to roll back to".to_owned(),
            0 => {
                format!(
                    "no rollout history found for {} {}",
                    info.resource.kind.to_lowercase(),
                    crate::text::quote(&info.name)
                )
            }
            number => format!("unable to find specified revision {number} in history"),
        }));
    };
    if dry_run == DryRun::Client {
        return Ok((info.object.clone(), "rolled back"));
    }
    if info.object["spec"]["paused"] == true {
        return Err(Error::say(
            "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume' and try again",
        ));
    }
    if past.data.is_object() {
        return Ok((common::patch(context, info, STRATEGIC, &past.data, dry_run).await?, "rolled back"));
    }
    let mut old = past.template.clone();
    if let Some(labels) = old["metadata"]["labels"].as_object_mut() {
        labels.remove("pod-template-hash");
    }
    if old == info.object["spec"]["template"] {
        return Ok((info.object.clone(), "skipped rollback (current template already matches revision)"));
    }
    let body = json!([{"op": "replace", "path": "/spec/template", "value": old}]);
    Ok((common::patch(context, info, JSON_PATCH, &body, dry_run).await?, "rolled back"))
}
