//! `kubectl edit` and `apply edit-last-applied`: objects in an editor, again until the server takes them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::common::{self, DryRun, LAST_APPLIED, MERGE, Report, STRATEGIC, VALIDATE};
use super::{Command, apply, editor, leaf, record};
use crate::client::query;
use crate::discovery::qualified;
use crate::error::{Error, Result};
use crate::flags::{Flag, switch, text};
use crate::patch;
use crate::print::{self, Format};
use crate::resource::{Builder, Info, files, read};
use crate::session::Context;
use crate::text::{line, quote, warn};

pub const COMMAND: Command =
    leaf("edit", "(RESOURCE/NAME | -f FILENAME)", "Edit a resource on the server", flags, |c| Box::pin(run(c)));

pub const LAST: Command = leaf(
    "edit-last-applied",
    "(RESOURCE/NAME | -f FILENAME)",
    "Edit latest last-applied-configuration annotations of a resource/object",
    last_flags,
    |c| Box::pin(run_last(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend(print::FLAGS);
    flags.extend([
        VALIDATE,
        record::FLAG,
        common::manager("kubectl-edit"),
        switch("output-patch", "Show the patch that is sent."),
        switch("windows-line-endings", "Lines end as on Windows."),
        switch("save-config", "Keep the configuration of the object in its annotation."),
        text("subresource", "Operate on a subresource of the object."),
    ]);
    flags
}

fn last_flags() -> Vec<Flag> {
    let mut flags = flags();
    flags.retain(|flag| !matches!(flag.name, "output-patch" | "save-config" | "subresource" | "field-manager"));
    flags.push(common::manager("kubectl-client-side-apply"));
    flags
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Object,
    LastApplied,
    /// What is edited is not on the server yet.
    Create,
}

/// `create --edit`.
pub async fn before_create(context: &Context, info: Info) -> Result<()> {
    session(context, vec![info], Mode::Create).await
}

async fn originals(context: &Context) -> Result<Vec<Info>> {
    let built = Builder::of(context).empty_selector().latest().build(context).await?;
    Error::all(built.errors)?;
    read(context, &built.targets).await
}

async fn run(context: &Context) -> Result<()> {
    let infos = originals(context).await?;
    if infos.is_empty() {
        return Err(Error::say("edit cancelled, no objects found"));
    }
    session(context, infos, Mode::Object).await
}

async fn run_last(context: &Context) -> Result<()> {
    let mut infos = Vec::new();
    for info in originals(context).await? {
        let Some(text) = info.object["metadata"]["annotations"][LAST_APPLIED].as_str() else { continue };
        let object = serde_json::from_str(text).map_err(|error| Error::say(error.to_string()))?;
        infos.push(Info { object, ..info });
    }
    if infos.is_empty() {
        return Err(Error::say(
            "no last-applied-configuration annotation found on resources, to create the annotation, use command `kubectl apply set-last-applied --create-annotation`",
        ));
    }
    session(context, infos, Mode::LastApplied).await
}

const OBJECT: &str = "# Please edit the object below. Lines beginning with a '#' will be ignored,\n# and an empty file will abort the edit. If an error occurs while saving this file will be\n# reopened with the relevant failures.\n#\n";
const ANNOTATION: &str = "# Please edit the 'last-applied-configuration' annotations below.\n# Lines beginning with a '#' will be ignored, and an empty file will abort the edit.\n#\n";

/// Says where the work of the user is kept, where something ends early.
fn kept(error: Error, file: &Path) -> Error {
    if file.exists() {
        warn(format!("A copy of your changes has been stored to {}", quote(&file.display().to_string())));
    }
    error
}

async fn session(context: &Context, infos: Vec<Info>, mode: Mode) -> Result<()> {
    let output = context.flags.text("output");
    if mode == Mode::Object && !matches!(&*output.to_lowercase(), "" | "json" | "yaml" | "kyaml") {
        return Err(Error::say(format!(
            "unable to match a printer suitable for the output format {}, allowed formats are: json,kyaml,yaml",
            quote(output)
        )));
    }
    let report = Report::of_reading(context)?;
    let as_json = context.flags.text("output") == "json";
    let clean: Vec<Value> = infos.iter().map(|info| without_managed_fields(&info.object)).collect();
    let shown = match &*clean {
        [one] => one.clone(),
        all => json!({"apiVersion": "v1", "kind": "List", "metadata": {}, "items": all}),
    };
    let format = if as_json { Format::Json { managed: false } } else { Format::Yaml { managed: false } };
    let original = format.object(&shown, true)?;
    let ending = if as_json { ".json" } else { ".yaml" };
    let header = match mode {
        Mode::Object | Mode::Create => OBJECT,
        Mode::LastApplied => ANNOTATION,
    };
    let mut body = original.clone();
    let mut reasons = String::new();
    let mut last: Option<PathBuf> = None;
    let mut failed: Option<String> = None;
    loop {
        let head = if as_json { String::new() } else { format!("{header}{reasons}") };
        let (edited, file) = match editor::edit(&format!("{head}{body}"), ending) {
            Ok(edited) => edited,
            Err(error) => return Err(last.as_deref().map_or(error.clone(), |file| kept(error, file))),
        };
        let text = stripped(&edited);
        if failed.as_ref() == Some(&text) {
            return Err(kept(Error::say("Edit cancelled, no valid changes were saved."), &file));
        }
        if let Some(old) = last.take() {
            let _ = std::fs::remove_file(old);
        }
        if same(&text, &original) {
            let _ = std::fs::remove_file(&file);
            warn("Edit cancelled, no changes made.");
            return Ok(());
        }
        last = Some(file.clone());
        (body, failed) = (text.clone(), Some(text.clone()));
        let (updated, mut errors) = files::parse(context, text.as_bytes(), "edited-file").await;
        if updated.is_empty() && errors.is_empty() {
            errors.push(Error::say("[apiVersion not set, kind not set]"));
        }
        if let Err(error) = Error::all(errors) {
            warn(format!("error: {} is invalid", named(&infos[0])));
            let (said, whose) = (error.inner(), named(&infos[0]));
            let why = said.strip_prefix("error parsing edited-file: error converting YAML to JSON: ").unwrap_or(&said);
            reasons = commented(&match common::validation(&context.flags)? {
                "Ignore" => format!("The edited file had a syntax error: {said}"),
                _ => format!(
                    "{whose} was not valid:\n* <nil>: Invalid value: \"The edited file failed validation\": {why}"
                ),
            }) + "#\n";
            continue;
        }
        let mut outcome = Outcome::default();
        for info in &updated {
            let one = one(context, &infos, &clean, info, mode, &report, &mut outcome).await;
            one.map_err(|error| kept(error, &file))?;
        }
        let path = file.display();
        if outcome.retryable {
            warn(format!("You can run `kubectl replace -f {path}` to try this update again."));
            return Err(Error::quiet());
        }
        if outcome.missing {
            let path = quote(&path.to_string());
            warn(format!("The edits you made on deleted resources have been saved to {path}"));
            return Err(Error::quiet());
        }
        if outcome.reasons.is_empty() {
            let _ = std::fs::remove_file(&file);
            return Ok(());
        }
        reasons = outcome.reasons;
    }
}

#[derive(Default)]
struct Outcome {
    /// Comments for the next round.
    reasons: String,
    retryable: bool,
    missing: bool,
}

async fn one(
    context: &Context,
    originals: &[Info],
    clean: &[Value],
    edited: &Info,
    mode: Mode,
    report: &Report,
    outcome: &mut Outcome,
) -> Result<()> {
    if mode == Mode::Create {
        let object = match context.flags.is("save-config") {
            true => common::with_last_applied(&edited.object),
            false => edited.object.clone(),
        };
        let validation = common::validation(&context.flags)?;
        let made = common::create(context, edited, &object, DryRun::No, validation).await?;
        return report.done(edited, &made, "created");
    }
    let uid = &edited.object["metadata"]["uid"];
    let place = originals.iter().position(|info| info.object["metadata"]["uid"] == *uid);
    let Some((info, before)) = place.map(|at| (&originals[at], &clean[at])) else {
        return Err(Error::say(format!("no original object found for {}", print::compact(&edited.object))));
    };
    let mut after = edited.object.clone();
    // A namespace is filled in where the file has none.
    if before["metadata"]["namespace"].is_null() {
        after["metadata"].as_object_mut().into_iter().for_each(|map| drop(map.remove("namespace")));
    }
    if *before == after {
        return report.done(info, &after, "skipped");
    }
    if mode == Mode::LastApplied {
        let body = json!({"metadata": {"annotations": {LAST_APPLIED: print::compact(&after)}}});
        common::patch(context, info, MERGE, &body, DryRun::No).await?;
        return report.done(info, &after, "edited");
    }
    if context.flags.is("save-config") {
        after = common::with_last_applied(&after);
    }
    record::record(context, &mut after);
    let changed = |path: &str| before.pointer(path) != after.pointer(path);
    if changed("/apiVersion") || changed("/kind") || changed("/metadata/name") {
        return Err(Error::say("At least one of apiVersion, kind and name was changed"));
    }
    let (kind, body) = match apply::built_in(info) {
        Some(ty) => (STRATEGIC, patch::strategic_two_way(&ty, before, &after)),
        None => (MERGE, patch::merge_two_way(before, &after)),
    };
    if context.flags.is("output-patch") {
        line(format!("Patch: {}", print::compact(&body)));
    }
    let mut path = info.path();
    if let Some(subresource) = context.flags.given("subresource") {
        path = format!("{path}/{subresource}");
    }
    let path = query(&path, &[("fieldValidation", common::validation(&context.flags)?)]);
    match common::patch_at(context, &path, kind, &body, DryRun::No).await {
        Ok(object) => report.done(info, &object, "edited"),
        Err(error) => {
            refused(info, &error, outcome);
            Ok(())
        }
    }
}

/// `deployments.apps "web"`.
fn named(info: &Info) -> String {
    format!("{} {}", qualified(&info.resource.plural, &info.resource.group), quote(&info.name))
}

/// What the server does not take is edited again; what is gone or in the way is told.
fn refused(info: &Info, error: &Error, outcome: &mut Outcome) {
    let what = named(info);
    match (error.reason(), error) {
        ("Invalid", Error::Status(status)) => {
            let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
            let end = if causes.is_empty() { "" } else { ":" };
            outcome.reasons.push_str(&commented(&format!("{what} was not valid{end}")));
            for cause in causes {
                let text = |field: &str| cause[field].as_str().unwrap_or_default();
                outcome.reasons.push_str(&commented(&format!("* {}: {}", text("field"), text("message"))));
            }
            outcome.reasons.push_str("#\n");
            warn(format!("error: {what} is invalid"));
        }
        ("NotFound", _) => {
            outcome.missing = true;
            warn(format!("error: {what} could not be found on the server"));
        }
        _ => {
            outcome.retryable = true;
            warn(format!("error: {what} could not be patched: {}", error.inner()));
        }
    }
}

fn commented(text: &str) -> String {
    text.trim_end().lines().map(|line| format!("# {}\n", line.trim_start_matches("# "))).collect()
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    object["metadata"].as_object_mut().into_iter().for_each(|map| drop(map.remove("managedFields")));
    object
}

/// Without the lines that are comments.
fn stripped(text: &str) -> String {
    let comment = |line: &str| line.trim_start().starts_with('#') && !line.trim_start().starts_with("#!");
    text.split_inclusive('\n').filter(|line| !comment(line)).collect()
}

/// The same values, however they are written.
fn same(edited: &str, original: &str) -> bool {
    let parsed = |text: &str| ferry_schema::yaml::parse_value(text.as_bytes()).ok().map(|(value, _)| value);
    edited == original || parsed(edited).is_some_and(|edited| Some(edited) == parsed(original))
}

#[cfg(test)]
mod tests {
    #[test]
    fn comments_are_no_change() {
        let original = "a: 1\nb: two\n";
        assert_eq!(super::stripped("# x\na: 1\n  # y\nb: two\n"), original);
        assert!(super::same("b: two\na: 1\n", original));
        assert!(!super::same("a: 2\nb: two\n", original));
        assert_eq!(super::commented("one\ntwo\n"), "# one\n# two\n");
    }
}
