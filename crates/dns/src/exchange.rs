//! One question to one resolver, and what may be believed of its answer.

use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::message::{PAYLOAD, Reply};
use crate::plugins::cache::Key;

pub(crate) const PORT: u16 = 53;
/// Datagrams that do not fit the question are passed over, but not for ever.
const MOST_STRAYS: usize = 64;
/// A chain of aliases that is longer is a loop.
const LONGEST_CHAIN: usize = 16;

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Bytes as they came.
    pub(crate) size: usize,
}

/// Over UDP, and again over TCP when the answer was cut.
pub(crate) async fn exchange(upstream: SocketAddr, key: &Key, force_tcp: bool) -> io::Result<Answered> {
    let question = question(key);
    let bytes = question.to_vec().map_err(io::Error::other)?;
    if !force_tcp {
        let (answer, size) = datagram(upstream, &question, &bytes).await?;
        if !answer.metadata.truncation {
            return Ok(Answered { reply: believed(answer, key), size });
        }
    }
    let (answer, size) = stream(upstream, &question, &bytes).await?;
    Ok(Answered { reply: believed(answer, key), size })
}

fn question(key: &Key) -> Message {
    let mut question = Message::query();
    question.metadata.id = rand::random();
    question.metadata.recursion_desired = true;
    question.metadata.checking_disabled = key.checking_disabled;
    question.add_query(Query::query(key.name.clone(), key.kind));
    let mut edns = Edns::new();
    edns.set_max_payload(PAYLOAD);
    edns.set_dnssec_ok(key.dnssec_ok);
    question.set_edns(edns);
    question
}

async fn datagram(upstream: SocketAddr, question: &Message, bytes: &[u8]) -> io::Result<(Message, usize)> {
    let any: SocketAddr = match upstream.ip() {
        IpAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    // A socket of its own per question, so that the port is as hard to guess as the id. Connected, so that the kernel drops
    // what comes from elsewhere.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(upstream).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; 4096];
    for _ in 0..MOST_STRAYS {
        let length = socket.recv(&mut buffer).await?;
        // A datagram that does not fit the question is a stray or a forgery: the true one may still come.
        match Message::from_vec(&buffer[..length]) {
            Ok(answer) if fits(&answer, question) => return Ok((answer, length)),
            _ => {}
        }
    }
    Err(io::Error::other("too many datagrams that are no answer"))
}

async fn stream(upstream: SocketAddr, question: &Message, bytes: &[u8]) -> io::Result<(Message, usize)> {
    let mut stream = TcpStream::connect(upstream).await?;
    let length = u16::try_from(bytes.len()).map_err(io::Error::other)?;
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    let length = usize::from(stream.read_u16().await?);
    let mut buffer = vec![0; length];
    stream.read_exact(&mut buffer).await?;
    let answer = Message::from_vec(&buffer).map_err(io::Error::other)?;
    match fits(&answer, question) {
        true => Ok((answer, length)),
        false => Err(io::Error::other("the answer is for another question")),
    }
}

fn fits(answer: &Message, question: &Message) -> bool {
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && answer.metadata.op_code == OpCode::Query
        && answer.queries == question.queries
}

/// What of an answer belongs to the question: the records of the name and of those it leads to. A resolver that adds others
/// does not make us tell them.
fn believed(message: Message, key: &Key) -> Reply {
    let mut owners = HashSet::from([key.name.clone()]);
    let all = message.answers;
    for _ in 0..LONGEST_CHAIN {
        let before = owners.len();
        for record in &all {
            if let RData::CNAME(target) = &record.data
                && owners.contains(&record.name)
            {
                owners.insert(target.0.clone());
            }
        }
        if owners.len() == before {
            break;
        }
    }
    let is_signature = |record: &Record| {
        key.dnssec_ok
            && matches!(
                record.record_type(),
                RecordType::RRSIG | RecordType::NSEC | RecordType::NSEC3 | RecordType::DS | RecordType::DNSKEY
            )
    };
    let of_type = |record: &Record| {
        let kind = record.record_type();
        record.dns_class == DNSClass::IN
            && (kind == key.kind
                || key.kind == RecordType::ANY
                || matches!(kind, RecordType::CNAME | RecordType::ANAME)
                || is_signature(record))
    };
    let is_dname = |record: &Record| {
        u16::from(record.record_type()) == 39 && owners.iter().any(|owner| record.name.zone_of(owner))
    };
    let answers: Vec<Record> = all
        .into_iter()
        .filter(|record| (owners.contains(&record.name) && of_type(record)) || is_dname(record))
        .collect();
    let above = |record: &Record| owners.iter().any(|owner| record.name.zone_of(owner));
    let authorities: Vec<Record> = message
        .authorities
        .into_iter()
        .filter(|record| match record.record_type() {
            RecordType::SOA | RecordType::NS => above(record),
            _ => is_signature(record),
        })
        .collect();
    let leads: HashSet<&Name> = answers.iter().chain(&authorities).filter_map(target).collect();
    let additionals = message.additionals.into_iter().filter(|record| {
        matches!(record.record_type(), RecordType::A | RecordType::AAAA) && leads.contains(&record.name)
    });
    Reply {
        code: message.metadata.response_code,
        authoritative: false,
        authentic: message.metadata.authentic_data,
        additionals: additionals.collect(),
        answers,
        authorities,
    }
}

/// The name whose addresses belong beside a record.
fn target(record: &Record) -> Option<&Name> {
    match &record.data {
        RData::NS(name) => Some(&name.0),
        RData::SRV(srv) => Some(&srv.target),
        RData::MX(mx) => Some(&mx.exchange),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use hickory_proto::rr::rdata::{A, CNAME};

    use super::*;

    fn name(text: &str) -> Name {
        Name::from_ascii(text).expect("a name")
    }

    fn a(owner: &str) -> Record {
        Record::from_rdata(name(owner), 60, RData::A(A([192, 0, 2, 1].into())))
    }

    fn alias(owner: &str, to: &str) -> Record {
        Record::from_rdata(name(owner), 60, RData::CNAME(CNAME(name(to))))
    }

    #[test]
    fn records_that_nobody_asked_for_are_dropped() {
        let key = Key { name: name("www.example."), kind: RecordType::A, dnssec_ok: false, checking_disabled: false };
        let mut message = Message::response(1, OpCode::Query);
        message.add_answers([
            a("b.example."),
            alias("WWW.example.", "b.example."),
            a("bank.example."),
            alias("bank.example.", "evil.example."),
        ]);
        message.add_additional(a("bank.example."));
        message.add_authority(a("bank.example."));
        let reply = believed(message, &key);
        let shown: Vec<String> = reply.answers.iter().map(|record| record.name.to_ascii()).collect();
        assert_eq!(shown, ["b.example.", "WWW.example."]);
        assert!(reply.additionals.is_empty() && reply.authorities.is_empty());
    }
}
