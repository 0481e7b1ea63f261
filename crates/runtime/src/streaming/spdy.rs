//! The server's side of SPDY/3.1: frames, and streams that the client opens.
//!
//! Header blocks are one zlib stream per direction, begun with the protocol's own dictionary. Ours are written
//! uncompressed, which every inflater reads.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// What both sides know beforehand of header blocks.
const DICTIONARY: &[u8] = include_bytes!("spdy_dictionary.bin");
const VERSION: u16 = 3;
const FIN: u8 = 1;
const LONGEST_FRAME: usize = 16 * 1024 * 1024 - 1;
const LONGEST_HEADERS: usize = 64 * 1024;
const LONGEST_DATA: usize = 32 * 1024;

#[derive(Debug, PartialEq)]
pub(super) enum Frame {
    Open { stream: u32, headers: Vec<(String, String)> },
    Data { stream: u32, fin: bool, data: Bytes },
    Reset { stream: u32 },
    Ping { id: u32 },
    GoAway,
    Other,
}

pub(super) struct Reader<R> {
    inner: R,
    buffer: BytesMut,
    inflate: Decompress,
}

impl<R: AsyncRead + Unpin> Reader<R> {
    pub(super) fn new(inner: R) -> Self {
        Self { inner, buffer: BytesMut::new(), inflate: Decompress::new(true) }
    }

    /// The next frame; none at the end. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> std::io::Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(Some(frame));
            }
            if self.inner.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
    }

    fn take(&mut self) -> std::io::Result<Option<Frame>> {
        let buffer = &mut self.buffer;
        if buffer.len() < 8 {
            return Ok(None);
        }
        let length = usize::from(buffer[5]) << 16 | usize::from(buffer[6]) << 8 | usize::from(buffer[7]);
        if length > LONGEST_FRAME {
            return Err(std::io::Error::other("a frame is too long"));
        }
        if buffer.len() < 8 + length {
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
            1 if body.len() >= 10 => {
                let stream = number(&mut body);
                body.advance(6);
                Frame::Open { stream, headers: self.headers(&body)? }
            }
            3 => Frame::Reset { stream: number(&mut body) },
            6 if body.len() >= 4 => Frame::Ping { id: body.get_u32() },
            7 => Frame::GoAway,
            _ => Frame::Other,
        }))
    }

    fn headers(&mut self, mut block: &[u8]) -> std::io::Result<Vec<(String, String)>> {
        let wrong = |why: &str| std::io::Error::other(format!("headers of a stream: {why}"));
        let mut plain = Vec::with_capacity(4096);
        loop {
            let (before_in, before_out) = (self.inflate.total_in(), self.inflate.total_out());
            plain.reserve(4096);
            let result = self.inflate.decompress_vec(block, &mut plain, FlushDecompress::Sync);
            let used = usize::try_from(self.inflate.total_in() - before_in).unwrap_or(block.len());
            block = &block[used.min(block.len())..];
            match result {
                Err(error) if error.needs_dictionary().is_some() => {
                    self.inflate.set_dictionary(DICTIONARY).map_err(|e| wrong(&e.to_string()))?;
                    continue;
                }
                Err(error) => return Err(wrong(&error.to_string())),
                Ok(Status::StreamEnd) => break,
                Ok(_) => {}
            }
            if plain.len() > LONGEST_HEADERS {
                return Err(wrong("too long"));
            }
            if used == 0 && self.inflate.total_out() == before_out {
                break;
            }
        }
        parse(&plain).ok_or_else(|| wrong("not understood"))
    }
}

fn parse(mut plain: &[u8]) -> Option<Vec<(String, String)>> {
    let text = |rest: &mut &[u8]| -> Option<String> {
        let length = usize::try_from(number(rest)?).ok()?;
        let bytes = rest.get(..length)?;
        *rest = &rest[length..];
        Some(String::from_utf8_lossy(bytes).into_owned())
    };
    let count = number(&mut plain)?;
    let mut headers = Vec::new();
    for _ in 0..count.min(256) {
        let name = text(&mut plain)?;
        headers.push((name.to_ascii_lowercase(), text(&mut plain)?));
    }
    Some(headers)
}

fn number(rest: &mut &[u8]) -> Option<u32> {
    let bytes = rest.get(..4)?;
    let value = u32::from_be_bytes(bytes.try_into().ok()?);
    *rest = &rest[4..];
    Some(value)
}

pub(super) struct Writer<W> {
    inner: W,
    /// The zlib header stands before the first block only.
    began: bool,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    pub(super) fn new(inner: W) -> Self {
        Self { inner, began: false }
    }

    /// Accepts a stream; no headers are sent with it.
    pub(super) async fn reply(&mut self, stream: u32) -> std::io::Result<()> {
        let mut body = BytesMut::new();
        body.put_u32(stream);
        if !self.began {
            self.began = true;
            body.put_slice(&[0x78, 0x01]);
        }
        // A stored block with the number of headers, which is none, and an empty one as after a flush.
        body.put_slice(&[0, 4, 0, 0xfb, 0xff, 0, 0, 0, 0]);
        body.put_slice(&[0, 0, 0, 0xff, 0xff]);
        self.control(2, &body).await
    }

    async fn control(&mut self, kind: u16, body: &[u8]) -> std::io::Result<()> {
        let mut frame = BytesMut::with_capacity(8 + body.len());
        frame.put_u16(0x8000 | VERSION);
        frame.put_u16(kind);
        frame.put_u32(u32::try_from(body.len()).unwrap_or(0));
        frame.put_slice(body);
        self.inner.write_all(&frame).await?;
        self.inner.flush().await
    }

    pub(super) async fn data(&mut self, stream: u32, data: &[u8], fin: bool) -> std::io::Result<()> {
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
        frame.put_u32(u32::from(if fin { FIN } else { 0 }) << 24 | u32::try_from(data.len()).unwrap_or(0));
        frame.put_slice(data);
        self.inner.write_all(&frame).await?;
        self.inner.flush().await
    }

    pub(super) async fn pong(&mut self, id: u32) -> std::io::Result<()> {
        self.control(6, &id.to_be_bytes()).await
    }

    pub(super) async fn goodbye(&mut self) -> std::io::Result<()> {
        self.control(7, &[0; 8]).await?;
        self.inner.shutdown().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};

    #[test]
    fn the_dictionary_is_the_protocols() {
        // The checksum that a header block names it by.
        let (mut a, mut b) = (1u32, 0u32);
        for byte in DICTIONARY {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!(b << 16 | a, 0xe3c6_a7c2);
    }

    #[tokio::test]
    async fn streams_are_opened_with_compressed_headers() {
        let mut deflate = Compress::new(Compression::default(), true);
        deflate.set_dictionary(DICTIONARY).expect("a dictionary");
        let mut sent = Vec::new();
        for (stream, kind) in [(1u32, "error"), (3, "stdout")] {
            let mut plain = Vec::new();
            plain.extend_from_slice(&1u32.to_be_bytes());
            for text in ["streamtype", kind] {
                plain.extend_from_slice(&u32::try_from(text.len()).expect("short").to_be_bytes());
                plain.extend_from_slice(text.as_bytes());
            }
            let mut block = Vec::with_capacity(1024);
            deflate.compress_vec(&plain, &mut block, FlushCompress::Sync).expect("compressed");
            sent.extend_from_slice(&[0x80, 3, 0, 1, 0, 0, 0, u8::try_from(10 + block.len()).expect("short")]);
            sent.extend_from_slice(&stream.to_be_bytes());
            sent.extend_from_slice(&[0; 6]);
            sent.extend_from_slice(&block);
        }
        let mut reader = Reader::new(&sent[..]);
        for (stream, kind) in [(1, "error"), (3, "stdout")] {
            let headers = vec![("streamtype".to_owned(), kind.to_owned())];
            assert_eq!(reader.next().await.expect("read"), Some(Frame::Open { stream, headers }));
        }
        assert_eq!(reader.next().await.expect("read"), None);
    }
}
