//! The listener: connections in, requests to the pipeline.

use std::sync::Arc;

use ferry_connections::{BoxError, Connections, Handler, Limits, Protocols};
use http_body_util::BodyExt;
use tokio::net::TcpListener;

use crate::pipeline;
use crate::server::Core;

/// Each costs memory and a file descriptor; an eighth of them is for clients that have not shown who they are.
const CONNECTIONS: usize = 8192;
/// What is held for clients, at least; where memory is plenty, a sixty-fourth of it.
const HELD_BYTES: usize = 256 << 20;

/// What clients may take of this server.
pub(crate) fn connections(core: &Core) -> Connections {
    let connections = Connections::new(Limits::new(CONNECTIONS, held_bytes()));
    let figures = connections.clone();
    core.metrics.add(move || figures.metrics("apiserver"));
    connections
}

/// Accepts until the server is told to stop; then open requests are finished and watches end.
pub(crate) async fn serve(
    core: Arc<Core>,
    listener: Arc<TcpListener>,
    tls: Arc<rustls::ServerConfig>,
    connections: Connections,
) {
    let tasks = core.tasks.clone();
    let handler: Handler = Arc::new(move |request, peer| {
        let core = core.clone();
        Box::pin(async move {
            let request = request.map(|body| body.map_err(|e| -> BoxError { e.into() }).boxed_unsync());
            pipeline::handle(&core, request, peer).await
        })
    });
    ferry_connections::serve(listener, tls, Protocols::Http1AndHttp2, connections, tasks, handler).await;
}

fn held_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse().ok());
    total.map_or(HELD_BYTES, |kilobytes: usize| (kilobytes * 1024 / 64).max(HELD_BYTES))
}
