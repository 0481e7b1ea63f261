//! A socket whose connection can be cut from elsewhere, and that tells when its client does not read.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::Connection;

/// A client that is gone is found out after this, also where nothing is sent.
const KEEP_ALIVE: Duration = Duration::from_secs(60);

/// Belongs to its connection for as long as it is open, also when it carries something else than HTTP.
pub struct Socket<T> {
    inner: T,
    connection: Arc<Connection>,
}

impl<T> Socket<T> {
    pub fn new(inner: T, connection: Arc<Connection>) -> Self {
        Self { inner, connection }
    }

    pub fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn check(&self) -> io::Result<()> {
        if self.connection.is_cut() { Err(io::ErrorKind::ConnectionAborted.into()) } else { Ok(()) }
    }

    fn written<R>(&self, context: &Context<'_>, outcome: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        let stalled = &self.connection.stalled_since;
        if outcome.is_ready() {
            if stalled.load(Ordering::Relaxed) != 0 {
                stalled.store(0, Ordering::Relaxed);
            }
            return outcome;
        }
        if stalled.load(Ordering::Relaxed) == 0 {
            stalled.store(self.connection.table.now(), Ordering::Relaxed);
        }
        self.connection.writer.register(context.waker());
        // It may have been cut before the waker was there.
        match self.check() {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl Socket<tokio::net::TcpStream> {
    /// Small answers go out at once, and those who vanish without a word are found out.
    pub fn prepare(&self) -> io::Result<()> {
        use rustix::net::sockopt;
        self.inner.set_nodelay(true)?;
        sockopt::set_socket_keepalive(&self.inner, true)?;
        sockopt::set_tcp_keepidle(&self.inner, KEEP_ALIVE)?;
        sockopt::set_tcp_keepintvl(&self.inner, KEEP_ALIVE / 4)?;
        Ok(())
    }
}

impl<T> Drop for Socket<T> {
    fn drop(&mut self) {
        self.connection.table.leave(&self.connection);
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Socket<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check()?;
        let outcome = Pin::new(&mut self.inner).poll_read(context, buffer);
        if outcome.is_pending() {
            self.connection.reader.register(context.waker());
            self.check()?;
        }
        outcome
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Socket<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.check()?;
        let outcome = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.written(context, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        let outcome = Pin::new(&mut self.inner).poll_write_vectored(context, parts);
        self.written(context, outcome)
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
