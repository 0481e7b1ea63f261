//! `kubectl scale`.

use serde_json::json;

use super::common::{self, DryRun, MERGE, Report, with};
use super::{Command, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, text};
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "scale",
    "[--resource-version=version] [--current-replicas=count] --replicas=COUNT (-f FILENAME | TYPE NAME)",
    "Set a new size for a deployment, replica set, or replication controller",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-scale");
    flags.extend([
        common::SELECTOR,
        common::ALL,
        text("resource-version", "Only if this is the resource's version."),
        Flag::new("current-replicas", Kind::Int, "-1", "Only if this is the current size."),
        Flag::new("replicas", Kind::Int, "0", "The new desired number of replicas."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait until it is done; zero means not at all."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?;
    if !flags.changed("replicas") {
        return Err(Error::say("required flag(s) \"replicas\" not set"));
    }
    if flags.int("replicas") < 0 {
        return Err(Error::say("The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0"));
    }
    if flags.changed("current-replicas") && flags.int("current-replicas") < -1 {
        return Err(Error::say("The --current-replicas must specify an integer of -1 or greater"));
    }
    let mut builder = Builder::of(context);
    builder.empty_selector = flags.is("all");
    builder.latest = true;
    let built = builder.build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    let none = infos.is_empty() && unread.is_empty();
    for info in infos {
        if let Err(error) = one(context, &info, &report).await {
            errors.push(error);
        }
    }
    if none {
        return Err(Error::say("no objects passed to scale"));
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

async fn one(context: &Context, info: &Info, report: &Report) -> Result<()> {
    let flags = &context.flags;
    if report.dry_run == DryRun::Client {
        return report.done(info, &info.object, "scaled");
    }
    if !info.resource.subresources.iter().any(|sub| sub == "scale") {
        return Err(Error::Status(Box::new(json!({"kind": "Status", "reason": "NotFound", "code": 404,
            "message": "the server could not find the requested resource"}))));
    }
    let client = context.client().await?;
    let path = format!("{}/scale", info.path());
    let wanted = flags.int("current-replicas");
    let version = flags.text("resource-version");
    if (flags.changed("current-replicas") && wanted >= 0) || !version.is_empty() {
        let current = client.json(Call::get(&*path)).await?;
        let replicas = current["spec"]["replicas"].as_i64().unwrap_or(0);
        let found = current["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        if !version.is_empty() && found != version {
            return Err(Error::say(format!("Expected resource version to be {version}, was {found}")));
        }
        if wanted >= 0 && replicas != wanted {
            return Err(Error::say(format!("Expected replicas to be {wanted}, was {replicas}")));
        }
    }
    let mut body = json!({"spec": {"replicas": flags.int("replicas")}});
    if !version.is_empty() {
        body["metadata"]["resourceVersion"] = version.into();
    }
    common::patch_at(context, &path, MERGE, &body, report.dry_run).await?;
    if flags.duration("timeout") > 0 {
        wait_for(context, info, flags.int("replicas"), flags.duration("timeout")).await?;
    }
    let object =
        if report.format.is_human() { info.object.clone() } else { client.json(Call::get(info.path())).await? };
    report.done(info, &object, "scaled")
}

async fn wait_for(context: &Context, info: &Info, replicas: i64, nanos: i64) -> Result<()> {
    let limit = std::time::Duration::from_nanos(nanos.unsigned_abs());
    let client = context.client().await?;
    let reached = async {
        loop {
            let scale = client.json(Call::get(format!("{}/scale", info.path()))).await?;
            if scale["status"]["replicas"].as_i64().unwrap_or(0) == replicas {
                return Ok(());
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(limit, reached)
        .await
        .map_err(|_| Error::say(format!("timed out waiting for {} to be synced", crate::text::quote(&info.name))))?
}
