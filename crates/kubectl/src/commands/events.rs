//! `kubectl events`: events by time, of a namespace or of one object.

use serde_json::{Value, json};

use super::{Command, common, get_watch, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::print::{self, Format, tabs};
use crate::resource::{Selection, list};
use crate::session::Context;
use crate::text::{age, flush, print as out, warn};

pub const COMMAND: Command = leaf(
    "events",
    "[(-o|--output=)json|yaml|kyaml|name|go-template|go-template-file|template|templatefile|jsonpath|jsonpath-as-json|jsonpath-file] [--for TYPE/NAME] [--watch] [--types=Normal,Warning]",
    "List events",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = print::FLAGS.to_vec();
    flags.extend([
        switch("watch", "After listing the events, watch for more.").short('w'),
        common::ALL_NAMESPACES,
        text("for", "Only events about this resource, as TYPE/NAME."),
        slice("types", "Only events of these types: Normal, Warning."),
        switch("no-headers", "Do not print headers."),
        Flag::new("chunk-size", Kind::Int, "500", "Lists are asked for in chunks of this size; 0 is all at once."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let fields = about(context).await?;
    let format = Format::for_writing(flags)?;
    let types = flags.list("types");
    if types.iter().any(|kind| !kind.eq_ignore_ascii_case("Normal") && !kind.eq_ignore_ascii_case("Warning")) {
        return Err(Error::say("valid --types are Normal or Warning"));
    }
    let wanted = |event: &Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        types.is_empty() || types.iter().any(|wanted| wanted.eq_ignore_ascii_case(kind))
    };
    let namespace = if flags.is("all-namespaces") { None } else { Some(context.namespace().await?) };
    let resource = context.kind("v1", "Event").await?;
    let selection = Selection { resource, namespace: namespace.clone(), labels: String::new(), fields };
    if flags.is("watch") {
        let mut first = true;
        return get_watch::watch(context, &selection, "", crate::client::JSON, |kind, event| {
            if kind != "DELETED" && wanted(event) {
                let first = std::mem::take(&mut first);
                match &format {
                    Format::Human { .. } => out(table(context, std::slice::from_ref(event), first)),
                    format => out(format.object(event, first)?),
                }
                flush();
            }
            Ok(true)
        })
        .await;
    }
    let mut events = list(context, &selection, flags.int("chunk-size")).await?;
    events.retain(|event| wanted(event));
    if events.is_empty() {
        warn(match namespace {
            Some(namespace) => format!("No events found in {namespace} namespace."),
            None => "No events found.".to_owned(),
        });
        return Ok(());
    }
    events.sort_by_key(|event| time(event).map(|at| at.as_nanosecond()));
    match &format {
        Format::Human { .. } => out(table(context, &events, true)),
        format => {
            let list = json!({"apiVersion": "v1", "kind": "EventList", "metadata": {}, "items": events});
            match (format, print::typed_json(&list)) {
                (Format::Json { .. }, Some(text)) => out(text),
                _ => out(format.object(&list, true)?),
            }
        }
    }
    Ok(())
}

/// The field selector of `--for`.
async fn about(context: &Context) -> Result<String> {
    let Some(word) = context.flags.given("for") else { return Ok(String::new()) };
    let parts: Vec<&str> = word.split('/').collect();
    match &*parts {
        [_] => Err(Error::say("--for must be in resource/name form")),
        [kind, name] => {
            let resource = context.resource(&kind.to_lowercase()).await.map_err(Error::plain)?;
            Ok(format!(
                "involvedObject.kind={},involvedObject.apiVersion={},involvedObject.name={name}",
                resource.kind,
                resource.api_version()
            ))
        }
        _ => Err(Error::say("arguments in resource/name form may not have more than one slash")),
    }
}

/// When it was last seen.
fn time(event: &Value) -> Option<jiff::Timestamp> {
    let stamp = if event["series"].is_object() {
        &event["series"]["lastObservedTime"]
    } else if event["lastTimestamp"].is_string() {
        &event["lastTimestamp"]
    } else {
        &event["eventTime"]
    };
    ferry_meta::time::parse(stamp.as_str().unwrap_or_default())
}

fn table(context: &Context, events: &[Value], first: bool) -> String {
    let all = context.flags.is("all-namespaces");
    let mut text = String::new();
    if first && !context.flags.is("no-headers") {
        text.push_str(if all { "NAMESPACE\t" } else { "" });
        text.push_str("LAST SEEN\tTYPE\tREASON\tOBJECT\tMESSAGE\n");
    }
    for event in events {
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if all {
            text.push_str(&format!("{}\t", field(&event["metadata"]["namespace"])));
        }
        text.push_str(&format!(
            "{}\t{}\t{}\t{}/{}\t{}\n",
            interval(event),
            field(&event["type"]),
            field(&event["reason"]),
            field(&event["involvedObject"]["kind"]),
            field(&event["involvedObject"]["name"]),
            field(&event["message"]).trim()
        ));
    }
    tabs::align(&text, 6, 3)
}

fn interval(event: &Value) -> String {
    let since = |value: &Value| age(value.as_str().unwrap_or_default());
    let first =
        if event["eventTime"].is_string() { since(&event["eventTime"]) } else { since(&event["firstTimestamp"]) };
    let series = &event["series"];
    if series.is_object() {
        return format!(
            "{} (x{} over {first})",
            since(&series["lastObservedTime"]),
            series["count"].as_i64().unwrap_or(0)
        );
    }
    match event["count"].as_i64().unwrap_or(0) {
        count if count > 1 => format!("{} (x{count} over {first})", since(&event["lastTimestamp"])),
        _ => first,
    }
}
