//! The one loop that accepts, and the one way from a socket to a handler.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use ferry_tasks::Tasks;
use futures::future::BoxFuture;
use http::{Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::body::Delivered;
use crate::connection::Connection;
use crate::frames::Frames;
use crate::limits::{MOST_ERRORS, MOST_HEAD, MOST_RESETS, MOST_STREAMS, SEND_BUFFER};
use crate::received::Received;
use crate::rest::{Lent, Rest};
use crate::socket::Socket;
use crate::table::Connections;
use crate::woken::WhenWoken;
use crate::write_coalescing::WriteCoalescing;
use crate::{Body, BoxError, Peer, sweep};

/// Answers a request. Boxed: HTTP is compiled once here, not once for each server.
pub type Handler = Arc<dyn Fn(Request<Received>, Peer) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocols {
    /// Whatever the TLS configuration offers.
    Http1AndHttp2,
    /// Where streams are upgrades, which HTTP/2 does not have.
    Http1,
}

struct Server {
    acceptor: TlsAcceptor,
    builder: auto::Builder<TokioExecutor>,
    handler: Handler,
    connections: Connections,
    tasks: Tasks,
}

/// Accepts until `tasks` stops; then requests under way are finished, for a while.
pub async fn serve(
    listener: Arc<TcpListener>,
    tls: Arc<rustls::ServerConfig>,
    protocols: Protocols,
    connections: Connections,
    tasks: Tasks,
    handler: Handler,
) {
    let tls = match protocols {
        Protocols::Http1AndHttp2 => tls,
        Protocols::Http1 => {
            let mut offered = (*tls).clone();
            offered.alpn_protocols = vec![b"http/1.1".to_vec()];
            Arc::new(offered)
        }
    };
    let builder = builder(protocols);
    let server =
        Arc::new(Server { acceptor: TlsAcceptor::from(tls), builder, handler, connections, tasks: tasks.clone() });
    tokio::select! {
        () = tasks.stopping().cancelled_owned() => {}
        () = server.accept(&listener) => {}
        () = sweep::run(server.connections.clone()) => {}
    }
}

/// Heads that come slowly are not timed here: the sweep sees a connection without a request.
pub fn builder(protocols: Protocols) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().header_read_timeout(None).max_buf_size(MOST_HEAD).half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(u32::try_from(MOST_HEAD).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(MOST_RESETS)
        .max_local_error_reset_streams(MOST_ERRORS)
        .max_send_buf_size(SEND_BUFFER)
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    match protocols {
        Protocols::Http1AndHttp2 => builder,
        Protocols::Http1 => builder.http1_only(),
    }
}

impl Server {
    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        loop {
            match listener.accept().await {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    if is_short_of_room(&error) {
                        self.connections.make_room();
                    }
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }

    fn admit(self: &Arc<Self>, stream: TcpStream, address: SocketAddr) {
        let connection = self.connections.admit(address.ip(), self.tasks.stopping().child_token());
        let socket = Socket::new(stream, connection.clone());
        let server = self.clone();
        self.tasks.spawn("connection", async move {
            if let Err(error) = server.run(socket, connection, address).await {
                tracing::debug!(%address, "connection ended: {error}");
            }
        });
    }

    async fn run(
        &self,
        socket: Socket<TcpStream>,
        connection: Arc<Connection>,
        address: SocketAddr,
    ) -> Result<(), BoxError> {
        socket.prepare()?;
        let limits = self.connections.limits();
        let tls = tokio::select! {
            accepted = tokio::time::timeout(limits.handshake, self.acceptor.accept(socket)) => accepted??,
            // Nothing is under way that would have to be finished.
            () = connection.draining.cancelled() => return Ok(()),
        };
        let session = tls.get_ref().1;
        let speaks_http2 = session.alpn_protocol() == Some(b"h2");
        let certificates = session.peer_certificates().unwrap_or_default();
        let peer = Peer {
            certificates: certificates.iter().map(|c| c.clone().into_owned()).collect(),
            address: Some(address),
            connection: Some(connection.clone()),
        };
        let handler = self.handler.clone();
        let io = WriteCoalescing::new(tls, speaks_http2);
        speak(&self.builder, io, &connection, self.tasks.stopping(), limits.farewell, move |request| {
            handler(request, peer.clone())
        })
        .await
    }
}

/// HTTP on a connection, until its end: requests are counted, and those under way are finished when it is to end.
pub async fn speak<I, A>(
    builder: &auto::Builder<TokioExecutor>,
    io: I,
    connection: &Arc<Connection>,
    stopping: CancellationToken,
    farewell: Duration,
    answer: A,
) -> Result<(), BoxError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A: Fn(Request<Received>) -> BoxFuture<'static, Response<Body>>,
{
    let (begun, rest, answer) = (connection.clone(), Rest::new(), Arc::new(answer));
    let resting = rest.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        resting.begins(request.version() <= Version::HTTP_11 && request.body().is_end_stream());
        let answer = begun.begin(request.headers()).map(|in_flight| {
            let request = request.map(|body| Received::new(body, begun.clone()));
            (answer(request), in_flight)
        });
        async move {
            let Some((answer, mut in_flight)) = answer else { return Ok(too_large()) };
            let response = answer.await;
            in_flight.answered(response.status() == StatusCode::SWITCHING_PROTOCOLS);
            Ok::<_, Infallible>(response.map(|body| Delivered { body, _in_flight: Some(in_flight) }))
        }
    });
    let (mut io, mut first) = (io, None);
    let mut http = loop {
        let lent = Frames::of_client(Lent::new(io, first, rest.clone()), connection.clone());
        // Not a part of the task: it is gone while the connection rests.
        let mut http = Box::pin(builder.serve_connection_with_upgrades(TokioIo::new(lent), service.clone()));
        loop {
            let asked = WhenWoken::new(asked(connection));
            let asked = tokio::select! {
                biased;
                ended = http.as_mut() => return ended,
                asked = asked => asked,
            };
            if let Asked::Drain = asked {
                http.as_mut().graceful_shutdown();
                break;
            }
            // Between these lines nobody else moves the connection.
            if connection.is_quiet() && rest.is_read() {
                rest.set_resting(true);
                http.as_mut().graceful_shutdown();
                match futures::poll!(http.as_mut()) {
                    Poll::Ready(ended) => ended?,
                    // It is not as idle as it seems: it ends as soon as it is.
                    Poll::Pending => rest.set_resting(false),
                }
                break;
            }
        }
        if !rest.is_resting() {
            break http;
        }
        drop(http);
        rest.set_resting(false);
        let Some(mut socket) = rest.take() else { return Ok(()) };
        connection.resting.store(true, Ordering::Relaxed);
        let mut byte = [0];
        let read = tokio::select! {
            read = socket.read(&mut byte) => read?,
            () = connection.draining.cancelled() => 0,
        };
        if read == 0 {
            return Ok(socket.shutdown().await?);
        }
        (io, first) = (socket, Some(byte[0]));
    };
    // A connection that is only idle may take its time; the sweep cuts it off. At the server's end nobody waits.
    tokio::select! {
        ended = http.as_mut() => return ended,
        () = stopping.cancelled() => {}
    }
    tokio::time::timeout(farewell, http).await?
}

/// What a connection may be asked for.
enum Asked {
    Drain,
    Rest,
}

async fn asked(connection: &Connection) -> Asked {
    tokio::select! {
        () = connection.draining.cancelled() => Asked::Drain,
        () = connection.rest.notified() => Asked::Rest,
    }
}

/// Whether somebody has to go for the next to come in. Most errors are of the one connection that was to be accepted: a
/// client that goes away in time must not cost others theirs.
pub fn is_short_of_room(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}

fn too_large() -> Response<Delivered> {
    let body = Empty::new().map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(Delivered { body, _in_flight: None });
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}
