//! The protocol side: sockets, and who may hold how many of them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ferry_connections::{Connections, Limits, Socket};
use ferry_tasks::Tasks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;

use crate::handler::{Handled, Handler};
use crate::metrics::Transport;

/// A TCP connection without a question, or that takes no answer, is closed after this long.
const IDLE: Duration = Duration::from_secs(10);
const MOST_CONNECTIONS: usize = 512;
/// Datagrams that wait for upstreams. The shares of the forwarder are smaller; this bounds the tasks.
const MOST_WAITING: usize = 4096;
/// Datagrams that are answered before another task has its turn.
const BURST: usize = 64;
/// Questions are short, also with every option there is.
const LONGEST_DATAGRAM: usize = 4096;
const AFTER_AN_ERROR: Duration = Duration::from_millis(50);

pub(crate) type Sockets = (SocketAddr, Arc<UdpSocket>, Arc<TcpListener>);

/// Both protocols on one port, also where the port is ours to choose.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<Sockets> {
    let connections = TcpListener::bind(address).await?;
    let address = connections.local_addr()?;
    Ok((address, Arc::new(UdpSocket::bind(address).await?), Arc::new(connections)))
}

/// Answers on sockets that are bound already until the group stops.
pub(crate) fn serve(handler: &Handler, sockets: &[Sockets], tasks: &Tasks) {
    let waiting = Arc::new(Semaphore::new(MOST_WAITING));
    // A newcomer always gets in: where there are too many, whoever has most loses one. Nobody shows who they are.
    let limits = Limits { unauthenticated: MOST_CONNECTIONS, ..Limits::new(MOST_CONNECTIONS, usize::MAX) };
    let connections = Connections::new(limits);
    let readers = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    for (_, socket, listener) in sockets {
        for _ in 0..readers {
            let (handler, socket, waiting, group) = (handler.clone(), socket.clone(), waiting.clone(), tasks.clone());
            tasks.spawn_critical("datagrams", move || {
                datagrams(handler.clone(), socket.clone(), waiting.clone(), group.clone())
            });
        }
        let (handler, listener, connections, group) =
            (handler.clone(), listener.clone(), connections.clone(), tasks.clone());
        tasks.spawn_critical("connections", move || {
            accept(handler.clone(), listener.clone(), connections.clone(), group.clone())
        });
    }
}

async fn datagrams(handler: Handler, socket: Arc<UdpSocket>, waiting: Arc<Semaphore>, tasks: Tasks) {
    let mut buffer = vec![0; LONGEST_DATAGRAM];
    loop {
        match socket.recv_from(&mut buffer).await {
            Ok((length, client)) => datagram(&handler, &socket, &buffer[..length], client, &waiting, &tasks),
            Err(error) => {
                tracing::debug!("DNS cannot read a datagram: {error}");
                tokio::time::sleep(AFTER_AN_ERROR).await;
            }
        }
        for _ in 0..BURST {
            let Ok((length, client)) = socket.try_recv_from(&mut buffer) else { break };
            datagram(&handler, &socket, &buffer[..length], client, &waiting, &tasks);
        }
        tokio::task::yield_now().await;
    }
}

fn datagram(
    handler: &Handler,
    socket: &Arc<UdpSocket>,
    bytes: &[u8],
    client: SocketAddr,
    waiting: &Arc<Semaphore>,
    tasks: &Tasks,
) {
    match handler.at_once(bytes, client.ip(), Transport::Udp) {
        Handled::Ignored => {}
        // A full buffer drops the answer, as the network may: the client asks again.
        Handled::Answer(answer) => drop(socket.try_send_to(&answer, client)),
        Handled::Later(asked) => {
            let Ok(permit) = waiting.clone().try_acquire_owned() else { return handler.metrics().dropped() };
            let (handler, socket) = (handler.clone(), socket.clone());
            // Answered also where the group stops meanwhile: nobody else has this question.
            tasks.spawn("question", async move {
                let _permit = permit;
                let answer = handler.later(&asked).await;
                drop(socket.try_send_to(&answer, client));
            });
        }
    }
}

async fn accept(handler: Handler, listener: Arc<TcpListener>, connections: Connections, tasks: Tasks) {
    loop {
        let (stream, client) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!("DNS cannot accept a connection: {error}");
                tokio::time::sleep(AFTER_AN_ERROR).await;
                continue;
            }
        };
        let stream = Socket::new(stream, connections.admit(client.ip(), tasks.stopping().child_token()));
        let handler = handler.clone();
        tasks.spawn_until_stopped("connection", async move {
            if let Err(error) = connection(&handler, stream, client.ip()).await {
                tracing::debug!("a connection of {client} to DNS ended: {error}");
            }
        });
    }
}

async fn connection(handler: &Handler, mut stream: Socket<TcpStream>, client: IpAddr) -> io::Result<()> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    loop {
        let question = async {
            let length = usize::from(stream.read_u16().await?);
            if length > LONGEST_DATAGRAM {
                return Err(io::ErrorKind::InvalidData.into());
            }
            let mut bytes = vec![0; length];
            stream.read_exact(&mut bytes).await?;
            io::Result::Ok(bytes)
        };
        let bytes = match tokio::time::timeout(IDLE, question).await.map_err(late)? {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let answer = match handler.at_once(&bytes, client, Transport::Tcp) {
            Handled::Ignored => return Ok(()),
            Handled::Answer(answer) => answer,
            Handled::Later(asked) => handler.later(&asked).await,
        };
        let Ok(length) = u16::try_from(answer.len()) else { return Ok(()) };
        let whole = [&length.to_be_bytes(), answer.as_slice()].concat();
        tokio::time::timeout(IDLE, stream.write_all(&whole)).await.map_err(late)??;
    }
}

#[cfg(test)]
mod tests;
