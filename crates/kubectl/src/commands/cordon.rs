//! `kubectl cordon` and `uncordon`.

use serde_json::json;

use super::common::{self, DryRun, STRATEGIC};
use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::Flag;
use crate::resource::{Builder, Info, Target, read_all};
use crate::session::Context;
use crate::text::line;

pub const CORDON: Command = leaf("cordon", "NODE", "Mark node as unschedulable", flags, |c| Box::pin(run(c, true)));
pub const UNCORDON: Command = leaf("uncordon", "NODE", "Mark node as schedulable", flags, |c| Box::pin(run(c, false)));

fn flags() -> Vec<Flag> {
    vec![common::DRY_RUN, common::SELECTOR]
}

/// The nodes of the words, or of the selector.
pub async fn nodes(context: &Context) -> Result<(Vec<Info>, Vec<Error>)> {
    let words = context.words();
    if words.is_empty() && context.flags.given("selector").is_none() {
        return Err(context.usage(format!("USAGE: {} NODE [flags]", context.path.trim_start_matches("kubectl "))));
    }
    if !words.is_empty() && context.flags.given("selector").is_some() {
        return Err(context.usage("cannot specify both a node name and a --selector option"));
    }
    let mut all = vec!["nodes".to_owned()];
    all.extend(words.iter().cloned());
    let words: Vec<String> = match words.first().is_some_and(|word| word.contains('/')) {
        true => words.to_vec(),
        false => all,
    };
    let built = Builder::of(context).words(&words).build(context).await?;
    if let Some(other) = built.targets.iter().map(Target::resource).find(|resource| resource.plural != "nodes") {
        let other = crate::text::quote(&format!("{}/{}, Resource={}", other.group, other.version, other.plural));
        return Err(Error::say(format!("expected resource of type node, got {other}")));
    }
    Ok(read_all(context, &built.targets, 500).await)
}

/// Whether pods may come to a node; tells what was done.
pub async fn mark(context: &Context, info: &Info, cordon: bool, dry_run: DryRun) -> Result<()> {
    let what = if cordon { "cordoned" } else { "uncordoned" };
    if info.object["spec"]["unschedulable"].as_bool().unwrap_or(false) == cordon {
        line(format!("node/{} already {what}{}", info.name, dry_run.suffix()));
        return Ok(());
    }
    if dry_run != DryRun::Client {
        let value = if cordon { json!(true) } else { json!(null) };
        common::patch(context, info, STRATEGIC, &json!({"spec": {"unschedulable": value}}), dry_run).await?;
    }
    line(format!("node/{} {what}{}", info.name, dry_run.suffix()));
    Ok(())
}

async fn run(context: &Context, cordon: bool) -> Result<()> {
    let dry_run = DryRun::of(&context.flags)?;
    let (infos, mut errors) = nodes(context).await?;
    // One that is not there, and none is touched.
    if let Some(first) = errors.drain(..).next() {
        return Err(first);
    }
    for info in infos {
        if let Err(error) = mark(context, &info, cordon, dry_run).await {
            errors.push(error);
        }
    }
    Error::all(errors)
}
