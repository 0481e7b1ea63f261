//! `kubectl rollout`.

use std::time::Duration;

use serde_json::{Value, json};

use super::common::{self, DryRun, Report, STRATEGIC, with};
use super::get_watch::watch;
use super::{Command, group, leaf, rollout_history};
use crate::client::{Call, JSON};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind};
use crate::resource::{Builder, Info, Selection, read_all};
use crate::session::Context;
use crate::text::{flush, line};

pub const COMMAND: Command = group(
    "rollout",
    "Manage the rollout of a resource",
    &[
        leaf("history", "(TYPE NAME | TYPE/NAME) [flags]", "View rollout history", history_flags, |c| {
            Box::pin(rollout_history::history(c))
        }),
        leaf("pause", "RESOURCE", "Mark the provided resource as paused", change_flags, |c| {
            Box::pin(change(c, Change::Pause))
        }),
        leaf("restart", "RESOURCE", "Restart a resource", change_flags, |c| Box::pin(change(c, Change::Restart))),
        leaf("resume", "RESOURCE", "Resume a paused resource", change_flags, |c| Box::pin(change(c, Change::Resume))),
        leaf("status", "(TYPE NAME | TYPE/NAME) [flags]", "Show the status of the rollout", status_flags, |c| {
            Box::pin(status(c))
        }),
        leaf("undo", "(TYPE NAME | TYPE/NAME) [flags]", "Undo a previous rollout", undo_flags, |c| {
            Box::pin(rollout_history::undo(c))
        }),
    ],
);

/// What pauses, resumes and restarts has no dry run.
fn change_flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-rollout");
    flags.retain(|flag| flag.name != common::DRY_RUN.name);
    flags.push(common::SELECTOR);
    flags
}

fn history_flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(crate::print::FLAGS);
    flags.extend([common::SELECTOR, Flag::new("revision", Kind::Int, "0", "See the details of this revision.")]);
    flags
}

fn undo_flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-rollout");
    flags.retain(|flag| flag.name != "field-manager");
    flags.push(common::SELECTOR);
    flags.push(Flag::new("to-revision", Kind::Int, "0", "The revision to roll back to; 0 is the last one."));
    flags
}

fn status_flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend([
        common::SELECTOR,
        Flag::new("watch", Kind::Bool, "true", "Watch until it is done.").short('w'),
        Flag::new("revision", Kind::Int, "0", "Follow this revision."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait; zero means as long as it takes."),
    ]);
    flags
}

/// The objects of the line, as the server has them.
pub async fn targets(context: &Context) -> Result<(Vec<Info>, Vec<Error>)> {
    if context.words().is_empty()
        && context.flags.list("filename").is_empty()
        && context.flags.given("kustomize").is_none()
    {
        return Err(Error::say("required resource not specified"));
    }
    let mut builder = Builder::of(context);
    builder.latest = true;
    builder.empty_selector = true;
    let built = builder.build(context).await?;
    let (infos, mut errors) = read_all(context, &built.targets, 500).await;
    let (infos, unknown): (Vec<Info>, Vec<Info>) = infos.into_iter().partition(common::is_built_in);
    errors.extend(unknown.iter().map(common::not_registered));
    Ok((infos, errors))
}

#[derive(Clone, Copy)]
enum Change {
    Pause,
    Resume,
    Restart,
}

async fn change(context: &Context, change: Change) -> Result<()> {
    let report = Report::of_reading(context)?.each_alone();
    let (infos, mut errors) = targets(context).await?;
    if infos.is_empty() && errors.is_empty() {
        nothing(context).await?;
    }
    for info in infos {
        let result = match patch_for(&info, change) {
            Ok(body) => send(context, &info, &body, change, &report).await,
            Err(error) => Err(error),
        };
        errors.extend(result.err());
    }
    Error::all(errors)
}

async fn send(context: &Context, info: &Info, body: &Value, change: Change, report: &Report) -> Result<()> {
    let sent = common::patch(context, info, STRATEGIC, body, DryRun::No).await;
    let object = sent.map_err(|error| Error::say(format!("failed to patch: {}", error.inner())))?;
    let what = match change {
        Change::Pause => "paused",
        Change::Resume => "resumed",
        Change::Restart => "restarted",
    };
    report.done(info, &object, what)
}

fn patch_for(info: &Info, change: Change) -> Result<Value> {
    let paused = info.object["spec"]["paused"] == true;
    let kind = &*info.resource.kind;
    match change {
        Change::Pause if kind != "Deployment" => not_supported(info, "pausing"),
        Change::Resume if kind != "Deployment" => not_supported(info, "resuming"),
        Change::Restart if !["Deployment", "DaemonSet", "StatefulSet"].contains(&kind) => {
            not_supported(info, "restarting")
        }
        Change::Pause if paused => Err(Error::say(format!(
            "error: {} {} is already paused",
            info.resource.qualified(),
            crate::text::quote(&info.name)
        ))),
        Change::Resume if !paused => Err(Error::say(format!(
            "error: {} {} is not paused",
            info.resource.qualified(),
            crate::text::quote(&info.name)
        ))),
        Change::Restart if paused && kind == "Deployment" => Err(Error::say(format!(
            "error: {} {} can't restart paused deployment (run rollout resume first)",
            info.resource.qualified(),
            crate::text::quote(&info.name)
        ))),
        Change::Pause => Ok(json!({"spec": {"paused": true}})),
        Change::Resume => Ok(json!({"spec": {"paused": null}})),
        Change::Restart => {
            let now = ferry_meta::time::time(ferry_meta::time::now());
            let annotations = json!({"kubectl.kubernetes.io/restartedAt": now});
            Ok(json!({"spec": {"template": {"metadata": {"annotations": annotations}}}}))
        }
    }
}

fn not_supported<T>(info: &Info, what: &str) -> Result<T> {
    Err(Error::say(format!(
        "error: {} {} {what} is not supported",
        info.resource.qualified(),
        crate::text::quote(&info.name)
    )))
}

/// What is to be said, and whether that was all.
fn progress(object: &Value, revision: i64) -> Result<(String, bool)> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let (spec, status) = (&object["spec"], &object["status"]);
    let number = |field: &str| status[field].as_i64().unwrap_or(0);
    let observed = number("observedGeneration") >= object["metadata"]["generation"].as_i64().unwrap_or(0);
    let wanted = spec["replicas"].as_i64().unwrap_or(1);
    match object["kind"].as_str().unwrap_or_default() {
        "Deployment" => {
            if revision > 0 {
                let now =
                    object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].as_str().unwrap_or("0");
                if now.parse() != Ok(revision) {
                    return Err(Error::say(format!(
                        "desired revision ({revision}) is different from the running revision ({now})"
                    )));
                }
            }
            if !observed {
                return Ok(("Waiting for deployment spec update to be observed...".into(), false));
            }
            let conditions = status["conditions"].as_array().map_or(&[][..], Vec::as_slice);
            if conditions.iter().any(|c| c["type"] == "Progressing" && c["reason"] == "ProgressDeadlineExceeded") {
                return Err(Error::say(format!(
                    "deployment {} exceeded its progress deadline",
                    crate::text::quote(name)
                )));
            }
            let (updated, total, available) =
                (number("updatedReplicas"), number("replicas"), number("availableReplicas"));
            let waiting = format!("Waiting for deployment {} rollout to finish:", crate::text::quote(name));
            if updated < wanted {
                return Ok((format!("{waiting} {updated} out of {wanted} new replicas have been updated..."), false));
            }
            if total > updated {
                return Ok((format!("{waiting} {} old replicas are pending termination...", total - updated), false));
            }
            if available < updated {
                return Ok((format!("{waiting} {available} of {updated} updated replicas are available..."), false));
            }
            Ok((format!("deployment {} successfully rolled out", crate::text::quote(name)), true))
        }
        "DaemonSet" => {
            if spec["updateStrategy"]["type"] != "RollingUpdate" {
                return Err(Error::say("rollout status is only available for RollingUpdate strategy type"));
            }
            if !observed {
                return Ok(("Waiting for daemon set spec update to be observed...".into(), false));
            }
            let (updated, desired) = (number("updatedNumberScheduled"), number("desiredNumberScheduled"));
            let waiting = format!("Waiting for daemon set {} rollout to finish:", crate::text::quote(name));
            if updated < desired {
                return Ok((format!("{waiting} {updated} out of {desired} new pods have been updated..."), false));
            }
            if number("numberAvailable") < desired {
                return Ok((
                    format!("{waiting} {} of {desired} updated pods are available...", number("numberAvailable")),
                    false,
                ));
            }
            Ok((format!("daemon set {} successfully rolled out", crate::text::quote(name)), true))
        }
        "StatefulSet" => {
            if spec["updateStrategy"]["type"] != "RollingUpdate" {
                return Err(Error::say("rollout status is only available for RollingUpdate strategy type"));
            }
            if status["observedGeneration"].as_i64().unwrap_or(0) == 0 || !observed {
                return Ok(("Waiting for statefulset spec update to be observed...".into(), false));
            }
            if number("readyReplicas") < wanted {
                return Ok((format!("Waiting for {} pods to be ready...", wanted - number("readyReplicas")), false));
            }
            let partition = spec["updateStrategy"]["rollingUpdate"]["partition"].as_i64().unwrap_or(0);
            if partition > 0 {
                if number("updatedReplicas") < wanted - partition {
                    return Ok((
                        format!(
                            "Waiting for partitioned roll out to finish: {} out of {} new pods have been updated...",
                            number("updatedReplicas"),
                            wanted - partition
                        ),
                        false,
                    ));
                }
                return Ok((
                    format!(
                        "partitioned roll out complete: {} new pods have been updated...",
                        number("updatedReplicas")
                    ),
                    true,
                ));
            }
            if status["updateRevision"] != status["currentRevision"] {
                return Ok((
                    format!(
                        "waiting for statefulset rolling update to complete {} pods at revision {}...",
                        number("updatedReplicas"),
                        status["updateRevision"].as_str().unwrap_or_default()
                    ),
                    false,
                ));
            }
            Ok((
                format!(
                    "statefulset rolling update complete {} pods at revision {}...",
                    number("currentReplicas"),
                    status["currentRevision"].as_str().unwrap_or_default()
                ),
                true,
            ))
        }
        kind => {
            let group = object["apiVersion"].as_str().and_then(|version| version.split_once('/'));
            let named = crate::discovery::qualified(kind, group.map_or("", |(group, _)| group));
            Err(Error::say(format!("no status viewer has been implemented for {named}")))
        }
    }
}

async fn nothing(context: &Context) -> Result<()> {
    crate::text::warn(format!("No resources found in {} namespace.", context.namespace().await?));
    Ok(())
}

async fn status(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let (infos, errors) = targets(context).await?;
    Error::all(errors)?;
    if infos.is_empty() {
        nothing(context).await?;
    }
    let limit = match flags.duration("timeout") {
        0 => super::wait::LONG,
        nanos => Duration::from_nanos(nanos.unsigned_abs()),
    };
    for info in infos {
        match tokio::time::timeout(limit, follow(context, &info)).await {
            Ok(result) => result?,
            Err(_) => return Err(Error::say("timed out waiting for the condition")),
        }
    }
    Ok(())
}

async fn follow(context: &Context, info: &Info) -> Result<()> {
    let revision = context.flags.int("revision");
    let mut said = String::new();
    let mut say = |object: &Value| -> Result<bool> {
        let (text, done) = progress(object, revision)?;
        if text != said {
            line(&text);
            flush();
            said = text;
        }
        Ok(done)
    };
    loop {
        let current = context.client().await?.json(Call::get(info.path())).await?;
        if say(&current)? || !context.flags.is("watch") {
            return Ok(());
        }
        let selection = Selection {
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            labels: String::new(),
            fields: format!("metadata.name={}", info.name),
        };
        let version = current["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
        let mut done = false;
        let ended = watch(context, &selection, &version, JSON, |kind, object| {
            if kind == "DELETED" {
                return Err(Error::say("object has been deleted"));
            }
            done = say(object)?;
            Ok(!done)
        });
        match ended.await {
            Err(error) if error.reason() != "Expired" => return Err(error),
            _ if done => return Ok(()),
            _ => {}
        }
    }
}
