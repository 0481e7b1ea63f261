//! The first message of a TLS connection, read without answering it: the name in it decides who does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

/// No hello is longer.
const MOST: usize = 64 << 10;

/// A stream whose beginning was read already.
pub struct Rewound<S> {
    beginning: Bytes,
    inner: S,
}

impl<S> Rewound<S> {
    pub fn new(beginning: Bytes, inner: S) -> Self {
        Self { beginning, inner }
    }
}

/// The name that the client asks for, in lower case, and the stream from its beginning.
pub async fn read<S: AsyncRead + Unpin>(mut stream: S) -> io::Result<(Option<String>, Rewound<S>)> {
    let mut acceptor = rustls::server::Acceptor::default();
    let mut bytes = BytesMut::with_capacity(2 << 10);
    loop {
        let before = bytes.len();
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut new = bytes.get(before..).unwrap_or_default();
        while !new.is_empty() {
            if acceptor.read_tls(&mut new)? == 0 {
                break;
            }
        }
        match acceptor.accept() {
            Ok(Some(accepted)) => {
                let name = accepted.client_hello().server_name().map(str::to_ascii_lowercase);
                return Ok((name, Rewound::new(bytes.freeze(), stream)));
            }
            Ok(None) if bytes.len() < MOST => {}
            Ok(None) => return Err(io::Error::other("the hello is too long")),
            Err((error, _)) => return Err(io::Error::other(error)),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.beginning.is_empty() {
            return Pin::new(&mut self.inner).poll_read(context, buffer);
        }
        let length = self.beginning.len().min(buffer.remaining());
        buffer.put_slice(self.beginning.get(..length).unwrap_or_default());
        self.beginning.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
