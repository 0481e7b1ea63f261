//! TLS and HTTP: connections in, requests to the pipeline, a graceful end.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::answer::BoxError;
use crate::context::Peer;
use crate::gathering::Gathering;
use crate::handshakes::{Handshake, Handshakes};
use crate::pipeline;
use crate::server::Core;

/// A client that does not finish its handshake or its headers in this time is cut off.
const HANDSHAKE: Duration = Duration::from_secs(10);
const HEADERS: Duration = Duration::from_secs(30);
/// More connections than this wait in the kernel's queue: each costs memory.
const CONNECTIONS: usize = 8192;
const MAX_HEADER_BYTES: usize = 1 << 20;

/// Accepts until the server is told to stop; then open requests are finished and watches end.
pub(crate) async fn serve(core: Arc<Core>, listener: TcpListener, tls: Arc<rustls::ServerConfig>) {
    let acceptor = TlsAcceptor::from(tls);
    let permits = Arc::new(Semaphore::new(CONNECTIONS));
    let handshakes = Handshakes::default();
    let stopping = core.tasks.stopping();
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let accepted = tokio::select! {
            () = stopping.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: wait for some to be closed.
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (server, acceptor, handshake) = (core.clone(), acceptor.clone(), handshakes.begin());
        core.tasks.spawn("connection", async move {
            let _permit = permit;
            if let Err(error) = connection(server, acceptor, handshake, stream, address).await {
                tracing::debug!(%address, "connection ended: {error}");
            }
        });
    }
}

async fn connection(
    core: Arc<Core>,
    acceptor: TlsAcceptor,
    mut handshake: Handshake,
    stream: TcpStream,
    address: std::net::SocketAddr,
) -> Result<(), BoxError> {
    stream.set_nodelay(true)?;
    let tls = tokio::select! {
        accepted = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)) => accepted??,
        _ = &mut handshake.cut_off => return Err("too many handshakes are under way".into()),
    };
    drop(handshake);
    let session = tls.get_ref().1;
    let speaks_http2 = session.alpn_protocol() == Some(b"h2");
    let certificates = session.peer_certificates().unwrap_or_default();
    let peer =
        Peer { certificates: certificates.iter().map(|c| c.clone().into_owned()).collect(), address: Some(address) };
    let stopping = core.tasks.stopping();
    let service = service_fn(move |request: Request<Incoming>| {
        let (core, peer) = (core.clone(), peer.clone());
        // What a request needs on its way is large, and is moved about until it runs.
        Box::pin(async move {
            let request = request.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync());
            Ok::<_, std::convert::Infallible>(pipeline::handle(&core, request, peer).await)
        })
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADERS)
        .max_buf_size(MAX_HEADER_BYTES)
        .half_close(false);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(1000)
        .max_header_list_size(u32::try_from(MAX_HEADER_BYTES).unwrap_or(u32::MAX))
        .keep_alive_interval(Some(Duration::from_secs(30)))
        .keep_alive_timeout(Duration::from_secs(20));
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(Gathering::new(tls, speaks_http2)), service);
    tokio::pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => ended?,
        () = stopping.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await?;
        }
    }
    Ok(())
}

/// The whole body, up to a limit. None: it is larger. What comes after the limit is read for a while, so that the client
/// gets to see the answer.
pub(crate) async fn read_body(mut body: crate::answer::Body, limit: usize) -> Result<Option<Bytes>, BoxError> {
    const DRAINED: usize = 1 << 20;
    // Most bodies come in one piece, which need not be copied.
    let (mut first, mut whole) = (Bytes::new(), Vec::new());
    let mut size = 0;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else { continue };
        size += data.len();
        if size > limit {
            (first, whole) = (Bytes::new(), Vec::new());
            if size > limit + DRAINED {
                break;
            }
        } else if size == data.len() {
            first = data;
        } else {
            if whole.is_empty() {
                whole.extend_from_slice(&first);
            }
            whole.extend_from_slice(&data);
        }
    }
    let body = if whole.is_empty() { first } else { whole.into() };
    Ok((size <= limit).then_some(body))
}
