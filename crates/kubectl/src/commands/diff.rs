//! `kubectl diff`: what an apply would change, shown by the machine's `diff`.

use std::path::Path;
use std::process::Stdio;

use http::Method;
use serde_json::{Value, json};

use super::common::{self, APPLY, DryRun, LAST_APPLIED};
use super::{Command, apply, apply_prune, leaf};
use crate::client::{Call, query};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, array, switch};
use crate::print;
use crate::resource::{Builder, Info, Target};
use crate::session::Context;
use crate::text::{flush, quote, warn};

pub const COMMAND: Command =
    leaf("diff", "-f FILENAME", "Diff the live version against a would-be applied version", flags, |c| {
        Box::pin(run(c))
    });

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend([
        common::SELECTOR,
        common::manager("kubectl-client-side-apply"),
        switch("server-side", "Apply runs in the server instead of the client."),
        switch("force-conflicts", "Take fields that others manage; only with --server-side."),
        switch("show-managed-fields", "Include managed fields."),
        switch("show-secrets", "Do not mask the values of Secrets."),
        switch("prune", "Include objects that pruning would delete."),
        array("prune-allowlist", "Kinds that are pruned as <group/version/kind>, instead of the usual ones."),
        Flag::new("concurrency", Kind::Int, "1", "Kept for scripts: objects are asked for one after the other."),
    ]);
    flags
}

/// 0 is no difference and 1 is one; what goes wrong ends with more.
async fn run(context: &Context) -> Result<()> {
    match compare(context).await {
        Ok(0) => Ok(()),
        Ok(code) => Err(Error::Exit { code, text: String::new() }),
        Err(error) => Err(Error::Exit { code: error.exit_code().saturating_add(1), text: error.shown() }),
    }
}

async fn compare(context: &Context) -> Result<u8> {
    let flags = &context.flags;
    if !context.words().is_empty() {
        return Err(context.usage(format!("Unexpected args: [{}]", context.words().join(" "))));
    }
    if flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        return Err(Error::say("must specify one of -f and -k"));
    }
    if flags.is("force-conflicts") && !flags.is("server-side") {
        return Err(Error::say("--force-conflicts only works with --server-side"));
    }
    let folder = |name: &str| {
        let made = tempfile::Builder::new().prefix(name).tempdir();
        made.map_err(|error| Error::say(format!("cannot make a folder for the two versions: {error}")))
    };
    let (live, merged) = (folder("LIVE-")?, folder("MERGED-")?);
    let kinds = apply_prune::allowed(context).await?;
    let built = Builder::of(context).build(context).await?;
    Error::all(built.errors)?;
    let mut visited = apply_prune::Visited::default();
    for target in &built.targets {
        let Target::File(info) = target else { continue };
        let (before, after) = versions(context, info).await?;
        visited.begin(info);
        before.iter().for_each(|live| visited.applied(live));
        let name = file_name(info);
        write(&live.path().join(&name), before.as_ref())?;
        write(&merged.path().join(&name), Some(&after))?;
    }
    if flags.is("prune") {
        for info in apply_prune::unvisited(context, kinds, &visited).await? {
            // Only on one side: it would be gone. Values of Secrets are not shown here either.
            let mut gone = info.object.clone();
            if gone["kind"] == "Secret" && !flags.is("show-secrets") {
                mask(Some(&mut gone), &mut json!({}));
            }
            write(&live.path().join(file_name(&info)), Some(&gone))?;
        }
    }
    program(live.path(), merged.path())
}

fn file_name(info: &Info) -> String {
    let r = &info.resource;
    let group = if r.group.is_empty() { String::new() } else { format!("{}.", r.group) };
    format!("{group}{}.{}.{}.{}", r.version, r.kind, info.namespace.as_deref().unwrap_or_default(), info.name)
}

fn write(path: &Path, object: Option<&Value>) -> Result<()> {
    let text = object.map(ferry_schema::yaml::to_yaml).unwrap_or_default();
    std::fs::write(path, text).map_err(|error| Error::say(crate::config::file::go_error("open", path, &error)))
}

/// A conflict is tried so often with what the server has now; the last time without looking at its version.
const ATTEMPTS: usize = 4;

/// What the server has, and what it would have.
async fn versions(context: &Context, info: &Info) -> Result<(Option<Value>, Value)> {
    let client = context.client().await?;
    let mut attempt = 1;
    loop {
        let live = match client.json(Call::get(info.path())).await {
            Ok(live) => Some(live),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error),
        };
        let merged = match merged(context, info, live.as_ref(), attempt == ATTEMPTS).await {
            Err(error) if error.is_conflict() && attempt < ATTEMPTS && !context.flags.is("server-side") => {
                attempt += 1;
                continue;
            }
            merged => merged?,
        };
        if live.as_ref().is_some_and(|live| live["metadata"]["deletionTimestamp"].is_string()) {
            warn(format!("Warning: Detected changes to resource {} which is currently being deleted.", info.name));
        }
        return Ok(shown(context, live, merged));
    }
}

async fn merged(context: &Context, info: &Info, live: Option<&Value>, force: bool) -> Result<Value> {
    let flags = &context.flags;
    let client = context.client().await?;
    if flags.is("server-side") {
        let manager = if flags.changed("field-manager") { flags.text("field-manager") } else { "kubectl" };
        let take = if flags.is("force-conflicts") { "true" } else { "false" };
        let path = query(&info.path(), &[("dryRun", "All"), ("fieldManager", manager), ("force", take)]);
        let body = print::compact(&info.object).into_bytes();
        return client.json(Call::new(Method::PATCH, path).body(APPLY, body)).await;
    }
    let Some(live) = live else {
        return common::create(context, info, &info.object, DryRun::Server, "").await;
    };
    let annotation = live["metadata"]["annotations"][LAST_APPLIED].as_str();
    let original: Value = annotation.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_else(|| json!({}));
    // An apply writes its annotation itself; the file says nothing of it.
    let mut modified = info.object.clone();
    match modified["metadata"]["annotations"].as_object_mut() {
        Some(annotations) => drop(annotations.remove(LAST_APPLIED)),
        None => modified["metadata"]["annotations"] = json!({}),
    }
    let (kind, mut body) = apply::difference(info, &original, &modified, live);
    if body == json!({}) {
        return Ok(live.clone());
    }
    if !force {
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    common::patch(context, info, kind, &body, DryRun::Server).await
}

/// Both without what is not to be seen.
fn shown(context: &Context, mut live: Option<Value>, mut merged: Value) -> (Option<Value>, Value) {
    if !context.flags.is("show-managed-fields") {
        for object in live.iter_mut().chain([&mut merged]) {
            object["metadata"].as_object_mut().into_iter().for_each(|map| drop(map.remove("managedFields")));
        }
    }
    if merged["kind"] == "Secret" && merged["apiVersion"] == "v1" && !context.flags.is("show-secrets") {
        mask(live.as_mut(), &mut merged);
        live.get_or_insert(Value::Null);
    }
    (live, merged)
}

/// Values of a Secret: whether they differ can be seen, what they are cannot.
fn mask(live: Option<&mut Value>, merged: &mut Value) {
    let mut empty = json!({});
    let live = live.unwrap_or(&mut empty);
    let (mut none, mut no) = (serde_json::Map::new(), serde_json::Map::new());
    let before = live.get_mut("data").and_then(Value::as_object_mut).unwrap_or(&mut none);
    let after = merged.get_mut("data").and_then(Value::as_object_mut).unwrap_or(&mut no);
    for (key, old) in before.iter_mut() {
        match after.get_mut(key) {
            Some(new) if old != new => {
                (*old, *new) = ("*** (before)".into(), "*** (after)".into());
            }
            Some(new) => (*old, *new) = ("***".into(), "***".into()),
            None => *old = "***".into(),
        }
    }
    for (_, new) in after.iter_mut().filter(|(key, _)| !before.contains_key(*key)) {
        *new = "***".into();
    }
}

/// Runs the program that shows differences; its code.
fn program(live: &Path, merged: &Path) -> Result<u8> {
    let own = std::env::var("KUBECTL_EXTERNAL_DIFF").unwrap_or_default();
    let mut words = own.split(' ');
    let name = Some(words.next().unwrap_or_default()).filter(|name| !name.is_empty());
    let mut command = std::process::Command::new(name.unwrap_or("diff"));
    if name.is_none() {
        command.args(["-u", "-N"]);
    }
    let plain =
        |word: &&str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '='));
    command.arg(live).arg(merged).args(words.filter(plain)).stdin(Stdio::null());
    flush();
    let failed = |why: String| Error::say(format!("failed to run {}: {why}", quote(name.unwrap_or("diff"))));
    let status = command.status().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed("executable file not found in $PATH".to_owned()),
        _ => failed(error.to_string()),
    });
    match status?.code() {
        Some(code @ (0 | 1)) => Ok(u8::from(code == 1)),
        Some(code) => Err(failed(format!("exit status {code}"))),
        None => Err(failed("it was ended by a signal".into())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    #[test]
    fn secrets_show_that_they_differ_and_not_how() {
        let mut live = json!({"data": {"same": "a", "other": "b", "gone": "c"}});
        let mut merged = json!({"data": {"same": "a", "other": "x", "new": "d"}});
        super::mask(Some(&mut live), &mut merged);
        assert_eq!(live, json!({"data": {"same": "***", "other": "*** (before)", "gone": "***"}}));
        assert_eq!(merged, json!({"data": {"same": "***", "other": "*** (after)", "new": "***"}}));
        let mut made = json!({"data": {"new": "d"}});
        super::mask(None, &mut made);
        assert_eq!(made, json!({"data": {"new": "***"}}));
    }
}
