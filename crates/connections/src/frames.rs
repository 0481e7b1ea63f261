//! HTTP/2 frames that ask for nothing, and how many of them the other end may send.
//!
//! A PING or SETTINGS frame has to be answered, a WINDOW_UPDATE or PRIORITY frame has to be looked at, and the protocol
//! bounds none of them. A peer that only sends such frames costs processor time and never a request that could be
//! refused. Here they have to be paid for: by requests, by the data that a peer is sent and has to acknowledge, and
//! slowly by time. A peer that has nothing left is cut off.

mod budget;
mod parser;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::connection::Connection;
use crate::table::Reason;
use budget::Budget;
use parser::{Frame, Kind, Parser};

/// Which end of the connection this process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Server,
    Client,
}

/// A connection whose other end has to pay for frames. What is not HTTP/2 passes as it is.
pub struct Frames<T> {
    inner: T,
    side: Side,
    incoming: Parser,
    outgoing: Parser,
    budget: Budget,
    begin: Instant,
    /// Whose end is counted.
    connection: Option<Arc<Connection>>,
}

impl<T> Frames<T> {
    /// Of a client of this server, which may speak either protocol.
    pub(crate) fn of_client(inner: T, connection: Arc<Connection>) -> Self {
        Self::new(inner, Side::Server, Some(connection))
    }

    /// Of a server that this process has chosen HTTP/2 with.
    pub fn of_server(inner: T) -> Self {
        Self::new(inner, Side::Client, None)
    }

    fn new(inner: T, side: Side, connection: Option<Arc<Connection>>) -> Self {
        let (incoming, outgoing) = match side {
            Side::Server => (Parser::with_preface(), Parser::without_preface()),
            Side::Client => (Parser::without_preface(), Parser::with_preface()),
        };
        Self { inner, side, incoming, outgoing, budget: Budget::default(), begin: Instant::now(), connection }
    }

    fn received(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Self { side, incoming, budget, begin, .. } = self;
        let (mut is_paid, mut data) = (true, 0);
        incoming.feed(bytes, |frame| {
            let (earned, cost) = received(*side, frame);
            data += if frame.kind == Kind::Data { frame.length } else { 0 };
            budget.earn(earned);
            is_paid = is_paid && (cost == 0 || budget.spend(|| begin.elapsed()));
        });
        if let Some(connection) = self.connection.as_ref().filter(|_| data > 0) {
            connection.arrived(usize::try_from(data).unwrap_or(usize::MAX));
        }
        if is_paid {
            return Ok(());
        }
        tracing::debug!("too many frames that ask for nothing");
        if let Some(connection) = &self.connection {
            connection.table.cut_all(vec![(connection.clone(), Reason::Frames)]);
        }
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, "too many HTTP/2 frames that ask for nothing"))
    }

    fn sent(&mut self, bytes: &[u8]) {
        let budget = &mut self.budget;
        self.outgoing.feed(bytes, |frame| budget.earn(sent(frame)));
    }

    /// Whether the frames of this side are worth looking at. A server knows the protocol by what the client began with.
    fn speaks_http2(&self) -> bool {
        self.side == Side::Client || self.incoming.is_http2()
    }
}

/// What a frame of the other end earns it, and what it costs.
fn received(side: Side, frame: Frame) -> (u32, u32) {
    match frame.kind {
        // A request may be followed by its end, by windows and by priorities. An answer of a server is not asked for by itself:
        // there may be any number of informational ones before it.
        Kind::Headers => match side {
            Side::Server => (budget::REQUEST, 0),
            Side::Client => (0, 1),
        },
        Kind::Data if frame.is_empty_or_padded() => (frame.length / budget::BYTES_RECEIVED, 1),
        Kind::Data => (frame.length / budget::BYTES_RECEIVED, 0),
        Kind::Other => (0, 1),
    }
}

/// What a frame that was sent earns the other end, which has to acknowledge it.
fn sent(frame: Frame) -> u32 {
    match frame.kind {
        Kind::Headers => budget::REQUEST,
        Kind::Data => budget::DATA_SENT + frame.length / budget::BYTES_SENT,
        Kind::Other => 0,
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Frames<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        Poll::Ready(self.received(&buffer.filled()[before..]))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Frames<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
        if self.speaks_http2() {
            self.sent(&bytes[..written.min(bytes.len())]);
        }
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, parts))?;
        if self.speaks_http2() {
            let mut left = written;
            for part in parts {
                let taken = left.min(part.len());
                self.sent(&part[..taken]);
                left -= taken;
            }
        }
        Poll::Ready(Ok(written))
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
