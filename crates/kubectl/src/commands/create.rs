//! `kubectl create -f`, and the generators below it.

use http::Method;

use super::common::{self, DryRun, Report, VALIDATE, with};
use super::{Command, create_apps, create_config, create_rbac, create_service, create_small, edit, leaf, record};
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::resource::{Builder, Target};
use crate::session::Context;

pub const COMMAND: Command =
    leaf("create", "-f FILENAME", "Create a resource from a file or from stdin", flags, |c| Box::pin(run(c))).below(&[
        create_rbac::CLUSTER_ROLE,
        create_rbac::CLUSTER_ROLE_BINDING,
        create_config::CONFIG_MAP,
        create_apps::CRON_JOB,
        create_apps::DEPLOYMENT,
        create_service::INGRESS,
        create_apps::JOB,
        create_small::NAMESPACE,
        create_small::POD_DISRUPTION_BUDGET,
        create_small::PRIORITY_CLASS,
        create_small::QUOTA,
        create_rbac::ROLE,
        create_rbac::ROLE_BINDING,
        create_config::SECRET,
        create_service::SERVICE,
        create_small::SERVICE_ACCOUNT,
        create_small::TOKEN,
    ]);

fn flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-create");
    flags.extend([
        VALIDATE,
        record::FLAG,
        common::SELECTOR,
        text("raw", "Raw URI to POST to the server."),
        switch("edit", "Edit the resource before creating it."),
        switch("windows-line-endings", "With --edit: lines end as on Windows."),
        switch("save-config", "Keep the configuration of the object in its annotation."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        if !context.words().is_empty() {
            return Err(context.usage(format!("Unexpected args: [{}]", context.words().join(" "))));
        }
        if flags.is("edit") {
            return Err(Error::say(crate::resource::MISSING));
        }
        return Err(Error::say("must specify one of -f and -k"));
    }
    if !context.words().is_empty() {
        return Err(context.usage(format!("Unexpected args: [{}]", context.words().join(" "))));
    }
    if let Some(path) = flags.given("raw") {
        if flags.is("edit") {
            return Err(Error::say("--raw and --edit are mutually exclusive"));
        }
        return common::send_raw(context, Method::POST, path).await;
    }
    let report = Report::of(context)?;
    let validation = common::validation(flags)?;
    let built = Builder::of(context).build(context).await?;
    let mut errors = Vec::new();
    if built.targets.is_empty() && built.errors.is_empty() {
        return Err(Error::say("no objects passed to create"));
    }
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        if flags.is("edit") {
            edit::before_create(context, info.clone()).await?;
            continue;
        }
        let mut object =
            if flags.is("save-config") { common::with_last_applied(&info.object) } else { info.object.clone() };
        record::record(context, &mut object);
        let made = match report.dry_run {
            DryRun::Client => Ok(object),
            dry_run => common::create(context, info, &object, dry_run, validation).await,
        };
        match made {
            Ok(made) => report.done(info, &made, "created")?,
            Err(error) => errors.push(error.with_source("creating", &info.source)),
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(built.errors);
    Error::all(errors)
}
