//! exec and attach for clients of `v5.channel.k8s.io`: a WebSocket on their side, SPDY streams on the runtime's.
//!
//! WebSocket messages begin with the number of their channel. Version 5 adds a message that closes one channel, which
//! is how the end of standard input reaches the process; only SPDY can pass that on.

use std::io;

use bytes::Bytes;
use ferry_remotecommand::channel::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, message};
use ferry_remotecommand::spdy::{Frame, Reader, Writer};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite, WriteHalf};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Which streams the client asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

/// Channels and the streams they stand for.
struct Streams(Vec<(u8, u32)>);

impl Streams {
    fn stream(&self, channel: u8) -> Option<u32> {
        self.0.iter().find(|(c, _)| *c == channel).map(|(_, stream)| *stream)
    }

    fn channel(&self, stream: u32) -> Option<u8> {
        self.0.iter().find(|(_, s)| *s == stream).map(|(channel, _)| *channel)
    }
}

/// Carries everything both ways until the process has ended or one side is gone.
pub(crate) async fn run<C, R>(client: WebSocketStream<C>, runtime: R, wanted: Wanted) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    R: AsyncRead + AsyncWrite + Unpin,
{
    let (read, write) = tokio::io::split(runtime);
    let mut writer = Writer::new(write);
    let mut streams = Vec::new();
    let asked = [
        (ERROR, "error", true),
        (STDIN, "stdin", wanted.stdin),
        (STDOUT, "stdout", wanted.stdout),
        (STDERR, "stderr", wanted.stderr && !wanted.tty),
        (RESIZE, "resize", wanted.tty),
    ];
    for (channel, name, _) in asked.into_iter().filter(|(.., wanted)| *wanted) {
        streams.push((channel, writer.open(&[("streamtype", name)]).await?));
    }
    let streams = Streams(streams);
    let (mut sink, source) = client.split();
    // Tells the client that the connection stands.
    let first = if wanted.stdout {
        STDOUT
    } else if wanted.stderr {
        STDERR
    } else {
        ERROR
    };
    send(&mut sink, first, &[]).await?;
    let (pongs, pinged) = tokio::sync::mpsc::channel(4);
    tokio::select! {
        ended = to_client(Reader::of_client(read), &mut sink, &streams, pongs) => ended?,
        ended = to_runtime(source, writer, &streams, pinged) => ended?,
    }
    // Without a code, kubectl takes the end for a broken connection.
    let goodbye = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let _ = sink.send(Message::Close(Some(goodbye))).await;
    let _ = sink.close().await;
    Ok(())
}

async fn send<C>(sink: &mut SplitSink<WebSocketStream<C>, Message>, channel: u8, data: &[u8]) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
{
    sink.send(Message::Binary(message(channel, data).into())).await.map_err(io::Error::other)
}

async fn to_client<R, C>(
    mut reader: Reader<R>,
    sink: &mut SplitSink<WebSocketStream<C>, Message>,
    streams: &Streams,
    pongs: tokio::sync::mpsc::Sender<u32>,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    C: AsyncRead + AsyncWrite + Unpin,
{
    // Output may still come after the process has ended, and its exit code before the last output.
    let mut open: Vec<u32> =
        streams.0.iter().filter(|(c, _)| matches!(*c, STDOUT | STDERR | ERROR)).map(|(_, s)| *s).collect();
    while !open.is_empty() {
        let Some(frame) = reader.next().await? else { return Ok(()) };
        let ended = match frame {
            Frame::Data { stream, fin, data } => {
                if let Some(channel) = streams.channel(stream).filter(|_| !data.is_empty()) {
                    send(sink, channel, &data).await?;
                }
                fin.then_some(stream)
            }
            Frame::Reply { stream, fin } => fin.then_some(stream),
            Frame::Reset { stream } => Some(stream),
            Frame::Ping { id } => {
                let _ = pongs.send(id).await;
                None
            }
            Frame::GoAway => return Ok(()),
            Frame::Open { .. } | Frame::Other => None,
        };
        open.retain(|stream| Some(*stream) != ended);
    }
    Ok(())
}

async fn to_runtime<C, W>(
    mut source: SplitStream<WebSocketStream<C>>,
    mut writer: Writer<WriteHalf<W>>,
    streams: &Streams,
    mut pinged: tokio::sync::mpsc::Receiver<u32>,
) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    W: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let message = tokio::select! {
            Some(id) = pinged.recv() => {
                writer.pong(id).await?;
                continue;
            }
            message = source.next() => message,
        };
        let data = match message {
            Some(Ok(Message::Binary(data))) => data,
            Some(Ok(Message::Text(text))) => Bytes::from(text.as_str().to_owned()),
            Some(Ok(Message::Close(_))) | None => return Ok(()),
            Some(Ok(_)) => continue,
            Some(Err(error)) => return Err(io::Error::other(error)),
        };
        let Some((channel, payload)) = data.split_first() else { continue };
        match (*channel, payload) {
            (CLOSE, [closed, ..]) => {
                if let Some(stream) = streams.stream(*closed) {
                    writer.data(stream, &[], true).await?;
                }
            }
            (STDIN | RESIZE, payload) => {
                if let Some(stream) = streams.stream(*channel) {
                    writer.data(stream, payload, false).await?;
                }
            }
            // Only these two are the client's to write.
            _ => {}
        }
    }
}
