//! Names outside of the cluster: asked of the host's resolvers, with bounds on time and on how many wait.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use hickory_server::proto::op::{Edns, Message, Query};
use hickory_server::proto::rr::{Name, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::shares::Shares;

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
    upstreams: Vec<SocketAddr>,
    places: Shares,
}

impl Forwarder {
    /// Leaves out `own` addresses, lest a question go round for ever.
    pub(crate) fn new(upstreams: Vec<SocketAddr>, own: &[SocketAddr]) -> Self {
        let is_own = |upstream: &SocketAddr| {
            own.iter()
                .any(|own| own.port() == upstream.port() && (own.ip() == upstream.ip() || own.ip().is_unspecified()))
        };
        let upstreams = upstreams.into_iter().filter(|upstream| !is_own(upstream)).collect();
        Self { upstreams, places: Shares::new(MOST_AT_ONCE, MOST_OF_ONE) }
    }

    /// The answer of the first upstream that gives one. `whole` asks again over TCP when a datagram was too small.
    pub(crate) async fn ask(
        &self,
        client: IpAddr,
        name: &Name,
        kind: RecordType,
        whole: bool,
    ) -> Result<Message, ForwardError> {
        if self.upstreams.is_empty() {
            return Err(ForwardError::NoUpstream);
        }
        let place = self.places.take(client).ok_or(ForwardError::Busy)?;
        let mut problem = String::new();
        let tries = async {
            for upstream in &self.upstreams {
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

/// The resolvers that a file in the form of `/etc/resolv.conf` names; none when it cannot be read.
pub(crate) async fn resolvers(path: &Path) -> Vec<SocketAddr> {
    match tokio::fs::read_to_string(path).await {
        Ok(text) => parse_resolvers(&text),
        Err(error) => {
            tracing::warn!(
                "names outside of the cluster cannot be resolved, {} is unreadable: {error}",
                path.display()
            );
            Vec::new()
        }
    }
}

fn parse_resolvers(text: &str) -> Vec<SocketAddr> {
    let addresses = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        (words.next() == Some("nameserver")).then(|| words.next())?
    });
    // A zone (`%eth0`) names an interface that only link-local addresses need.
    addresses.filter_map(|text| Some(SocketAddr::new(text.split('%').next()?.parse().ok()?, 53))).take(3).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolvers_are_read_from_a_file() {
        let text = "# comment\nsearch a b\nnameserver 192.0.2.1\n nameserver  fd00::1 # x\nnameserver x\nnameserver\n";
        let expected: Vec<SocketAddr> = ["192.0.2.1:53", "[fd00::1]:53"].map(|t| t.parse().expect("address")).into();
        assert_eq!(parse_resolvers(text), expected);
    }

    #[test]
    fn a_server_never_forwards_to_itself() {
        let addresses = |list: &[&str]| list.iter().map(|t| t.parse().expect("address")).collect::<Vec<SocketAddr>>();
        let upstreams = addresses(&["192.0.2.1:53", "127.0.0.53:53", "192.0.2.1:5353"]);
        let forwarder = Forwarder::new(upstreams, &addresses(&["192.0.2.1:53"]));
        assert_eq!(forwarder.upstreams, addresses(&["127.0.0.53:53", "192.0.2.1:5353"]));
    }
}
