//! A process in a container and this terminal, joined: `exec`, `attach` and `run -i`.

use std::pin::pin;

use futures::{FutureExt, SinkExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use kube::api::{Api, AttachParams, AttachedProcess, TerminalSize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

use super::detach;
use super::terminal::{self, Raw};
use crate::error::{Error, Result};
use crate::flags::{Flag, Kind, Parsed, switch, text};
use crate::session::Context;
use crate::text::{flush, print, warn};

pub struct Streams {
    pub stdin: bool,
    pub tty: bool,
    pub quiet: bool,
    /// The keys that leave the container, in kubectl's words; none where the command has none.
    pub detach: Option<String>,
}

impl Streams {
    pub fn of(flags: &Parsed) -> Self {
        let detach = flags.given("detach-keys").map(str::to_owned);
        Self { stdin: flags.is("stdin"), tty: flags.is("tty"), quiet: flags.is("quiet"), detach }
    }
}

/// Flags of commands that join a terminal with a container.
pub fn flags() -> Vec<Flag> {
    vec![
        text("container", "The container.").short('c'),
        switch("stdin", "Pass stdin to the container.").short('i'),
        switch("tty", "Stdin is a TTY.").short('t'),
        switch("quiet", "Only print output from the remote session.").short('q'),
        Flag::new("pod-running-timeout", Kind::Duration, "1m0s", "How long to wait until a pod runs."),
    ]
}

pub enum Process {
    Exec(Vec<String>),
    Attach,
}

/// Returns whether this terminal was the process's.
pub async fn run(
    context: &Context,
    namespace: &str,
    pod: &str,
    container: &str,
    process: Process,
    streams: &Streams,
) -> Result<bool> {
    // Without input there is no terminal to give away.
    let mut tty = streams.tty && streams.stdin;
    if tty && !terminal::is_terminal() {
        tty = false;
        if !streams.quiet {
            warn("Unable to use a TTY - input is not a terminal or the right kind of file");
        }
    }
    let client = context.client().await?;
    let api: Api<Pod> = Api::namespaced(client.upgraded.clone(), namespace);
    let parameters = parameters(container, streams.stdin, tty);
    let detach = match streams.detach.as_deref().filter(|_| tty) {
        Some(keys) => {
            Some(detach::Keys::parse(keys).map_err(|why| Error::say(format!("could not bind detach keys: {why}")))?)
        }
        None => None,
    };
    let redraw = matches!(process, Process::Attach);
    let attached = match process {
        Process::Exec(command) => api.exec(pod, command, &parameters).await,
        Process::Attach => api.attach(pod, &parameters).await,
    };
    let mut attached = attached.map_err(|error| failed(&error))?;
    let raw = if tty { Raw::enter() } else { None };
    let status = attached.take_status();
    let status = join(&mut attached, streams.stdin, tty, detach, redraw, status).await;
    drop(raw);
    flush();
    // None where it was left by the keys: the process goes on.
    if let Some(status) = status? {
        ended(Some(std::future::ready(Some(status)))).await?;
    }
    Ok(tty)
}

pub fn parameters(container: &str, stdin: bool, tty: bool) -> AttachParams {
    AttachParams {
        container: Some(container.to_owned()),
        stdin,
        stdout: true,
        stderr: !tty,
        tty,
        max_stdin_buf_size: Some(64 << 10),
        max_stdout_buf_size: Some(64 << 10),
        max_stderr_buf_size: Some(64 << 10),
    }
}

/// How the process in the container ended.
pub async fn ended(status: Option<impl Future<Output = Option<Status>>>) -> Result<()> {
    let status = match status {
        Some(status) => status.await,
        None => None,
    };
    let Some(status) = status.and_then(|status| serde_json::to_value(status).ok()) else { return Ok(()) };
    if status["status"] == "Success" {
        return Ok(());
    }
    let causes = status["details"]["causes"].as_array().map_or(&[][..], Vec::as_slice);
    let exit = causes.iter().find(|cause| cause["reason"] == "ExitCode");
    let code = exit.and_then(|cause| cause["message"].as_str()?.parse::<i32>().ok());
    match code {
        Some(code) => Err(Error::Exit {
            code: u8::try_from(code & 0xff).unwrap_or(1),
            text: format!("command terminated with exit code {code}"),
        }),
        None => Err(Error::say(status["message"].as_str().unwrap_or("the connection ended early"))),
    }
}

/// The server's own words where it gave any.
pub fn failed(error: &kube::Error) -> Error {
    match error {
        kube::Error::Api(status) => match serde_json::to_value(&**status) {
            Ok(status) => {
                Error::say(format!("unable to upgrade connection: {}", status["message"].as_str().unwrap_or_default()))
            }
            Err(error) => Error::say(error.to_string()),
        },
        other => match crate::config::connect::chain(other) {
            why if why.contains("close_notify") => Error::say("unexpected EOF"),
            why => Error::say(why),
        },
    }
}

/// Joins them until the process ended, and returns how; none where it was left.
async fn join(
    attached: &mut AttachedProcess,
    stdin: bool,
    tty: bool,
    mut detach: Option<detach::Keys>,
    redraw: bool,
    status: Option<impl Future<Output = Option<Status>>>,
) -> Result<Option<Status>> {
    let input = attached.stdin().filter(|_| stdin);
    let output = attached.stdout();
    let errors = attached.stderr();
    let sizes = attached.terminal_size().filter(|_| tty);
    let feed = async move {
        if let Some(mut input) = input {
            let mut local = tokio::io::stdin();
            let mut buffer = vec![0; 32 << 10];
            while let Ok(count) = local.read(&mut buffer).await {
                let (typed, left) = match &mut detach {
                    Some(keys) => keys.pass(&buffer[..count]),
                    None => (buffer[..count].to_vec(), false),
                };
                if left {
                    return;
                }
                if count == 0 || input.write_all(&typed).await.is_err() {
                    break;
                }
                let _ = input.flush().await;
            }
            let _ = input.shutdown().await;
        }
        // The process may go on without input.
        futures::future::pending::<()>().await;
    };
    let resize = async move {
        let changes = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::window_change());
        if let (Some(mut sizes), Ok(mut changes)) = (sizes, changes) {
            // Another size first: programs that draw the whole screen draw it anew for who comes back.
            if let Some((width, height)) = terminal::size().filter(|_| redraw) {
                let larger = TerminalSize { width: width.saturating_add(1), height: height.saturating_add(1) };
                let _ = sizes.send(larger).await;
            }
            loop {
                if let Some((width, height)) = terminal::size()
                    && sizes.send(TerminalSize { width, height }).await.is_err()
                {
                    break;
                }
                changes.recv().await;
            }
        }
        futures::future::pending::<()>().await;
    };
    let show = async { futures::join!(copy(output, false), copy(errors, true)) };
    let status = async {
        match status {
            Some(status) => status.await,
            None => None,
        }
    };
    tokio::select! {
        () = feed => Ok(None),
        () = resize => Ok(None),
        status = until_told(show, status) => match status {
            Some(status) => Ok(Some(status)),
            None => Err(Error::say("the connection ended before the command did")),
        },
    }
}

/// Shows what comes until there is a status, or none can come any more. The pipes of a connection that broke never end: only the
/// status tells of it. What came before is in them by then, and is shown at once.
async fn until_told<T>(show: impl Future, status: impl Future<Output = Option<T>>) -> Option<T> {
    let (mut show, mut status) = (pin!(show), pin!(status));
    tokio::select! {
        _ = &mut show => status.await,
        status = &mut status => {
            let _ = tokio::task::unconstrained(show).now_or_never();
            status
        }
    }
}

pub async fn copy(from: Option<impl AsyncRead + Unpin>, to_errors: bool) {
    let Some(mut from) = from else { return };
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        if to_errors {
            use std::io::Write;
            let _ = std::io::stderr().write_all(&buffer[..count]);
        } else {
            print(&buffer[..count]);
            flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody shuts the pipes of a broken connection down.
    #[tokio::test]
    async fn a_connection_that_broke_is_no_hang() {
        let (mut reader, mut writer) = tokio::io::simplex(1 << 20);
        writer.write_all(&[b'x'; 300_000]).await.unwrap();
        let mut shown = 0;
        let show = async {
            let mut buffer = vec![0; 1000];
            while let Ok(count @ 1..) = reader.read(&mut buffer).await {
                shown += count;
            }
        };
        let status: Option<Status> = until_told(show, std::future::ready(None)).await;
        assert_eq!((status, shown), (None, 300_000));
    }
}
