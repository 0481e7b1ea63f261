//! `kubectl apply`: three ways on the client, or on the server.

use http::Method;
use serde_json::{Value, json};

use super::common::{self, APPLY, DryRun, LAST_APPLIED, MERGE, Report, STRATEGIC, VALIDATE};
use super::{Command, edit, leaf, set_last_applied};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, switch, text};
use crate::patch;
use crate::print;
use crate::resource::{Builder, Info, Target};
use crate::session::Context;
use crate::text::{print as out, warn};

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
        VALIDATE,
        common::SELECTOR,
        common::ALL,
        Flag::new("field-manager", Kind::Text, "kubectl-client-side-apply", "Name of the manager of the fields."),
        switch("server-side", "Apply runs in the server instead of the client."),
        switch("force-conflicts", "Take fields that others manage; only with --server-side."),
        Flag::new("overwrite", Kind::Bool, "true", "Overwrite what was changed on the server."),
        switch("force", "Delete and recreate an object that cannot be patched."),
        switch("prune", "Delete objects that are no longer in the files."),
        text("applyset", "The name of the set that pruning goes by."),
        array("prune-allowlist", "Kinds to prune."),
        Flag::new("cascade", Kind::Text, "background", "How dependents are deleted.").bare("background"),
        Flag::new("grace-period", Kind::Int, "-1", "Seconds an object has to end."),
        Flag::new("timeout", Kind::Duration, "0s", "How long to wait for a deletion."),
        switch("wait", "Wait for deletions."),
        Flag::new("openapi-patch", Kind::Bool, "true", "Kept for old scripts."),
        text("subresource", "Operate on a subresource; only with --server-side."),
    ]);
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
    if flags.is("force") && server {
        return Err(Error::say("--force cannot be used with --server-side"));
    }
    if flags.is("force-conflicts") && !server {
        return Err(Error::say("--force-conflicts only works with --server-side"));
    }
    if flags.is("prune") || flags.given("applyset").is_some() {
        return Err(Error::say(
            "--prune and --applyset are not there yet; delete what is no longer wanted by its label",
        ));
    }
    let report = Report::of(context)?;
    if report.dry_run == DryRun::Client && server {
        return Err(Error::say(
            "--dry-run=client doesn't work with --server-side (did you mean --dry-run=server instead?)",
        ));
    }
    let validation = common::validation(flags)?;
    let built = Builder::of(context).build(context).await?;
    let several = built.targets.len() > 1;
    let (mut errors, mut shown) = (built.errors, Vec::new());
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        let result = match server {
            true => on_server(context, info, &report, validation).await,
            false => on_client(context, info, &report, validation).await,
        };
        match result {
            Ok((object, what)) if report.format.is_human() || matches!(report.format, print::Format::Name) => {
                report.done(info, &object, what)?;
            }
            Ok((object, _)) => shown.push(object),
            Err(error) => errors.push(error),
        }
    }
    if !shown.is_empty() {
        let list = json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": shown});
        out(report.format.object(if several { &list } else { &list["items"][0] }, true)?);
    }
    Error::all(errors)
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

async fn on_server(context: &Context, info: &Info, report: &Report, validation: &str) -> Result<(Value, &'static str)> {
    let flags = &context.flags;
    let manager = if flags.changed("field-manager") { flags.text("field-manager") } else { "kubectl" };
    let mut path = info.path();
    if let Some(subresource) = flags.given("subresource") {
        path = format!("{path}/{subresource}");
    }
    let path = query(
        &path,
        &[
            ("dryRun", report.dry_run.parameter()),
            ("fieldManager", manager),
            ("fieldValidation", validation),
            ("force", if flags.is("force-conflicts") { "true" } else { "false" }),
        ],
    );
    let call = Call::new(Method::PATCH, path).body(APPLY, print::compact(&info.object).into_bytes());
    match context.client().await?.json(call).await {
        Ok(object) => Ok((object, "serverside-applied")),
        Err(error) if error.is_conflict() => Err(Error::say(format!("{}\n{CONFLICTS}", error.inner()))),
        Err(error) => Err(error),
    }
}

const CONFLICTS: &str = "Please review the fields above--they currently have other managers. Here
are the ways you can resolve this warning:
* If you intend to manage all of these fields, please re-run the apply
  command with the `--force-conflicts` flag.
* If you do not intend to manage all of the fields, please edit your
  manifest to remove references to the fields that should keep their
  current managers.
* You may co-own fields by updating your manifest to match the existing
  value; in this case, you'll become the manager if the other manager(s)
  stop managing the field (remove it from their configuration).
See https://kubernetes.io/docs/reference/using-api/server-side-apply/#conflicts";

/// A conflict is tried so often with what the server has now.
const ATTEMPTS: usize = 5;

async fn on_client(context: &Context, info: &Info, report: &Report, validation: &str) -> Result<(Value, &'static str)> {
    let modified = common::with_last_applied(&info.object);
    let client = context.client().await?;
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
    use ferry_schema::patch::{PatchKind, apply};
    let Some(ty) = built_in(info) else {
        let mut object = current.clone();
        merge(&mut object, body);
        return object;
    };
    let kind = if kind == STRATEGIC { PatchKind::Strategic } else { PatchKind::Merge };
    let text = body.to_string();
    match apply(kind, &ty, current, text.as_bytes(), ferry_schema::Validation::Ignore) {
        Ok(decoded) => decoded.object,
        Err(_) => current.clone(),
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
    if !matches!(output, "yaml" | "json") {
        return Err(
            context.usage(format!("Unexpected -o output mode: {output}, the flag 'output' must be one of yaml|json"))
        );
    }
    let built = Builder::of(context).empty_selector().latest().build(context).await?;
    for info in crate::resource::read(context, &built.targets).await? {
        let Some(text) = info.object["metadata"]["annotations"][LAST_APPLIED].as_str() else {
            continue;
        };
        let value: Value = serde_json::from_str(text).map_err(|error| Error::say(error.to_string()))?;
        out(match output {
            "json" => String::from_utf8(ferry_schema::encode::encode_any(&value, true)).unwrap_or_default() + "\n",
            _ => ferry_schema::yaml::to_yaml(&value),
        });
    }
    Ok(())
}
