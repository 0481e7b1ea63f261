//! exec and attach: a client's streams joined to a shim's frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_cri::v1;
use ferry_remotecommand::spdy::{Frame as Spdy, Reader, Writer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use super::input::ToShim;
use super::{Protocol, Words, channels};
use crate::engine::{Engine, exec_process};
use crate::protocol::{Exec, ExecOutcome, Kind, Request, read_frame};

const STREAMS_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to close its side after the last word.
pub(super) const GOODBYE_PATIENCE: Duration = Duration::from_secs(5);

/// Which streams a call asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Streams {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Io for T {}

pub(super) async fn exec(
    engine: &Arc<Engine>,
    wanted: &v1::ExecRequest,
    io: impl Io,
    protocol: Protocol,
) -> std::io::Result<()> {
    let v1::ExecRequest { tty, stdin, stdout, .. } = *wanted;
    let streams = Streams { stdin, stdout, stderr: wanted.stderr && !tty, tty };
    let opened = async {
        let (id, sandbox) = engine.running(&wanted.container_id).map_err(|e| e.to_string())?;
        let process = exec_process(&engine.container_folder(&id), &wanted.cmd, tty)?;
        engine.shim(&sandbox).stream(&Request::Exec(Exec { id, process, tty, stdin })).await
    };
    let opened = opened.await;
    join(opened, io, protocol, streams, &wanted.cmd).await
}

pub(super) async fn attach(
    engine: &Arc<Engine>,
    wanted: &v1::AttachRequest,
    io: impl Io,
    protocol: Protocol,
) -> std::io::Result<()> {
    let v1::AttachRequest { tty, stdin, stdout, .. } = *wanted;
    let streams = Streams { stdin, stdout, stderr: wanted.stderr && !tty, tty };
    let opened = async {
        let (id, sandbox) = engine.running(&wanted.container_id).map_err(|e| e.to_string())?;
        engine.shim(&sandbox).stream(&Request::Attach { id, stdin }).await
    };
    let opened = opened.await;
    join(opened, io, protocol, streams, &[]).await
}

async fn join(
    opened: Result<UnixStream, String>,
    io: impl Io,
    protocol: Protocol,
    streams: Streams,
    command: &[String],
) -> std::io::Result<()> {
    match protocol {
        Protocol::Spdy { words } => join_spdy(opened, io, streams, command, words).await,
        Protocol::Channels { base64, words } => channels::join(opened, io, streams, command, base64, words).await,
    }
}

/// The outcome as clients read it on the error stream.
pub(super) fn last_words(outcome: &ExecOutcome, command: &[String], words: Words) -> Vec<u8> {
    let status = match outcome {
        ExecOutcome { error: Some(error), .. } => {
            let why = format!("error executing command in container: {error}");
            json!({"metadata": {}, "status": "Failure", "message": format!("Internal error occurred: {why}"),
                "reason": "InternalError", "details": {"causes": [{"message": why}]}, "code": 500})
        }
        ExecOutcome { code: 0, .. } => json!({"metadata": {}, "status": "Success"}),
        ExecOutcome { code, .. } => json!({"metadata": {}, "status": "Failure",
            "message": format!("command terminated with non-zero exit code: error executing command {command:?}, exit code {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]}}),
    };
    match words {
        Words::Status => status.to_string().into_bytes(),
        Words::Errors => status["message"].as_str().unwrap_or_default().as_bytes().to_vec(),
    }
}

type Shared<I> = Arc<Mutex<Writer<WriteHalf<I>>>>;

async fn join_spdy<I: Io>(
    opened: Result<UnixStream, String>,
    io: I,
    streams: Streams,
    command: &[String],
    words: Words,
) -> std::io::Result<()> {
    let (read, write) = tokio::io::split(io);
    let mut reader = Reader::of_server(read);
    let writer = Arc::new(Mutex::new(Writer::new(write)));
    let named = tokio::time::timeout(STREAMS_PATIENCE, collect(&mut reader, &writer, streams)).await;
    let named = named.map_err(|_| std::io::Error::other("the client opened too few streams"))??;
    let outcome = match opened {
        Err(error) => Some(ExecOutcome { code: 255, error: Some(error) }),
        Ok(shim) => {
            let (mut from_shim, to_shim) = shim.into_split();
            let mut to_shim = ToShim::new(to_shim);
            tokio::select! {
                outcome = to_client(&mut from_shim, &writer, &named) => Some(outcome?),
                ended = from_client(&mut reader, &mut to_shim, &writer, &named) => { ended?; None }
            }
        }
    };
    // Without an outcome the client is gone.
    let Some(outcome) = outcome else { return Ok(()) };
    let mut writer = writer.lock().await;
    for name in ["stdout", "stderr"] {
        if let Some(stream) = named.get(name) {
            writer.data(*stream, &[], true).await?;
        }
    }
    if let Some(stream) = named.get("error") {
        writer.data(*stream, &last_words(&outcome, command, words), true).await?;
    }
    // The client reads what is on its way before it closes.
    let closed = async { while let Ok(Some(_)) = reader.next().await {} };
    let _ = tokio::time::timeout(GOODBYE_PATIENCE, closed).await;
    writer.goodbye().await
}

/// Waits until the client has opened all of its streams.
async fn collect<I: Io>(
    reader: &mut Reader<ReadHalf<I>>,
    writer: &Shared<I>,
    streams: Streams,
) -> std::io::Result<HashMap<String, u32>> {
    let expected = 1 + [streams.stdin, streams.stdout, streams.stderr, streams.tty].into_iter().filter(|w| *w).count();
    let mut named = HashMap::new();
    while named.len() < expected {
        match reader.next().await? {
            None | Some(Spdy::GoAway) => return Err(std::io::Error::other("the client went away")),
            Some(Spdy::Open { stream, headers }) => {
                let kind = headers.into_iter().find(|(name, _)| name == "streamtype").map(|(_, kind)| kind);
                writer.lock().await.reply(stream).await?;
                named.insert(kind.unwrap_or_default(), stream);
            }
            Some(Spdy::Ping { id }) => writer.lock().await.pong(id).await?,
            Some(_) => {}
        }
    }
    Ok(named)
}

async fn to_client<I: Io>(
    shim: &mut (impl AsyncRead + Unpin),
    writer: &Shared<I>,
    named: &HashMap<String, u32>,
) -> std::io::Result<ExecOutcome> {
    while let Some(frame) = read_frame(shim).await? {
        let name = match frame.kind {
            Kind::Output => "stdout",
            Kind::Errors => "stderr",
            Kind::End => return Ok(serde_json::from_slice(&frame.data).unwrap_or_default()),
            _ => continue,
        };
        if let Some(stream) = named.get(name) {
            writer.lock().await.data(*stream, &frame.data, false).await?;
        }
    }
    Ok(ExecOutcome { code: 255, error: Some("the pod's shim ended".to_owned()) })
}

async fn from_client<I: Io>(
    reader: &mut Reader<ReadHalf<I>>,
    shim: &mut ToShim<impl AsyncWrite + Unpin>,
    writer: &Shared<I>,
    named: &HashMap<String, u32>,
) -> std::io::Result<()> {
    let (stdin, resize) = (named.get("stdin").copied(), named.get("resize").copied());
    loop {
        match reader.next().await? {
            None | Some(Spdy::GoAway) => return Ok(()),
            Some(Spdy::Data { stream, fin, data }) if Some(stream) == stdin => {
                if !data.is_empty() {
                    shim.send(Kind::Input, data).await;
                }
                if fin {
                    shim.send(Kind::CloseInput, Bytes::new()).await;
                }
            }
            Some(Spdy::Reset { stream }) if Some(stream) == stdin => {
                shim.send(Kind::CloseInput, Bytes::new()).await;
            }
            Some(Spdy::Data { stream, data, .. }) if Some(stream) == resize => {
                if !data.is_empty() {
                    shim.send(Kind::Resize, data).await;
                }
            }
            Some(Spdy::Open { stream, .. }) => writer.lock().await.reply(stream).await?,
            Some(Spdy::Ping { id }) => writer.lock().await.pong(id).await?,
            Some(_) => {}
        }
    }
}
