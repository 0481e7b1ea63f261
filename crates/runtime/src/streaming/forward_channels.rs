//! port-forward over a WebSocket, as libraries of other languages do it: two channels for each port, of data and of
//! errors. The first message of each tells the port, in two bytes.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ferry_cri::v1;
use futures::stream::FuturesUnordered;
use futures::{SinkExt, StreamExt};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::channels::split;
use super::command::Io;
use super::forward::{connect, inward, network};
use crate::engine::Engine;

/// A channel is one byte, and in text form one digit.
const MOST_PORTS: usize = 5;
const LARGEST_MESSAGE: usize = 4 << 20;

pub(super) async fn run<I: Io>(
    engine: &Arc<Engine>,
    wanted: &v1::PortForwardRequest,
    io: I,
    base64: bool,
) -> std::io::Result<()> {
    let namespace = network(engine, wanted)?;
    let config = WebSocketConfig::default().max_message_size(Some(LARGEST_MESSAGE));
    let (mut sink, mut source) = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await.split();
    let (to_client, mut messages) = mpsc::channel::<(u8, Vec<u8>)>(32);
    let mut open: Vec<Option<mpsc::Sender<Bytes>>> = Vec::new();
    let mut carried = FuturesUnordered::new();
    for (place, port) in (0_u8..).zip(wanted.port.iter().take(MOST_PORTS)) {
        let Ok(port) = u16::try_from(*port) else {
            open.push(None);
            continue;
        };
        let (sender, receiver) = mpsc::channel(32);
        open.push(Some(sender));
        carried.push(carry(namespace.as_deref(), port, place * 2, receiver, to_client.clone()));
    }
    drop(to_client);
    let encode = |channel: u8, data: &[u8]| {
        if base64 {
            return Message::text(format!("{channel}{}", STANDARD.encode(data)));
        }
        let mut bytes = vec![channel];
        bytes.extend_from_slice(data);
        Message::Binary(bytes.into())
    };
    let outward = async {
        while let Some((channel, data)) = messages.recv().await {
            sink.send(encode(channel, &data)).await.map_err(std::io::Error::other)?;
        }
        sink.close().await.map_err(std::io::Error::other)
    };
    let inward = async {
        while let Some(message) = source.next().await {
            let message = message.map_err(std::io::Error::other)?;
            if message.is_close() {
                return Ok(());
            }
            let Some((channel, payload)) = split(message, base64) else { continue };
            // Nobody sends errors to the pod.
            if channel % 2 == 0
                && let Some(slot) = open.get_mut(usize::from(channel / 2))
                && let Some(sender) = slot
                && sender.send(payload).await.is_err()
            {
                *slot = None;
            }
        }
        Ok::<(), std::io::Error>(())
    };
    let all = async { while carried.next().await.is_some() {} };
    tokio::select! {
        ended = async { futures::join!(all, outward).1 } => ended,
        ended = inward => ended,
    }
}

/// One connection, from its beginning to its end.
async fn carry(
    namespace: Option<&Path>,
    port: u16,
    channel: u8,
    from_client: mpsc::Receiver<Bytes>,
    to_client: mpsc::Sender<(u8, Vec<u8>)>,
) {
    for channel in [channel, channel + 1] {
        let _ = to_client.send((channel, port.to_le_bytes().to_vec())).await;
    }
    let stream = match connect(namespace.map(Path::to_owned), port).await {
        Ok(stream) => stream,
        Err(why) => {
            let _ = to_client.send((channel + 1, why.into_bytes())).await;
            return;
        }
    };
    let (mut read, write) = stream.into_split();
    let outward = async {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            if to_client.send((channel, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = outward => {}
        () = inward(from_client, write) => {}
    }
}
