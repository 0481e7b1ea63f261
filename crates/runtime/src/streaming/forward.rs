//! port-forward: pairs of SPDY streams, each joined to a connection inside the pod's network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ferry_cri::v1;
use ferry_remotecommand::spdy::{Frame, Reader, Writer};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncReadExt, AsyncWriteExt, WriteHalf};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc, oneshot};

use super::command::Io;
use crate::engine::Engine;
use crate::state::Stage;

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// One client does not need more at once.
const MOST_STREAMS: usize = 1024;

const THREAD: &str = "port-forward";
/// Threads that make sockets, for all clients.
static THREADS: Semaphore = Semaphore::const_new(16);

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
    let mut reader = Reader::of_server(read);
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
            Frame::Reply { .. } | Frame::Other => {}
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
    from_client: mpsc::Receiver<Bytes>,
    writer: &Shared<I>,
) {
    let stream = match connect(namespace.map(Path::to_owned), port).await {
        Ok(stream) => stream,
        Err(why) => {
            let mut writer = writer.lock().await;
            let _ = writer.data(error, why.as_bytes(), true).await;
            let _ = writer.data(data, &[], true).await;
            return;
        }
    };
    let (mut read, write) = stream.into_split();
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
    tokio::select! {
        () = outward => {}
        () = inward(from_client, write) => {}
    }
}

/// Gives the pod what the client says, and then waits for ever: what the pod has said to its end ends the connection, and the
/// client may have ended its own side before.
pub(super) async fn inward(mut from_client: mpsc::Receiver<Bytes>, mut write: OwnedWriteHalf) {
    while let Some(bytes) = from_client.recv().await {
        if write.write_all(&bytes).await.is_err() {
            break;
        }
    }
    let _ = write.shutdown().await;
    std::future::pending().await
}

/// Connects to the pod's loopback; the error is in the words that the client gets.
pub(super) async fn connect(namespace: Option<PathBuf>, port: u16) -> Result<TcpStream, String> {
    let stream = dial(namespace, port).await;
    stream.map_err(|why| format!("failed to connect to localhost:{port} inside namespace: {why}"))
}

/// A thread enters the pod's network, makes the sockets and ends there; it does not wait for the pod, which may let nobody in.
async fn dial(namespace: Option<PathBuf>, port: u16) -> std::io::Result<TcpStream> {
    let (sender, receiver) = oneshot::channel();
    let one = THREADS.acquire().await.map_err(std::io::Error::other)?;
    std::thread::Builder::new().name(THREAD.into()).spawn(move || {
        let _ = sender.send(sockets(namespace.as_deref()));
    })?;
    let (fourth, sixth) = receiver.await.map_err(std::io::Error::other)??;
    drop(one);
    let stream = match attempt(fourth, Ipv4Addr::LOCALHOST.into(), port).await {
        Ok(stream) => stream,
        Err(first) => match sixth {
            Ok(sixth) => attempt(sixth, Ipv6Addr::LOCALHOST.into(), port).await.map_err(|_| first)?,
            Err(_) => return Err(first),
        },
    };
    stream.set_nodelay(true)?;
    Ok(stream)
}

async fn attempt(socket: TcpSocket, address: IpAddr, port: u16) -> std::io::Result<TcpStream> {
    let connected = tokio::time::timeout(CONNECT_PATIENCE, socket.connect(SocketAddr::new(address, port))).await;
    connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))
}

/// Of both families; a machine may have no IPv6.
fn sockets(namespace: Option<&Path>) -> std::io::Result<(TcpSocket, std::io::Result<TcpSocket>)> {
    use std::os::fd::AsFd;
    if let Some(namespace) = namespace {
        let file = std::fs::File::open(namespace)?;
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?;
    }
    Ok((TcpSocket::new_v4()?, TcpSocket::new_v6()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").expect("threads").flatten();
        tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|n| n.trim() == THREAD)).count()
    }

    /// Connections to this port of the loopback that nobody answers.
    fn waiting(port: u16) -> usize {
        let table = std::fs::read_to_string("/proc/self/net/tcp").expect("connections");
        let to = format!("0100007F:{port:04X}");
        let fields = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        fields.filter(|fields| fields.get(2) == Some(&&*to) && fields.get(3) == Some(&"02")).count()
    }

    /// A server that takes nobody holds up the connections to it, and no thread of the node.
    #[tokio::test]
    async fn connecting_holds_no_thread() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        rustix::net::listen(&listener, 0).expect("no queue");
        let address = listener.local_addr().expect("an address");
        let patience = Duration::from_millis(200);
        let queued: Vec<_> =
            std::iter::from_fn(|| std::net::TcpStream::connect_timeout(&address, patience).ok()).take(64).collect();
        let all = futures::future::join_all((0..24).map(|_| connect(None, address.port())));
        let seen = async {
            while waiting(address.port()) < 24 || threads() > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            biased;
            ended = all => panic!("{} threads wait; ended: {:?}", threads(), ended.first()),
            () = seen => {}
        }
        drop(queued);
    }
}
