//! As much of SPDY/3.1 as streams of commands and ports need: frames, and streams that the client opens.
//!
//! Header blocks are one zlib stream per direction, begun with the protocol's own dictionary. Ours are written uncompressed, which
//! every inflater reads.

mod headers;
mod writer;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

use self::headers::Headers;
pub use self::writer::Writer;

const VERSION: u16 = 3;
const FIN: u8 = 1;

// The kinds of control frames.
const OPEN: u16 = 1;
const REPLY: u16 = 2;
const RESET: u16 = 3;
const PING: u16 = 6;
const GO_AWAY: u16 = 7;

/// What came from the other side.
#[derive(Debug, PartialEq)]
pub enum Frame {
    /// The client opens a stream; seen by servers only.
    Open {
        stream: u32,
        headers: Vec<(String, String)>,
    },
    Reply {
        stream: u32,
        fin: bool,
    },
    Data {
        stream: u32,
        fin: bool,
        data: Bytes,
    },
    Reset {
        stream: u32,
    },
    Ping {
        id: u32,
    },
    GoAway,
    /// Of no concern to us.
    Other,
}

pub struct Reader<R> {
    inner: R,
    buffer: BytesMut,
    /// None on the client's side: a server's headers acknowledge streams, and nobody reads them.
    headers: Option<Headers>,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn of_client(inner: R) -> Self {
        Self { inner, buffer: BytesMut::new(), headers: None }
    }

    pub fn of_server(inner: R) -> Self {
        Self { inner, buffer: BytesMut::new(), headers: Some(Headers::default()) }
    }

    /// The next frame; none at the end. Safe to drop and call again.
    pub async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Takes one whole frame off the buffer.
    fn take(&mut self) -> std::io::Result<Option<Frame>> {
        let buffer = &mut self.buffer;
        if buffer.len() < 8 {
            return Ok(None);
        }
        // Three bytes: no frame is longer than 16 MiB.
        let length = usize::from(buffer[5]) << 16 | usize::from(buffer[6]) << 8 | usize::from(buffer[7]);
        if buffer.len() < 8 + length {
            return Ok(None);
        }
        let mut head = buffer.split_to(8);
        let mut body = buffer.split_to(length).freeze();
        let (kind, flags) = (head.get_u32(), head[0]);
        let fin = flags & FIN != 0;
        if kind & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data { stream: kind, fin, data: body }));
        }
        Ok(Some(match ((kind & 0xffff) as u16, &mut self.headers) {
            (OPEN, Some(headers)) if body.len() >= 10 => {
                let stream = number(&mut body);
                body.advance(6);
                Frame::Open { stream, headers: headers.read(&body)? }
            }
            (REPLY, _) => Frame::Reply { stream: number(&mut body), fin },
            (RESET, _) => Frame::Reset { stream: number(&mut body) },
            (PING, _) if body.len() >= 4 => Frame::Ping { id: body.get_u32() },
            (GO_AWAY, _) => Frame::GoAway,
            _ => Frame::Other,
        }))
    }
}

/// The number of a stream.
fn number(body: &mut Bytes) -> u32 {
    if body.len() >= 4 { body.get_u32() & 0x7fff_ffff } else { 0 }
}

#[cfg(test)]
mod tests;
