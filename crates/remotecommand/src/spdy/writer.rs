//! What is sent, by either side.

use bytes::{BufMut, BytesMut};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use super::{FIN, GO_AWAY, OPEN, PING, REPLY, VERSION};

pub(super) const LONGEST_DATA: usize = 32 * 1024;
/// The most that one stored block of deflate holds.
const LONGEST_STORED: usize = 65_535;

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

    /// Opens a stream with these headers, as a client, and gives its number.
    pub async fn open(&mut self, headers: &[(&str, &str)]) -> std::io::Result<u32> {
        let stream = self.next_stream;
        self.next_stream += 2;
        let block = self.header_block(headers);
        let mut body = BytesMut::with_capacity(10 + block.len());
        body.put_u32(stream);
        body.put_u32(0);
        body.put_u16(0);
        body.put_slice(&block);
        self.control(OPEN, &body).await?;
        Ok(stream)
    }

    /// Accepts a stream, as a server; no headers are sent with it.
    pub async fn reply(&mut self, stream: u32) -> std::io::Result<()> {
        let mut body = BytesMut::new();
        body.put_u32(stream);
        body.put_slice(&self.header_block(&[]));
        self.control(REPLY, &body).await
    }

    fn header_block(&mut self, headers: &[(&str, &str)]) -> BytesMut {
        let mut plain = BytesMut::new();
        plain.put_u32(length(headers.len()));
        for (name, value) in headers {
            for text in [name, value] {
                plain.put_u32(length(text.len()));
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

    pub async fn data(&mut self, stream: u32, data: &[u8], fin: bool) -> std::io::Result<()> {
        let mut parts = data.chunks(LONGEST_DATA).peekable();
        if parts.peek().is_none() {
            return self.frame(stream, if fin { FIN } else { 0 }, &[]).await;
        }
        while let Some(part) = parts.next() {
            let last = fin && parts.peek().is_none();
            self.frame(stream, if last { FIN } else { 0 }, part).await?;
        }
        Ok(())
    }

    pub async fn pong(&mut self, id: u32) -> std::io::Result<()> {
        self.control(PING, &id.to_be_bytes()).await
    }

    pub async fn goodbye(&mut self) -> std::io::Result<()> {
        self.control(GO_AWAY, &[0; 8]).await?;
        self.inner.shutdown().await
    }

    async fn control(&mut self, kind: u16, body: &[u8]) -> std::io::Result<()> {
        self.frame(u32::from(0x8000 | VERSION) << 16 | u32::from(kind), 0, body).await
    }

    async fn frame(&mut self, head: u32, flags: u8, body: &[u8]) -> std::io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + body.len());
        frame.put_u32(head);
        frame.put_u32(u32::from(flags) << 24 | length(body.len()));
        frame.put_slice(body);
        self.inner.write_all(&frame).await?;
        self.inner.flush().await
    }
}

fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// A block of deflate that holds its bytes as they are.
fn stored(block: &mut BytesMut, part: &[u8]) {
    let length = u16::try_from(part.len()).unwrap_or(u16::MAX);
    block.put_u8(0);
    block.put_u16_le(length);
    block.put_u16_le(!length);
    block.put_slice(part);
}
