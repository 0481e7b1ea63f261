//! `--record`: the command line as an annotation of what it changed, which `rollout history` shows.

use serde_json::{Value, json};

use super::common::{self, DryRun, MERGE};
use crate::error::Result;
use crate::flags::{Flag, switch};
use crate::resource::Info;
use crate::session::Context;

pub const FLAG: Flag = switch("record", "Keep this command in an annotation of the resource.")
    .deprecated("--record will be removed in the future");

pub const CAUSE: &str = "kubernetes.io/change-cause";

/// Puts the command into the object, where that is asked for.
pub fn record(context: &Context, object: &mut Value) {
    if !context.flags.is(FLAG.name) {
        return;
    }
    if object["metadata"]["annotations"].is_null() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][CAUSE] = cause(context).into();
}

/// The same for an object that was just written; the object as it is then. A refusal does not undo what was written, and is not told.
pub async fn record_written(context: &Context, info: &Info, dry_run: DryRun) -> Result<Option<Value>> {
    if !context.flags.is(FLAG.name) {
        return Ok(None);
    }
    let mut body = json!({});
    record(context, &mut body);
    Ok(common::patch(context, info, MERGE, &body, dry_run).await.ok())
}

/// The words in their order, and behind them the flags with their long names.
fn cause(context: &Context) -> String {
    let mut text = context.path.clone();
    for word in context.words() {
        text = format!("{text} {word}");
    }
    for (name, value) in &context.flags.line {
        text = format!("{text} --{name}={value}");
    }
    text
}
