//! exec and attach over WebSockets, whose messages begin with the number of a channel.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferry_remotecommand::channel::{CLOSE, ERROR, RESIZE, STDERR, STDIN, STDOUT, message};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::Words;
use super::command::{GOODBYE_PATIENCE, Io, Streams, last_words};
use super::input::ToShim;
use crate::protocol::{ExecOutcome, Kind, read_frame};

struct Sink<I> {
    inner: SplitSink<WebSocketStream<I>, Message>,
    base64: bool,
}

impl<I: Io> Sink<I> {
    async fn send(&mut self, channel: u8, data: &[u8]) -> std::io::Result<()> {
        let message = if self.base64 {
            Message::text(format!("{channel}{}", STANDARD.encode(data)))
        } else {
            Message::Binary(message(channel, data).into())
        };
        self.inner.send(message).await.map_err(std::io::Error::other)
    }
}

pub(super) async fn join<I: Io>(
    opened: Result<UnixStream, String>,
    io: I,
    streams: Streams,
    command: &[String],
    base64: bool,
    words: Words,
) -> std::io::Result<()> {
    let (sink, mut source) = WebSocketStream::from_raw_socket(io, Role::Server, None).await.split();
    let mut sink = Sink { inner: sink, base64 };
    // Tells the client that the connection stands.
    sink.send(if streams.stdout { STDOUT } else { ERROR }, &[]).await?;
    let outcome = match opened {
        Err(error) => Some(ExecOutcome { code: 255, error: Some(error) }),
        Ok(shim) => {
            let (from_shim, to_shim) = shim.into_split();
            tokio::select! {
                outcome = to_client(from_shim, &mut sink, streams) => Some(outcome?),
                ended = from_client(&mut source, ToShim::new(to_shim), streams, base64) => { ended?; None }
            }
        }
    };
    let Some(outcome) = outcome else { return Ok(()) };
    let last = last_words(&outcome, command, words);
    if !last.is_empty() {
        sink.send(ERROR, &last).await?;
    }
    sink.inner.close().await.map_err(std::io::Error::other)?;
    // A connection that is closed with something unread takes the last words from the client.
    let closed = async { while let Some(Ok(_)) = source.next().await {} };
    let _ = tokio::time::timeout(GOODBYE_PATIENCE, closed).await;
    Ok(())
}

async fn to_client<I: Io>(
    mut shim: impl AsyncRead + Unpin,
    sink: &mut Sink<I>,
    streams: Streams,
) -> std::io::Result<ExecOutcome> {
    while let Some(frame) = read_frame(&mut shim).await? {
        match frame.kind {
            Kind::Output if streams.stdout => sink.send(STDOUT, &frame.data).await?,
            Kind::Errors if streams.stderr => sink.send(STDERR, &frame.data).await?,
            Kind::End => return Ok(serde_json::from_slice(&frame.data).unwrap_or_default()),
            _ => {}
        }
    }
    Ok(ExecOutcome { code: 255, error: Some("the pod's shim ended".to_owned()) })
}

/// The channel that a message is for, and what it brings; None where it brings nothing.
pub(super) fn split(message: Message, base64: bool) -> Option<(u8, Bytes)> {
    let data = match message {
        Message::Binary(data) => data,
        Message::Text(text) => Bytes::from(text.as_str().to_owned()),
        _ => return None,
    };
    let (channel, payload) = data.split_first()?;
    Some(if base64 {
        (channel.wrapping_sub(b'0'), STANDARD.decode(payload).unwrap_or_default().into())
    } else {
        (*channel, data.slice(1..))
    })
}

async fn from_client<I: Io>(
    source: &mut SplitStream<WebSocketStream<I>>,
    mut shim: ToShim<impl AsyncWrite + Unpin>,
    streams: Streams,
    base64: bool,
) -> std::io::Result<()> {
    while let Some(message) = source.next().await {
        let message = message.map_err(std::io::Error::other)?;
        if message.is_close() {
            return Ok(());
        }
        let Some((channel, payload)) = split(message, base64) else { continue };
        match channel {
            STDIN if streams.stdin => shim.send(Kind::Input, payload).await,
            RESIZE => shim.send(Kind::Resize, payload).await,
            CLOSE if payload.first() == Some(&STDIN) => shim.send(Kind::CloseInput, Bytes::new()).await,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Frame, write_frame};

    /// The command ends at once, and the client types on: it still hears how the command ended, and what it types is taken until
    /// it closes.
    #[tokio::test]
    async fn a_client_that_types_on_hears_the_last_words() {
        let (near, mut shim) = UnixStream::pair().expect("a pair");
        let (server, client) = tokio::io::duplex(1 << 20);
        let streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
        let served = async move { join(Ok(near), server, streams, &["true".to_owned()], false, Words::Status).await };
        let typing = async move {
            let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
            client.next().await.expect("a greeting").expect("a greeting");
            let typed = Message::Binary(vec![STDIN; 3 << 16].into());
            client.send(typed.clone()).await.expect("typed");
            // The shim is gone with what it did not read.
            write_frame(&mut shim, &Frame::new(Kind::Output, "word")).await.expect("a frame");
            write_frame(&mut shim, &Frame::end(&ExecOutcome { code: 3, error: None })).await.expect("a frame");
            drop(shim);
            client.send(typed.clone()).await.expect("typed");
            let output = client.next().await.expect("output").expect("output").into_data();
            assert_eq!(output, [&[STDOUT], &b"word"[..]].concat());
            let status = client.next().await.expect("a status").expect("a status").into_data();
            assert!(status[0] == ERROR && String::from_utf8_lossy(&status).contains("exit code 3"), "{status:?}");
            assert!(client.next().await.expect("the end").expect("the end").is_close());
        };
        let (served, ()) = tokio::join!(served, typing);
        served.expect("served");
    }

    /// Before the fourth version whatever comes on the error channel is an error.
    #[tokio::test]
    async fn old_clients_hear_of_errors_alone() {
        for (code, heard) in [(0, None), (3, Some("exit code 3"))] {
            let (near, mut shim) = UnixStream::pair().expect("a pair");
            let (server, client) = tokio::io::duplex(1 << 16);
            let streams = Streams { stdin: false, stdout: true, stderr: true, tty: false };
            let served = async move { join(Ok(near), server, streams, &[], false, Words::Errors).await };
            let asked = async move {
                let mut client = WebSocketStream::from_raw_socket(client, Role::Client, None).await;
                client.next().await.expect("a greeting").expect("a greeting");
                write_frame(&mut shim, &Frame::end(&ExecOutcome { code, error: None })).await.expect("a frame");
                if let Some(heard) = heard {
                    let error = client.next().await.expect("an error").expect("an error").into_data();
                    let text = String::from_utf8_lossy(&error[1..]).into_owned();
                    assert!(error[0] == ERROR && text.ends_with(heard) && !text.starts_with('{'), "{text}");
                }
                assert!(client.next().await.expect("the end").expect("the end").is_close());
            };
            let (served, ()) = tokio::join!(served, asked);
            served.expect("served");
        }
    }
}
