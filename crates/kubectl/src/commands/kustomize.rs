//! `kubectl kustomize`: the objects of a kustomization, as they would be applied.

use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, slice, switch, text};
use crate::kustomize;
use crate::session::Context;
use crate::text::print;

pub const COMMAND: Command =
    leaf("kustomize", "DIR", "Build a kustomization target from a directory or URL", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    vec![
        text("output", "Write to this file.").short('o'),
        switch("as-current-user", "Run functions as the user of this command; there are none."),
        switch("enable-alpha-plugins", "Enable plug-ins; there are none."),
        switch("enable-helm", "Enable Helm charts; there are none."),
        text("helm-command", "The program of Helm."),
        text("helm-api-versions", "Versions of the API for Helm."),
        text("helm-kube-version", "The version of Kubernetes for Helm."),
        switch("helm-debug", "Helm tells more."),
        text("load-restrictor", "Whether files outside of the folder may be read."),
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
    let objects = kustomize::build(folder).await?;
    let documents: Vec<String> = objects.iter().map(ferry_schema::yaml::to_yaml).collect();
    let whole = documents.join("---\n");
    match context.flags.given("output") {
        None => print(whole),
        Some(path) => std::fs::write(path, whole)
            .map_err(|error| Error::say(crate::config::file::go_error("open", std::path::Path::new(path), &error)))?,
    }
    Ok(())
}
