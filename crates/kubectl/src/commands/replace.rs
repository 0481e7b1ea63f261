//! `kubectl replace`.

use std::time::Duration;

use http::Method;

use super::common::{self, DryRun, Report, VALIDATE, with};
use super::{Command, delete, leaf, wait};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::resource::{Builder, Info, Target};
use crate::session::Context;

pub const COMMAND: Command =
    leaf("replace", "-f FILENAME", "Replace a resource by file name or stdin", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-replace");
    flags.extend([
        VALIDATE,
        switch("save-config", "Keep the configuration of the object in its annotation."),
        switch("force", "Delete and recreate the object."),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds an object has to end."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait for a deletion."),
        Flag::new("cascade", Kind::Text, "background", "How dependents are deleted.").bare("background"),
        Flag::new("wait", Kind::Bool, "false", "Wait for deletions."),
        text("raw", "Raw URI to PUT to the server."),
        text("subresource", "Operate on a subresource of the object."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?;
    if flags.int("grace-period") >= 0 && !flags.is("force") {
        return Err(Error::say("--grace-period must have --force specified"));
    }
    if flags.duration("timeout") != 0 && !flags.is("force") {
        return Err(Error::say("--timeout must have --force specified"));
    }
    if flags.is("force") && report.dry_run != DryRun::No {
        // What is deleted first would be gone.
        return Err(Error::say("--dry-run can not be used when --force is set"));
    }
    if let Some(path) = flags.given("raw") {
        return common::send_raw(context, Method::PUT, path).await;
    }
    if flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        return Err(Error::say("must specify one of -f and -k"));
    }
    let validation = common::validation(flags)?;
    let built = Builder::of(context).build(context).await?;
    let mut errors = Vec::new();
    if flags.is("force") {
        Error::all(built.errors.clone())?;
        let limit = match flags.duration("timeout") {
            0 => Duration::from_secs(300),
            nanos => Duration::from_nanos(nanos.unsigned_abs()),
        };
        let options = delete::Options {
            // None is a second, and the object is waited for.
            grace: if flags.int("grace-period") == 0 { 1 } else { flags.int("grace-period") },
            propagation: delete::propagation(flags)?,
            dry_run: DryRun::No,
            ignore: true,
        };
        let mut gone = Vec::new();
        for target in &built.targets {
            let Target::File(info) = target else { continue };
            match delete::delete(context, info, &options).await {
                Ok(_) => gone.push(info),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        for info in gone {
            wait::until_gone(context, info, None, limit).await?;
        }
    }
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        if let Err(error) = one(context, info, &report, validation).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(built.errors);
    if errors.is_empty() && built.targets.is_empty() {
        return Err(Error::say("no objects passed to replace"));
    }
    Error::all(errors)
}

async fn one(context: &Context, info: &Info, report: &Report, validation: &str) -> Result<()> {
    let flags = &context.flags;
    let keeps = flags.is("save-config") || !info.object["metadata"]["annotations"][common::LAST_APPLIED].is_null();
    let mut object = if keeps { common::with_last_applied(&info.object) } else { info.object.clone() };
    if report.dry_run == DryRun::Client {
        return report.done(info, &object, "replaced");
    }
    if flags.is("force") {
        let made = common::create(context, info, &object, report.dry_run, validation).await?;
        return report.done(info, &made, "replaced");
    }
    if info.name.is_empty() {
        return Err(Error::say("resource name may not be empty").with_source("replacing", &info.source));
    }
    let client = context.client().await?;
    // Without a version, that of the moment is replaced.
    if object["metadata"]["resourceVersion"].as_str().is_none_or(str::is_empty)
        && let Ok(current) = client.json(Call::get(info.path())).await
    {
        object["metadata"]["resourceVersion"] = current["metadata"]["resourceVersion"].clone();
    }
    let mut path = info.path();
    if let Some(subresource) = flags.given("subresource") {
        path = format!("{path}/{subresource}");
    }
    let path = query(
        &path,
        &[
            ("dryRun", report.dry_run.parameter()),
            ("fieldManager", flags.text("field-manager")),
            ("fieldValidation", validation),
        ],
    );
    let replaced = client
        .json(Call::new(Method::PUT, path).json(&object))
        .await
        .map_err(|error| error.with_source("replacing", &info.source))?;
    report.done(info, &replaced, "replaced")
}
