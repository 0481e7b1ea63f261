//! `kubectl drain`: no new pods, and those that are there elsewhere.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::common::DryRun;
use super::{Command, common, cordon, leaf, pods, wait};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::resource::{Info, of_object};
use crate::session::Context;
use crate::text::{line, warn};

pub const COMMAND: Command =
    leaf("drain", "NODE", "Drain node in preparation for maintenance", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    vec![
        common::DRY_RUN,
        common::SELECTOR,
        switch("force", "Go on even if there are pods that nobody makes again."),
        switch("ignore-daemonsets", "Leave pods of DaemonSets alone."),
        switch("delete-emptydir-data", "Go on even if pods use emptyDir volumes."),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds a pod has to end; its own when negative."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait; zero means as long as it takes."),
        text("pod-selector", "Only pods with these labels."),
        switch("disable-eviction", "Delete pods instead of evicting them."),
        Flag::new(
            "skip-wait-for-delete-timeout",
            Kind::Int,
            "0",
            "Do not wait for pods that are being deleted for so long.",
        ),
        Flag::new("chunk-size", Kind::Int, "500", "Return large lists in chunks."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let dry_run = DryRun::of(&context.flags)?;
    if ferry_meta::selector::LabelSelector::parse(context.flags.text("pod-selector")).is_err() {
        return Err(Error::say("--pod-selector=<pod_selector> must be a valid label selector"));
    }
    let (infos, mut errors) = cordon::nodes(context).await?;
    errors.truncate(1);
    Error::all(errors)?;
    for info in &infos {
        cordon::mark(context, info, true, dry_run).await?;
    }
    let mut failed = Vec::new();
    for info in &infos {
        match drain(context, info, dry_run).await {
            Ok(()) => line(format!("node/{} drained{}", info.name, dry_run.suffix())),
            Err(error) => {
                warn(format!(
                    "error: unable to drain node \"{}\" due to error: {}, continuing command...",
                    info.name,
                    error.inner()
                ));
                failed.push((info.name.clone(), error.inner()));
            }
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    warn("There are pending nodes to be drained:");
    failed.iter().for_each(|(name, _)| warn(format!(" {name}")));
    let all: Vec<String> = failed.into_iter().map(|(_, why)| why).collect();
    Err(Error::Exit { code: 1, text: all.join("\n") })
}

enum Verdict {
    Leave,
    Evict,
    EvictWith(&'static str),
    Warn(&'static str),
    Refuse(&'static str),
}

fn verdict(context: &Context, pod: &Value) -> Verdict {
    let flags = &context.flags;
    let owners = pod["metadata"]["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
    let controller = owners.iter().find(|owner| owner["controller"] == true);
    let finished = matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if pod["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_string() {
        return Verdict::Leave;
    }
    if controller.is_some_and(|owner| owner["kind"] == "DaemonSet") && !finished {
        return match flags.is("ignore-daemonsets") {
            true => Verdict::Warn("ignoring DaemonSet-managed Pods"),
            false => Verdict::Refuse("cannot delete DaemonSet-managed Pods (use --ignore-daemonsets to ignore)"),
        };
    }
    let local = pod["spec"]["volumes"].as_array().into_iter().flatten().any(|volume| volume["emptyDir"].is_object());
    if local && !finished && !flags.is("delete-emptydir-data") {
        return Verdict::Refuse("cannot delete Pods with local storage (use --delete-emptydir-data to override)");
    }
    match controller.is_none() && !finished {
        true if flags.is("force") => Verdict::EvictWith("deleting Pods that declare no controller"),
        true => Verdict::Refuse("cannot delete Pods that declare no controller (use --force to override)"),
        false => Verdict::Evict,
    }
}

async fn drain(context: &Context, node: &Info, dry_run: DryRun) -> Result<()> {
    let flags = &context.flags;
    let fields = format!("spec.nodeName={}", node.name);
    let found = pods::list_pods(context, None, flags.text("pod-selector"), &fields).await?;
    let resource = context.kind("v1", "Pod").await?;
    let mut leaving: Vec<Info> = Vec::new();
    let mut said: Vec<(bool, &str, Vec<String>)> = Vec::new();
    for pod in found {
        let name = format!(
            "{}/{}",
            pod["metadata"]["namespace"].as_str().unwrap_or_default(),
            pod["metadata"]["name"].as_str().unwrap_or_default()
        );
        let (refuses, text) = match verdict(context, &pod) {
            Verdict::Leave => continue,
            Verdict::Evict => {
                leaving.push(of_object(&resource, pod));
                continue;
            }
            Verdict::EvictWith(text) => {
                leaving.push(of_object(&resource, pod));
                (false, text)
            }
            Verdict::Warn(text) => (false, text),
            Verdict::Refuse(text) => (true, text),
        };
        match said.iter_mut().find(|(_, known, _)| *known == text) {
            Some((_, _, names)) => names.push(name),
            None => said.push((refuses, text, vec![name])),
        }
    }
    let refused: Vec<String> = said
        .iter()
        .filter(|(refuses, ..)| *refuses)
        .map(|(_, text, names)| format!("{text}: {}", names.join(", ")))
        .collect();
    if !refused.is_empty() {
        return Err(Error::say(match refused.len() {
            1 => refused.join(""),
            _ => format!("[{}]", refused.join(", ")),
        }));
    }
    for (_, text, names) in &said {
        warn(format!("Warning: {text}: {}", names.join(", ")));
    }
    for pod in &leaving {
        let place = format!("{}/{}", pod.namespace.as_deref().unwrap_or_default(), pod.name);
        let deletes = flags.is("disable-eviction") && dry_run != DryRun::Client;
        if !deletes {
            line(format!("evicting pod {place}{}", dry_run.suffix()));
        } else if context.verbosity() >= 2 && dry_run == DryRun::No {
            line(format!("pod/{} deletion started", pod.name));
        }
    }
    if dry_run == DryRun::Client {
        return Ok(());
    }
    let limit = match flags.duration("timeout") {
        0 => wait::LONG,
        nanos => Duration::from_nanos(nanos.unsigned_abs()),
    };
    let deadline = Instant::now() + limit;
    let results = futures::future::join_all(leaving.iter().map(|pod| evict(context, pod, dry_run, deadline))).await;
    let Err(error) = results.into_iter().collect::<Result<()>>() else { return Ok(()) };
    pending(context, node, &error).await?;
    Err(error)
}

/// The pods that did not leave.
async fn pending(context: &Context, node: &Info, error: &Error) -> Result<()> {
    let fields = format!("spec.nodeName={}", node.name);
    let left = pods::list_pods(context, None, context.flags.text("pod-selector"), &fields).await?;
    let left: Vec<&Value> =
        left.iter().filter(|pod| !matches!(verdict(context, pod), Verdict::Leave | Verdict::Warn(_))).collect();
    if !left.is_empty() {
        let why = error.inner();
        warn(format!(
            "There are pending pods in node {} when an error occurred: {why}",
            crate::text::quote(&node.name)
        ));
        left.iter().for_each(|pod| warn(format!("pod/{}", pod["metadata"]["name"].as_str().unwrap_or_default())));
    }
    Ok(())
}

/// A budget that is used up is asked again until it allows.
const AGAIN: Duration = Duration::from_secs(5);

async fn evict(context: &Context, pod: &Info, dry_run: DryRun, deadline: Instant) -> Result<()> {
    let flags = &context.flags;
    let (name, namespace) = (&*pod.name, pod.namespace.as_deref().unwrap_or_default());
    let mut options = json!({});
    if flags.int("grace-period") >= 0 {
        options["gracePeriodSeconds"] = flags.int("grace-period").into();
    }
    if dry_run == DryRun::Server {
        options["dryRun"] = json!(["All"]);
    }
    let client = context.client().await?;
    loop {
        let sent = if flags.is("disable-eviction") {
            client.json(Call::new(Method::DELETE, pod.path()).json(&options)).await
        } else {
            let body = json!({"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": pod.name, "namespace": pod.namespace}, "deleteOptions": options});
            client.json(Call::new(Method::POST, format!("{}/eviction", pod.path())).json(&body)).await
        };
        match sent {
            Ok(_) => break,
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) if error.reason() == "TooManyRequests" => {
                warn(format!(
                    "error when evicting pods/\"{name}\" -n \"{namespace}\" (will retry after 5s): {}",
                    error.inner()
                ));
                if Instant::now() + AGAIN > deadline {
                    tokio::time::sleep_until(deadline).await;
                    let limit = ferry_semantics::duration::show(flags.duration("timeout"));
                    return Err(Error::say(format!(
                        "error when evicting pods/\"{name}\" -n \"{namespace}\": global timeout reached: {limit}"
                    )));
                }
                tokio::time::sleep(AGAIN).await;
            }
            Err(error) => {
                return Err(Error::say(format!(
                    "error when evicting pods/\"{name}\" -n \"{namespace}\": {}",
                    error.inner()
                )));
            }
        }
    }
    if dry_run != DryRun::No {
        return Ok(());
    }
    let uid = pod.object["metadata"]["uid"].as_str();
    let gone = wait::until_gone(context, pod, uid, wait::LONG);
    tokio::time::timeout_at(deadline, gone).await.unwrap_or_else(|_| {
        Err(Error::say(format!(
            "error when waiting for pod \"{name}\" in namespace \"{namespace}\" to terminate: context deadline exceeded"
        )))
    })?;
    line(format!("pod/{} {}", pod.name, if flags.is("disable-eviction") { "deleted" } else { "evicted" }));
    Ok(())
}
