//! `create deployment`, `create job` and `create cronjob`.

use serde_json::{Value, json};

use super::{Command, generate, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, text};
use crate::session::Context;

pub const DEPLOYMENT: Command = leaf(
    "deployment",
    "NAME --image=image -- [COMMAND] [args...]",
    "Create a deployment with the specified name",
    || {
        generate::flags(&[
            array("image", "Image name to run; may be given several times."),
            Flag::new("port", Kind::Int, "-1", "The containerPort that this deployment exposes."),
            Flag::new("replicas", Kind::Int, "1", "Number of replicas to create.").short('r'),
        ])
    },
    |c| Box::pin(deployment(c)),
)
.aliases(&["deploy"]);

pub const JOB: Command = leaf(
    "job",
    "NAME --image=image [--from=cronjob/name] -- [COMMAND] [args...]",
    "Create a job with the specified name",
    || generate::flags(&[text("image", "Image name to run."), text("from", "The cronjob to create a job from.")]),
    |c| Box::pin(job(c)),
);

pub const CRON_JOB: Command = leaf(
    "cronjob",
    "NAME --image=image --schedule='0/5 * * * ?' -- [COMMAND] [args...] [flags]",
    "Create a cron job with the specified name",
    || {
        generate::flags(&[
            text("image", "Image name to run."),
            text("schedule", "A schedule in the Cron format the job should be run with."),
            text("restart", "Restart policy of the job: OnFailure or Never."),
        ])
    },
    |c| Box::pin(cron_job(c)),
)
.aliases(&["cj"]);

/// The name, and the command behind `--`.
fn words(context: &Context) -> Result<(String, Vec<String>)> {
    let all = context.words();
    let before = context.flags.dash.unwrap_or(all.len()).min(all.len());
    match &all[..before] {
        [name] => Ok((name.clone(), all[before..].to_vec())),
        names => Err(context.usage(format!("exactly one NAME is required, got {}", names.len()))),
    }
}

/// `nginx` of `docker.io/library/nginx:1.2@sha256:…`.
fn container_name(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    let name: String = last.split([':', '@']).next().unwrap_or(last).to_owned();
    // A name that had to be changed may be another's: it gets an end of its own.
    if name.contains(['_', '.']) {
        return format!("{}-{}", name.replace(['_', '.'], "-"), super::debug::letters());
    }
    name
}

fn need_image(image: &str) -> Result<()> {
    if image.is_empty() { Err(Error::say("required flag(s) \"image\" not set")) } else { Ok(()) }
}

async fn deployment(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.list("image").is_empty() {
        return Err(Error::say("required flag(s) \"image\" not set"));
    }
    let (name, command) = words(context)?;
    let images: Vec<String> =
        flags.list("image").iter().flat_map(|image| image.split(',').map(str::to_owned).collect::<Vec<_>>()).collect();
    if images.is_empty() {
        return Err(Error::say("required flag(s) \"image\" not set"));
    }
    if images.len() > 1 && !command.is_empty() {
        return Err(Error::say("cannot specify multiple --image options and command"));
    }
    let mut containers: Vec<Value> = Vec::new();
    for image in &images {
        let base = container_name(image);
        let mut unique = base.clone();
        while containers.iter().any(|container| container["name"] == unique.as_str()) {
            let random = ferry_meta::time::now().as_nanosecond() % 100_000;
            unique = format!("{base}-{random:05}");
        }
        let mut container = json!({"name": unique, "image": image});
        if !command.is_empty() {
            container["command"] = command.clone().into();
        }
        if flags.int("port") >= 0 && containers.is_empty() {
            container["ports"] = json!([{"containerPort": flags.int("port")}]);
        }
        containers.push(container);
    }
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "replicas": flags.int("replicas"), "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}},
        },
    });
    generate::finish(context, object).await
}

fn job_spec(name: &str, image: &str, command: &[String], restart: &str) -> Value {
    let mut container = json!({"name": name, "image": image});
    if !command.is_empty() {
        container["command"] = command.into();
    }
    json!({"template": {"metadata": {}, "spec": {"containers": [container], "restartPolicy": restart}}})
}

async fn job(context: &Context) -> Result<()> {
    let (name, command) = words(context)?;
    let (image, from) = (context.flags.text("image"), context.flags.text("from"));
    if image.is_empty() == from.is_empty() {
        return Err(Error::say("either --image or --from must be specified"));
    }
    if !command.is_empty() && !from.is_empty() {
        return Err(Error::say("cannot specify --from and command"));
    }
    if !from.is_empty() {
        return job_from(context, &name, from).await;
    }
    let spec = job_spec(&name, image, &command, "Never");
    generate::finish(
        context,
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}),
    )
    .await
}

async fn job_from(context: &Context, name: &str, from: &str) -> Result<()> {
    let kind_name = from.split_once('/').unwrap_or((from, ""));
    let resource = context.resource(kind_name.0).await?;
    if kind_name.1.is_empty() {
        return Err(Error::say("resource(s) were provided, but no name was specified"));
    }
    if resource.kind != "CronJob" {
        return Err(Error::say(format!("unknown object type *{}.{}", resource.version, resource.kind)));
    }
    let cron = crate::resource::get(context, &resource, Some(&context.namespace().await?), kind_name.1).await?;
    let template = &cron["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert("cronjob.kubernetes.io/instantiate".into(), "manual".into());
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": annotations, "ownerReferences": [{
            "apiVersion": "batch/v1", "kind": "CronJob", "name": cron["metadata"]["name"], "uid": cron["metadata"]["uid"],
            "controller": true,
        }]},
        "spec": template["spec"],
    });
    if let Some(labels) = template["metadata"]["labels"].as_object() {
        object["metadata"]["labels"] = labels.clone().into();
    }
    generate::finish(context, object).await
}

async fn cron_job(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let unset: Vec<&str> =
        ["\"image\"", "\"schedule\""].into_iter().filter(|name| !flags.changed(name.trim_matches('"'))).collect();
    if !unset.is_empty() {
        return Err(Error::say(format!("required flag(s) {} not set", unset.join(", "))));
    }
    let (name, command) = words(context)?;
    need_image(flags.text("image"))?;
    let restart = flags.given("restart").unwrap_or("OnFailure");
    let spec = job_spec(&name, flags.text("image"), &command, restart);
    let object = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name},
        "spec": {"schedule": flags.text("schedule"), "jobTemplate": {"metadata": {"name": name}, "spec": spec}},
    });
    generate::finish(context, object).await
}
