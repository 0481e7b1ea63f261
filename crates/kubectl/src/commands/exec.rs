//! `kubectl exec`.

use super::stream::{self, Process, Streams};
use super::{Command, leaf, pods};
use crate::error::{Error, Result};
use crate::flags::{Flag, slice};
use crate::resource::{Builder, Info, Target};
use crate::session::Context;

pub const COMMAND: Command = leaf(
    "exec",
    "(POD | TYPE/NAME) [-c CONTAINER] [flags] -- COMMAND [args...]",
    "Execute a command in a container",
    flags,
    |c| Box::pin(run(c)),
);

fn flags() -> Vec<Flag> {
    let mut flags = stream::flags();
    flags.push(slice("filename", "A file that names the pod.").short('f'));
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let words = context.words();
    let files = !flags.list("filename").is_empty();
    let (name, command) = match flags.dash {
        Some(0) => (None, words),
        Some(1) => (words.first(), &words[1..]),
        _ if words.len() > 1 || (!words.is_empty() && files) => {
            return Err(
                context.usage("exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead")
            );
        }
        _ => (words.first(), &[][..]),
    };
    let name = name.filter(|name| !name.is_empty());
    pods::patience(context).map_err(|error| context.usage(error.inner()))?;
    if name.is_none() && !files {
        return Err(Error::say("pod, type/name or --filename must be specified"));
    }
    if command.is_empty() {
        return Err(Error::say("you must specify at least one command for the container"));
    }
    let info = match name {
        Some(name) if !files => pods::object(context, "pods", name).await?,
        name => of_file(context, name).await?,
    };
    let pod = pods::one(context, &info).await?;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    if let Some(phase) = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed")) {
        return Err(Error::say(format!("cannot exec into a container in a completed pod; current phase is {phase}")));
    }
    let container = pods::container(&pod, flags.given("container"), flags.is("quiet"))?;
    let streams = Streams::of(flags);
    let process = Process::Exec(command.to_vec());
    stream::run(context, &text("namespace"), &text("name"), &container, process, &streams).await?;
    Ok(())
}

/// The object of a file, as it is written there.
async fn of_file(context: &Context, name: Option<&String>) -> Result<Info> {
    // A name beside it is a mistake, which the builder tells.
    let words: Vec<String> = name.map(|name| format!("pods/{name}")).into_iter().collect();
    let built = Builder::of(context).words(&words).build(context).await?;
    // The first mistake ends it.
    if let Some(error) = built.errors.into_iter().next() {
        return Err(error);
    }
    match built.targets.into_iter().next() {
        Some(Target::File(info)) if built.single => Ok(info),
        _ => Err(Error::say("cannot exec into multiple objects at a time")),
    }
}
