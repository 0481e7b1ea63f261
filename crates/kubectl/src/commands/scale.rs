//! `kubectl scale`.

use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use super::common::{self, DryRun, MERGE, Report};
use super::{Command, leaf, record};
use crate::client::{Call, query};
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

const PAUSE: Duration = Duration::from_secs(1);
/// How long it is tried again where others write, too.
const CONFLICTS: Duration = Duration::from_secs(300);

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(crate::print::FLAGS);
    flags.extend([
        common::DRY_RUN,
        record::FLAG,
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
    let replicas = flags.int("replicas");
    if replicas < 0 {
        return Err(Error::say("The --replicas=COUNT flag is required, and COUNT must be greater than or equal to 0"));
    }
    let current = flags.int("current-replicas");
    if current < -1 {
        return Err(Error::say("The --current-replicas must specify an integer of -1 or greater"));
    }
    let mut builder = Builder::of(context);
    builder.empty_selector = flags.is("all");
    builder.latest = true;
    let built = builder.build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let version = flags.text("resource-version");
    if !version.is_empty() && infos.len() > 1 {
        return Err(Error::say("cannot use --resource-version with multiple resources"));
    }
    if infos.is_empty() && unread.is_empty() {
        return Err(Error::say("no objects passed to scale"));
    }
    let wanted = Wanted { replicas, current: (current != -1).then_some(current), version };
    for info in infos {
        one(context, &info, &wanted, &report).await?;
    }
    // What could not be read is told when everything else is done.
    Error::all(unread)
}

struct Wanted<'a> {
    replicas: i64,
    /// Only where there are so many now.
    current: Option<i64>,
    /// Only where this is the version; empty for any.
    version: &'a str,
}

async fn one(context: &Context, info: &Info, wanted: &Wanted<'_>, report: &Report) -> Result<()> {
    let replicas = if report.dry_run == DryRun::Client {
        wanted.replicas
    } else {
        let replicas = scaled(context, info, wanted, report.dry_run).await?;
        let limit = context.flags.duration("timeout");
        if limit != 0 && report.dry_run == DryRun::No {
            wait_for(context, info, wanted.replicas, limit).await?;
        }
        record::record_written(context, info, report.dry_run).await?;
        replicas
    };
    let mut object = info.object.clone();
    // Of other groups nobody knows where the number stands.
    if matches!(&*info.resource.group, "" | "apps") {
        object["spec"]["replicas"] = replicas.into();
    }
    report.done(info, &object, "scaled")
}

/// Sets the number, again where somebody else wrote in between, and gives what stands there then.
async fn scaled(context: &Context, info: &Info, wanted: &Wanted<'_>, dry_run: DryRun) -> Result<i64> {
    if !info.resource.subresources.iter().any(|sub| sub == "scale") {
        return Err(Error::Status(Box::new(json!({"kind": "Status", "reason": "NotFound", "code": 404,
            "message": "the server could not find the requested resource"}))));
    }
    let end = Instant::now() + CONFLICTS;
    loop {
        match try_scaled(context, info, wanted, dry_run).await {
            Err(error) if error.is_conflict() && Instant::now() < end => {
                tokio::time::sleep(PAUSE.min(end - Instant::now())).await;
            }
            Err(error) if error.is_conflict() => return Err(Error::say("context deadline exceeded")),
            outcome => return outcome.map(|scale| scale["spec"]["replicas"].as_i64().unwrap_or(0)),
        }
    }
}

async fn try_scaled(context: &Context, info: &Info, wanted: &Wanted<'_>, dry_run: DryRun) -> Result<Value> {
    let client = context.client().await?;
    let path = format!("{}/scale", info.path());
    let written = query(&path, &[("dryRun", dry_run.parameter())]);
    if wanted.current.is_none() && wanted.version.is_empty() {
        let body = json!({"spec": {"replicas": wanted.replicas}}).to_string();
        return client.json(Call::new(Method::PATCH, written).body(MERGE, body.into_bytes())).await;
    }
    let mut scale = client.json(Call::get(path)).await?;
    let found = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if let Some(current) = wanted.current.filter(|current| *current != found) {
        return Err(Error::say(format!("Expected replicas to be {current}, was {found}")));
    }
    let found = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !wanted.version.is_empty() && found != wanted.version {
        return Err(Error::say(format!("Expected resource version to be {}, was {found}", wanted.version)));
    }
    scale["spec"]["replicas"] = wanted.replicas.into();
    client.json(Call::new(Method::PUT, written).json(&scale)).await
}

async fn wait_for(context: &Context, info: &Info, replicas: i64, nanos: i64) -> Result<()> {
    let limit = Duration::from_nanos(nanos.max(0).unsigned_abs());
    let client = context.client().await?;
    let reached = async {
        loop {
            let scale = client.json(Call::get(format!("{}/scale", info.path()))).await?;
            let wanted = scale["spec"]["replicas"].as_i64().unwrap_or(0);
            // Others want another number by now: nobody gets to this one.
            if wanted != replicas || scale["status"]["replicas"].as_i64().unwrap_or(0) == replicas {
                return Ok(());
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(limit, reached)
        .await
        .map_err(|_| Error::say(format!("timed out waiting for {} to be synced", crate::text::quote(&info.name))))?
}
