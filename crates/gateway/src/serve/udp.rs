//! Datagrams: each client has a socket of its own to a backend, for as long as either says something.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_connections::{Connections, Socket};
use ferry_tasks::Tasks;
use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;

use super::Shared;
use crate::table::{PortTable, Target};

/// A client that says nothing for so long is forgotten.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams that wait for one client's socket; more are lost, as datagrams are.
const WAITING: usize = 64;
const LARGEST: usize = 65_535;

type Clients = Arc<Mutex<HashMap<SocketAddr, mpsc::Sender<Vec<u8>>>>>;

/// Runs for as long as the socket is served. A client takes the place of a connection: where there are too many, the
/// address with most of them loses one.
pub async fn serve(
    shared: Arc<Shared>,
    tasks: Tasks,
    socket: Arc<UdpSocket>,
    table: Arc<ArcSwap<PortTable>>,
    connections: Connections,
) {
    let clients = Clients::default();
    let mut buffer = vec![0; LARGEST];
    loop {
        let (length, client) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                // What an earlier datagram met is told here as well.
                tracing::debug!("cannot receive a datagram: {error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
                continue;
            }
        };
        let datagram = buffer.get(..length).unwrap_or_default().to_vec();
        let known = clients.lock().get(&client).cloned();
        let Some(sender) = known.filter(|known| !known.is_closed()).or_else(|| {
            let endpoint = endpoint(&table.load())?;
            Some(begin(&shared, &tasks, &socket, &clients, &connections, client, endpoint))
        }) else {
            continue;
        };
        let _ = sender.try_send(datagram);
    }
}

fn endpoint(table: &PortTable) -> Option<SocketAddr> {
    let route = table.listeners.iter().find_map(|listener| listener.stream(None))?;
    match &route.split.choose()?.target {
        Target::Backend(backend) => backend.endpoint(&[]),
        Target::Broken(_) => None,
    }
}

fn begin(
    shared: &Arc<Shared>,
    tasks: &Tasks,
    socket: &Arc<UdpSocket>,
    clients: &Clients,
    connections: &Connections,
    client: SocketAddr,
    endpoint: SocketAddr,
) -> mpsc::Sender<Vec<u8>> {
    let (sender, waiting) = mpsc::channel(WAITING);
    clients.lock().insert(client, sender.clone());
    let ended = tasks.stopping().child_token();
    let connection = connections.admit(client.ip(), ended.clone());
    // It ends here when it is idle, whatever is known of requests.
    connection.upgraded();
    let place = Socket::new((), connection);
    shared.metrics.stream();
    let (socket, clients, own) = (socket.clone(), clients.clone(), sender.downgrade());
    tasks.spawn_until_stopped("datagrams", async move {
        let _place = place;
        if let Some(Err(error)) = ended.run_until_cancelled(carry(&socket, client, endpoint, waiting)).await {
            tracing::debug!(%client, %endpoint, "datagrams are no longer carried: {error}");
        }
        let mut clients = clients.lock();
        // Another may have its place by now.
        if clients.get(&client).is_some_and(|known| own.upgrade().is_some_and(|own| known.same_channel(&own))) {
            clients.remove(&client);
        }
    });
    sender
}

async fn carry(
    socket: &UdpSocket,
    client: SocketAddr,
    endpoint: SocketAddr,
    mut waiting: mpsc::Receiver<Vec<u8>>,
) -> std::io::Result<()> {
    let any: SocketAddr = if endpoint.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0; 16], 0).into() };
    let backend = UdpSocket::bind(any).await?;
    backend.connect(endpoint).await?;
    loop {
        let next = async {
            tokio::select! {
                Some(datagram) = waiting.recv() => {
                    backend.send(&datagram).await?;
                }
                ready = backend.readable() => {
                    ready?;
                    // Held for a datagram that is there, not for every client that waits for one.
                    let mut datagram = Vec::with_capacity(LARGEST);
                    match backend.try_recv_buf(&mut datagram) {
                        Ok(_) => drop(socket.send_to(&datagram, client).await?),
                        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                        Err(error) => return Err(error),
                    }
                }
            }
            Ok::<_, std::io::Error>(())
        };
        match tokio::time::timeout(IDLE, next).await {
            Ok(carried) => carried?,
            Err(_) => return Ok(()),
        }
    }
}
