//! The protocol side: sockets, and one request from bytes to answer.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ferry_tasks::Tasks;
use hickory_server::Server;
use hickory_server::net::runtime::Time;
use hickory_server::net::xfer::Protocol;
use hickory_server::proto::op::{Edns, Header, HeaderCounts, Metadata, OpCode, ResponseCode};
use hickory_server::proto::rr::{DNSClass, Name, Record, RecordType};
use hickory_server::server::{Request, RequestHandler, ResponseHandler, ResponseInfo};
use hickory_server::zone_handler::MessageResponseBuilder;
use tokio::net::{TcpListener, UdpSocket};

use crate::answer::{Outcome, Zone};
use crate::cluster::Cluster;
use crate::forward::Forwarder;
use crate::{Config, DnsError, DnsServer};

/// A TCP connection without a question is closed after this long.
const IDLE: Duration = Duration::from_secs(10);
/// Answers of one TCP connection that may wait to be read by the client.
const WAITING_ANSWERS: usize = 32;
/// The largest datagram we send, whatever the client offers: what passes everywhere without fragments.
const PAYLOAD: u16 = 1232;

pub(crate) async fn start(config: Config, cluster: Cluster, tasks: &Tasks) -> Result<DnsServer, DnsError> {
    let zone = Zone::new(&config.zone, config.service_addresses.clone()).ok_or(DnsError::Zone(config.zone))?;
    if config.listen.is_empty() {
        return Err(DnsError::NoAddress);
    }
    let mut sockets = Vec::new();
    for address in config.listen {
        sockets.push(bind(address).await.map_err(|source| DnsError::Listen { address, source })?);
    }
    let addresses: Vec<SocketAddr> = sockets.iter().map(|(address, ..)| *address).collect();
    // The Service's address leads here, too.
    let own = config.service_addresses.iter().map(|address| SocketAddr::new(*address, 53));
    let own: Vec<SocketAddr> = addresses.iter().copied().chain(own).collect();
    let forwarder = Arc::new(Forwarder::new(config.upstreams, &own));
    forwarder.prepare().await;
    let (handler, listens, mut bound) = (Handler { zone, cluster, forwarder }, addresses.clone(), Some(sockets));
    tasks.child("dns").spawn_critical("server", move || serve(handler.clone(), listens.clone(), bound.take()));
    Ok(DnsServer { addresses })
}

/// Answers on sockets that are bound already, or binds them anew after an earlier life has ended.
async fn serve(handler: Handler, addresses: Vec<SocketAddr>, bound: Option<Vec<Sockets>>) {
    let sockets = match bound {
        Some(sockets) => sockets,
        None => {
            let mut sockets = Vec::new();
            for address in addresses {
                match bind(address).await {
                    Ok(bound) => sockets.push(bound),
                    Err(error) => return tracing::error!("DNS cannot listen on {address}: {error}"),
                }
            }
            sockets
        }
    };
    let mut server = Server::new(handler);
    for (_, datagrams, connections) in sockets {
        server.register_socket(datagrams);
        server.register_listener(connections, IDLE, WAITING_ANSWERS);
    }
    if let Err(error) = server.block_until_done().await {
        tracing::error!("DNS has stopped: {error}");
    }
}

type Sockets = (SocketAddr, UdpSocket, TcpListener);

/// Both protocols on one port, also where the port is ours to choose.
async fn bind(address: SocketAddr) -> std::io::Result<Sockets> {
    let connections = TcpListener::bind(address).await?;
    let address = connections.local_addr()?;
    Ok((address, UdpSocket::bind(address).await?, connections))
}

#[derive(Clone)]
struct Handler {
    zone: Zone,
    cluster: Cluster,
    forwarder: Arc<Forwarder>,
}

/// An answer before it is encoded.
#[derive(Default)]
struct Reply {
    code: ResponseCode,
    authoritative: bool,
    truncated: bool,
    answers: Vec<Record>,
    authorities: Vec<Record>,
    additionals: Vec<Record>,
}

impl Reply {
    fn of(code: ResponseCode) -> Self {
        Self { code, ..Self::default() }
    }
}

impl Handler {
    async fn reply(&self, request: &Request) -> Reply {
        if request.metadata.op_code != OpCode::Query {
            return Reply::of(ResponseCode::NotImp);
        }
        let Ok(info) = request.request_info() else { return Reply::of(ResponseCode::FormErr) };
        let query = info.query;
        if query.query_class() != DNSClass::IN {
            return Reply::of(ResponseCode::Refused);
        }
        // As the client spelled it: some check that the case comes back.
        let name = query.original().name();
        let kind = query.query_type();
        if matches!(kind, RecordType::AXFR | RecordType::IXFR) {
            return Reply::of(ResponseCode::Refused);
        }
        let whole = info.protocol != Protocol::Udp;
        let client = request.src().ip();
        match self.zone.answer(&self.cluster, name, kind) {
            Outcome::Forward => self.forward(client, name, kind, whole).await,
            // An absence that is only ignorance would be remembered by clients.
            _ if !self.cluster.is_synced() => Reply::of(ResponseCode::ServFail),
            Outcome::NoSuchName(authority) => Reply {
                code: ResponseCode::NXDomain,
                authoritative: true,
                authorities: vec![*authority],
                ..Reply::default()
            },
            Outcome::Records { mut answers, additionals, authority, unresolved } => {
                let mut code = ResponseCode::NoError;
                if let Some(target) = unresolved {
                    let rest = self.forward(client, &target, kind, whole).await;
                    code = rest.code;
                    answers.extend(rest.answers);
                }
                let authorities = authority.into_iter().map(|record| *record).collect();
                Reply { code, authoritative: true, truncated: false, answers, authorities, additionals }
            }
        }
    }

    async fn forward(&self, client: IpAddr, name: &Name, kind: RecordType, whole: bool) -> Reply {
        match self.forwarder.ask(client, name, kind, whole).await {
            Ok(message) => Reply {
                code: message.metadata.response_code,
                authoritative: false,
                truncated: message.metadata.truncation,
                answers: message.answers,
                authorities: message.authorities,
                additionals: message.additionals,
            },
            Err(error) => {
                tracing::debug!("{name} {kind}: {error}");
                Reply::of(ResponseCode::ServFail)
            }
        }
    }
}

#[async_trait]
impl RequestHandler for Handler {
    async fn handle_request<R: ResponseHandler, T: Time>(&self, request: &Request, mut responses: R) -> ResponseInfo {
        let reply = self.reply(request).await;
        let mut metadata = Metadata::response_from_request(&request.metadata);
        metadata.response_code = reply.code;
        metadata.authoritative = reply.authoritative;
        metadata.truncation = reply.truncated;
        metadata.recursion_available = true;
        // Only a client that spoke EDNS understands it, and it says how much it can take.
        let edns = request.edns.as_ref().map(|offered| {
            let mut edns = Edns::new();
            edns.set_max_payload(offered.max_payload().clamp(512, PAYLOAD));
            edns
        });
        let builder = MessageResponseBuilder::new(&request.queries, edns.as_ref());
        let response =
            builder.build(metadata, &reply.answers, &reply.authorities, std::iter::empty(), &reply.additionals);
        match responses.send_response(response).await {
            Ok(info) => info,
            Err(error) => {
                tracing::debug!("an answer could not be sent to {}: {error}", request.src());
                ResponseInfo::from(Header { metadata, counts: HeaderCounts::default() })
            }
        }
    }
}

#[cfg(test)]
mod tests;
