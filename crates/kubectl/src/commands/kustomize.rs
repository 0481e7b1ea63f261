//! `kubectl kustomize`: the objects of a kustomization, as they would be applied.

use super::{Command, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, text};
use crate::kustomize;
use crate::session::Context;
use crate::text::print;

pub const COMMAND: Command =
    leaf("kustomize", "DIR", "Build a kustomization target from a directory or URL", flags, |c| Box::pin(run(c)));

fn flags() -> Vec<Flag> {
    vec![text("output", "Write to this file.").short('o')]
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
