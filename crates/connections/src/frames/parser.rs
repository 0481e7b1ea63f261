//! The heads of HTTP/2 frames in a stream of bytes. What they carry is skipped.

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Data,
    Headers,
    /// Whatever neither asks for something nor carries something.
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    flags: u8,
    pub(super) length: u32,
}

impl Frame {
    fn read(head: [u8; HEAD]) -> Self {
        let [a, b, c, kind, flags, ..] = head;
        let kind = match kind {
            0 => Kind::Data,
            1 => Kind::Headers,
            _ => Kind::Other,
        };
        Self { kind, flags, length: u32::from_be_bytes([0, a, b, c]) }
    }

    /// Data that may carry nothing at all, and does not end its stream either.
    pub(super) fn is_empty_or_padded(self) -> bool {
        const END_STREAM: u8 = 1;
        const PADDED: u8 = 8;
        self.flags & PADDED != 0 || self.length == 0 && self.flags & END_STREAM == 0
    }
}

enum At {
    /// So much of the preface has come.
    Preface(usize),
    Head([u8; HEAD], usize),
    Payload(u32),
    /// Something else is spoken.
    NotHttp2,
}

pub(super) struct Parser(At);

impl Parser {
    /// Of the end that speaks first.
    pub(super) fn with_preface() -> Self {
        Self(At::Preface(0))
    }

    pub(super) fn without_preface() -> Self {
        Self(At::Head([0; HEAD], 0))
    }

    pub(super) fn is_http2(&self) -> bool {
        matches!(self.0, At::Head(..) | At::Payload(_))
    }

    pub(super) fn feed(&mut self, mut bytes: &[u8], mut found: impl FnMut(Frame)) {
        while !bytes.is_empty() {
            let taken = match &mut self.0 {
                At::NotHttp2 => return,
                At::Preface(known) => {
                    let expected = &PREFACE[*known..];
                    let taken = expected.len().min(bytes.len());
                    self.0 = match () {
                        () if bytes[..taken] != expected[..taken] => At::NotHttp2,
                        () if taken == expected.len() => At::Head([0; HEAD], 0),
                        () => At::Preface(*known + taken),
                    };
                    taken
                }
                At::Head(head, known) => {
                    let taken = (HEAD - *known).min(bytes.len());
                    head[*known..*known + taken].copy_from_slice(&bytes[..taken]);
                    *known += taken;
                    if *known == HEAD {
                        let frame = Frame::read(*head);
                        found(frame);
                        self.0 = if frame.length == 0 { At::Head([0; HEAD], 0) } else { At::Payload(frame.length) };
                    }
                    taken
                }
                At::Payload(left) => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                    *left = left.saturating_sub(u32::try_from(taken).unwrap_or(u32::MAX));
                    if *left == 0 {
                        self.0 = At::Head([0; HEAD], 0);
                    }
                    taken
                }
            };
            bytes = &bytes[taken..];
        }
    }
}
