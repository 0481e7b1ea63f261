//! Messages in and out: what a datagram asks, and an answer within the room that the client has.

use hickory_proto::op::{Message, MessageType, Metadata, OpCode, Query, ResponseCode, emit_message_parts};
use hickory_proto::rr::{DNSClass, Record};
use hickory_proto::serialize::binary::BinEncoder;

/// The largest datagram we send, whatever the client offers: what passes everywhere without fragments.
pub(crate) const PAYLOAD: u16 = 1232;
/// What a client without EDNS can take.
const SMALLEST: u16 = 512;
const HEADER: usize = 12;
/// The record by which EDNS is spoken, without options.
const EDNS_RECORD: usize = 11;

/// What a client said of EDNS.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offered {
    payload: u16,
    pub(crate) dnssec_ok: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) metadata: Metadata,
    /// As the client spelled it: some check that the case comes back.
    pub(crate) query: Query,
    pub(crate) edns: Option<Offered>,
}

/// What to do with bytes that came in.
#[derive(Debug)]
pub(crate) enum Received {
    Question(Box<Question>),
    /// Answered without a look at what is asked.
    Refused(Vec<u8>),
    /// Never answered: an answer could be answered in turn.
    Ignored,
}

/// An answer before it is encoded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) code: ResponseCode,
    pub(crate) authoritative: bool,
    pub(crate) authentic: bool,
    pub(crate) answers: Vec<Record>,
    pub(crate) authorities: Vec<Record>,
    pub(crate) additionals: Vec<Record>,
}

impl Reply {
    pub(crate) fn of(code: ResponseCode) -> Self {
        Self { code, ..Self::default() }
    }
}

pub(crate) fn read(bytes: &[u8]) -> Received {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Received::Ignored };
    let is_answer = header[2] & 0x80 != 0;
    if is_answer {
        return Received::Ignored;
    }
    let count = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
    let opcode = OpCode::from_u8((header[2] >> 3) & 0x0f);
    if opcode != OpCode::Query {
        return Received::Refused(bare(header, ResponseCode::NotImp));
    }
    // More records than a question can have are not even looked at.
    if count(4) != 1 || count(6) > 1 || count(8) > 1 || count(10) > 2 {
        return Received::Refused(bare(header, ResponseCode::FormErr));
    }
    let Ok(mut message) = Message::from_vec(bytes) else {
        return Received::Refused(bare(header, ResponseCode::FormErr));
    };
    let Some(query) = message.queries.pop() else {
        return Received::Refused(bare(header, ResponseCode::FormErr));
    };
    let edns = message.edns.as_ref().map(|edns| Offered {
        payload: edns.max_payload().clamp(SMALLEST, PAYLOAD),
        dnssec_ok: edns.flags().dnssec_ok,
    });
    let question = Question { metadata: message.metadata, query, edns };
    if message.edns.is_some_and(|edns| edns.version() != 0) {
        return Received::Refused(question.answer(&Reply::of(ResponseCode::BADVERS), false));
    }
    Received::Question(Box::new(question))
}

/// A header alone: no larger than what was asked.
fn bare(header: &[u8; HEADER], code: ResponseCode) -> Vec<u8> {
    let kept = header[2] & 0x79;
    let mut bytes = vec![0; HEADER];
    bytes[..2].copy_from_slice(&header[..2]);
    bytes[2] = 0x80 | kept;
    bytes[3] = code.low();
    bytes
}

impl Question {
    pub(crate) fn is_internet(&self) -> bool {
        matches!(self.query.query_class(), DNSClass::IN | DNSClass::ANY)
    }

    pub(crate) fn dnssec_ok(&self) -> bool {
        self.edns.is_some_and(|edns| edns.dnssec_ok)
    }

    /// The bytes of an answer, cut to what the client can take unless it is `whole`.
    pub(crate) fn answer(&self, reply: &Reply, whole: bool) -> Vec<u8> {
        let mut metadata = Metadata::response_from_request(&self.metadata);
        metadata.response_code = ResponseCode::from(0, reply.code.low());
        metadata.authoritative = reply.authoritative;
        metadata.authentic_data = reply.authentic;
        metadata.recursion_available = true;
        metadata.message_type = MessageType::Response;
        let room = match (whole, self.edns) {
            (true, _) => u16::MAX,
            (false, Some(edns)) => edns.payload,
            (false, None) => SMALLEST,
        };
        // The client's own record of EDNS has its place, whatever else has none.
        let reserved = if self.edns.is_some() { EDNS_RECORD } else { 0 };
        let mut bytes = Vec::with_capacity(256);
        let mut encoder = BinEncoder::new(&mut bytes);
        encoder.set_max_size(room - u16::try_from(reserved).unwrap_or_default());
        let written = emit_message_parts(
            &metadata,
            &mut std::iter::once(&self.query),
            &mut reply.answers.iter(),
            &mut reply.authorities.iter(),
            &mut reply.additionals.iter(),
            None,
            None,
            &mut encoder,
        );
        let length = encoder.offset();
        let Ok(header) = written else {
            tracing::debug!("an answer for {} could not be encoded", self.query.name());
            return self.failed();
        };
        // A record that did not fit has left a part of itself.
        bytes.truncate(length);
        if let Some(edns) = self.edns {
            let count = header.counts.additionals.saturating_add(1);
            bytes[10..12].copy_from_slice(&count.to_be_bytes());
            let [high, low] = edns.payload.to_be_bytes();
            let flags = if edns.dnssec_ok { 0x80 } else { 0 };
            bytes.extend([0, 0, 41, high, low, reply.code.high(), 0, flags, 0, 0, 0]);
        }
        bytes
    }

    fn failed(&self) -> Vec<u8> {
        let mut header = [0; HEADER];
        header[..2].copy_from_slice(&self.metadata.id.to_be_bytes());
        header[2] = u8::from(self.metadata.recursion_desired);
        bare(&header, ResponseCode::ServFail)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use hickory_proto::op::Edns;
    use hickory_proto::rr::rdata::A;
    use hickory_proto::rr::{Name, RData, RecordType};

    use super::*;

    fn question(edns: Option<(u16, u8)>) -> Vec<u8> {
        let mut message = Message::query();
        message.metadata.id = 7;
        message.add_query(Query::query(Name::from_ascii("Big.example.").expect("a name"), RecordType::A));
        if let Some((payload, version)) = edns {
            let mut edns = Edns::new();
            edns.set_max_payload(payload).set_version(version);
            message.set_edns(edns);
        }
        message.to_vec().expect("bytes")
    }

    fn asked(edns: Option<(u16, u8)>) -> Question {
        match read(&question(edns)) {
            Received::Question(question) => *question,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_cut_to_what_the_client_takes() {
        let name = Name::from_ascii("big.example.").expect("a name");
        let record = |last| Record::from_rdata(name.clone(), 30, RData::A(A(Ipv4Addr::new(10, 0, 0, last))));
        let reply = Reply { answers: (0..100).map(record).collect(), ..Reply::default() };
        for (edns, whole, room, truncated) in [
            (None, false, 512, true),
            (Some((100, 0)), false, 512, true),
            (Some((800, 0)), false, 800, true),
            (Some((65535, 0)), false, usize::from(PAYLOAD), true),
            (None, true, 65535, false),
            (Some((512, 0)), true, 65535, false),
        ] {
            let bytes = asked(edns).answer(&reply, whole);
            assert!(bytes.len() <= room, "{edns:?}: {}", bytes.len());
            let message = Message::from_vec(&bytes).expect("a message");
            assert_eq!(message.metadata.truncation, truncated, "{edns:?}");
            assert_eq!(message.edns.is_some(), edns.is_some(), "{edns:?}");
            assert_eq!(message.answers.len() == 100, !truncated, "{edns:?}");
            assert!(message.answers.len() > 10, "{edns:?}");
            assert_eq!(message.queries[0].name().to_ascii(), "Big.example.", "the case comes back");
        }
    }

    #[test]
    fn bad_input_is_answered_shortly_or_not_at_all() {
        let refused = |bytes: &[u8]| match read(bytes) {
            Received::Refused(answer) => {
                assert!(answer.len() <= bytes.len().max(HEADER), "it grew");
                Message::from_vec(&answer).expect("a message").metadata.response_code
            }
            other => panic!("{other:?}"),
        };
        let good = question(None);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(refused(&with(2, 0x28)), ResponseCode::NotImp, "an update");
        assert_eq!(refused(&with(5, 2)), ResponseCode::FormErr, "two questions announced");
        assert_eq!(refused(&with(5, 0)), ResponseCode::FormErr, "none");
        assert_eq!(refused(&with(7, 9)), ResponseCode::FormErr, "answers in a question");
        assert_eq!(refused(&good[..20]), ResponseCode::FormErr, "cut off");
        assert_eq!(refused(&with(12, 0xc0)), ResponseCode::FormErr, "a name that points to itself");
        assert_eq!(u16::from(refused(&question(Some((1232, 1))))), u16::from(ResponseCode::BADVERS));
        for ignored in [&b""[..], &good[..11], &with(2, 0x80)] {
            assert!(matches!(read(ignored), Received::Ignored), "{ignored:?}");
        }
    }
}
