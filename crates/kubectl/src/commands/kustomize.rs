//! `kubectl kustomize`: the objects of a kustomization, as they would be applied.

use std::collections::HashSet;

use serde_json::Value;

use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::kustomize::{self, Asked};
use crate::session::Context;
use crate::text::print;

pub const COMMAND: Command =
    leaf("kustomize", "DIR [flags]", "Build a kustomization target from a directory or URL", flags, |c| {
        Box::pin(run(c))
    });

fn flags() -> Vec<Flag> {
    vec![
        text("output", "Write to this file.").short('o'),
        switch("as-current-user", "Run functions as the user of this command; there are none."),
        switch("enable-alpha-plugins", "Enable plug-ins; there are none."),
        switch("enable-helm", "Enable Helm charts; there are none."),
        text("helm-command", "The program of Helm."),
        slice("helm-api-versions", "Versions of the API for Helm."),
        text("helm-kube-version", "The version of Kubernetes for Helm."),
        switch("helm-debug", "Helm tells more."),
        Flag::new(
            "load-restrictor",
            Kind::Text,
            "LoadRestrictionsRootOnly",
            "LoadRestrictionsRootOnly; files outside of the folder are never read.",
        ),
        switch("enable-managedby-label", "Label the objects as kustomize's.").deprecated(
            "The flag `enable-managedby-label` has been deprecated. Use the `managedByLabel` option in the `buildMetadata` field instead.",
        ),
        Flag::new("reorder", Kind::Text, "legacy", "legacy or none: the order of the objects.")
            .deprecated("use the new 'sortOptions' field in kustomization.yaml instead."),
        slice("env", "Environment of functions; there are none.").short('e'),
        slice("mount", "Folders of functions; there are none."),
        switch("network", "Functions may use the network; there are none."),
        Flag::new("network-name", Kind::Text, "bridge", "The network of functions."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let folder = match context.words() {
        [] => ".",
        [folder] => folder,
        _ => return Err(Error::say("specify one path to kustomization.yaml")),
    };
    let flags = &context.flags;
    let restrictor = flags.text("load-restrictor");
    if !matches!(restrictor, "LoadRestrictionsRootOnly" | "LoadRestrictionsNone") {
        return Err(Error::say(format!(
            "illegal flag value --load-restrictor {restrictor}; legal values: [LoadRestrictionsRootOnly LoadRestrictionsNone]"
        )));
    }
    let sorted = match (flags.changed("reorder"), flags.text("reorder")) {
        (false, _) => None,
        (true, "none") => Some(false),
        (true, "legacy") => Some(true),
        (true, other) => {
            return Err(Error::say(format!("illegal flag value --reorder {other}; legal values: [legacy none]")));
        }
    };
    let objects = kustomize::build(folder, Asked { sorted, managed_by: flags.is("enable-managedby-label") }).await?;
    let documents: Vec<String> = objects.iter().map(ferry_schema::yaml::to_yaml).collect();
    let whole = documents.join("---\n");
    match context.flags.given("output") {
        None => print(whole),
        Some(folder) if std::path::Path::new(folder).is_dir() => {
            let several = objects.iter().filter_map(namespace).collect::<HashSet<_>>().len() > 1;
            for (object, document) in objects.iter().zip(&documents) {
                let before = namespace(object).filter(|_| several).map(|name| format!("{name}_")).unwrap_or_default();
                let path = std::path::Path::new(folder).join(before + &file_name(object));
                std::fs::write(&path, document)
                    .map_err(|error| Error::say(crate::config::file::go_error("open", &path, &error)))?;
            }
        }
        Some(path) => std::fs::write(path, whole)
            .map_err(|error| Error::say(crate::config::file::go_error("open", std::path::Path::new(path), &error)))?,
    }
    Ok(())
}

/// None where the kind is not in namespaces.
fn namespace(object: &Value) -> Option<String> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    (!kustomize::is_in_cluster(kind)).then(|| namespace.to_lowercase())
}

/// `apps_v1_deployment_web.yaml`.
fn file_name(object: &Value) -> String {
    let of = |value: &Value| value.as_str().unwrap_or_default().to_lowercase();
    let version = of(&object["apiVersion"]).replace('/', "_");
    format!("{version}_{}_{}.yaml", of(&object["kind"]), of(&object["metadata"]["name"]))
}
