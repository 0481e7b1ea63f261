//! `kubectl apply`: three ways on the client, or on the server.

use std::collections::HashSet;

use futures::{StreamExt, stream};
use http::Method;
use serde_json::{Value, json};

use super::apply_prune::{self, Visited};
use super::apply_set::ApplySet;
use super::common::{self, DryRun, LAST_APPLIED, MERGE, Report, STRATEGIC, VALIDATE};
use super::{Command, apply_server, edit, leaf, record, set_last_applied};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, switch, text};
use crate::patch;
use crate::print;
use crate::resource::{Builder, Info, Target};
use crate::session::Context;
use crate::text::{held, print as out, warn};

pub const COMMAND: Command = leaf(
    "apply",
    "(-f FILENAME | -k DIRECTORY)",
    "Apply a configuration to a resource by file name or stdin",
    flags,
    |c| Box::pin(run(c)),
)
.below(&[
    leaf(
        "view-last-applied",
        "(TYPE [NAME | -l label] | TYPE/NAME | -f FILENAME)",
        "View the latest last-applied-configuration annotations of a resource/object",
        view_flags,
        |c| Box::pin(view(c)),
    ),
    set_last_applied::COMMAND,
    edit::LAST,
]);

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(print::FLAGS);
    flags.extend([
        common::DRY_RUN,
        record::FLAG,
        VALIDATE,
        common::SELECTOR,
        common::ALL,
        Flag::new("field-manager", Kind::Text, "kubectl-client-side-apply", "Name of the manager of the fields."),
        switch("server-side", "Apply runs in the server instead of the client."),
        switch("force-conflicts", "Take fields that others manage; only with --server-side."),
        Flag::new("overwrite", Kind::Bool, "true", "Overwrite what was changed on the server."),
        switch("force", "Delete and recreate an object that cannot be patched."),
        switch("prune", "Delete objects that are no longer in the files."),
        array("prune-allowlist", "Kinds to prune."),
        Flag::new("cascade", Kind::Text, "background", "How dependents are deleted.").bare("background"),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds an object has to end."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait for a deletion."),
        switch("wait", "Wait for deletions."),
        Flag::new("openapi-patch", Kind::Bool, "true", "Kept for old scripts."),
        text("subresource", "Operate on a subresource; only with --server-side."),
    ]);
    // As kubectl has it: only for those who ask for it.
    if std::env::var("KUBECTL_APPLYSET").is_ok_and(|value| value == "true") {
        flags.push(text("applyset", "The object that remembers what was applied together."));
    }
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if !context.words().is_empty() {
        return Err(context.usage(format!("Unexpected args: [{}]", context.words().join(" "))));
    }
    if flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        return Err(Error::say("must specify one of -f and -k"));
    }
    let server = flags.is("server-side");
    let report = Report::of(context)?;
    super::delete::propagation(flags)?;
    let validation = common::validation(flags)?;
    let mut set = match flags.given("applyset") {
        Some(text) => Some(ApplySet::parse(context, text).await?),
        None => None,
    };
    let allowed = if flags.is("prune") { apply_prune::allowed(context).await? } else { Vec::new() };
    check(context, &report, set.as_ref(), !allowed.is_empty()).await?;
    let built = Builder::of(context).build(context).await?;
    let mut errors = built.errors;
    let files = built.targets.into_iter().filter_map(|target| match target {
        Target::File(info) => Some(info),
        _ => None,
    });
    let mut infos: Vec<Info> = files.collect();
    if infos.is_empty() && errors.is_empty() {
        return Err(Error::say("no objects passed to apply"));
    }
    let mut visited = Visited::default();
    if context.namespace_is_explicit() {
        visited.namespaces.insert(context.namespace().await?);
    }
    if let Some(set) = &mut set {
        for info in &mut infos {
            set.label(info)?;
        }
        set.begin(context, &report, validation, &infos).await?;
    }
    let mut shown = Vec::new();
    let one = async |info: &Info| match server {
        true => apply_server::apply(context, info, &report, validation).await,
        false => on_client(context, info, &report, validation).await,
    };
    for alike in independent(&infos) {
        let mut results = stream::iter(alike).map(|info| held(one(info))).buffered(AT_ONCE);
        for info in alike {
            visited.begin(info);
            let Some((result, warnings)) = results.next().await else { break };
            warnings.iter().for_each(warn);
            if let Ok((object, what)) = &result {
                visited.applied(object);
                context.remember(info);
                if !object["metadata"]["deletionTimestamp"].is_null() && *what != "created" {
                    let name = &info.name;
                    warn(format!("Warning: Detected changes to resource {name} which is currently being deleted."));
                }
            }
            match result {
                Ok((object, what)) if report.format.is_human() || matches!(report.format, print::Format::Name) => {
                    report.done(info, &object, what)?;
                }
                Ok((object, _)) => shown.push(object),
                Err(error) => errors.push(error),
            }
        }
    }
    if !shown.is_empty() {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": shown});
        out(report.format.object(if infos.len() > 1 { &list } else { &list["items"][0] }, true)?);
    }
    Error::all(errors)?;
    match set {
        Some(set) => set.prune(context, &report, validation, &visited).await,
        None if flags.is("prune") => apply_prune::run(context, &report, allowed, &visited).await,
        None => Ok(()),
    }
}

/// Flags that do not go together.
async fn check(context: &Context, report: &Report, set: Option<&ApplySet>, kinds: bool) -> Result<()> {
    let flags = &context.flags;
    let (server, force, all) = (flags.is("server-side"), flags.is("force"), flags.is("all"));
    let selector = flags.given("selector").is_some();
    let refused = [
        (flags.is("force-conflicts") && !server, "--force-conflicts only works with --server-side"),
        (
            report.dry_run == DryRun::Client && server,
            "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)",
        ),
        (force && server, "--force cannot be used with --server-side"),
        (report.dry_run == DryRun::Server && force, "--dry-run=server cannot be used with --force"),
        (all && selector, "cannot set --all and --selector at the same time"),
        (set.is_some() && !flags.is("prune"), "--applyset requires --prune"),
    ];
    let say = |refused: &[(bool, &str)]| match refused.iter().find(|(holds, _)| *holds) {
        Some((_, why)) => Err(Error::say(*why)),
        None => Ok(()),
    };
    say(&refused)?;
    if let Some(set) = set {
        set.validate(context).await?;
    }
    if flags.is("prune") {
        say(&[(force, "--force cannot be used with --prune")])?;
        say(&match set {
            Some(_) => [
                (all, "--all is incompatible with --applyset"),
                (selector, "--selector is incompatible with --applyset"),
                (kinds, "--prune-allowlist is incompatible with --applyset"),
            ],
            None => [
                (
                    !all && !selector,
                    "all resources selected for prune without explicitly passing --all. To prune all resources, pass the --all flag. If you did not mean to prune all resources, specify a label selector",
                ),
                (server, "--prune is in alpha and doesn't currently work on objects created by server-side apply"),
                (false, ""),
            ],
        })?;
    }
    let subresource = flags.given("subresource").is_some();
    say(&[(subresource && !server, "--subresource can only be specified for --server-side")])
}

fn described(info: &Info) -> String {
    let r = &info.resource;
    let group_version = format!("{}/{}", r.group, r.version);
    format!(
        "Resource: \"{group_version}, Resource={}\", GroupVersionKind: \"{group_version}, Kind={}\"\nName: {}, Namespace: {}",
        r.plural,
        r.kind,
        crate::text::quote(&info.name),
        crate::text::quote(info.namespace.as_deref().unwrap_or_default())
    )
}

/// A conflict is tried so often with what the server has now.
const ATTEMPTS: usize = 5;

/// So many objects are under way at once, where none of them can need another.
const AT_ONCE: usize = 32;

/// The files' objects in their order, cut wherever one may need those before it: at another
/// kind, at a name that comes again, and at Services.
fn independent(infos: &[Info]) -> Vec<&[Info]> {
    let mut seen = HashSet::new();
    let mut runs = Vec::new();
    let mut start = 0;
    for (at, info) in infos.iter().enumerate() {
        let place = (info.namespace.as_deref(), &*info.name);
        // A Service that gets a port of the nodes must not take the one that another asks for behind it.
        let alike = infos[start].resource == info.resource && info.resource.kind != "Service";
        if !alike || !seen.insert(place) {
            runs.push(&infos[start..at]);
            start = at;
            seen = HashSet::from([place]);
        }
    }
    runs.push(&infos[start..]);
    runs
}

/// A name that the server makes up would be another one with each apply.
pub fn named(info: &Info) -> Result<()> {
    match info.object["metadata"]["generateName"].as_str().filter(|begin| !begin.is_empty() && info.name.is_empty()) {
        Some(begin) => Err(Error::say(format!("from {begin}: cannot use generate name with apply"))),
        None => Ok(()),
    }
}

async fn on_client(context: &Context, info: &Info, report: &Report, validation: &str) -> Result<(Value, &'static str)> {
    let mut modified = info.object.clone();
    record::record(context, &mut modified);
    let modified = common::with_last_applied(&modified);
    let client = context.client().await?;
    named(info)?;
    if info.name.is_empty() {
        let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", described(info));
        return Err(Error::say("resource name may not be empty").with_source(&verb, &info.source));
    }
    for attempt in 1.. {
        let current = match client.json(Call::get(info.path())).await {
            Ok(current) => current,
            Err(error) if error.is_not_found() => {
                let made = match report.dry_run {
                    DryRun::Client => Ok(modified.clone()),
                    dry_run => common::create(context, info, &modified, dry_run, validation).await,
                };
                return Ok((made.map_err(|error| error.with_source("creating", &info.source))?, "created"));
            }
            Err(error) => {
                let verb = format!("retrieving current configuration of:\n{}\nfrom server for:", described(info));
                return Err(error.with_source(&verb, &info.source));
            }
        };
        let annotation = current["metadata"]["annotations"][LAST_APPLIED].as_str();
        if annotation.is_none() {
            warn(format!(
                "Warning: resource {}/{} is missing the {LAST_APPLIED} annotation which is required by kubectl apply. kubectl apply should only be used on resources created declaratively by either kubectl create --save-config or kubectl apply. The missing annotation will be patched automatically.",
                info.resource.plural, info.name
            ));
        }
        let original: Value = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| json!({}));
        let (kind, body) = difference(info, &original, &modified, &current);
        if body == json!({}) {
            return Ok((current, "unchanged"));
        }
        if report.dry_run == DryRun::Client {
            return Ok((merged(info, kind, &current, &body), "configured"));
        }
        let path = query(
            &info.path(),
            &[
                ("dryRun", report.dry_run.parameter()),
                ("fieldManager", context.flags.text("field-manager")),
                ("fieldValidation", validation),
            ],
        );
        let sent = client.json(Call::new(Method::PATCH, path).body(kind, print::compact(&body).into_bytes())).await;
        match sent {
            Ok(object) => return Ok((object, "configured")),
            Err(error) if error.is_conflict() && attempt < ATTEMPTS => {}
            Err(error) if context.flags.is("force") && matches!(error.reason(), "Invalid" | "Conflict") => {
                return replace(context, info, &modified, report, validation).await;
            }
            Err(error) => {
                let verb = format!("applying patch:\n{}\nto:\n{}\nfor:", print::compact(&body), described(info));
                return Err(error.with_source(&verb, &info.source));
            }
        }
    }
    Err(Error::quiet())
}

pub fn built_in(info: &Info) -> Option<ferry_schema::Type> {
    let r = &info.resource;
    ferry_schema::builtin().kind(&ferry_meta::GroupVersionKind::new(&*r.group, &*r.version, &*r.kind))
}

/// The patch and its kind.
pub fn difference(info: &Info, original: &Value, modified: &Value, current: &Value) -> (&'static str, Value) {
    match built_in(info) {
        Some(ty) => (STRATEGIC, patch::strategic_three_way(&ty, original, modified, current)),
        None => (MERGE, patch::merge_three_way(original, modified, current)),
    }
}

/// What the object would be, without asking.
pub fn merged(info: &Info, kind: &str, current: &Value, body: &Value) -> Value {
    try_merged(info, kind, current, body).unwrap_or_else(|_| current.clone())
}

/// The same, or why it cannot be.
pub fn try_merged(info: &Info, kind: &str, current: &Value, body: &Value) -> Result<Value> {
    use ferry_schema::patch::{PatchKind, apply};
    let Some(ty) = built_in(info) else {
        let mut object = current.clone();
        merge(&mut object, body);
        return Ok(object);
    };
    let kind = match kind {
        STRATEGIC => PatchKind::Strategic,
        common::JSON_PATCH => PatchKind::Json,
        _ => PatchKind::Merge,
    };
    let text = body.to_string();
    match apply(kind, &ty, current, text.as_bytes(), ferry_schema::Validation::Ignore) {
        Ok(decoded) => Ok(decoded.object),
        Err(error) => Err(Error::say(error.to_string())),
    }
}

pub fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *into = patch.clone();
        return;
    };
    if !into.is_object() {
        *into = json!({});
    }
    let Some(map) = into.as_object_mut() else { return };
    for (key, value) in patch {
        match value {
            Value::Null => {
                map.remove(key);
            }
            value => merge(map.entry(key.clone()).or_insert(Value::Null), value),
        }
    }
}

/// `--force`: away with it, and anew.
async fn replace(
    context: &Context,
    info: &Info,
    modified: &Value,
    report: &Report,
    validation: &str,
) -> Result<(Value, &'static str)> {
    let client = context.client().await?;
    let seconds = context.flags.int("grace-period").max(0);
    let options = json!({"propagationPolicy": "Background", "gracePeriodSeconds": seconds});
    client.json(Call::new(Method::DELETE, info.path()).json(&options)).await?;
    super::wait::until_gone(context, info, None, super::wait::LONG).await?;
    Ok((common::create(context, info, modified, report.dry_run, validation).await?, "configured"))
}

fn view_flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend([Flag::new("output", Kind::Text, "yaml", "yaml or json.").short('o'), common::SELECTOR, common::ALL]);
    flags
}

async fn view(context: &Context) -> Result<()> {
    let output = context.flags.text("output");
    // A type alone means all of its objects where a namespace is named.
    let mut builder = Builder::of(context).latest();
    builder.empty_selector = context.namespace_is_explicit();
    let built = builder.build(context).await?;
    Error::all(built.errors)?;
    for info in crate::resource::read(context, &built.targets).await? {
        let Some(text) = info.object["metadata"]["annotations"][LAST_APPLIED].as_str() else {
            continue;
        };
        if !matches!(output, "yaml" | "json") {
            let why = format!("Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json");
            return Err(context.usage(why));
        }
        let value: Value = serde_json::from_str(text).map_err(|error| Error::say(error.to_string()))?;
        out(match output {
            "json" => String::from_utf8(ferry_schema::encode::encode_any(&value, true)).unwrap_or_default() + "\n",
            _ => ferry_schema::yaml::to_yaml(&value),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::Resource;

    fn info(plural: &str, namespace: &str, name: &str) -> Info {
        let resource = Resource { plural: plural.to_owned(), ..Resource::default() };
        let (namespace, name, source) = (Some(namespace.to_owned()), name.to_owned(), String::new());
        Info { resource, namespace, name, object: Value::Null, source }
    }

    #[test]
    fn only_objects_that_cannot_need_each_other_go_together() {
        let of = |words: &str| {
            let infos: Vec<Info> =
                words.split_whitespace().map(|word| info(&word[..1], &word[1..2], &word[2..])).collect();
            independent(&infos).iter().map(|run| run.len()).collect::<Vec<_>>()
        };
        // Kind, namespace and name of each.
        for (words, runs) in [
            ("", vec![0]),
            ("axp", vec![1]),
            ("axp axq ayp", vec![3]),
            ("axp axq axp", vec![2, 1]),
            ("nxa bxa bxb nxb", vec![1, 2, 1]),
        ] {
            assert_eq!(of(words), runs, "{words}");
        }
    }
}
