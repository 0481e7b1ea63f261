//! `kubectl apply set-last-applied`: the annotation of a file, and nothing else of it.

use serde_json::{Value, json};

use super::common::{self, DryRun, LAST_APPLIED, MERGE, Report, with};
use super::{Command, leaf};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, array, switch};
use crate::print;
use crate::resource::{Builder, Target};
use crate::session::Context;
use crate::text::line;

pub const COMMAND: Command = leaf(
    "set-last-applied",
    "-f FILENAME",
    "Set the last-applied-configuration annotation on a live object to match the contents of a file",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags =
        with(&[array("filename", "Files that the annotation is made of.").short('f')], "kubectl-client-side-apply");
    flags.retain(|flag| flag.name != "field-manager");
    flags.push(switch("create-annotation", "Make the annotation where there is none."));
    flags
}

async fn run(context: &Context) -> Result<()> {
    let report = Report::of(context)?;
    let client = context.client().await?;
    let built = Builder::of(context).words(&[]).build(context).await?;
    Error::all(built.errors)?;
    let mut wanted = Vec::new();
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        let live = client.json(Call::get(info.path())).await?;
        let old = live["metadata"]["annotations"][LAST_APPLIED].as_str();
        if old.is_none() && !context.flags.is("create-annotation") {
            return Err(Error::say(format!(
                "no last-applied-configuration annotation found on resource: {}, to create the annotation, run the command with --create-annotation",
                info.name
            )));
        }
        let same = old.and_then(|old| serde_json::from_str::<Value>(old).ok()).is_some_and(|old| old == info.object);
        if same {
            line(format!("set-last-applied {}: no changes required.", info.name));
        } else {
            wanted.push((info, live));
        }
    }
    for (info, live) in wanted {
        let body = json!({"metadata": {"annotations": {LAST_APPLIED: print::compact(&info.object)}}});
        let object = match report.dry_run {
            DryRun::Client => live,
            dry_run => common::patch(context, info, MERGE, &body, dry_run).await?,
        };
        report.done(info, &object, "configured")?;
    }
    Ok(())
}
