//! `kubectl set serviceaccount`.

use super::super::{Command, leaf};
use super::{Ending, about};
use crate::commands::common::{DryRun, Report};
use crate::error::{Error, Result};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "serviceaccount",
    "(-f FILENAME | TYPE NAME) SERVICE_ACCOUNT",
    "Update the service account of a resource",
    || super::flags(&[super::record::FLAG]),
    |c| Box::pin(run(c)),
)
.aliases(&["sa"]);

async fn run(context: &Context) -> Result<()> {
    let report = Report::of(context)?;
    if context.flags.is("local") && report.dry_run == DryRun::Server {
        return Err(Error::say(super::LOCAL_OR_SERVER));
    }
    let Some((name, resources)) = context.words().split_last() else {
        return Err(Error::say("serviceaccount is required"));
    };
    let resources = if context.flags.is("local") { &[] } else { resources };
    let ending = Ending {
        report: &report,
        what: "serviceaccount updated",
        failed: "failed to patch ServiceAccountName",
        always: true,
    };
    let mut errors = Vec::new();
    for info in super::objects(context, resources).await? {
        let mut changed = info.object.clone();
        let sent = match super::pod_spec(&mut changed) {
            Ok(spec) => {
                spec["serviceAccountName"] = name.clone().into();
                ending.send(context, &info, changed).await
            }
            Err(why) => Err(about(&info, &why)),
        };
        errors.extend(sent.err());
    }
    Error::all(errors)
}
