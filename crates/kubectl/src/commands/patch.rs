//! `kubectl patch`.

use serde_json::Value;

use super::common::{self, DryRun, JSON_PATCH, MERGE, Report, STRATEGIC, with};
use super::{Command, apply, leaf, record};
use crate::config::file::go_error;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, text};
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "patch",
    "(-f FILENAME | TYPE NAME) [-p PATCH|--patch-file FILE]",
    "Update fields of a resource",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-patch");
    flags.extend([
        record::FLAG,
        text("patch", "The patch to be applied, as JSON or YAML.").short('p'),
        text("patch-file", "A file with the patch."),
        Flag::new("type", Kind::Text, "strategic", "json, merge or strategic."),
        common::LOCAL,
        text("subresource", "Operate on a subresource of the object."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let report = Report::of(context)?.like_a_real_run().each_alone();
    if flags.given("patch").is_some() && flags.given("patch-file").is_some() {
        return Err(Error::say("cannot specify --patch and --patch-file together"));
    }
    if flags.given("patch").is_none() && flags.given("patch-file").is_none() {
        return Err(Error::say("must specify --patch or --patch-file containing the contents of the patch"));
    }
    if flags.is("local") && !context.words().is_empty() {
        return Err(Error::say("cannot specify --local and server resources"));
    }
    if flags.is("local") && report.dry_run == DryRun::Server {
        return Err(Error::say("cannot specify --local and --dry-run=server - did you mean --dry-run=client?"));
    }
    let kind = match flags.text("type").to_lowercase().as_str() {
        "json" => JSON_PATCH,
        "merge" => MERGE,
        "strategic" => STRATEGIC,
        _ => {
            return Err(Error::say(format!(
                "--type must be one of [json merge strategic], not {}",
                crate::text::quote(flags.text("type"))
            )));
        }
    };
    let text = match flags.given("patch-file") {
        Some(path) => std::fs::read(path).map_err(|error| {
            Error::say(format!("unable to read patch file: {}", go_error("open", path.as_ref(), &error)))
        })?,
        None => flags.text("patch").as_bytes().to_vec(),
    };
    // What begins as JSON is sent as it is.
    let is_json = text.trim_ascii_start().starts_with(b"{");
    let patch = match ferry_schema::yaml::parse_value(&text) {
        Ok((patch, _)) => patch,
        Err(_) if is_json => Value::Null,
        Err(error) => {
            let shown = crate::text::quote(&String::from_utf8_lossy(&text));
            return Err(Error::say(format!("unable to parse {shown}: {error}")));
        }
    };
    let text = if is_json { text } else { patch.to_string().into_bytes() };
    let mut builder = Builder::of(context);
    builder.latest = !flags.is("local");
    let built = builder.build(context).await?;
    let (infos, mut unread) = read_all(context, &built.targets, 500).await;
    unread.extend(built.errors);
    let mut errors = Vec::new();
    for info in infos {
        if let Err(error) = one(context, &info, kind, &patch, &text, &report).await {
            errors.push(error);
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    Error::all(errors)
}

async fn one(context: &Context, info: &Info, kind: &str, patch: &Value, text: &[u8], report: &Report) -> Result<()> {
    let path = match context.flags.given("subresource") {
        Some(subresource) => format!("{}/{subresource}", info.path()),
        None => info.path(),
    };
    let local = context.flags.is("local") || report.dry_run == DryRun::Client;
    let mut object = if local {
        if kind == STRATEGIC && !common::is_built_in(info) {
            let (version, what) = (info.resource.api_version(), &info.resource.kind);
            return Err(Error::say(format!(
                "strategic merge patch is not supported for {version}, Kind={what} locally, try --type merge"
            )));
        }
        let mut object = apply::try_merged(info, kind, &info.object, patch)?;
        written(&mut object, &info.object, patch);
        object
    } else {
        let sent = common::patch_bytes(context, &path, kind, text.to_vec(), report.dry_run).await;
        sent.map_err(|error| match error.reason() {
            "UnsupportedMediaType" => {
                let (version, what) = (info.resource.api_version(), &info.resource.kind);
                Error::say(format!("{kind} is not supported by {version}, Kind={what}: {}", error.inner()))
            }
            _ => error,
        })?
    };
    let changed =
        object["metadata"]["resourceVersion"] != info.object["metadata"]["resourceVersion"] || object != info.object;
    if !local && let Some(recorded) = record::record_written(context, info, report.dry_run).await? {
        object = recorded;
    }
    report.done(info, &object, if changed { "patched" } else { "patched (no change)" })
}

/// Takes out what nobody wrote: empty parts that Go's types have and neither the object nor the patch does.
fn written(object: &mut Value, before: &Value, patch: &Value) {
    match object {
        Value::Object(map) => {
            let empty = |value: &Value| value.as_object().is_some_and(serde_json::Map::is_empty);
            map.retain(|key, value| !(empty(value) && before[key].is_null() && patch[key].is_null()));
            for (key, value) in map {
                written(value, &before[key.as_str()], &patch[key.as_str()]);
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                written(item, &before[index], &patch[index]);
            }
        }
        _ => {}
    }
}
