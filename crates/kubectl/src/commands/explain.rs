//! `kubectl explain`: what a kind and its fields are for, from the server's OpenAPI v3.

mod page;

use serde_json::Value;

use super::{Command, leaf};
use crate::client::Call;
use crate::discovery::Resource;
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, switch, text};
use crate::session::Context;
use crate::text::{print, quote};

pub const COMMAND: Command = leaf(
    "explain",
    "TYPE [--recursive=FALSE|TRUE] [--api-version=api-version-group] [-o|--output=plaintext|plaintext-openapiv2]",
    "Get documentation for a resource",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    vec![
        switch("recursive", "Print the fields of fields.").short('R'),
        text("api-version", "The group and version to explain."),
        Flag::new("output", Kind::Text, "plaintext", "Format in which to render the schema.").short('o'),
        Flag::new("max-depth", Kind::Int, "0", "How deep --recursive goes; 0 means all of it."),
    ]
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let word = match context.words() {
        [word] => word,
        [] => {
            return Err(Error::say(
                "You must specify the type of resource to explain. Use \"kubectl api-resources\" for a complete list of supported resources.\n",
            ));
        }
        _ => return Err(Error::say("We accept only this format: explain RESOURCE\n")),
    };
    let depth = flags.int("max-depth");
    if depth > 0 && !flags.is("recursive") {
        return Err(Error::say("--max-depth requires --recursive"));
    }
    let Ok(depth) = usize::try_from(depth) else { return Err(Error::say("--max-depth must be non-negative")) };
    let (mut resource, fields) = split(context, word).await?;
    if flags.text("output") != "plaintext" {
        return Err(Error::say(format!("unrecognized format: {}", flags.text("output"))));
    }
    if let Some(wanted) = flags.given("api-version") {
        let (group, version) = wanted.split_once('/').unwrap_or(("", wanted));
        if version.contains('/') {
            return Err(Error::say(format!("unexpected GroupVersion string: {wanted}")));
        }
        (resource.group, resource.version) = (group.to_owned(), version.to_owned());
    }
    let document = document(context, &resource).await?;
    let page = page::Page { document: &document, recursive: flags.is("recursive"), depth };
    let (text, error) = page.whole(&resource, &fields);
    print(text);
    error.map_or(Ok(()), Err)
}

/// `deployments.apps.spec.replicas`: the resource and the way to a field. Where a group is written, it is part of the
/// first.
async fn split(context: &Context, word: &str) -> Result<(Resource, Vec<String>)> {
    let word = word.strip_suffix('.').unwrap_or(word);
    let name = word.split('.').next().unwrap_or_default();
    let (resource, rest) = context
        .with_mapper(|mapper| {
            let first = mapper.resource(name)?;
            let same = |r: &&Resource| r.preferred && r.plural == first.plural && !r.group.is_empty();
            let grouped = mapper.found.resources.iter().filter(same).find_map(|r| {
                let rest = word.strip_prefix(&r.qualified())?;
                (rest.is_empty() || rest.starts_with('.')).then(|| (r.clone(), rest.to_owned()))
            });
            let plain = || (first.clone(), word[name.len()..].to_owned());
            Ok(grouped.filter(|_| context.flags.given("api-version").is_none()).unwrap_or_else(plain))
        })
        .await
        .map_err(Error::plain)?;
    Ok((resource, rest.split('.').filter(|field| !field.is_empty()).map(str::to_owned).collect()))
}

async fn document(context: &Context, resource: &Resource) -> Result<Value> {
    let client = context.client().await?;
    let index = client.json(Call::get("/openapi/v3")).await?;
    let key = match &*resource.group {
        "" => format!("api/{}", resource.version),
        group => format!("apis/{group}/{}", resource.version),
    };
    let Some(path) = index["paths"][&key]["serverRelativeURL"].as_str() else {
        let gvr = format!("{}/{}, Resource={}", resource.group, resource.version, resource.plural);
        return Err(Error::say(format!("couldn't find resource for {}", quote(&gvr))));
    };
    client.json(Call::get(path)).await
}
