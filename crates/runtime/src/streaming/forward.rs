//! port-forward: pairs of SPDY streams, each joined to a connection inside the pod's network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_cri::v1;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::command::Io;
use super::spdy::{Frame, Reader, Writer};
use crate::engine::Engine;
use crate::state::Stage;

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// One client does not need more at once.
const MOST_STREAMS: usize = 1024;

type Shared<I> = Arc<Mutex<Writer<WriteHalf<I>>>>;

#[derive(Default)]
struct Pair {
    data: Option<u32>,
    error: Option<u32>,
    port: u16,
}

/// The network of the pod; none for one in that of the node.
pub(super) fn network(engine: &Engine, wanted: &v1::PortForwardRequest) -> std::io::Result<Option<PathBuf>> {
    let id = engine.sandbox_id(&wanted.pod_sandbox_id).map_err(std::io::Error::other)?;
    let state = engine.state.lock();
    let sandbox = state.sandboxes.get(&id).filter(|s| s.record.stage == Stage::Made);
    let sandbox = sandbox.ok_or_else(|| std::io::Error::other("the pod does not run"))?;
    Ok(sandbox.record.network.as_ref().map(|_| engine.namespaces(&id).join("net")))
}

pub(super) async fn run<I: Io>(engine: &Arc<Engine>, wanted: &v1::PortForwardRequest, io: I) -> std::io::Result<()> {
    let namespace = network(engine, wanted)?;
    let (read, write) = tokio::io::split(io);
    let mut reader = Reader::new(read);
    let writer = Arc::new(Mutex::new(Writer::new(write)));
    let mut pairs: HashMap<String, Pair> = HashMap::new();
    // Where the data of a stream goes; dropped at its end.
    let mut open: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    let tasks = engine.tasks.child("port-forward");
    while let Some(frame) = reader.next().await? {
        match frame {
            Frame::Open { stream, headers } => {
                writer.lock().await.reply(stream).await?;
                let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
                let request = header("requestid").or(header("port")).unwrap_or_default().to_owned();
                if pairs.len() >= MOST_STREAMS || open.len() >= MOST_STREAMS {
                    break;
                }
                let pair = pairs.entry(request.clone()).or_default();
                pair.port = header("port").and_then(|p| p.parse().ok()).unwrap_or(pair.port);
                match header("streamtype") {
                    Some("error") => pair.error = Some(stream),
                    _ => pair.data = Some(stream),
                }
                if let Pair { data: Some(data), error: Some(error), port } = *pair {
                    pairs.remove(&request);
                    let (sender, receiver) = mpsc::channel(32);
                    open.insert(data, sender);
                    let (writer, namespace) = (writer.clone(), namespace.clone());
                    tasks.spawn_until_stopped("port", async move {
                        carry(namespace.as_deref(), port, data, error, receiver, &writer).await;
                    });
                }
            }
            Frame::Data { stream, fin, data } => {
                if let Some(sender) = open.get(&stream) {
                    let gone = !data.is_empty() && sender.send(data).await.is_err();
                    if fin || gone {
                        open.remove(&stream);
                    }
                }
            }
            Frame::Reset { stream } => {
                open.remove(&stream);
            }
            Frame::Ping { id } => writer.lock().await.pong(id).await?,
            Frame::GoAway => break,
            Frame::Other => {}
        }
    }
    tasks.stop(Duration::ZERO).await;
    Ok(())
}

/// One connection, from its beginning to its end.
async fn carry<I: Io>(
    namespace: Option<&Path>,
    port: u16,
    data: u32,
    error: u32,
    mut from_client: mpsc::Receiver<Bytes>,
    writer: &Shared<I>,
) {
    let connected = connect(namespace.map(Path::to_owned), port).await;
    let stream = match connected {
        Ok(stream) => stream,
        Err(why) => {
            let why = format!("failed to connect to localhost:{port} inside namespace: {why}");
            let mut writer = writer.lock().await;
            let _ = writer.data(error, why.as_bytes(), true).await;
            let _ = writer.data(data, &[], true).await;
            return;
        }
    };
    let (mut read, mut write) = stream.into_split();
    let inward = async {
        while let Some(bytes) = from_client.recv().await {
            if write.write_all(&bytes).await.is_err() {
                break;
            }
        }
        let _ = write.shutdown().await;
    };
    let outward = async {
        let mut buffer = vec![0; 32 * 1024];
        while let Ok(length @ 1..) = read.read(&mut buffer).await {
            if writer.lock().await.data(data, &buffer[..length], false).await.is_err() {
                return;
            }
        }
        let mut writer = writer.lock().await;
        let _ = writer.data(data, &[], true).await;
        let _ = writer.data(error, &[], true).await;
    };
    // What the pod has said to its end ends the connection; the client may have ended its own side before.
    tokio::select! {
        () = outward => {}
        () = async { inward.await; std::future::pending::<()>().await } => {}
    }
}

/// Connects to the pod's loopback, from a thread that enters the pod's network and ends there.
pub(super) async fn connect(namespace: Option<PathBuf>, port: u16) -> std::io::Result<TcpStream> {
    let (sender, receiver) = oneshot::channel();
    std::thread::Builder::new().name("port-forward".into()).spawn(move || {
        let _ = sender.send(connect_inside(namespace.as_deref(), port));
    })?;
    let stream = receiver.await.map_err(std::io::Error::other)??;
    stream.set_nonblocking(true)?;
    let stream = TcpStream::from_std(stream)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn connect_inside(namespace: Option<&Path>, port: u16) -> std::io::Result<std::net::TcpStream> {
    use std::os::fd::AsFd;
    if let Some(namespace) = namespace {
        let file = std::fs::File::open(namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    let of = |address: IpAddr| std::net::TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT_PATIENCE);
    of(Ipv4Addr::LOCALHOST.into()).or_else(|first| of(Ipv6Addr::LOCALHOST.into()).map_err(|_| first))
}
