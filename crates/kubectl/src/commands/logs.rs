//! `kubectl logs`.

use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use serde_json::Value;

use super::get_watch::next_part;
use super::pods::Purpose;
use super::{Command, common, leaf, pods};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::session::Context;
use crate::text::{flush, line, print, quote, warn};

pub const COMMAND: Command =
    leaf("logs", "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]", "Print the logs for a container in a pod", flags, |c| {
        Box::pin(run(c))
    });

fn flags() -> Vec<Flag> {
    vec![
        common::SELECTOR,
        switch("all-pods", "Get logs from all pods of the object."),
        switch("all-containers", "Get all containers' logs of the pods."),
        switch("follow", "Stream the logs.").short('f'),
        switch("timestamps", "Include timestamps on each line."),
        Flag::new("limit-bytes", Kind::Int, "0", "Maximum bytes of logs to return."),
        switch("previous", "Print the logs of the previous instance of the container.").short('p'),
        Flag::new("tail", Kind::Int, "-1", "Lines of recent logs to display."),
        switch("ignore-errors", "Go on with other logs where one cannot be read."),
        text("since-time", "Only logs after a date (RFC3339)."),
        Flag::new("since", Kind::Duration, "0s", "Only logs newer than a duration."),
        text("container", "The container.").short('c'),
        switch("insecure-skip-tls-verify-backend", "Do not check the kubelet's certificate."),
        Flag::new("max-log-requests", Kind::Int, "5", "How many logs to follow at once with a selector."),
        Flag::new("pod-running-timeout", Kind::Duration, "20s", "How long to wait until a pod runs."),
        switch("prefix", "Prefix each line with the pod and container it is of."),
    ]
}

struct Source {
    namespace: String,
    pod: String,
    container: String,
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let words = context.words();
    check_words(context)?;
    let patience = pods::patience(context)?;
    if let Some(time) = flags.given("since-time") {
        crate::go_time::check(time)?;
    }
    let namespace = context.namespace().await?;
    let object = match (words, flags.given("selector")) {
        ([], Some(selector)) => {
            let found = pods::list_pods(context, Some(namespace.clone()), selector, "").await?;
            if found.is_empty() {
                warn(format!("No resources found in {namespace} namespace."));
            }
            Err(found)
        }
        (_, Some(_)) => {
            return Err(Error::say("selectors and the all flag cannot be used when passing resource/name arguments"));
        }
        ([word, ..], None) => Ok(pods::object(context, "pods", word).await.map_err(|error| {
            let why = format!("error from server (NotFound): {} in namespace {}", error.inner(), quote(&namespace));
            if error.is_not_found() { Error::say(why) } else { error }
        })?),
        ([], None) => return Err(usage(context)),
    };
    check_flags(context)?;
    let found = match object {
        Err(found) => found,
        Ok(info) => {
            let mut found = pods::of(context, &info, Purpose::Logs, patience).await?;
            if found.len() > 1 && !flags.is("all-pods") {
                let name = found[0]["metadata"]["name"].as_str().unwrap_or_default();
                warn(format!("Found {} pods, using pod/{name}", found.len()));
                found.truncate(1);
            }
            found
        }
    };
    let mut sources = Vec::new();
    for pod in &found {
        of_pod(context, pod, words.get(1).map(String::as_str), &mut sources)?;
    }
    if flags.is("follow") && sources.len() > 1 {
        let most = flags.int("max-log-requests");
        if i64::try_from(sources.len()).unwrap_or(i64::MAX) > most {
            return Err(Error::say(format!(
                "you are attempting to follow {} log streams, but maximum allowed concurrency is {most}, use --max-log-requests to increase the limit",
                sources.len()
            )));
        }
        let mut running: FuturesUnordered<_> =
            sources.iter().map(|source| show_again(context, source, patience)).collect();
        while let Some(result) = running.next().await {
            result?;
        }
        return Ok(());
    }
    for source in &sources {
        show_again(context, source, patience).await?;
    }
    Ok(())
}

/// One log. A log that is followed may not be there yet: it is asked for until it is, or until nobody wants to wait any more.
async fn show_again(context: &Context, source: &Source, patience: Duration) -> Result<()> {
    let flags = &context.flags;
    let end = tokio::time::Instant::now() + patience;
    loop {
        let error = match show(context, source).await {
            Ok(()) => return Ok(()),
            Err(error) if flags.is("ignore-errors") => {
                line(format!("error: {}", error.inner()));
                return Ok(());
            }
            Err(error) => error,
        };
        if !flags.is("follow") {
            return Err(error);
        }
        warn(error.inner());
        if !matches!(error, Error::Status(_)) {
            return Err(error);
        }
        let next = tokio::time::Instant::now() + Duration::from_secs(1);
        tokio::time::sleep_until(next.min(end)).await;
        if next >= end {
            return Err(Error::say("context deadline exceeded"));
        }
    }
}

fn usage(context: &Context) -> Error {
    context.usage("expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command")
}

fn check_words(context: &Context) -> Result<()> {
    let selector = context.flags.given("selector").is_some();
    match context.words().len() {
        0 if !selector => Err(usage(context)),
        1 if selector => Err(context.usage("only a selector (-l) or a POD name is allowed")),
        0..=2 => Ok(()),
        _ => Err(usage(context)),
    }
}

/// What flags say together; kubectl looks at it when it has the object.
fn check_flags(context: &Context) -> Result<()> {
    let (flags, words) = (&context.flags, context.words());
    if flags.given("since-time").is_some() && flags.duration("since") != 0 {
        return Err(Error::say("at most one of `sinceTime` or `sinceSeconds` may be specified"));
    }
    let container = words.get(1).map_or(flags.text("container"), String::as_str);
    if flags.is("all-containers") && !container.is_empty() {
        return Err(Error::say(format!(
            "--all-containers=true should not be specified with container name {container}"
        )));
    }
    if flags.changed("container") && words.len() == 2 {
        return Err(Error::say("only one of -c or an inline [CONTAINER] arg is allowed"));
    }
    if flags.int("limit-bytes") < 0 {
        return Err(Error::say("--limit-bytes must be greater than 0"));
    }
    if since(context).is_some_and(|seconds| seconds < 0) {
        return Err(Error::say("--since must be greater than 0"));
    }
    if flags.int("tail") < -1 {
        return Err(Error::say("--tail must be greater than or equal to -1"));
    }
    Ok(())
}

/// Whole seconds, rounded.
fn since(context: &Context) -> Option<i64> {
    const SECOND: i64 = 1_000_000_000;
    match context.flags.duration("since") {
        0 => None,
        nanos => Some((nanos.abs().saturating_add(SECOND / 2) / SECOND) * nanos.signum()),
    }
}

fn of_pod(context: &Context, pod: &Value, inline: Option<&str>, sources: &mut Vec<Source>) -> Result<()> {
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mut add =
        |container: String| sources.push(Source { namespace: text("namespace"), pod: text("name"), container });
    if context.flags.is("all-containers") {
        let mut all = pods::containers(pod);
        let normal = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
        let inits = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
        // Those that ran first come first.
        all.rotate_left(normal);
        let ephemeral = all.len() - normal - inits;
        all[inits..].rotate_left(ephemeral);
        all.into_iter().for_each(&mut add);
        return Ok(());
    }
    match context.flags.given("container").or(inline) {
        Some(name) => {
            if !pods::containers(pod).iter().any(|known| known == name) {
                return Err(Error::say(format!(
                    "container {name} is not valid for pod {} out of: {}",
                    text("name"),
                    pods::shown(pod)
                )));
            }
            add(name.to_owned());
        }
        None => add(pods::default_container(pod, context.flags.is("all-pods"))?),
    }
    Ok(())
}

async fn show(context: &Context, source: &Source) -> Result<()> {
    let flags = &context.flags;
    let pod = context.kind("v1", "Pod").await?;
    let on = |name: &str| if flags.is(name) { "true" } else { "" };
    let tail = match (flags.changed("tail"), flags.given("selector")) {
        (false, Some(_)) => "10".to_owned(),
        _ if flags.int("tail") >= 0 => flags.int("tail").to_string(),
        _ => String::new(),
    };
    let since = since(context).map(|seconds| seconds.to_string()).unwrap_or_default();
    let limit = if flags.int("limit-bytes") > 0 { flags.text("limit-bytes") } else { "" };
    let path = query(
        &format!("{}/log", pod.object(Some(&source.namespace), &source.pod)),
        &[
            ("container", &source.container),
            ("follow", on("follow")),
            ("previous", on("previous")),
            ("timestamps", on("timestamps")),
            ("tailLines", &tail),
            ("sinceSeconds", &since),
            ("sinceTime", flags.text("since-time")),
            ("limitBytes", limit),
            ("insecureSkipTLSVerifyBackend", on("insecure-skip-tls-verify-backend")),
        ],
    );
    let mut body = context.client().await?.stream(Call::get(path).accept("*/*")).await?;
    let prefix = match flags.is("prefix") || flags.is("all-pods") {
        true => format!("[pod/{}/{}] ", source.pod, source.container),
        false => String::new(),
    };
    let mut line_begins = true;
    while let Some(part) = next_part(&mut body).await? {
        if prefix.is_empty() {
            print(&part);
        } else {
            for piece in part.split_inclusive(|byte| *byte == b'\n') {
                if std::mem::replace(&mut line_begins, piece.ends_with(b"\n")) {
                    print(&prefix);
                }
                print(piece);
            }
        }
        if flags.is("follow") {
            flush();
        }
    }
    Ok(())
}
