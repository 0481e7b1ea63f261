//! `kubectl set`: one field of an object, found and changed in the same way by each command below it.

mod env;
mod image;
mod resources;
mod selector;
mod service_account;
mod subject;

use serde_json::{Value, json};

use super::common::{self, DryRun, Report, STRATEGIC, with};
use super::{Command, apply, group, record};
use crate::error::{Error, Result};
use crate::flags::Flag;
use crate::patch;
use crate::resource::{Builder, Info, read_all};
use crate::session::Context;

pub const COMMAND: Command = group(
    "set",
    "Set specific features on objects",
    &[image::COMMAND, resources::COMMAND, selector::COMMAND, subject::COMMAND, service_account::COMMAND, env::COMMAND],
);

const LOCAL_NEEDS_FILES: &str = "error: you must specify resources by --filename when --local is set.\nExample resource specifications include:\n   '-f rsrc.yaml'\n   '--filename=rsrc.json'";
const LOCAL_OR_SERVER: &str = "cannot specify --local and --dry-run=server - did you mean --dry-run=client?";
const ALL_OR_SELECTOR: &str = "cannot set --all and --selector at the same time";

/// Flags of each of them, and its own.
fn flags(own: &[Flag]) -> Vec<Flag> {
    let mut flags = with(&common::FILES, "kubectl-set");
    flags.extend([common::ALL, common::LOCAL]);
    flags.extend(own);
    flags
}

/// The objects that are meant: those of files as they are written there where `--local` says so, else the server's.
async fn objects(context: &Context, words: &[String]) -> Result<Vec<Info>> {
    let (infos, errors) = objects_and_errors(context, words).await?;
    Error::all(errors)?;
    Ok(infos)
}

/// The same, where those that can be read are changed even if others cannot.
async fn objects_and_errors(context: &Context, words: &[String]) -> Result<(Vec<Info>, Vec<Error>)> {
    let local = context.flags.is("local");
    let mut builder = Builder::of(context).words(words);
    (builder.empty_selector, builder.all) = (context.flags.is("all"), false);
    builder.latest = !local;
    let built = builder.build(context).await?;
    let (infos, mut errors) = read_all(context, &built.targets, 500).await;
    errors.extend(built.errors);
    let (mut infos, unknown): (Vec<Info>, Vec<Info>) = infos.into_iter().partition(common::is_built_in);
    errors.extend(unknown.iter().map(common::not_registered));
    for info in &mut infos {
        info.object = common::normalized(info.object.take());
    }
    Ok((infos, errors))
}

/// The same, after the flags that exclude each other have been looked at.
async fn selected(context: &Context, report: &Report) -> Result<Vec<Info>> {
    let flags = &context.flags;
    if flags.is("local") && !context.words().is_empty() {
        return Err(Error::say(LOCAL_NEEDS_FILES));
    }
    let infos = objects(context, context.words()).await?;
    if flags.is("local") && report.dry_run == DryRun::Server {
        return Err(Error::say(LOCAL_OR_SERVER));
    }
    if flags.is("all") && flags.given("selector").is_some() {
        return Err(Error::say(ALL_OR_SELECTOR));
    }
    Ok(infos)
}

/// The pod of the object, or of its template.
fn pod_spec(object: &mut Value) -> Result<&mut Value, String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    let path = match &*kind {
        "Pod" => "/spec",
        "ReplicationController" | "Deployment" | "DaemonSet" | "ReplicaSet" | "StatefulSet" | "Job" => {
            "/spec/template/spec"
        }
        "CronJob" => "/spec/jobTemplate/spec/template/spec",
        _ => "",
    };
    let version = object["apiVersion"].as_str().and_then(|v| v.rsplit('/').next()).unwrap_or_default().to_owned();
    let missing = || format!("the object is not a pod or does not have a pod template: *{version}.{kind}");
    if path.is_empty() {
        return Err(missing());
    }
    object.pointer_mut(path).filter(|spec| spec.is_object()).ok_or_else(missing)
}

/// Containers whose names fit, the init containers behind them.
fn containers<'a>(spec: &'a mut Value, pattern: &str) -> Vec<&'a mut Value> {
    let (mut plain, mut init) = (Vec::new(), Vec::new());
    for (field, container) in spec.as_object_mut().into_iter().flatten().flat_map(|(field, list)| {
        let list = match &**field {
            "containers" | "initContainers" => list.as_array_mut(),
            _ => None,
        };
        list.into_iter().flatten().map(move |container| (field, container))
    }) {
        if container.is_object() && fits(container["name"].as_str().unwrap_or_default(), pattern) {
            if field == "containers" { plain.push(container) } else { init.push(container) }
        }
    }
    plain.extend(init);
    plain
}

/// `*` stands for any text.
fn fits(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// How a change ends.
struct Ending<'a> {
    report: &'a Report,
    /// `image updated`.
    what: &'a str,
    /// Stands before what the server says.
    failed: &'a str,
    /// A patch without anything in it is sent as well.
    always: bool,
}

impl Ending<'_> {
    /// Sends what is new, or shows it.
    async fn send(&self, context: &Context, info: &Info, mut changed: Value) -> Result<()> {
        record::record(context, &mut changed);
        let body = match apply::built_in(info) {
            Some(ty) => patch::strategic_two_way(&ty, &info.object, &changed),
            None => patch::merge_two_way(&info.object, &changed),
        };
        if body == json!({}) && !self.always {
            return Ok(());
        }
        if context.flags.is("local") || self.report.dry_run == DryRun::Client {
            return self.report.made(info, &changed, self.what);
        }
        match common::patch(context, info, STRATEGIC, &body, self.report.dry_run).await {
            Ok(object) => self.report.made(info, &common::normalized(object), self.what),
            Err(error) if self.failed.is_empty() => Err(error),
            Err(error) => Err(Error::say(format!("{} {}", self.failed, error.inner()))),
        }
    }
}

/// What went wrong with one of several objects: `error: deployments/web …`. Without a server its kind is named.
fn about(info: &Info, why: &str) -> Error {
    let resource = &info.resource;
    let name = match resource.plural == resource.singular && !resource.group.is_empty() {
        true => format!("{}/{}\n", resource.kind_name(), info.name),
        false => format!("{}/{}", resource.plural, info.name),
    };
    Error::say(format!("error: {name} {why}\n"))
}

/// Words before the first pair, and the pairs.
fn pairs<'a>(words: &'a [String], one: &str) -> Result<(Vec<String>, &'a [String])> {
    let is_pair = |word: &String| word.find('=').is_some_and(|at| at > 0) || word.ends_with('-');
    let at = words.iter().position(is_pair).unwrap_or(words.len());
    let (resources, pairs) = words.split_at(at);
    match pairs.iter().find(|word| !is_pair(word)) {
        Some(stray) => Err(Error::say(format!("all resources must be specified before {one} changes: {stray}"))),
        None => Ok((resources.to_vec(), pairs)),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_fit_patterns() {
        for (name, pattern, fits) in [
            ("web", "*", true),
            ("web", "web", true),
            ("web", "we", false),
            ("web-1", "web-*", true),
            ("web-1", "*-1", true),
            ("web-1-x", "web*x", true),
            ("web", "web*b", false),
        ] {
            assert_eq!(super::fits(name, pattern), fits, "{name} {pattern}");
        }
    }
}
