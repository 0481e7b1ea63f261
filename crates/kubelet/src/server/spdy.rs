//! As much of SPDY/3.1 as a client of a runtime's streaming server needs: frames, and streams that it opens.
//!
//! Header blocks are zlib streams. Ours are written uncompressed, which every inflater reads; those of the other side
//! only acknowledge streams and are not read at all.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const VERSION: u16 = 3;
const FIN: u8 = 1;
/// More than any streaming server sends in one piece.
const LONGEST_FRAME: usize = 16 * 1024 * 1024 - 1;
const LONGEST_DATA: usize = 32 * 1024;
const LONGEST_STORED: usize = 65_535;

/// What came from the other side.
#[derive(Debug, PartialEq)]
pub enum Frame {
    Data {
        stream: u32,
        fin: bool,
        data: Bytes,
    },
    Reply {
        stream: u32,
        fin: bool,
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
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub fn new(inner: R) -> Self {
        Self { inner, buffer: BytesMut::new() }
    }

    /// The next frame; none at the end. Safe to drop and call again.
    pub async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = take(&mut self.buffer)? {
                return Ok(Some(frame));
            }
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }
}

/// Takes one whole frame off the buffer.
fn take(buffer: &mut BytesMut) -> std::io::Result<Option<Frame>> {
    if buffer.len() < 8 {
        return Ok(None);
    }
    let length = usize::from(buffer[5]) << 16 | usize::from(buffer[6]) << 8 | usize::from(buffer[7]);
    if length > LONGEST_FRAME {
        return Err(std::io::Error::other("a frame is too long"));
    }
    if buffer.len() < 8 + length {
        buffer.reserve(8 + length - buffer.len());
        return Ok(None);
    }
    let mut head = buffer.split_to(8);
    let mut body = buffer.split_to(length).freeze();
    let first = head.get_u32();
    let fin = head[0] & FIN != 0;
    if first & 0x8000_0000 == 0 {
        return Ok(Some(Frame::Data { stream: first, fin, data: body }));
    }
    let number = |body: &mut Bytes| if body.len() >= 4 { body.get_u32() & 0x7fff_ffff } else { 0 };
    Ok(Some(match first & 0xffff {
        2 => Frame::Reply { stream: number(&mut body), fin },
        3 => Frame::Reset { stream: number(&mut body) },
        6 if body.len() >= 4 => Frame::Ping { id: body.get_u32() },
        7 => Frame::GoAway,
        _ => Frame::Other,
    }))
}

pub struct Writer<W> {
    inner: W,
    next_stream: u32,
    /// The zlib header stands before the first block only: all blocks are one stream.
    began: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub fn new(inner: W) -> Self {
        Self { inner, next_stream: 1, began: false }
    }

    /// Opens a stream with these headers and gives its number.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> std::io::Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.header_block(headers);
        let mut body = BytesMut::with_capacity(10 + block.len());
        body.put_u32(stream);
        body.put_u32(0);
        body.put_u16(0);
        body.put_slice(&block);
        self.control(1, 0, &body).await?;
        Ok(stream)
    }

    fn header_block(&mut self, headers: &[(&str, &str)]) -> BytesMut {
        let mut plain = BytesMut::new();
        plain.put_u32(headers.len() as u32);
        for (name, value) in headers {
            for text in [name, value] {
                plain.put_u32(text.len() as u32);
                plain.put_slice(text.as_bytes());
            }
        }
        let mut block = BytesMut::new();
        if !self.began {
            self.began = true;
            block.put_slice(&[0x78, 0x01]);
        }
        for part in plain.chunks(LONGEST_STORED) {
            stored(&mut block, part);
        }
        // An empty block, as after a flush.
        stored(&mut block, &[]);
        block
    }

    async fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> std::io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + body.len());
        frame.put_u16(0x8000 | VERSION);
        frame.put_u16(kind);
        frame.put_u32(u32::from(flags) << 24 | body.len() as u32);
        frame.put_slice(body);
        self.inner.write_all(&frame).await?;
        self.inner.flush().await
    }

    pub async fn data(&mut self, stream: u32, data: &[u8], fin: bool) -> std::io::Result<()> {
        let mut parts = data.chunks(LONGEST_DATA).peekable();
        if parts.peek().is_none() {
            return self.data_frame(stream, &[], fin).await;
        }
        while let Some(part) = parts.next() {
            self.data_frame(stream, part, fin && parts.peek().is_none()).await?;
        }
        Ok(())
    }

    async fn data_frame(&mut self, stream: u32, data: &[u8], fin: bool) -> std::io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + data.len());
        frame.put_u32(stream);
        frame.put_u32(u32::from(if fin { FIN } else { 0 }) << 24 | data.len() as u32);
        frame.put_slice(data);
        self.inner.write_all(&frame).await?;
        self.inner.flush().await
    }

    pub async fn pong(&mut self, id: u32) -> std::io::Result<()> {
        self.control(6, 0, &id.to_be_bytes()).await
    }
}

/// A block of deflate that holds its bytes as they are.
fn stored(block: &mut BytesMut, part: &[u8]) {
    let length = part.len() as u16;
    block.put_u8(0);
    block.put_u16_le(length);
    block.put_u16_le(!length);
    block.put_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_come_back_as_they_were_sent() {
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        assert_eq!(writer.open(&[("streamtype", "stdin")]).await.expect("opened"), 1);
        assert_eq!(writer.open(&[("streamtype", "error")]).await.expect("opened"), 3);
        writer.data(1, b"hello", true).await.expect("sent");
        writer.pong(7).await.expect("sent");
        let mut reader = Reader::new(&out[..]);
        assert_eq!(reader.next().await.expect("read"), Some(Frame::Other));
        assert_eq!(reader.next().await.expect("read"), Some(Frame::Other));
        let data = Frame::Data { stream: 1, fin: true, data: Bytes::from_static(b"hello") };
        assert_eq!(reader.next().await.expect("read"), Some(data));
        assert_eq!(reader.next().await.expect("read"), Some(Frame::Ping { id: 7 }));
        assert_eq!(reader.next().await.expect("read"), None);
    }

    #[tokio::test]
    async fn long_data_is_cut_and_only_the_last_part_ends() {
        let mut out = Vec::new();
        Writer::new(&mut out).data(5, &[b'x'; LONGEST_DATA + 1], true).await.expect("sent");
        let mut reader = Reader::new(&out[..]);
        let mut seen = Vec::new();
        while let Some(Frame::Data { fin, data, .. }) = reader.next().await.expect("read") {
            seen.push((fin, data.len()));
        }
        assert_eq!(seen, [(false, LONGEST_DATA), (true, 1)]);
    }
}
