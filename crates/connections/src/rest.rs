//! An HTTP/1.1 connection on which nothing happens gives back everything but its socket. The HTTP implementation keeps a buffer
//! for each direction as long as it lives, so it is ended without a word to the client, and another one begins with the
//! next byte.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The end of the head of a request.
const END: u32 = u32::from_be_bytes(*b"\r\n\r\n");

/// What is known of a connection beyond the life of one implementation of HTTP.
pub(crate) struct Rest<T> {
    /// The socket, once nobody speaks HTTP on it.
    home: Mutex<Option<T>>,
    /// The last four bytes that were read.
    tail: AtomicU32,
    /// The last request was of HTTP/1 and had no body.
    is_plain: AtomicBool,
    /// The end of HTTP is not the end of the socket.
    resting: AtomicBool,
}

impl<T> Rest<T> {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            home: Mutex::new(None),
            tail: AtomicU32::new(0),
            is_plain: AtomicBool::new(false),
            resting: AtomicBool::new(false),
        })
    }

    pub(crate) fn begins(&self, is_plain: bool) {
        self.is_plain.store(is_plain, Ordering::Relaxed);
    }

    /// Whether everything that was read has been answered, if no request is under way: behind a request without a body,
    /// bytes that end like a head are a request as well, and would be under way.
    pub(crate) fn is_read(&self) -> bool {
        self.is_plain.load(Ordering::Relaxed) && self.tail.load(Ordering::Relaxed) == END
    }

    pub(crate) fn set_resting(&self, resting: bool) {
        self.resting.store(resting, Ordering::Relaxed);
    }

    pub(crate) fn is_resting(&self) -> bool {
        self.resting.load(Ordering::Relaxed)
    }

    pub(crate) fn take(&self) -> Option<T> {
        self.home.lock().take()
    }
}

/// A socket that is lent to an implementation of HTTP.
pub(crate) struct Lent<T: Unpin> {
    inner: Option<T>,
    /// What was read to find out that there is something to read.
    first: Option<u8>,
    rest: Arc<Rest<T>>,
}

impl<T: Unpin> Lent<T> {
    pub(crate) fn new(inner: T, first: Option<u8>, rest: Arc<Rest<T>>) -> Self {
        Self { inner: Some(inner), first, rest }
    }

    fn inner(&mut self) -> io::Result<Pin<&mut T>> {
        self.inner.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl<T: Unpin> Drop for Lent<T> {
    fn drop(&mut self) {
        if self.rest.resting.load(Ordering::Relaxed) {
            *self.rest.home.lock() = self.inner.take();
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Lent<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() > 0
            && let Some(first) = self.first.take()
        {
            buffer.put_slice(&[first]);
            self.rest.tail.store(u32::from(first), Ordering::Relaxed);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let polled = self.inner()?.poll_read(context, buffer);
        let new = buffer.filled().get(before..).unwrap_or_default();
        if !new.is_empty() {
            let last = new.get(new.len().saturating_sub(4)..).unwrap_or_default();
            let tail = self.rest.tail.load(Ordering::Relaxed);
            let tail = last.iter().fold(tail, |tail, byte| tail << 8 | u32::from(*byte));
            self.rest.tail.store(tail, Ordering::Relaxed);
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Lent<T> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.inner()?.poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.inner()?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.rest.resting.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        self.inner()?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use http::{Request, Response};
    use http_body_util::{BodyExt, Full};
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::connection::Connection;
    use crate::{Body, Connections, Limits, Protocols, Received, Socket, builder, speak, sweep};

    /// Answers with the path.
    fn answer(request: Request<Received>) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let _ = request.into_body().collect().await;
            Response::new(Full::new(Bytes::from(path)).map_err(|never| match never {}).boxed_unsync())
        })
    }

    async fn read_until(client: &mut DuplexStream, wanted: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(wanted) {
            let mut buffer = [0; 1024];
            let length = client.read(&mut buffer).await.expect("an answer");
            assert!(length > 0, "it ended after {text:?}");
            text.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
        text
    }

    async fn use_it(client: &mut DuplexStream, table: &Connections, connection: &Arc<Connection>, case: &Case) {
        for _ in 0..2 {
            client.write_all(case.first.as_bytes()).await.expect("a write");
            read_until(client, "/a").await;
            while !connection.is_quiet() {
                tokio::task::yield_now().await;
            }
            sweep::rest(table, Duration::ZERO);
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(connection.resting.load(Ordering::Relaxed), case.rests, "{}", case.what);
            for byte in case.second.as_bytes() {
                client.write_all(&[*byte]).await.expect("a write");
                tokio::task::yield_now().await;
            }
            let text = read_until(client, "/b").await;
            assert!(text.starts_with("HTTP/1.1 200"), "{}: {text}", case.what);
            assert!(!connection.resting.load(Ordering::Relaxed), "{}", case.what);
        }
    }

    struct Case {
        what: &'static str,
        first: &'static str,
        second: &'static str,
        rests: bool,
    }

    #[tokio::test]
    async fn nothing_is_lost_while_a_connection_rests() {
        const SECOND: &str = "PUT /b HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\nhi";
        let case = |what, first, second, rests| Case { what, first, second, rests };
        for case in [
            case("a request", "GET /a HTTP/1.1\r\nhost: x\r\n\r\n", SECOND, true),
            case("one of HTTP/1.0", "GET /a HTTP/1.0\r\nhost: x\r\nconnection: keep-alive\r\n\r\n", SECOND, true),
            case("a body", "PUT /a HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n\r\n\r\n", SECOND, false),
            case("chunks", "PUT /a HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", SECOND, false),
            case(
                "a part of the next",
                "GET /a HTTP/1.1\r\nhost: x\r\n\r\nGET /",
                "b HTTP/1.1\r\nhost: x\r\n\r\n",
                false,
            ),
            case("two at once", "GET /x HTTP/1.1\r\nhost: x\r\n\r\nGET /a HTTP/1.1\r\nhost: x\r\n\r\n", SECOND, true),
        ] {
            let table = Connections::new(Limits::new(8, 1_000_000));
            let connection = table.admit([10, 0, 0, 1].into(), CancellationToken::new());
            let (mut client, server) = tokio::io::duplex(4096);
            let socket = Socket::new(server, connection.clone());
            let (builder, stopping) = (builder(Protocols::Http1AndHttp2), CancellationToken::new());
            let served = speak(&builder, socket, &connection, stopping, Duration::from_secs(1), answer);
            let used = use_it(&mut client, &table, &connection, &case);
            tokio::select! {
                ended = served => panic!("{}: it ended: {ended:?}", case.what),
                () = used => {}
            }
        }
    }

    /// Who rests is asked to end, or goes away, like everybody else.
    #[tokio::test]
    async fn a_connection_that_rests_ends() {
        for client_goes in [true, false] {
            let table = Connections::new(Limits::new(8, 1_000_000));
            let connection = table.admit([10, 0, 0, 1].into(), CancellationToken::new());
            let (mut client, server) = tokio::io::duplex(4096);
            let socket = Socket::new(server, connection.clone());
            let (builder, stopping) = (builder(Protocols::Http1AndHttp2), CancellationToken::new());
            let served = speak(&builder, socket, &connection, stopping, Duration::from_secs(1), answer);
            let used = async {
                client.write_all(b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("a write");
                read_until(&mut client, "/a").await;
                while !connection.resting.load(Ordering::Relaxed) {
                    sweep::rest(&table, Duration::ZERO);
                    tokio::task::yield_now().await;
                }
                if client_goes {
                    drop(client);
                } else {
                    connection.draining.cancel();
                }
            };
            let (ended, ()) = tokio::join!(served, used);
            assert!(ended.is_ok(), "{ended:?}");
            assert!(table.is_empty(), "its place is free");
        }
    }
}
