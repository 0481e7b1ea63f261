//! `kubectl attach`.

use serde_json::Value;

use super::stream::{self, Process, Streams};
use super::{Command, leaf, pods};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind};
use crate::session::Context;
use crate::text::{line, warn};

pub const COMMAND: Command =
    leaf("attach", "(POD | TYPE/NAME) -c CONTAINER", "Attach to a running container", flags, |c| Box::pin(run(c)));

pub const DETACH_KEYS: Flag =
    Flag::new("detach-keys", Kind::Text, "ctrl-p,ctrl-q", "The keys that end the session and leave the container.");

fn flags() -> Vec<Flag> {
    let mut flags = stream::flags();
    flags.push(DETACH_KEYS);
    flags
}

async fn run(context: &Context) -> Result<()> {
    let flags = &context.flags;
    pods::patience(context).map_err(|error| context.usage(error.inner()))?;
    let info = match context.words() {
        [] => return Err(Error::say("at least 1 argument is required for attach")),
        [word] => pods::object(context, "pods", word).await?,
        [kind, word] => pods::object(context, kind, word).await?,
        words => {
            return Err(Error::say(format!(
                "expected POD, TYPE/NAME, or TYPE NAME, (at most 2 arguments) saw {}: [{}]",
                words.len(),
                words.join(" ")
            )));
        }
    };
    let pod = pods::one(context, &info).await?;
    if let Some(phase) = pod["status"]["phase"].as_str().filter(|phase| matches!(*phase, "Succeeded" | "Failed")) {
        return Err(Error::say(format!("cannot attach a container in a completed pod; current phase is {phase}")));
    }
    let container = pods::container(&pod, flags.given("container"), flags.is("quiet"))
        .map_err(|error| Error::say(format!("cannot attach to the container: {}", error.inner())))?;
    join(context, &pod, &container).await
}

/// This terminal and a container that runs, until one of them ends.
pub async fn join(context: &Context, pod: &Value, container: &str) -> Result<()> {
    let flags = &context.flags;
    let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
    let mut streams = Streams::of(flags);
    let list = |field: &str| pod["spec"][field].as_array().into_iter().flatten();
    let ephemeral = list("ephemeralContainers").any(|known| known["name"] == container);
    let mut all = list("containers").chain(list("initContainers")).chain(list("ephemeralContainers"));
    // A container has a terminal or has none; that cannot be chosen here.
    let has_terminal = all.any(|known| known["name"] == container && known["tty"] == true);
    if streams.tty && !has_terminal && !streams.quiet {
        warn(format!("error: Unable to use a TTY - container {container} did not allocate one"));
    }
    streams.tty = has_terminal;
    if !streams.quiet {
        warn(
            "All commands and output from this session will be recorded in container logs, including credentials and sensitive information passed through the command prompt.",
        );
        warn("If you don't see a command prompt, try pressing enter.");
    }
    let (namespace, name) = (text("namespace"), text("name"));
    let raw = stream::run(context, &namespace, &name, container, Process::Attach, &streams).await?;
    if raw && streams.stdin && !streams.quiet {
        let again = format!("kubectl attach {name} -c {container} -n {namespace} -i -t");
        line(match ephemeral {
            true => format!(
                "Session ended, the ephemeral container will not be restarted but may be reattached using '{again}' if it is still running"
            ),
            false => format!("Session ended, resume using '{again}' command"),
        });
    }
    Ok(())
}
