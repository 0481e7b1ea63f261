//! `get --watch`: what is there, then every change.

use http_body_util::BodyExt;
use kube::client::Body;
use serde_json::{Value, json};

use crate::client::{Call, Deadline, JSON, TABLE, query};
use crate::error::{Error, Result};
use crate::print::Format;
use crate::print::table::Printer;
use crate::resource::{Builder, Pages, Selection, Target};
use crate::session::Context;
use crate::text::{flush, print};

/// A line of a watch that is longer is no event.
const LONGEST: usize = 64 << 20;

struct Output<'a> {
    format: &'a Format,
    printer: Printer,
    events: bool,
    first: bool,
}

impl Output<'_> {
    fn show(&mut self, kind: &str, object: &Value) -> Result<()> {
        let text = match self.format {
            Format::Human { .. } => self.printer.print(object, self.events.then_some(kind)),
            // An event is one line, with all that the server sent.
            Format::Json { .. } if self.events => {
                let (kind, object) = (crate::print::compact(&kind.into()), crate::print::compact(object));
                format!("{{\"type\":{kind},\"object\":{object}}}\n")
            }
            format if self.events => format.object(&json!({"type": kind, "object": object}), self.first)?,
            format => format.object(object, self.first)?,
        };
        self.first = false;
        print(text);
        flush();
        Ok(())
    }
}

pub async fn run(context: &Context, format: &Format) -> Result<()> {
    let flags = &context.flags;
    let mut builder = Builder::of(context).empty_selector().latest();
    builder.single_type = true;
    let built = builder.build(context).await?;
    let [target] = &*built.targets else {
        return Err(Error::say(format!(
            "watch is only supported on individual resources and resource collections - {} resources were found",
            built.targets.len()
        )));
    };
    let accept = if format.is_human() { TABLE } else { JSON };
    let wide = matches!(format, Format::Human { wide: true });
    let mut options = super::get::table_options(context, wide);
    options.namespace &= target.resource().namespaced;
    let events = flags.is("output-watch-events");
    let mut output = Output { format, printer: Printer::new(options), events, first: true };
    let client = context.client().await?;
    let (selection, version) = match target {
        Target::Many(selection) => {
            let mut version = String::new();
            let mut pages = Pages::new(selection, flags.int("chunk-size"), "");
            while let Some(page) = pages.next(context, accept).await? {
                version = page["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned();
                if flags.is("watch-only") {
                    continue;
                }
                match page["items"].as_array().filter(|_| !format.is_human()) {
                    Some(items) => {
                        for item in items {
                            let mut item = item.clone();
                            let kind = page["kind"].as_str().unwrap_or_default().trim_end_matches("List");
                            crate::resource::name_kind(&mut item, kind, &page["apiVersion"]);
                            output.show("ADDED", &item)?;
                        }
                    }
                    None => output.show("ADDED", &page)?,
                }
            }
            (selection.clone(), version)
        }
        Target::One { resource, namespace, name } => {
            let path = resource.object(namespace.as_deref(), name);
            match client.json(Call::get(path).accept(accept)).await {
                Ok(object) if !flags.is("watch-only") => output.show("ADDED", &object)?,
                Ok(_) => {}
                Err(error) if error.is_not_found() && flags.is("ignore-not-found") => return Ok(()),
                Err(error) => return Err(error),
            }
            let fields = format!("metadata.name={name}");
            let namespace = namespace.clone();
            (Selection { resource: resource.clone(), namespace, labels: String::new(), fields }, "0".to_owned())
        }
        Target::File(_) => return Err(Error::say("files cannot be watched")),
    };
    // One that starts at 0 tells first what was just shown.
    let mut skip = version == "0";
    watch(context, &selection, &version, accept, |kind, object| {
        if std::mem::take(&mut skip) && kind == "ADDED" {
            return Ok(true);
        }
        output.show(kind, object)?;
        Ok(true)
    })
    .await
}

/// Events of a selection, until `each` says that it is enough or the server ends.
pub async fn watch(
    context: &Context,
    selection: &Selection,
    version: &str,
    accept: &str,
    mut each: impl FnMut(&str, &Value) -> Result<bool>,
) -> Result<()> {
    let path = query(
        &selection.resource.collection(selection.namespace.as_deref()),
        &[
            ("watch", "true"),
            ("labelSelector", &selection.labels),
            ("fieldSelector", &selection.fields),
            ("resourceVersion", version),
        ],
    );
    let client = context.client().await?;
    let deadline = client.deadline();
    let mut body = client.stream(Call::get(path).accept(accept)).await?;
    let mut buffer = Vec::new();
    loop {
        let part = tokio::select! {
            // A connection that broke ends a watch like one that was closed.
            part = by(deadline, next_part(&mut body)) => part.unwrap_or_default(),
            // Who is interrupted here ends with a code, as kubectl does, and not by the signal.
            _ = tokio::signal::ctrl_c() => {
                flush();
                return Err(Error::quiet());
            }
        };
        let Some(part) = part else { break };
        buffer.extend_from_slice(&part);
        let mut start = 0;
        while let Some(end) = buffer[start..].iter().position(|byte| *byte == b'\n') {
            let line = &buffer[start..start + end];
            start += end + 1;
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            let event: Value = serde_json::from_slice(line)
                .map_err(|error| Error::say(format!("unable to decode an event from the watch stream: {error}")))?;
            let kind = event["type"].as_str().unwrap_or_default();
            if kind == "ERROR" && event["object"]["kind"] == "Status" {
                return Err(Error::Status(Box::new(event["object"].clone())));
            }
            if kind != "BOOKMARK" && !each(kind, &event["object"])? {
                return Ok(());
            }
        }
        buffer.drain(..start);
        if buffer.len() > LONGEST {
            return Err(Error::say("unable to decode an event from the watch stream: it is too long"));
        }
    }
    Ok(())
}

/// A watch that took as long as a request may take has ended; that is no error.
async fn by<T>(deadline: Deadline, next: impl Future<Output = Result<Option<T>>>) -> Result<Option<T>> {
    match deadline {
        Some(deadline) => tokio::time::timeout_at(deadline, next).await.unwrap_or(Ok(None)),
        None => next.await,
    }
}

pub async fn next_part(body: &mut Body) -> Result<Option<bytes::Bytes>> {
    flush();
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Ok(frame)) => {
                if let Ok(part) = frame.into_data() {
                    return Ok(Some(part));
                }
            }
            Some(Err(_)) => return Err(Error::say("unexpected EOF")),
        }
    }
}

pub async fn copy(body: &mut Body, mut to: impl FnMut(&[u8])) -> Result<()> {
    while let Some(part) = next_part(body).await? {
        to(&part);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_ends_with_the_time_of_its_request() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let ended = runtime.block_on(async {
            let past = tokio::time::Instant::now();
            by(Some(past), std::future::pending::<Result<Option<()>>>()).await
        });
        assert!(matches!(ended, Ok(None)));
    }
}
