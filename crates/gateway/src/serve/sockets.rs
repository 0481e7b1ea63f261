//! Sockets: one for each address and port that some table is for. A new table is put in the place of the old one; the socket
//! stays, and so do its connections.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ferry_connections::{BoxError, Connections, Limits, Protocols, Socket};
use ferry_tasks::Tasks;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket};
use tokio_rustls::TlsAcceptor;

use super::hello;
use super::pool::Key;
use super::request::{self, Origin};
use super::{Shared, proxy_protocol, stream, udp};
use crate::resolve::Place;
use crate::resolve::status::Bound;
use crate::table::{Listener, PortTable, StreamRoute, Target, TlsMode, Transport, specificity};

/// Connections of one Gateway, and what is held for them.
const MOST_CONNECTIONS: usize = 20_000;
const MOST_HELD: usize = 256 << 20;
/// Clients that ask again sooner find their connection as it was.
const REST: Duration = Duration::from_secs(1);
/// Where a port is in use by another program, this one above it is tried.
const INSTEAD: u16 = 8000;
const BACKLOG: u32 = 1024;

struct Open {
    table: Arc<ArcSwap<PortTable>>,
    port: u16,
    tasks: Tasks,
}

/// All sockets. Dropping does not close them: [`Sockets::apply`] with nothing does.
pub struct Sockets {
    shared: Arc<Shared>,
    open: BTreeMap<Place, Open>,
    limits: HashMap<Arc<str>, Connections>,
    /// Served as well as the first address, if nobody else has it.
    alias: Option<(std::net::IpAddr, std::net::IpAddr)>,
}

impl Sockets {
    pub fn new(shared: Arc<Shared>, alias: Option<(std::net::IpAddr, std::net::IpAddr)>) -> Self {
        Self { shared, open: BTreeMap::new(), limits: HashMap::new(), alias }
    }

    #[cfg(test)]
    pub fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Serves exactly these tables from now on, and says at which ports, or why not.
    pub fn apply(&mut self, tables: &BTreeMap<Place, Arc<PortTable>>) -> Bound {
        let mut wanted = tables.clone();
        if let Some((of, alias)) = self.alias {
            let copies: Vec<_> = tables.iter().filter(|((address, ..), _)| *address == of).collect();
            for ((_, port, datagram), table) in copies {
                wanted.entry((alias, *port, *datagram)).or_insert_with(|| table.clone());
            }
        }
        let gone: Vec<Place> = self.open.keys().filter(|place| !wanted.contains_key(place)).copied().collect();
        for place in gone {
            self.close(&place);
        }
        let mut bound = Bound::new();
        for (place, table) in &wanted {
            bound.insert(*place, self.serve(*place, table));
        }
        bound
    }

    fn close(&mut self, place: &Place) {
        if let Some(open) = self.open.remove(place) {
            // Requests under way are finished; whoever waits for the tasks' end waits for them.
            open.tasks.stopping().cancel();
        }
    }

    fn serve(&mut self, place: Place, table: &Arc<PortTable>) -> Result<u16, String> {
        if let Some(open) = self.open.get(&place) {
            open.table.store(table.clone());
            if open.port == place.1 {
                return Ok(open.port);
            }
        }
        let known = self.open.get(&place).map(|open| open.port);
        match self.bind(place, place.1, table) {
            Ok(()) => Ok(place.1),
            Err(error) if known.is_some() => {
                tracing::trace!("port {} is still in use: {error}", place.1);
                Ok(known.unwrap_or(place.1))
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                let other = place.1.checked_add(INSTEAD);
                let told = format!("port {} of {} is in use by another program", place.1, place.0);
                other.and_then(|port| self.bind(place, port, table).ok().map(|()| port)).ok_or(told)
            }
            Err(error) => Err(format!("port {} of {} cannot be used: {error}", place.1, place.0)),
        }
    }

    fn bind(&mut self, place: Place, port: u16, table: &Arc<PortTable>) -> io::Result<()> {
        let (address, _, datagram) = place;
        let endpoint = SocketAddr::new(address, port);
        let tasks = self.shared.tasks.child("gateway socket");
        let swap = Arc::new(ArcSwap::new(table.clone()));
        let connections =
            self.limits.entry(table.gateway.clone()).or_insert_with(|| Connections::new(limits())).clone();
        if datagram {
            let socket = std::net::UdpSocket::bind(endpoint)?;
            socket.set_nonblocking(true)?;
            let socket = Arc::new(UdpSocket::from_std(socket)?);
            let (shared, group, table) = (self.shared.clone(), tasks.clone(), swap.clone());
            let served = udp::serve(shared, group, socket, table, connections);
            tasks.spawn_until_stopped("datagrams", served);
        } else {
            let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.set_reuseaddr(true)?;
            socket.bind(endpoint)?;
            let listener = socket.listen(BACKLOG)?;
            let acceptor = Arc::new(Acceptor {
                shared: self.shared.clone(),
                table: swap.clone(),
                connections: connections.clone(),
                builder: ferry_connections::builder(Protocols::Http1AndHttp2),
                tasks: tasks.clone(),
            });
            tasks.spawn_until_stopped("accept", async move { acceptor.run(listener).await });
            tasks.spawn_until_stopped("sweep", async move { ferry_connections::sweep(connections).await });
        }
        self.close(&place);
        self.open.insert(place, Open { table: swap, port, tasks });
        Ok(())
    }

    /// Lets go of connections and counts of what no table has any more. It looks at everything there is: not for every change.
    pub fn forget(&mut self) {
        let tables: Vec<_> = self.open.values().map(|open| open.table.load_full()).collect();
        let all: Vec<_> = tables.iter().flat_map(|table| std::iter::once(table).chain(&table.fallback)).collect();
        let (mut backends, mut routes, mut gateways) = (HashMap::new(), HashSet::new(), HashSet::new());
        let mut seen = HashSet::new();
        for table in all {
            gateways.insert(&table.gateway);
            let rules = table.listeners.iter().flat_map(|listener| listener.http.rules(&mut seen));
            for entry in rules.flat_map(|rules| rules.iter()) {
                routes.insert(&*entry.rule.route);
                let mirrors = entry.rule.filters.mirrors.iter().map(|mirror| &mirror.target);
                let targets = entry.rule.split.backends.iter().flat_map(|one| {
                    std::iter::once(&one.target).chain(one.filters.mirrors.iter().map(|mirror| &mirror.target))
                });
                for target in targets.chain(mirrors) {
                    let Target::Backend(backend) = target else { continue };
                    backends.insert(Arc::as_ptr(backend), backend);
                }
            }
        }
        let keys: HashSet<_> = backends
            .into_values()
            .flat_map(|one| one.endpoints().iter().map(|endpoint| Key::new(*endpoint, one)).collect::<Vec<_>>())
            .collect();
        self.shared.pools.retain(|key| keys.contains(key));
        self.shared.metrics.retain(|route| route.is_empty() || route == "other" || routes.contains(route));
        self.limits.retain(|gateway, _| gateways.contains(gateway));
    }
}

fn limits() -> Limits {
    Limits {
        // Nobody shows who they are here.
        unauthenticated: MOST_CONNECTIONS,
        authenticated: 1,
        idle_unauthenticated: Duration::from_secs(75),
        rest: Some(REST),
        stalled_unauthenticated: Duration::from_secs(120),
        ..Limits::new(MOST_CONNECTIONS, MOST_HELD)
    }
}

struct Acceptor {
    shared: Arc<Shared>,
    table: Arc<ArcSwap<PortTable>>,
    connections: Connections,
    builder: auto::Builder<TokioExecutor>,
    tasks: Tasks,
}

impl Acceptor {
    async fn run(self: Arc<Self>, listener: TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, client)) => {
                    let connection = self.connections.admit(client.ip(), self.tasks.stopping().child_token());
                    let socket = Socket::new(stream, connection);
                    let this = self.clone();
                    self.shared.tasks.spawn("connection", async move {
                        if let Err(error) = this.serve(socket, client).await {
                            tracing::debug!(%client, "connection ended: {error}");
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    if ferry_connections::is_short_of_room(&error) {
                        self.connections.make_room();
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    async fn serve(self: Arc<Self>, mut socket: Socket<TcpStream>, client: SocketAddr) -> Result<(), BoxError> {
        socket.prepare()?;
        let table = self.table.load_full();
        let client = match table.proxies.iter().any(|range| range.contains(&client.ip().to_canonical())) {
            true => {
                let header = Box::pin(proxy_protocol::read(&mut socket));
                tokio::time::timeout(self.connections.limits().handshake, header).await??.unwrap_or(client)
            }
            false => client,
        };
        match table.transport {
            // Each in a place of its own: the task, which lives as long as the connection, has no room for all of them.
            Transport::Http => Box::pin(self.http(socket, client, None)).await,
            Transport::Tls => Box::pin(self.tls(&table, socket, client)).await,
            Transport::Tcp => {
                socket.connection().upgraded();
                let route = table.listeners.iter().find_map(|listener| listener.stream(None));
                let route = route.ok_or("no route is attached")?;
                Box::pin(self.carry(route, socket)).await
            }
            Transport::Udp => Ok(()),
        }
    }

    async fn tls(
        self: Arc<Self>,
        table: &PortTable,
        socket: Socket<TcpStream>,
        client: SocketAddr,
    ) -> Result<(), BoxError> {
        let connection = socket.connection().clone();
        let patience = self.connections.limits().handshake;
        let (name, socket) = Box::pin(tokio::time::timeout(patience, hello::read(socket))).await??;
        let (gateway, listener) =
            listener(table, name.as_deref().unwrap_or_default()).ok_or("no listener has this name")?;
        let accept = async |config: &Arc<rustls::ServerConfig>, socket| {
            let accepted = TlsAcceptor::from(config.clone()).accept(socket);
            Ok::<_, BoxError>(Box::pin(tokio::time::timeout(patience, accepted)).await??)
        };
        let route = || listener.stream(name.as_deref()).ok_or("no route has this name");
        match &listener.tls {
            TlsMode::Terminate(config) => {
                let secured = accept(config, socket).await?;
                let place = Some((gateway.clone(), listener.name.clone()));
                Box::pin(self.speak(secured, &connection, client, place)).await
            }
            TlsMode::Stream(config) => {
                let secured = accept(config, socket).await?;
                connection.upgraded();
                Box::pin(self.carry(route()?, secured)).await
            }
            TlsMode::Passthrough => {
                connection.upgraded();
                Box::pin(self.carry(route()?, socket)).await
            }
            TlsMode::None => Err("the listener has no certificate".into()),
        }
    }

    /// At the gateway's end nobody waits for a stream's.
    async fn carry<S: AsyncRead + AsyncWrite + Unpin>(&self, route: &StreamRoute, stream: S) -> Result<(), BoxError> {
        let stopping = self.shared.tasks.stopping();
        let carried = stopping.run_until_cancelled(stream::carry(&self.shared, route, stream)).await;
        Ok(carried.unwrap_or(Ok(()))?)
    }

    async fn http(
        self: Arc<Self>,
        socket: Socket<TcpStream>,
        client: SocketAddr,
        listener: Option<(Arc<str>, Arc<str>)>,
    ) -> Result<(), BoxError> {
        let connection = socket.connection().clone();
        self.speak(socket, &connection, client, listener).await
    }

    async fn speak<S>(
        &self,
        stream: S,
        connection: &Arc<ferry_connections::Connection>,
        client: SocketAddr,
        listener: Option<(Arc<str>, Arc<str>)>,
    ) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let origin = Arc::new(Origin::new(client, listener, self.table.load().port));
        let (shared, table) = (self.shared.clone(), self.table.clone());
        let answer = move |request| -> futures::future::BoxFuture<'static, _> {
            // The newest table, for every request.
            Box::pin(request::handle(shared.clone(), table.load_full(), origin.clone(), request))
        };
        let farewell = self.connections.limits().farewell;
        ferry_connections::speak(&self.builder, stream, connection, self.shared.tasks.stopping(), farewell, answer)
            .await
    }
}

/// The listener that a client's name chooses, and whose it is: the most precise, the Gateway's own before the Ingresses'.
fn listener<'a>(table: &'a PortTable, name: &str) -> Option<(&'a Arc<str>, &'a Arc<Listener>)> {
    let own = table.listener(name).map(|listener| (&table.gateway, listener));
    let other = table.fallback.as_deref().and_then(|table| Some((&table.gateway, table.listener(name)?)));
    match (own, other) {
        (Some(own), Some(other)) => {
            let better = specificity(other.1.hostname.as_ref()) > specificity(own.1.hostname.as_ref());
            Some(if better { other } else { own })
        }
        (own, other) => own.or(other),
    }
}
