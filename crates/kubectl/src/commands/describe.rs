//! `kubectl describe`.

use super::{Command, common, leaf};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind};
use crate::resource::{Builder, Selection, Target, list, of_object, read_all};
use crate::session::Context;
use crate::text::{print, warn};

pub const COMMAND: Command = leaf(
    "describe",
    "(-f FILENAME | TYPE [NAME_PREFIX | -l label] | TYPE/NAME)",
    "Show details of a specific resource or group of resources",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = common::FILES.to_vec();
    flags.extend([
        common::SELECTOR,
        common::ALL_NAMESPACES,
        Flag::new("show-events", Kind::Bool, "true", "Show the events of the object."),
        Flag::new("chunk-size", Kind::Int, "500", "Return large lists in chunks."),
    ]);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    if context.words().is_empty() && flags.list("filename").is_empty() && flags.given("kustomize").is_none() {
        return Err(Error::say(
            "You must specify the type of resource to describe. Use \"kubectl api-resources\" for a complete list of supported resources.\n",
        ));
    }
    let mut builder = Builder::of(context).empty_selector();
    builder.latest = true;
    let built = builder.build(context).await?;
    let (mut infos, unread) = read_all(context, &built.targets, flags.int("chunk-size")).await;
    let mut errors = built.errors;
    errors.extend(unread);
    let one = errors.is_empty() && infos.len() < 2;
    let events = flags.is("show-events") && (one || flags.changed("show-events"));
    // A name that is not there may be the beginning of some.
    let mut end = "";
    if let [error] = &*errors
        && error.is_not_found()
        && let [Target::One { resource, namespace, name }] = &*built.targets
        && context.words().len() == 2
    {
        infos = by_prefix(context, resource, namespace.clone(), name).await?;
        if infos.is_empty() {
            return Err(error.clone());
        }
        errors.clear();
        end = "\n";
    }
    for (index, info) in infos.iter().enumerate() {
        if index > 0 && end.is_empty() {
            print("\n\n");
        }
        print(crate::describe::describe(context, info, events).await? + end);
    }
    if infos.is_empty() && errors.is_empty() {
        warn(match flags.is("all-namespaces") {
            true => "No resources found".to_owned(),
            false => format!("No resources found in {} namespace.", context.namespace().await?),
        });
    }
    Error::all(errors)
}

async fn by_prefix(
    context: &Context,
    resource: &crate::discovery::Resource,
    namespace: Option<String>,
    prefix: &str,
) -> Result<Vec<crate::resource::Info>> {
    let selection = Selection { resource: resource.clone(), namespace, labels: String::new(), fields: String::new() };
    let found = list(context, &selection, 500).await?;
    let named =
        found.into_iter().map(|object| of_object(resource, object)).filter(|info| info.name.starts_with(prefix));
    Ok(named.collect())
}
