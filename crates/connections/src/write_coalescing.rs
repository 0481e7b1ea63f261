//! Small answers of one HTTP/2 connection leave together.
//!
//! The HTTP/2 implementation copies a small body behind its headers where the connection cannot write several buffers
//! at once, and goes on with the next answer; where it can, each answer is a write of its own. A write costs more than the copy of
//! a kilobyte, and clients with many requests under way, as client-go's are, have many small answers at the same time.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is larger is not copied.
const SMALL: usize = 256;

/// A connection that says that it cannot write several buffers at once, though it can: what is held back goes out in
/// one write with the large buffer that follows.
pub(crate) struct WriteCoalescing<T> {
    inner: T,
    /// Whether it does that at all: HTTP/1 copies bodies of any size for such a connection.
    gathers: bool,
    /// Heads of frames, whose bodies follow.
    held: BytesMut,
}

impl<T> WriteCoalescing<T> {
    pub(crate) fn new(inner: T, gathers: bool) -> Self {
        Self { inner, gathers, held: BytesMut::new() }
    }
}

impl<T: AsyncWrite + Unpin> WriteCoalescing<T> {
    fn poll_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.held))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.held.advance(written);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WriteCoalescing<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WriteCoalescing<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !this.gathers {
            return Pin::new(&mut this.inner).poll_write(context, bytes);
        }
        if bytes.len() <= SMALL {
            if this.held.len() + bytes.len() > SMALL {
                ready!(this.poll_held(context))?;
            }
            this.held.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        loop {
            let held = this.held.len();
            if held == 0 {
                return Pin::new(&mut this.inner).poll_write(context, bytes);
            }
            let parts = [IoSlice::new(&this.held), IoSlice::new(bytes)];
            let written = ready!(Pin::new(&mut this.inner).poll_write_vectored(context, &parts))?;
            if written == 0 {
                return Poll::Ready(Ok(0));
            }
            this.held.advance(written.min(held));
            if written > held {
                return Poll::Ready(Ok(written - held));
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.gathers {
            let first = parts.iter().find(|part| !part.is_empty()).map_or(&[][..], |part| part);
            return self.poll_write(context, first);
        }
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        !self.gathers && self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_held(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_held(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    /// Takes some bytes at a time, and notes what came in one write.
    struct Writes {
        most: usize,
        seen: Vec<Vec<u8>>,
    }

    impl AsyncWrite for Writes {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let taken = bytes.len().min(self.most);
            self.seen.push(bytes[..taken].to_vec());
            Poll::Ready(Ok(taken))
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let whole: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            self.poll_write(context, &whole)
        }

        fn is_write_vectored(&self) -> bool {
            true
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    async fn written(most: usize, sizes: &[usize]) -> (Vec<usize>, Vec<u8>, Vec<u8>) {
        let mut io = WriteCoalescing::new(Writes { most, seen: Vec::new() }, true);
        let mut sent = Vec::new();
        for (number, size) in sizes.iter().enumerate() {
            let part = vec![u8::try_from(number).expect("few parts"); *size];
            io.write_all(&part).await.expect("a write");
            sent.extend(part);
        }
        io.flush().await.expect("a flush");
        let writes = io.inner.seen;
        (writes.iter().map(Vec::len).collect(), sent, writes.concat())
    }

    #[tokio::test]
    async fn a_head_goes_with_its_body_and_nothing_is_lost_or_mixed_up() {
        let cases: &[(usize, &[usize], &[usize])] = &[
            (usize::MAX, &[9, 16_384, 9, 5000], &[16_393, 5009]),
            (usize::MAX, &[9, 40], &[49]),
            (usize::MAX, &[200, 100, 9], &[200, 109]),
            (usize::MAX, &[5000], &[5000]),
            (usize::MAX, &[], &[]),
            (5, &[9, 300], &[]),
            (9, &[9, 300, 9, 300], &[]),
            (100, &[9, 256, 257, 1, 1000], &[]),
        ];
        for (most, sizes, expected) in cases {
            let (writes, sent, received) = written(*most, sizes).await;
            assert_eq!(received, sent, "{most} {sizes:?}");
            if *most == usize::MAX {
                assert_eq!(writes, *expected, "{sizes:?}");
            }
        }
    }

    #[tokio::test]
    async fn who_does_not_gather_is_left_alone() {
        let mut io = WriteCoalescing::new(Writes { most: usize::MAX, seen: Vec::new() }, false);
        assert!(io.is_write_vectored());
        io.write_all(b"head").await.expect("a write");
        assert_eq!(io.inner.seen, [b"head"]);
    }
}
