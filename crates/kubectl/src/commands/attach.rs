//! `kubectl attach`.

use super::stream::{self, Process, Streams};
use super::{Command, leaf, pods};
use crate::error::{Error, Result};
use crate::session::Context;
use crate::text::warn;

pub const COMMAND: Command =
    leaf("attach", "(POD | TYPE/NAME) -c CONTAINER", "Attach to a running container", stream::flags, |c| {
        Box::pin(run(c))
    });

pub const RECORDED: &str = "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.";

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    let [word] = context.words() else {
        return Err(Error::say(match context.words().len() {
            0 => "at least 1 argument is required for attach",
            _ => "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw more",
        }));
    };
    let pod = pods::one(context, word).await?;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    if let Some(phase) = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed")) {
        return Err(Error::say(format!("cannot attach a container in a completed pod; current phase is {phase}")));
    }
    let container = pods::container(&pod, flags.given("container"), flags.is("quiet"))
        .map_err(|error| Error::say(format!("cannot attach to the container: {}", error.inner())))?;
    if !flags.is("quiet") {
        warn(RECORDED);
        warn("If you don't see a command prompt, try pressing enter.");
    }
    let streams = Streams { stdin: flags.is("stdin"), tty: flags.is("tty"), quiet: flags.is("quiet") };
    stream::run(context, &text("namespace"), &text("name"), &container, Process::Attach, &streams).await
}
