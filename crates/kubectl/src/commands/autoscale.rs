//! `kubectl autoscale`: a HorizontalPodAutoscaler for what can be scaled.

use serde_json::{Value, json};

use super::common::{self, DryRun, Report, with, with_last_applied};
use super::{Command, leaf, record};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, Parsed, switch, text};
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "autoscale",
    "(-f FILENAME | TYPE NAME | TYPE/NAME) [--min=MINPODS] --max=MAXPODS [--cpu=CPU] [--memory=MEMORY]",
    "Auto-scale a deployment, replica set, stateful set, or replication controller",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-autoscale");
    flags.extend([
        Flag::new("min", Kind::Int, "-1", "The least number of pods."),
        Flag::new("max", Kind::Int, "-1", "The greatest number of pods. Required."),
        Flag::new("cpu-percent", Kind::Int, "-1", "The target of CPU, in percent of the request.").deprecated(
            "Use --cpu with percentage or resource quantity format (e.g., '70%' for utilization or '500m' for milliCPU).",
        ),
        record::FLAG,
        text("cpu", "The target of CPU: 70% of the request, or a quantity; milliCPU without a unit."),
        text("memory", "The target of memory: 60% of the request, or a quantity; mebibytes without a unit."),
        text("name", "The name of the autoscaler; that of the resource where none is given."),
        switch("save-config", "Keep the configuration of the object in its annotation."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !flags.changed("max") {
        return Err(Error::say("required flag(s) \"max\" not set"));
    }
    let report = Report::of(context)?;
    let (min, max) = (flags.int("min"), flags.int("max"));
    if max < 1 {
        return Err(Error::say(format!("--max=MAXPODS is required and must be at least 1, max: {max}")));
    }
    if max < min {
        return Err(Error::say(format!(
            "--max=MAXPODS must be larger or equal to --min=MINPODS, max: {max}, min: {min}"
        )));
    }
    if flags.int("cpu-percent") > 0 && flags.given("cpu").is_some() {
        return Err(Error::say("--cpu-percent and --cpu are mutually exclusive"));
    }
    let metrics = metrics(flags)?;
    let built = Builder::of(context).build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    if infos.is_empty() && unread.is_empty() {
        return Err(Error::say("no objects passed to autoscale"));
    }
    for info in infos {
        if let Err(error) = one(context, &info, &metrics, &report).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

fn metrics(flags: &Parsed) -> Result<Vec<Value>> {
    let metric = |name: &str, target: Value| json!({"type": "Resource", "resource": {"name": name, "target": target}});
    let mut metrics = Vec::new();
    let percent = flags.int("cpu-percent");
    if percent > 0 {
        metrics.push(metric("cpu", json!({"type": "Utilization", "averageUtilization": percent})));
    }
    for (name, unit) in [("cpu", "m"), ("memory", "Mi")] {
        if let Some(text) = flags.given(name) {
            metrics.push(metric(name, target(name, unit, text.trim())?));
        }
    }
    Ok(metrics)
}

/// `70%`, `500m` or a bare number.
fn target(name: &str, unit: &str, text: &str) -> Result<Value> {
    if let Some(percent) = text.strip_suffix('%') {
        return match percent.parse::<i32>() {
            Ok(value) if value >= 0 => Ok(json!({"type": "Utilization", "averageUtilization": value})),
            _ => Err(Error::say(format!("invalid percentage value: {percent}"))),
        };
    }
    let with_unit = match text.parse::<f64>() {
        Ok(_) => format!("{text}{unit}"),
        Err(_) => text.to_owned(),
    };
    match ferry_meta::quantity::Quantity::parse(&with_unit) {
        Ok(quantity) => Ok(json!({"type": "AverageValue", "averageValue": quantity.to_string()})),
        Err(_) => Err(Error::say(format!("invalid resource {name} value: {text}"))),
    }
}

async fn one(context: &Context, target: &Info, metrics: &[Value], report: &Report) -> Result<()> {
    let flags = &context.flags;
    let r = &target.resource;
    if !r.subresources.iter().any(|sub| sub == "scale") {
        return Err(Error::say(format!(
            "cannot autoscale a {}: could not find scale subresource for {}/{}, Resource={} in discovery information",
            r.kind, r.group, r.version, r.plural
        )));
    }
    let name = flags.given("name").unwrap_or(&target.name).to_owned();
    let mut object = json!({
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name},
        "spec": {
            "maxReplicas": flags.int("max"),
            "scaleTargetRef": {"apiVersion": r.api_version(), "kind": r.kind, "name": target.name},
        },
    });
    if flags.int("min") > 0 {
        object["spec"]["minReplicas"] = flags.int("min").into();
    }
    if !metrics.is_empty() {
        object["spec"]["metrics"] = metrics.into();
    }
    let namespace = context.namespace().await?;
    if context.namespace_is_explicit() {
        object["metadata"]["namespace"] = namespace.clone().into();
    }
    record::record(context, &mut object);
    let mut object = common::normalized(object);
    let resource = context.kind("autoscaling/v2", "HorizontalPodAutoscaler").await?;
    let info = Info { resource, namespace: Some(namespace), name, object: object.clone(), source: String::new() };
    if report.dry_run == DryRun::Client {
        return report.made(&info, &object, "created");
    }
    if flags.is("save-config") {
        object = with_last_applied(&object);
    }
    let made = common::create(context, &info, &object, report.dry_run, "").await.map_err(|error| {
        // kubectl tries the first version of the API then, which knows no metrics but that of the processor.
        if metrics.is_empty() {
            let why = "failed to create autoscaling/v2 HPA and the configuration is incompatible with autoscaling/v1: empty input";
            return Error::say(why);
        }
        error
    })?;
    report.made(&info, &common::normalized(made), "autoscaled")
}
