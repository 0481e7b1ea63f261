//! Names outside of the cluster: asked of the host's resolvers, with bounds on time and on how many wait.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_server::proto::op::{Edns, Message, Query};
use hickory_server::proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::Upstreams;
use crate::shares::Shares;
use crate::upstreams::Follow;

/// For one try of one upstream. A client's own patience is five seconds as a rule.
const TRY: Duration = Duration::from_secs(2);
const ALL_TRIES: Duration = Duration::from_secs(4);
/// Questions under way. Each holds a socket; beyond this the client is told to try again.
const MOST_AT_ONCE: usize = 512;
/// Those of one client.
const MOST_OF_ONE: usize = 128;
/// What we tell upstreams we can take in one datagram.
const PAYLOAD: u16 = 1232;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ForwardError {
    #[error("there is no upstream resolver")]
    NoUpstream,
    #[error("too many questions are waiting for upstream resolvers")]
    Busy,
    #[error("no upstream resolver answered: {0}")]
    NoAnswer(String),
}

#[derive(Debug)]
pub(crate) struct Forwarder {
    upstreams: Follow,
    places: Shares,
}

impl Forwarder {
    /// Leaves out `own` addresses, lest a question go round for ever.
    pub(crate) fn new(upstreams: Upstreams, own: &[SocketAddr]) -> Self {
        Self { upstreams: Follow::new(upstreams, own.to_vec()), places: Shares::new(MOST_AT_ONCE, MOST_OF_ONE) }
    }

    /// Learns of the upstreams before the first question.
    pub(crate) async fn prepare(&self) {
        self.upstreams.now().await;
    }

    /// The answer of the first upstream that gives one. `whole` asks again over TCP when a datagram was too small.
    pub(crate) async fn ask(
        &self,
        client: IpAddr,
        name: &Name,
        kind: RecordType,
        whole: bool,
    ) -> Result<Message, ForwardError> {
        let upstreams = self.upstreams.now().await;
        if upstreams.is_empty() {
            return Err(ForwardError::NoUpstream);
        }
        let place = self.places.take(client).ok_or(ForwardError::Busy)?;
        let mut problem = String::new();
        let tries = async {
            for upstream in upstreams.iter() {
                match tokio::time::timeout(TRY, exchange(*upstream, name, kind, whole)).await {
                    Ok(Ok(message)) => return Some(message),
                    Ok(Err(error)) => problem = format!("{upstream}: {error}"),
                    Err(_) => problem = format!("{upstream}: no answer in time"),
                }
            }
            None
        };
        let answer = tokio::select! {
            answer = tokio::time::timeout(ALL_TRIES, tries) => answer,
            () = place.given_up() => return Err(ForwardError::Busy),
        };
        match answer {
            Ok(Some(message)) => Ok(message),
            _ => Err(ForwardError::NoAnswer(problem)),
        }
    }
}

async fn exchange(upstream: SocketAddr, name: &Name, kind: RecordType, whole: bool) -> std::io::Result<Message> {
    let mut question = Message::query();
    question.metadata.id = rand::random();
    question.metadata.recursion_desired = true;
    question.add_query(Query::query(name.clone(), kind));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    question.set_edns(edns);
    let bytes = question.to_vec().map_err(std::io::Error::other)?;

    let any: SocketAddr = match upstream.ip() {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A socket of its own per question, so that the port is as hard to guess as the id.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(&bytes).await?;
    let mut buffer = vec![0; 4096];
    let answer = loop {
        let length = socket.recv(&mut buffer).await?;
        // A datagram that does not fit the question is a stray or a forgery: the true one may still come.
        match Message::from_vec(&buffer[..length]) {
            Ok(answer) if fits(&answer, &question) => break answer,
            _ => {}
        }
    };
    if !(answer.metadata.truncation && whole) {
        return Ok(answer);
    }
    let mut stream = TcpStream::connect(upstream).await?;
    let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(&bytes).await?;
    let length = stream.read_u16().await?;
    let mut buffer = vec![0; usize::from(length)];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(std::io::Error::other)?;
    match fits(&answer, &question) {
        true => Ok(answer),
        false => Err(std::io::Error::other("the answer is for another question")),
    }
}

fn fits(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id && answer.queries == question.queries
}
