//! `kubectl exec`.

use super::stream::{self, Process, Streams};
use super::{Command, leaf, pods};
use crate::error::{Error, Result};
use crate::flags::{Flag, array};
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
    flags.push(array("filename", "A file that names the pod.").short('f'));
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let words = context.words();
    let names = flags.dash.unwrap_or(words.len());
    if words.is_empty() || names == 0 {
        return Err(Error::say("pod, type/name or --filename must be specified"));
    }
    if flags.dash.is_none() && words.len() > 1 {
        return Err(Error::say(
            "exec [POD] [COMMAND] is not supported anymore. Use exec [POD] -- [COMMAND] instead\nSee 'kubectl exec -h' for help and examples",
        ));
    }
    if names > 1 {
        return Err(Error::say("expected 'exec (POD | TYPE/NAME) [-c CONTAINER] -- COMMAND [ARG1] [ARG2] ... [ARGN]'"));
    }
    let command = words[1..].to_vec();
    if command.is_empty() {
        return Err(Error::say("you must specify at least one command for the container"));
    }
    let pod = pods::one(context, &words[0]).await?;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    if let Some(phase) = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed")) {
        return Err(Error::say(format!("cannot exec into a container in a completed pod; current phase is {phase}")));
    }
    let container = pods::container(&pod, flags.given("container"), flags.is("quiet"))?;
    let streams = Streams { stdin: flags.is("stdin"), tty: flags.is("tty"), quiet: flags.is("quiet") };
    stream::run(context, &text("namespace"), &text("name"), &container, Process::Exec(command), &streams).await
}
