//! `kubectl delete`, which waits until objects are gone.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use super::common::{self, DryRun};
use super::{Command, leaf, wait};
use crate::client::Call;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, Parsed, switch, text};
use crate::resource::{Builder, Info, Target, list, of_object};
use crate::session::Context;
use crate::text::{line, print, warn};

pub const COMMAND: Command = leaf(
    "delete",
    "([-f FILENAME] | [-k DIRECTORY] | TYPE [(NAME | -l label | --all)])",
    "Delete resources by file names, stdin, resources and names, or by resources and label selector",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend([
        common::DRY_RUN,
        common::SELECTOR,
        common::FIELD_SELECTOR,
        common::ALL,
        common::ALL_NAMESPACES,
        text("output", "name, for short output.").short('o'),
        text("raw", "Raw URI to DELETE."),
        Flag::new("cascade", Kind::Text, "background", "background, orphan or foreground.").bare("background"),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds an object has to end."),
        switch("now", "As --grace-period=1."),
        switch("force", "Remove objects from the API at once."),
        switch("ignore-not-found", "Treat 'not found' as a success."),
        Flag::new("wait", Kind::Bool, "true", "Wait until the objects are gone."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait; zero means as long as it takes."),
        switch("interactive", "Ask before objects are deleted.").short('i'),
    ]);
    flags
}

pub struct Options {
    pub grace: i64,
    pub propagation: &'static str,
    pub dry_run: DryRun,
    pub ignore: bool,
}

/// What happens to dependents.
pub fn propagation(flags: &Parsed) -> Result<&'static str> {
    let given = flags.text("cascade");
    if let Some(instead) = match given {
        "true" => Some("background"),
        "false" => Some("orphan"),
        _ => None,
    } {
        warn(format!(
            "warning: --cascade={given} is deprecated (boolean value) and can be replaced with --cascade={instead}."
        ));
    }
    match given {
        "background" | "true" => Ok("Background"),
        "orphan" | "false" => Ok("Orphan"),
        "foreground" => Ok("Foreground"),
        other => Err(Error::say(format!(
            "invalid cascade value ({other}). Must be \"background\", \"foreground\", or \"orphan\""
        ))),
    }
}

fn options(context: &Context) -> Result<Options> {
    let flags = &context.flags;
    let propagation = propagation(flags)?;
    let mut grace = flags.int("grace-period");
    let by_selector = flags.is("all") || flags.given("selector").is_some() || flags.given("field-selector").is_some();
    let ignore = flags.is("ignore-not-found") || (by_selector && !flags.changed("ignore-not-found"));
    if flags.is("now") {
        if grace != -1 {
            return Err(Error::say("--now and --grace-period cannot be specified together"));
        }
        grace = 1;
    }
    if grace == 0 && !flags.is("force") {
        grace = 1;
    }
    if flags.is("force") && grace < 0 {
        grace = 0;
    }
    Ok(Options { grace, propagation, dry_run: DryRun::of(flags)?, ignore })
}

fn check(context: &Context, options: &Options) -> Result<()> {
    let flags = &context.flags;
    let output = flags.text("output");
    if !matches!(output, "" | "name") {
        return Err(Error::say(format!("unexpected -o output mode: {output}. We only support '-o name'")));
    }
    if flags.is("all") && flags.given("selector").is_some() {
        return Err(Error::say("cannot set --all and --selector at the same time"));
    }
    if flags.is("all") && flags.given("field-selector").is_some() {
        return Err(Error::say("cannot set --all and --field-selector at the same time"));
    }
    if options.grace > 0 && flags.is("force") {
        return Err(Error::say("--force and --grace-period greater than 0 cannot be specified together"));
    }
    if options.grace == 0 && flags.is("force") {
        warn(
            "Warning: Immediate deletion does not wait for confirmation that the running resource has been terminated. The resource may continue to run on the cluster indefinitely.",
        );
    }
    Ok(())
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let options = options(context)?;
    if let Some(path) = flags.given("raw") {
        let answer = context.client().await?.bytes(Call::new(Method::DELETE, path)).await?;
        print(answer);
        return Ok(());
    }
    let built = Builder::of(context).build(context).await?;
    check(context, &options)?;
    let mut unread = Vec::new();
    let mut infos: Vec<Info> = Vec::new();
    for target in &built.targets {
        match target {
            Target::Many(selection) => match list(context, selection, 500).await {
                Ok(items) => infos.extend(items.into_iter().map(|object| of_object(&selection.resource, object))),
                Err(error) if error.is_not_found() && options.ignore => {}
                Err(error) => unread.push(error),
            },
            Target::One { resource, namespace, name } => infos.push(Info {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
                object: Value::Null,
                source: String::new(),
            }),
            Target::File(info) => infos.push(info.clone()),
        }
    }
    if flags.is("interactive") && !confirmed(&infos) {
        line("deletion is cancelled");
        return Ok(());
    }
    if context.namespace_is_explicit() && infos.iter().any(|info| !info.resource.namespaced) {
        warn("Warning: deleting cluster-scoped resources, not scoped to the provided namespace");
    }
    let (mut deleted, mut errors) = (Vec::new(), Vec::new());
    let mut found = 0;
    for info in infos {
        found += 1;
        match delete(context, &info, &options).await {
            Ok(uid) => deleted.push((info, uid)),
            Err(error) if error.is_not_found() && options.ignore => found -= 1,
            Err(error) => errors.push(error),
        }
    }
    // What went wrong with objects is told before what could not be read.
    errors.extend(unread);
    let unreadable = !built.errors.is_empty();
    errors.extend(built.errors);
    // As kubectl filters them: what is left of several stays several.
    if options.ignore && unreadable && errors.len() == 1 {
        return Err(Error::Many(errors));
    }
    Error::all(errors)?;
    if found == 0 {
        if !(options.ignore && flags.changed("ignore-not-found") && built.by_name) {
            line("No resources found");
        }
        return Ok(());
    }
    if !flags.is("wait") || options.dry_run != DryRun::No {
        return Ok(());
    }
    let timeout = match flags.duration("timeout") {
        0 => wait::LONG,
        nanos => Duration::from_nanos(nanos.unsigned_abs()),
    };
    for (info, uid) in deleted {
        match wait::until_gone(context, &info, Some(&uid), timeout).await {
            // Who may delete need not be allowed to look.
            Err(error) if matches!(error.reason(), "Forbidden" | "MethodNotAllowed") => {}
            other => other?,
        }
    }
    Ok(())
}

fn confirmed(infos: &[Info]) -> bool {
    line(format!("You are about to delete the following {} resource(s):", infos.len()));
    infos.iter().for_each(|info| line(info.shown()));
    print("Do you want to continue? (y/N): ");
    crate::text::flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && answer.trim().eq_ignore_ascii_case("y")
}

/// Deletes one, and tells its UID.
pub async fn delete(context: &Context, info: &Info, options: &Options) -> Result<String> {
    let mut uid = String::new();
    if options.dry_run != DryRun::Client {
        let mut body = json!({"propagationPolicy": options.propagation});
        if options.grace >= 0 {
            body["gracePeriodSeconds"] = options.grace.into();
        }
        // With a body, nothing in the query counts.
        if options.dry_run == DryRun::Server {
            body["dryRun"] = json!(["All"]);
        }
        let call = Call::new(Method::DELETE, info.path()).json(&body);
        let answer =
            context.client().await?.json(call).await.map_err(|error| error.with_source("deleting", &info.source))?;
        let told = answer["details"]["uid"].as_str().or(answer["metadata"]["uid"].as_str());
        uid = told.unwrap_or_default().to_owned();
    }
    if context.flags.text("output") == "name" {
        line(info.shown());
        return Ok(uid);
    }
    let mut what = if options.grace == 0 { "force deleted".to_owned() } else { "deleted".to_owned() };
    if let Some(namespace) = info.namespace.as_ref().filter(|_| info.resource.namespaced) {
        what = format!("{what} from {namespace} namespace");
    }
    line(format!("{} \"{}\" {what}{}", info.resource.kind_name(), info.name, options.dry_run.suffix()));
    Ok(uid)
}
